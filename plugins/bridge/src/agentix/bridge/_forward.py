"""Clients that pass requests on to a service on the host as they came."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import aiohttp

from . import _secrets
from ._calls import Call, this_call
from ._errors import AbridgeError, service_status
from ._http import Body, Pool, decoded, new_session, request_headers, response_headers, target_url
from ._json import json_bytes
from ._routes import raw_handler
from ._types import ClientResponse, Handler, Request

_WHOLE = 8 * 1024 * 1024  # a JSON reply up to this size is handed on in one piece
_PART = 256 * 1024
_FAILURES = (aiohttp.ClientError, OSError, TimeoutError, ValueError)


class Forward:
    """Sends requests for `paths` to `url` + path as they came: method, query, headers, body.

    Not passed on are the headers of the agent's connection, `Host`, and its keys, which are placeholders; `headers` are
    added (the real key, for one). Each request has a fresh `x-request-id`, and `x-session-id` if `session_id` is given.
    Status, content type and body come back unchanged, streams as they come; nothing is tried twice.

    `timeout` is the wait in seconds for the reply's head, and then for each piece of it. A service that gives no HTTP
    answer is an `AbridgeError` 503. Raises ValueError for no paths, or one that does not start with `/`.
    """

    def __init__(
        self,
        url: str,
        *,
        paths: list[str],
        session_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 540,
    ) -> None:
        if not paths:
            raise ValueError("no paths: say which requests are forwarded, e.g. paths=['/v1/messages']")
        for path in paths:
            if not path.startswith("/"):
                raise ValueError(f"a path to forward starts with '/': {path!r} does not")
        self._url, self._credentials = _without_credentials(url)
        self._paths = list(dict.fromkeys(paths))
        self._session_id = session_id
        self._headers = {**self._credentials, **{name.lower(): value for name, value in (headers or {}).items()}}
        self._timeout = timeout
        self._secrets = _secrets.longest_first([*_secrets.of_headers(self._headers), *_secrets.of_url(url)])
        self._pool = Pool()

    def abridge_routes(self) -> dict[str, Handler]:
        """Return the handlers by path."""
        return {path: self._handler_of(path) for path in self._paths}

    def handler(self) -> Handler:
        """Return the only path's handler, to be given to what takes one; it has an `aclose` too.

        Raises ValueError if there is more than one path.
        """
        if len(self._paths) != 1:
            raise ValueError(f"which of {', '.join(self._paths)}? handler() is for a Forward with one path")
        return self._handler_of(self._paths[0])

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones. May be called again."""
        await self._pool.aclose()

    def _handler_of(self, path: str) -> Handler:
        async def forward(request: Request) -> ClientResponse:
            return await self._forward(path, request)

        forward.aclose = self.aclose  # type: ignore[attr-defined]
        forward._abridge_secrets = self._abridge_secrets  # type: ignore[attr-defined]
        return raw_handler(forward)

    def _abridge_secrets(self) -> tuple[str, ...]:
        return self._secrets

    async def _target(self, call: Call) -> tuple[str, str | None]:
        """Return the address below which paths are, and the session's id."""
        return self._url, self._session_id

    async def _forward(self, path: str, request: Request) -> ClientResponse:
        call = this_call()
        base, session_id = await self._target(call)
        ours = {"x-request-id": call.request_id}
        if session_id is not None:
            ours["x-session-id"] = session_id
        body, kind = _body_of(request)
        url = target_url(base, path, request.query)
        headers = request_headers(request.headers, (kind, self._headers, ours))
        response = await self._head(request.method, url, headers=headers, data=body)
        try:
            return await self._reply(request, response)
        except BaseException:
            response.close()
            raise

    async def _head(self, method: str, url: Any, **how: Any) -> aiohttp.ClientResponse:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._pool.session().request(method, url, allow_redirects=False, **how)
        except TimeoutError:
            raise AbridgeError(f"no answer from the service within {self._timeout:g} s", status_code=503) from None
        except _FAILURES as failure:
            raise AbridgeError(f"no answer from the service: {self._said(failure)}", status_code=503) from None

    async def _reply(self, request: Request, response: aiohttp.ClientResponse) -> ClientResponse:
        status = service_status(response.status)
        headers = response_headers(response.headers, self._secrets)
        media_type = response.headers.get("Content-Type") or "application/octet-stream"
        stream = Body(response, self._timeout, self._cut)
        body: bytes | AsyncIterator[bytes] = stream
        if _comes_whole(response, media_type) or request.method == "HEAD":
            read = await stream.whole(_WHOLE)
            body = stream if read is None else read
        if status >= 400 and self._secrets and isinstance(body, bytes):
            body = self._hidden(body, headers)
        return ClientResponse(body, media_type, status, headers)

    def _cut(self, failure: Exception) -> Exception:
        if isinstance(failure, TimeoutError):
            return AbridgeError(f"the service sent nothing for {self._timeout:g} s", status_code=504)
        return AbridgeError(f"the service's reply ended early: {self._said(failure)}")

    def _hidden(self, body: bytes, headers: dict[str, str]) -> bytes:
        """Mask our secrets in an error: services repeat keys that they do not know."""
        plain = decoded(body, headers.get("content-encoding"), _WHOLE)
        if plain is None:
            return body
        hidden = _secrets.hide_bytes(plain, self._secrets)
        if hidden == plain:
            return body
        headers.pop("content-encoding", None)
        return hidden

    def _said(self, failure: BaseException) -> str:
        text = str(failure) or type(failure).__name__
        return _secrets.hide_patterns(_secrets.hide(text, self._secrets))


class SessionForward(Forward):
    """A `Forward` to a gateway that keeps sessions.

    `POST <url>/sessions` makes one, once, at the first request or by `open()`; requests go to
    `<url>/sessions/<id><path>` with that id as `x-session-id`. The session outlives `aclose`.
    """

    def __init__(
        self,
        url: str,
        *,
        paths: list[str],
        session_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 540,
    ) -> None:
        super().__init__(url, paths=paths, session_id=session_id, headers=headers, timeout=timeout)
        self._opening: asyncio.Task[str] | None = None

    @property
    def session_id(self) -> str:
        """The session's id. Assigning one attaches to that session, without making any.

        Raises RuntimeError before there is one.
        """
        if self._session_id is None:
            raise RuntimeError("no session yet: await open(), or assign the id of one that exists")
        return self._session_id

    @session_id.setter
    def session_id(self, session_id: str) -> None:
        self._session_id = session_id

    async def open(self) -> str:
        """Make the session unless there is one, and return its id.

        Raises AbridgeError 502 if the gateway's answer is not 2xx or has no `session_id`, 503 if there is none.
        """
        if self._session_id is not None:
            return self._session_id
        if self._opening is None:  # one for all requests that wait for it, and none of them can cancel it
            self._opening = asyncio.ensure_future(self._create())
            self._opening.add_done_callback(self._opened)
        session_id = await asyncio.shield(self._opening)
        if self._session_id is None:
            self._session_id = session_id
        return self._session_id

    async def delete_session(self) -> None:
        """End the session: `DELETE <url>/sessions/<id>`. Without one, nothing happens.

        Raises AbridgeError 502 for an answer that is neither 2xx nor 404, 503 for none; the id is forgotten anyway.
        """
        session_id, self._session_id = self._session_id, None
        if session_id is None:
            return
        session = new_session() if self._pool.closed else None  # for this request only: a closed pool stays closed
        try:
            status, _ = await self._exchange(session, "DELETE", "/sessions/" + quote(session_id, safe=""))
        finally:
            if session is not None:
                await session.close()
        if not 200 <= status < 300 and status != 404:
            raise AbridgeError(f"the gateway did not end session {session_id}: status {status}")

    async def _target(self, call: Call) -> tuple[str, str | None]:
        session_id = call.gateway_session_id = await self.open()
        base, _, query = self._url.partition("?")
        base = f"{base.rstrip('/')}/sessions/{quote(session_id, safe='')}"
        return (f"{base}?{query}" if query else base), session_id

    async def _create(self) -> str:
        status, body = await self._exchange(None, "POST", "/sessions", json={})
        if not 200 <= status < 300:
            raise AbridgeError(f"the gateway made no session: status {status}: {self._hidden(body, {})[:500]!r}")
        try:
            made = json.loads(body)
        except (ValueError, RecursionError):
            made = None
        session_id = cast("dict[str, Any]", made).get("session_id") if isinstance(made, dict) else None
        if not isinstance(session_id, str) or not session_id:
            raise AbridgeError("the gateway's answer to POST /sessions has no session_id")
        return session_id

    def _opened(self, task: asyncio.Task[str]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # whoever waits has it; nobody may

    async def _exchange(
        self, session: aiohttp.ClientSession | None, method: str, path: str, **how: Any
    ) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(self._timeout):
                session = session or self._pool.session()
                headers = {**self._headers, "accept-encoding": "identity"}
                url = target_url(self._url, path, "")
                async with session.request(method, url, headers=headers, allow_redirects=False, **how) as response:
                    body = await Body(response, self._timeout, self._cut).whole(_WHOLE)
                    return response.status, body or b""
        except TimeoutError:
            raise AbridgeError(f"no answer from the gateway within {self._timeout:g} s", status_code=503) from None
        except _FAILURES as failure:
            raise AbridgeError(f"no answer from the gateway: {self._said(failure)}", status_code=503) from None


def _without_credentials(url: str) -> tuple[str, dict[str, str]]:
    """Take user and password out of a URL and return them as the header they stand for (RFC 7617)."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"not the address of an HTTP service: {_secrets.hide_patterns(url)!r}")
    if "@" not in parts.netloc:
        return url, {}
    user, _, place = parts.netloc.rpartition("@")
    token = base64.b64encode(unquote(user if ":" in user else user + ":").encode()).decode()
    return urlunsplit(parts._replace(netloc=place)), {"authorization": f"Basic {token}"}


def _body_of(request: Request) -> tuple[bytes | AsyncIterator[bytes] | None, dict[str, str]]:
    """Return what is sent for a request, and the headers that this needs.

    One that was made by hand has a `body` only, which is sent as JSON.
    """
    if not isinstance(request.raw, bytes):
        length = request.headers.get("content-length", "")
        return request.raw, {"content-length": length} if length.isdecimal() else {}
    if request.raw:
        return _in_parts(request.raw, {})
    if request.body or (not request.headers and request.method == "POST"):
        return _in_parts(json_bytes(request.body), _json_type(request))
    return None, {}


def _in_parts(body: bytes, headers: dict[str, str]) -> tuple[bytes | AsyncIterator[bytes], dict[str, str]]:
    """A long body is handed over in parts, so that others get their turn in between."""
    if len(body) <= _PART:
        return body, headers
    return _parts(body), {**headers, "content-length": str(len(body))}


async def _parts(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), _PART):
        yield body[start : start + _PART]


def _json_type(request: Request) -> dict[str, str]:
    return {} if "content-type" in request.headers else {"content-type": "application/json"}


def _comes_whole(response: aiohttp.ClientResponse, media_type: str) -> bool:
    kind = media_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return response.status >= 400 and response.content_length is not None
    if response.content_length is not None:
        return response.content_length <= _WHOLE
    return kind == "application/json" or kind.endswith("+json")
