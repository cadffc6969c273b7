"""What the clients on the vendors' SDKs have in common.

An SDK is used for what it knows: address, keys, headers, connections and errors. The agent's request goes through it as
`extra_body`, so that fields that this release of the SDK does not know arrive all the same, and nothing is added.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast
from urllib.parse import parse_qs

from .. import _secrets
from .._calls import this_call
from .._errors import AbridgeError, service_status, told_headers
from .._types import ClientResponse, Request
from ._spans import CallSpan

_PASSED = ("anthropic-", "openai-beta")


class SdkClient(ABC):
    """Keeps one client of an SDK, made anew after a close."""

    vendor: str

    def __init__(
        self,
        base_url: str | None,
        api_key: str | None,
        model: str | None,
        timeout: float,
        max_retries: int,
        session_id: str | None,
    ) -> None:
        self._base_url = base_url
        self._api_key = api_key
        self._model = model
        self._timeout = timeout
        self._max_retries = max_retries
        self._session_id = session_id
        self._held: Any = self._make()

    @abstractmethod
    def _make(self) -> Any:
        """Return a new client of the SDK."""

    @property
    def _sdk(self) -> Any:
        if self._held is None:
            self._held = self._make()
        return self._held

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones. May be called again."""
        held, self._held = self._held, None
        if held is not None:
            await held.close()

    def _options(self) -> dict[str, Any]:
        return {
            "base_url": self._base_url,
            "api_key": self._api_key,
            "timeout": self._timeout,
            "max_retries": self._max_retries,
        }

    def _abridge_secrets(self) -> tuple[str, ...]:
        held = self._held
        keys = [self._api_key, getattr(held, "api_key", None), getattr(held, "auth_token", None)]
        url = str(getattr(held, "base_url", "") or "")
        return _secrets.longest_first([*(key for key in keys if isinstance(key, str)), *_secrets.of_url(url)])

    async def _call(
        self, create: Any, required: tuple[str, ...], request: Request, body: dict[str, Any], span: CallSpan
    ) -> ClientResponse:
        """Send `body` by one of the SDK's `with_streaming_response` methods and return the reply as it came."""
        absent = _not_given(create)
        try:
            manager = create(
                **dict.fromkeys(required, absent),
                extra_body=body,
                extra_headers=self._headers(request, body),
                extra_query=_query(request.query),
                timeout=self._timeout,
            )
            response = await manager.__aenter__()
        except Exception as failure:
            raised = self._failure(failure)
            span.end(raised)
            raise raised from None
        except BaseException as failure:
            span.end(failure)
            raise
        return await self._reply(response, span)

    async def _reply(self, response: Any, span: CallSpan) -> ClientResponse:
        media_type = str(response.headers.get("content-type") or "application/json")
        headers = told_headers(cast("Mapping[str, str]", response.headers))
        stream = _Body(response, self)
        try:
            status = service_status(response.status_code)
            if media_type.partition(";")[0].strip().lower() == "text/event-stream":
                return ClientResponse(span.watch(stream), media_type, status, headers)
            body = b"".join([piece async for piece in stream])
        except BaseException as failure:
            await stream.aclose()
            span.end(failure)
            raise
        span.replied(body)
        return ClientResponse(body, media_type, status, headers)

    def _headers(self, request: Request, body: dict[str, Any]) -> dict[str, str]:
        headers = {name: value for name, value in request.headers.items() if name.startswith(_PASSED)}
        headers["x-request-id"] = this_call().request_id
        if self._session_id is not None:
            headers["x-session-id"] = self._session_id
        if body.get("stream") is True:
            headers["accept"] = "text/event-stream"
        return headers

    def _failure(self, failure: Exception) -> Exception:
        """Return an SDK's error as ours: the service's status and what it said, without our keys."""
        if isinstance(failure, AbridgeError):
            return failure
        status = getattr(failure, "status_code", None)
        name = type(failure).__name__
        if isinstance(status, int):
            try:
                service_status(status)
            except AbridgeError as odd:
                return odd
            said = _said(getattr(failure, "body", None))
            raised = AbridgeError(self._hidden(str(said.pop("message", None) or failure)), status_code=status)
            raised.detail = {key: _secrets.hide_in(value, self._abridge_secrets()) for key, value in said.items()}
            raised.headers = told_headers(cast("Any", failure).response.headers)
            return raised
        timed_out = "Timeout" in name
        if timed_out or name == "APIConnectionError" or _is_transport(failure):
            cause = failure.__cause__ or failure
            text = (
                "no answer from the model service in time"
                if timed_out
                else f"no answer from the model service: {cause}"
            )
            return AbridgeError(self._hidden(text), status_code=504 if timed_out else 503)
        return AbridgeError(self._hidden(f"{name}: {failure}"))

    def _hidden(self, text: str) -> str:
        return _secrets.hide_patterns(_secrets.hide(text, self._abridge_secrets()))


class _Body:
    """The body of an SDK's reply, without its content coding."""

    def __init__(self, response: Any, client: SdkClient) -> None:
        self._response = response
        self._client = client
        self._pieces: AsyncIterator[bytes] = response.iter_bytes()

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._pieces)
        except StopAsyncIteration:
            await self._response.close()
            raise
        except Exception as failure:
            await self._response.close()
            raised = self._client._failure(failure)  # pyright: ignore[reportPrivateUsage]
            raise raised from None

    async def aclose(self) -> None:
        """Leave the rest unread."""
        close = getattr(self._pieces, "aclose", None)
        if close is not None:
            await close()
        await self._response.close()


def _not_given(create: Any) -> Any:
    """The SDK's mark for a parameter that is not sent."""
    package = str(create.__module__).partition(".")[0]
    return importlib.import_module(package).NOT_GIVEN


def _query(query: str) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for name, values in parse_qs(query, keep_blank_values=True).items():
        found[name] = values[0] if len(values) == 1 else values
    return found or None


def _is_transport(failure: Exception) -> bool:
    """Whether the SDK's HTTP library, whose name depends on the release, could not get an answer."""
    if type(failure).__name__ == "DecodingError":
        return False
    return type(failure).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2", "anyio")


def _said(body: Any) -> dict[str, Any]:
    """Return the error object in a failed reply."""
    if isinstance(body, dict):
        known = cast("dict[str, Any]", body)
        inner = known.get("error")
        if isinstance(inner, dict):
            known = cast("dict[str, Any]", inner)
        elif isinstance(inner, str):
            known = {"message": inner}
        return {key: value for key, value in known.items() if key in ("message", "type", "code", "param")}
    return {}
