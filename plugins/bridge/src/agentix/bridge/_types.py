"""What passes between the tunnel and clients."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

_STATUS_LEAST, _STATUS_MOST = 200, 599


def check_status(status: Any) -> None:
    """Raise TypeError or ValueError for what is no status of a final reply (RFC 9110, 15)."""
    if isinstance(status, bool) or not isinstance(status, int):
        raise TypeError(f"status_code is {status!r}, a {type(status).__name__}; give an int, 200 or 429 for instance")
    if not is_status(status):
        raise ValueError(f"status_code is {int(status)}; it has to be from {_STATUS_LEAST} to {_STATUS_MOST}")


def is_status(status: int) -> bool:
    """Whether a reply may have this status."""
    return _STATUS_LEAST <= status <= _STATUS_MOST


@dataclass(frozen=True)
class Request:
    """One request of the agent.

    `body` is the JSON object that was sent (`{}` for an empty body); `query` is the text after `?`, undecoded; the
    names in `headers` are in lower case, and the values of a header that came more than once are joined by `, ` in
    order (RFC 9110, 5.3). `raw` is the body as it came, for handlers that take any (`Forward`): bytes, or pieces as
    they come.
    """

    path: str
    body: dict[str, Any]
    method: str = "POST"
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    raw: bytes | AsyncIterator[bytes] = b""


@dataclass
class ClientResponse:
    """What the agent gets: status, bytes and content type unchanged; a body that is an iterator is sent as it comes.

    Raises TypeError for a `status_code` that is no int, ValueError for one that is not from 200 to 599.
    """

    body: bytes | AsyncIterator[bytes]
    media_type: str = "application/json"
    status_code: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        check_status(self.status_code)

    @classmethod
    def json(cls, obj: Any, *, status_code: int = 200) -> ClientResponse:
        """Return `obj` as JSON. Raises TypeError or ValueError for what JSON in UTF-8 has no form for."""
        text = json.dumps(obj, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        try:
            body = text.encode()
        except UnicodeEncodeError as exc:
            raise ValueError(
                f"a text of the reply holds a lone surrogate, {text[exc.start]!r}, for which UTF-8 has no form: "
                "replace it, e.g. by text.encode('utf-8', 'replace').decode()"
            ) from None
        return cls(body, "application/json", status_code)

    @classmethod
    def sse(cls, body: bytes | AsyncIterator[bytes], *, status_code: int = 200) -> ClientResponse:
        """Return a stream of server-sent events, which `body` holds in their text form."""
        return cls(body, "text/event-stream", status_code)


Handler = Callable[[Request], Awaitable[ClientResponse]]


@runtime_checkable
class Client(Protocol):
    """Any object with methods marked by `@on(path)`.

    It may have `environ(handle) -> dict[str, str]`, the variables that point an agent to the tunnel, and
    `async aclose()`, which is called once when the tunnel ends.
    """


@runtime_checkable
class DynamicRoutes(Protocol):
    """A client whose paths are known only when it is made."""

    def abridge_routes(self) -> Mapping[str, Handler]:
        """Return the handlers by path, in order. Called once per proxy, when that is made."""
        ...


@dataclass
class TunnelHandle:
    """An open tunnel: its address in the sandbox."""

    url: str
    port: int


@dataclass
class Budget:
    """What one proxy may spend: requests, tokens (input and output as the model service counts them), seconds since its
    start. None is no bound. What comes after that is answered with 429.

    Raises ValueError for a bound below 0.
    """

    requests: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("requests", "tokens", "seconds"):
            bound = getattr(self, name)
            if bound is not None and not bound >= 0:
                raise ValueError(f"{name} of a budget is {bound}; it has to be 0 or more, or None for no bound")
