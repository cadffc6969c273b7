"""The controller that `cape_tool.py` talks to: requests that wait, run in a cell as long as they may, and end.

    python cape_service.py DIRECTORY

The token is `cape-` and 40 digits. A node's port is on this machine's loopback interface.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from aiohttp import web
from rentals import Landlord, Rental, bad, fields, serve

TOKEN = "cape-" + "7" * 40
QUEUED = 0.1
RUN = {"pool", "user", "task_id", "image", "isolation_policy", "session_key", "gpus", "max_duration_seconds"}
RUN |= {"cpu_cores", "memory_gb", "runtime_adapter", "bind", "env", "command"}


class Controller:
    """All there is of the pool."""

    def __init__(self, directory: Path) -> None:
        self.landlord = Landlord(directory)
        self.requests: dict[str, dict[str, Any]] = {}
        self.sessions: set[str] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    @web.middleware
    async def keyed(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path != "/_test" and request.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise bad("unauthorized", web.HTTPUnauthorized)
        return await handler(request)

    def find(self, request: web.Request) -> dict[str, Any]:
        found = self.requests.get(request.match_info["id"])
        if found is None:
            raise bad("no such request", web.HTTPNotFound)
        return found

    async def submit(self, request: web.Request) -> web.Response:
        body = await request.json()
        fields(body, RUN, set())
        if body["pool"] != "gpus" or body["session_key"] != f"agentix-{body['task_id']}":
            raise bad("no such pool, or not its session")
        if body["session_key"] in self.sessions:
            raise bad("a second command for a session", web.HTTPConflict)
        self.sessions.add(body["session_key"])
        name = f"req-{len(self.requests) + 100000}"
        entry = {"id": name, "state": "queued", "asked": body, "logs": "", "reason": None}
        self.requests[name] = entry
        task = asyncio.ensure_future(self.live(entry))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return web.json_response({"request_id": name})

    async def status(self, request: web.Request) -> web.Response:
        found = self.find(request)
        return web.json_response({"request_id": found["id"], "state": found["state"], "node": "n1", "retries": 0})

    async def logs(self, request: web.Request) -> web.Response:
        return web.json_response({"logs": self.find(request)["logs"]})

    async def cancel(self, request: web.Request) -> web.Response:
        found = self.find(request)
        body = await request.json()
        fields(body, {"reason"}, set())
        found["reason"] = body["reason"]
        if found["state"] in ("queued", "running"):
            found["state"] = "cancelled"
            if found.get("rental"):
                await self.landlord.end(found["rental"])
        return web.json_response({"request_id": found["id"]})

    async def live(self, entry: dict[str, Any]) -> None:
        await asyncio.sleep(QUEUED)
        if entry["state"] != "queued":
            return
        asked = entry["asked"]
        env = dict(pair.split("=", 1) for pair in asked["env"])
        binds = {there: Path(here) for here, there, *_ in (bind.split(":") for bind in asked["bind"])}
        seconds = asked["max_duration_seconds"]
        rental = await self.landlord.rent(seconds, binds=binds, request=entry["id"])
        entry["rental"] = rental
        if entry["state"] != "queued":  # cancelled meanwhile
            await self.landlord.end(rental)
            return
        entry["state"] = "running"
        port = int(env["AGENTIX_BIND_PORT"])
        server = await asyncio.start_server(lambda r, w: self.pump(rental, port, r, w), "127.0.0.1", port)
        try:
            await self.work(entry, rental, env)
        finally:
            server.close()
            await self.landlord.end(rental)

    async def work(self, entry: dict[str, Any], rental: Rental, env: dict[str, str]) -> None:
        process = await rental.cell.run(entry["asked"]["command"], env)
        assert process.stdout is not None
        assert process.stderr is not None

        async def read(stream: asyncio.StreamReader) -> None:
            while chunk := await stream.read(1 << 16):
                entry["logs"] += chunk.decode(errors="replace")

        await asyncio.gather(read(process.stdout), read(process.stderr))
        code = await process.wait()
        if entry["state"] == "running":
            over = rental.ends < time.monotonic()
            entry["state"] = "expired" if over else "failed" if code else "succeeded"

    async def pump(self, rental: Rental, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection to the node's port is one to the cell's."""
        with contextlib.suppress(OSError):
            sock = rental.cell.socket()
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
            there = await asyncio.open_connection(sock=sock)

            async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
                with contextlib.suppress(OSError):
                    while chunk := await source.read(1 << 16):
                        target.write(chunk)
                        await target.drain()
                target.close()

            await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))
        writer.close()

    async def test(self, request: web.Request) -> web.Response:
        answer = await self.landlord.test(request)
        if request.method == "GET":
            import json

            known = json.loads(answer.text or "{}")
            kept = ("id", "state", "asked", "reason")
            known["requests"] = [{key: entry[key] for key in kept} for entry in self.requests.values()]
            return web.json_response(known)
        return answer


async def main() -> None:
    controller = Controller(Path(sys.argv[1]))
    landlord = controller.landlord
    api = web.Application(middlewares=[landlord.middleware, controller.keyed])
    api.add_routes(
        [
            web.post("/requests", controller.submit),
            web.get("/requests/{id}", controller.status),
            web.get("/requests/{id}/logs", controller.logs),
            web.post("/requests/{id}/cancel", controller.cancel),
            web.route("*", "/_test", controller.test),
        ]
    )
    await serve(landlord, api=api)


if __name__ == "__main__":
    os.environ.pop("CAPE_TOKEN", None)
    asyncio.run(main())
