"""A runtime server of stock parts: `python-socketio` on `aiohttp`, by the documents alone, in the plainest way.

    stock_server.py --port PORT [--transports polling,websocket] [--post ok|404|500|reset|none] [--largest BYTES]

Prints "ready PORT". `GET /journal` tells what has happened; `POST /cut` breaks all links off. Imports nothing of the
project.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgpack
import socketio
import stock_runner
from aiohttp import web

LARGEST = 64 << 20


@dataclass
class Call:
    session: str
    task: asyncio.Task[None] | None = None
    outcome: dict[str, Any] | None = None  # {"value"} or {"error"}
    acked: bool = False
    post: asyncio.Event | None = None  # of a POST that waits; set: it is to answer
    taken: bool = False  # the link asked for it: the POST is to answer 202


@dataclass
class Server:
    post: str
    instance: str = field(default_factory=lambda: secrets.token_hex(8))
    calls: dict[str, Call] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)  # by session
    sessions: dict[str, str] = field(default_factory=dict)  # by sid
    events: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    transports: Counter[str] = field(default_factory=Counter)
    posts: int = 0

    # ---- the table of calls ----

    def begin(self, call_id: str, session: str, name: str, arguments: bytes) -> Call:
        call = self.calls[call_id] = Call(session)
        self.runs[call_id] += 1
        call.task = asyncio.create_task(self.run(call_id, call, name, arguments))
        return call

    async def run(self, call_id: str, call: Call, name: str, arguments: bytes) -> None:
        try:
            call.outcome = {"value": await stock_runner.run(name, arguments)}
        except BaseException as exc:
            call.outcome = {"error": stock_runner.error_of(exc)}
        if call.post is not None and not call.taken:
            call.post.set()
        else:
            await self.tell(call_id, call)

    async def tell(self, call_id: str, call: Call) -> None:
        sid = self.links.get(call.session)
        if sid is None or call.outcome is None:
            return
        event = "call:result" if "value" in call.outcome else "call:error"
        await self.emit(event, {"call_id": call_id, **call.outcome}, sid)

    async def unavailable(self, call_id: str, reason: str, sid: str) -> None:
        error = {
            "type": "ResultUnavailable",
            "message": reason,
            "traceback": None,
            "cancelled": False,
            "returncode": None,
            "reason": reason,
        }
        await self.emit("call:error", {"call_id": call_id, "error": error}, sid)

    async def emit(self, event: str, data: dict[str, Any], sid: str) -> None:
        await sio.emit(event, msgpack.packb(data), to=sid, namespace="/rpc")

    async def resume(self, call_id: str, session: str, sid: str) -> None:
        call = self.calls.get(call_id)
        if call is None:
            await self.unavailable(call_id, "never_seen", sid)
        elif call.session != session or call.acked:
            await self.unavailable(call_id, "dropped", sid)
        elif call.outcome is not None:
            await self.tell(call_id, call)
        elif call.post is not None:
            call.taken = True
            call.post.set()

    # ---- HTTP ----

    async def health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "version": "stock", "instance": self.instance})

    async def on_post(self, request: web.Request) -> web.Response:
        self.posts += 1
        if self.post == "reset":
            assert request.transport is not None
            request.transport.abort()
        if self.post.isdigit():
            return web.Response(status=int(self.post), text="not today")
        prefer = re.search(r"wait=([0-9.]+)", request.headers["prefer"])
        assert prefer
        assert request.content_type == "application/msgpack"
        body = msgpack.unpackb(await request.read())
        session = request.headers["agentix-session"]
        for call_id in body.get("acks", []):
            self.ack(call_id, session)
        call_id = body["call_id"]
        call = self.calls.get(call_id)
        if call is None:
            call = self.begin(call_id, session, body["callable"], body["arguments"])
            call.post = asyncio.Event()
            try:
                await asyncio.wait_for(call.post.wait(), float(prefer[1]))
            except TimeoutError:
                pass
            call.post = None
        return self.reply(call_id, call, prefer[1])

    def reply(self, call_id: str, call: Call, wait: str) -> web.Response:
        fields = {"Preference-Applied": f"wait={wait}"}
        if call.outcome is None or call.taken:
            fields["Location"] = f"/call/{call_id}"
            return self.packed(202, {"call_id": call_id}, fields)
        return self.packed(200, {"ok": "value" in call.outcome, **call.outcome}, fields)

    def packed(self, status: int, body: dict[str, Any], fields: dict[str, str]) -> web.Response:
        return web.Response(status=status, body=msgpack.packb(body), content_type="application/msgpack", headers=fields)

    def ack(self, call_id: str, session: str) -> None:
        call = self.calls.get(call_id)
        if call is not None and call.session == session and call.outcome is not None:
            call.acked = True

    async def journal(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "instance": self.instance,
                "events": dict(self.events),
                "runs": dict(self.runs),
                "acked": sorted(call_id for call_id, call in self.calls.items() if call.acked),
                "transports": dict(self.transports),
                "posts": self.posts,
                "links": len(self.links),
            }
        )

    async def cut(self, _: web.Request) -> web.Response:
        n = len(self.sessions)
        for sid in list(self.sessions):
            await sio.disconnect(sid, namespace="/rpc")
        return web.json_response({"cut": n})


def listen(server: Server) -> None:
    """What happens on /rpc."""

    @sio.on("connect", namespace="/rpc")
    async def connect(sid: str, environ: dict[str, Any], auth: dict[str, Any]) -> None:
        server.sessions[sid] = auth["session"]
        server.links[auth["session"]] = sid
        server.transports[sio.transport(sid, namespace="/rpc")] += 1

    @sio.on("disconnect", namespace="/rpc")
    async def disconnect(sid: str, *reason: Any) -> None:
        session = server.sessions.pop(sid, "")
        if server.links.get(session) == sid:
            del server.links[session]

    @sio.on("call", namespace="/rpc")
    async def call(sid: str, data: bytes) -> None:
        note("call", sid)
        body = msgpack.unpackb(data)
        if body["call_id"] in server.calls:
            await server.resume(body["call_id"], server.sessions[sid], sid)
        else:
            server.begin(body["call_id"], server.sessions[sid], body["callable"], body["arguments"])

    @sio.on("resume", namespace="/rpc")
    async def resume(sid: str, data: bytes) -> None:
        note("resume", sid)
        for call_id in msgpack.unpackb(data)["call_ids"]:
            await server.resume(call_id, server.sessions[sid], sid)

    @sio.on("cancel", namespace="/rpc")
    async def cancel(sid: str, data: bytes) -> None:
        note("cancel", sid)
        call = server.calls.get(msgpack.unpackb(data)["call_id"])
        if call is None or call.session != server.sessions[sid]:
            return
        if call.outcome is not None:
            call.acked = True
        elif call.task is not None:
            call.task.cancel()

    @sio.on("ack", namespace="/rpc")
    async def ack(sid: str, data: bytes) -> None:
        note("ack", sid)
        body = msgpack.unpackb(data)
        for call_id in [*body.get("call_ids", []), *([body["call_id"]] if "call_id" in body else [])]:
            server.ack(call_id, server.sessions[sid])

    def note(event: str, sid: str) -> None:
        server.events[event] += 1
        server.transports[f"events by {sio.transport(sid, namespace='/rpc')}"] += 1


async def main() -> None:
    global sio
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--transports", default="polling,websocket")
    parser.add_argument("--post", default="ok")
    parser.add_argument("--largest", type=int, default=LARGEST)
    options = parser.parse_args()
    server = Server(options.post)
    app = web.Application(client_max_size=LARGEST)
    app.router.add_get("/health", server.health)
    if options.post != "none":
        app.router.add_post("/call", server.on_post)
    app.router.add_get("/journal", server.journal)
    app.router.add_post("/cut", server.cut)
    sio = socketio.AsyncServer(
        async_mode="aiohttp",
        transports=options.transports.split(",") if options.transports else None,
        max_http_buffer_size=options.largest,
    )
    listen(server)
    if options.transports:
        sio.attach(app)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", options.port)
    await site.start()
    print("ready", options.port, flush=True)
    await asyncio.Event().wait()


sio: Any = None

if __name__ == "__main__":
    asyncio.run(main())
