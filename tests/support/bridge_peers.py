"""Model services for the bridge's tests: plain aiohttp, none of our code. They take what the real ones take."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Service:
    """An HTTP service on loopback that answers everything with `answer` and remembers what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests: list[dict[str, Any]] = []
        self.left = asyncio.Event()  # a client went away before the end
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self.requests.append(
            {
                "method": request.method,
                "path": request.raw_path,
                "headers": [(name.lower(), value) for name, value in request.headers.items()],
                "raw": raw,
            }
        )
        try:
            return await self._answer(request)
        except (asyncio.CancelledError, ConnectionResetError):
            self.left.set()
            raise

    def header(self, name: str, index: int = -1) -> str | None:
        values = [value for key, value in self.requests[index]["headers"] if key == name]
        assert len(values) <= 1, values
        return values[0] if values else None

    def body(self, index: int = -1) -> Any:
        return json.loads(self.requests[index]["raw"])


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Service]:
    service = Service(answer)
    app = web.Application(client_max_size=256 * 1024 * 1024)
    app.router.add_route("*", "/{tail:.*}", service.handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, auto_decompress=False, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        service.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield service
    finally:
        await runner.cleanup()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def zipped(data: bytes) -> bytes:
    return gzip.compress(data)


async def collected(body: bytes | AsyncIterator[bytes]) -> bytes:
    return body if isinstance(body, bytes) else b"".join([piece async for piece in body])


async def events(request: web.Request, pieces: list[bytes], delay: float = 0.0) -> web.StreamResponse:
    """Answer with server-sent events, a write per piece."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for piece in pieces:
        await response.write(piece)
        if delay:
            await asyncio.sleep(delay)
    await response.write_eof()
    return response
