"""HTTP to model services: one pool of connections, bodies as they came, in both directions."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from ._secrets import KEY_HEADERS

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect"}
)
_NOT_SENT = _HOP_BY_HOP | KEY_HEADERS | {"host", "content-length", "x-session-id", "x-request-id"}
_NOT_RETURNED = _HOP_BY_HOP | {"content-length", "content-type", "set-cookie", "proxy-authenticate"}
_OURS = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")  # not added to what the agent sent
_HEADER_BYTES = 64 * 1024


class Pool:
    """Connections that are opened when needed, and again after a close."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def closed(self) -> bool:
        """Whether no connection can be open now."""
        return self._session is None or self._session.closed

    def session(self) -> aiohttp.ClientSession:
        """Return the session of this event loop."""
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            self._session, self._loop = new_session(), loop
        return self._session

    async def aclose(self) -> None:
        """Close all connections; the next use opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def new_session() -> aiohttp.ClientSession:
    """Return a session that follows no redirects by itself, keeps no cookies, decodes nothing and has no deadlines."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=_OURS,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
        max_line_size=_HEADER_BYTES,
        max_field_size=_HEADER_BYTES,
    )


def request_headers(headers: Mapping[str, str], ours: Iterable[Mapping[str, str]]) -> CIMultiDict[str]:
    """Return what goes to a model service: the agent's headers but for those of its connection and its placeholder
    keys, and then ours, which replace the agent's."""
    named = {name.strip().lower() for name in headers.get("connection", "").split(",")}
    sent = CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in _NOT_SENT and name.lower() not in named
    )
    for mapping in ours:
        for name, value in mapping.items():
            sent[name] = value
    return sent


def response_headers(headers: Mapping[str, str], secrets: Iterable[str]) -> dict[str, str]:
    """Return what goes back to the agent: not what belongs to the connection, and nothing that holds a secret."""
    named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    found: dict[str, str] = {}
    for name, value in headers.items():
        name = name.lower()
        if name in _NOT_RETURNED or name in named or any(secret in value for secret in secrets):
            continue
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def target_url(base: str, path: str, query: str) -> URL:
    """Return where a request goes: `path` below `base`, with the query of both, nothing encoded anew."""
    base, _, own_query = base.partition("?")
    query = "&".join(part for part in (own_query, query) if part)
    return URL(base.rstrip("/") + path + ("?" + query if query else ""), encoded=True)


class Body:
    """A reply's body, piece by piece as it comes; `aclose` leaves it and its connection.

    `timeout` bounds the wait for each piece. `failed` makes the exception that is raised out of what went wrong.
    """

    def __init__(
        self, response: aiohttp.ClientResponse, timeout: float, failed: Callable[[Exception], Exception]
    ) -> None:
        self._response = response
        self._timeout = timeout
        self._failed = failed
        self._ahead: list[bytes] = []

    def __aiter__(self) -> Body:
        return self

    async def __anext__(self) -> bytes:
        if self._ahead:
            return self._ahead.pop(0)
        try:
            async with asyncio.timeout(self._timeout):
                piece = await self._response.content.readany()
        except (aiohttp.ClientError, OSError, ValueError) as failure:
            self._response.close()
            raise self._failed(failure) from None
        if not piece:
            raise StopAsyncIteration
        return piece

    async def whole(self, most: int) -> bytes | None:
        """Return all of it, or None if it is longer than `most`: it is then as if nothing had been read."""
        read: list[bytes] = []
        size = 0
        async for piece in self:
            read.append(piece)
            size += len(piece)
            if size > most:
                self._ahead = read
                return None
        return b"".join(read)

    async def aclose(self) -> None:
        """Leave the rest unread."""
        self._ahead.clear()
        self._response.close()


def decoded(body: bytes, encoding: str | None, most: int) -> bytes | None:
    """Return a body without its content coding, or None if it has one that is not known, is broken, or is too long."""
    codings = [name.strip().lower() for name in (encoding or "").split(",")]
    for coding in reversed([name for name in codings if name not in ("", "identity")]):
        if coding not in ("gzip", "x-gzip", "deflate"):
            return None
        try:
            unpacked = _inflate(body, most, 47 if coding != "deflate" or body[:1] == b"\x78" else -15)
        except zlib.error:
            return None
        if unpacked is None:
            return None
        body = unpacked
    return body


def _inflate(body: bytes, most: int, window: int) -> bytes | None:
    found = bytearray()
    while body:  # a gzip body may have several members
        inflater: Any = zlib.decompressobj(window)
        found += inflater.decompress(body, most - len(found) + 1)
        if len(found) > most or not inflater.eof:
            return None
        body = inflater.unused_data
    return bytes(found)
