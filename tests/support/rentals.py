"""What the emulated services share: renting out cells for a time, the proxy to their ports, faults on demand.

Each service is a program: it prints its addresses as a line of JSON and ends, with all its cells, when its standard
input does. `GET /_test` says what there is; `POST /_test` orders faults. It imports nothing of what it is used to test.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import WSMsgType, web
from cells import Cell

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "proxy-authorization"}
BROKEN = {"boom": "echo boom; exit 3", "asleep": "exec sleep 1000"}
"""Images whose runtime does not come up."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Rental:
    """A cell that somebody pays for, until its time is over."""

    def __init__(self, cell: Cell, seconds: float, **facts: Any) -> None:
        self.id = secrets.token_hex(10)
        self.cell = cell
        self.facts = facts
        self.ends = time.monotonic() + seconds
        self.renewed = 0
        connector = aiohttp.TCPConnector(socket_factory=lambda _: cell.socket(), force_close=True)
        self.session = aiohttp.ClientSession(connector=connector, auto_decompress=False, read_bufsize=1 << 18)

    async def end(self) -> None:
        await self.session.close()
        await asyncio.to_thread(self.cell.kill)


class Landlord:
    """Has the cells, ends those whose time is over, and plays the faults that a test ordered."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.rentals: dict[str, Rental] = {}
        self.ended: list[str] = []
        self.log: list[str] = []
        self.faults: list[dict[str, Any]] = []
        self.images = {name: self._image(name, script) for name, script in BROKEN.items()}
        self._watching: asyncio.Task[None] | None = None

    def _image(self, name: str, script: str) -> Path:
        image = self.directory / f"image-{name}"
        bootstrap = image / "nix/runtime/bootstrap.sh"
        bootstrap.parent.mkdir(parents=True)
        bootstrap.write_text(f"#!/bin/sh\n{script}\n")
        bootstrap.chmod(0o755)
        return image

    async def rent(
        self, seconds: float, image: Path | None = None, binds: dict[str, Path] | None = None, **facts: Any
    ) -> Rental:
        cell = Cell(self.directory / secrets.token_hex(6))
        await asyncio.to_thread(cell.start, image, binds)
        rental = Rental(cell, seconds, **facts)
        self.rentals[rental.id] = rental
        return rental

    async def end(self, rental: Rental) -> None:
        if self.rentals.pop(rental.id, None) is not None:
            self.ended.append(rental.id)
            await rental.end()

    def start(self) -> None:
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            for rental in list(self.rentals.values()):
                if rental.ends < time.monotonic() or not rental.cell.alive():
                    await self.end(rental)

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        for rental in list(self.rentals.values()):
            await self.end(rental)

    # ---- faults ----

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Note the request, and do to it what a test ordered."""
        line = f"{request.method} {request.path}"
        if request.path == "/_test":
            return await handler(request)
        self.log.append(line)
        fault = next((f for f in self.faults if f["times"] > 0 and line.startswith(f["on"])), None)
        if fault is None:
            return await handler(request)
        fault["times"] -= 1
        if fault["do"] == "refuse":
            said = {"code": fault["status"], "message": fault.get("message", "ordered")}
            return web.json_response(said, status=fault["status"])
        if fault["do"] == "delay":
            await asyncio.sleep(fault["seconds"])
            return await handler(request)
        if fault["do"] == "cut":  # a stream that ends before its end
            request["cut"] = True
            return await handler(request)
        if fault["do"] == "change":
            answer = await handler(request)
            assert isinstance(answer, web.Response)
            return web.json_response(json.loads(answer.text or "{}") | fault["body"], status=answer.status)
        assert fault["do"] == "lose"  # it is done, but nobody hears of it
        await handler(request)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def test(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            self.faults = await request.json()
        rentals = [{"id": r.id, "renewed": r.renewed, "pid": r.cell.pid, **r.facts} for r in self.rentals.values()]
        found = {"rentals": rentals, "ended": self.ended, "images": sorted(self.images), "log": self.log}
        return web.json_response(found)


def fields(body: Any, required: set[str], optional: set[str]) -> None:
    """Refuse what the service does not know, or lacks."""
    if not isinstance(body, dict):
        raise bad("the body is no object")
    if unknown := set(body) - required - optional:
        raise bad(f"unknown fields: {sorted(unknown)}")
    if missing := required - set(body):
        raise bad(f"missing fields: {sorted(missing)}")


def bad(message: str, kind: type[web.HTTPError] = web.HTTPBadRequest) -> web.HTTPError:
    code = kind.status_code
    return kind(text=json.dumps({"code": code, "message": message}), content_type="application/json")


# ---- the way to a port ----


async def forward(request: web.Request, rental: Rental, port: int, prefix: str = "") -> web.StreamResponse:
    """Hand a request, whatever it is, on to a port of a cell; `prefix` is what the path began with for the proxy."""
    url = f"http://127.0.0.1:{port}{request.raw_path.removeprefix(prefix)}"
    headers = [(k, v) for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP and k.lower() != "host"]
    headers.append(("Host", request.host))
    try:
        if request.headers.get("upgrade", "").lower() == "websocket":
            return await _websocket(request, rental, url, headers)
        return await _http(request, rental, url, headers)
    except aiohttp.ClientConnectorError as error:
        message = {"sandboxId": rental.id, "message": "The sandbox is running but port is not open", "port": port}
        raise web.HTTPBadGateway(text=json.dumps(message), content_type="application/json") from error


async def _http(request: web.Request, rental: Rental, url: str, headers: list[tuple[str, str]]) -> web.StreamResponse:
    body = request.content if request.body_exists else None
    async with rental.session.request(
        request.method, url, headers=headers, data=body, allow_redirects=False, timeout=aiohttp.ClientTimeout(None)
    ) as answer:
        response = web.StreamResponse(status=answer.status, reason=answer.reason)
        for name, value in answer.headers.items():
            if name.lower() not in HOP_BY_HOP:
                response.headers.add(name, value)
        await response.prepare(request)
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
        return response


async def _websocket(
    request: web.Request, rental: Rental, url: str, headers: list[tuple[str, str]]
) -> web.StreamResponse:
    kept = [(k, v) for k, v in headers if not k.lower().startswith("sec-websocket-")]
    protocols = [p.strip() for p in request.headers.get("sec-websocket-protocol", "").split(",") if p.strip()]
    async with rental.session.ws_connect(url, headers=kept, protocols=protocols, max_msg_size=0) as there:
        here = web.WebSocketResponse(
            protocols=[there.protocol] if there.protocol else [], max_msg_size=0, compress=False
        )
        await here.prepare(request)

        async def pump(source: Any, target: Any) -> None:
            async for message in source:
                if message.type is WSMsgType.TEXT:
                    await target.send_str(message.data)
                elif message.type is WSMsgType.BINARY:
                    await target.send_bytes(message.data)

        pumps = [asyncio.ensure_future(pump(here, there)), asyncio.ensure_future(pump(there, here))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in pumps:
                task.cancel()
            await asyncio.wait(pumps)
        await here.close()
        return here


# ---- the program ----


async def serve(
    landlord: Landlord, started: Callable[[dict[str, str]], object] = lambda _: None, **apps: web.Application
) -> None:
    """Serve each of the applications on a port of its own until standard input ends."""
    urls: dict[str, str] = {}
    runners: list[web.AppRunner] = []
    landlord.start()
    for name, app in apps.items():
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        runners.append(runner)
        urls[name] = f"http://127.0.0.1:{runner.addresses[0][1]}"
    started(urls)
    print(json.dumps(urls), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for runner in runners:
        await runner.cleanup()
    await landlord.stop()
