"""The E2B service as its SDK sees it: the API, the gateway to sandboxes, and envd in each of them.

    python e2b_service.py DIRECTORY

The key is `e2b_` and 40 digits; the template is `base`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import struct
import sys
import time
import urllib.parse
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web
from rentals import Landlord, Rental, bad, fields, forward, serve

KEY = "e2b_" + "7" * 40
ENVD_PORT = 49983
MAX_SECONDS = 86_400


class Service:
    """All there is of the service."""

    def __init__(self, directory: Path) -> None:
        self.landlord = Landlord(directory)
        self.by_key: dict[str, tuple[str, dict[str, Any]]] = {}
        self.names: dict[str, str] = {}
        self.following: set[asyncio.Future[None]] = set()
        self.secrets: dict[str, tuple[str, str | None]] = {}

    # ---- the API ----

    @web.middleware
    async def keyed(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path != "/_test" and request.headers.get("X-API-KEY") != KEY:
            raise bad("Invalid API key", web.HTTPUnauthorized)
        return await handler(request)

    def find(self, request: web.Request) -> Rental:
        rental = self.landlord.rentals.get(request.match_info["id"])
        if rental is None:
            raise bad(f"sandbox {request.match_info['id']} was not found", web.HTTPNotFound)
        return rental

    def opened(self, rental: Rental) -> dict[str, Any]:
        envd, traffic = self.secrets[rental.id]
        return {
            "templateID": rental.facts["template"],
            "sandboxID": rental.id,
            "clientID": "6532622b",
            "envdVersion": "0.6.9",
            "envdAccessToken": envd,
            "trafficAccessToken": traffic,
            "domain": None,
        }

    async def create(self, request: web.Request) -> web.Response:
        body = await request.json()
        fields(body, {"templateID"}, {"timeout", "metadata", "envVars", "network", "autoPause"})
        network = body.get("network") or {}
        fields(network, set(), {"allowPublicTraffic"})
        seconds = self.seconds(body.get("timeout", 15))
        template = self.names.get(body["templateID"], body["templateID"])
        if template != "base" and template not in self.landlord.images:
            raise bad(f"template '{body['templateID']}' not found", web.HTTPNotFound)
        key = request.headers.get("Idempotency-Key")
        if key in self.by_key:
            before, answer = self.by_key[key]
            if before != json.dumps(body):
                raise bad("the key was used for something else", web.HTTPConflict)
            return web.json_response(answer, status=201)
        metadata = body.get("metadata") or {}
        image = self.landlord.images.get(template)
        rental = await self.landlord.rent(seconds, image, template=template, metadata=metadata)
        closed = network.get("allowPublicTraffic") is False
        self.secrets[rental.id] = secrets.token_hex(16), secrets.token_hex(16) if closed else None
        answer = self.opened(rental)
        if key is not None:
            self.by_key[key] = json.dumps(body), answer
        return web.json_response(answer, status=201)

    def seconds(self, value: Any) -> int:
        if type(value) is not int or not 0 < value <= MAX_SECONDS:
            raise bad(f"Timeout cannot be {value}")
        return value

    def detail(self, rental: Rental) -> dict[str, Any]:
        now = datetime.now(UTC)
        ends = now + timedelta(seconds=rental.ends - time.monotonic())
        return {
            "templateID": rental.facts["template"],
            "sandboxID": rental.id,
            "clientID": "6532622b",
            "startedAt": now.isoformat(),
            "endAt": ends.isoformat(),
            "cpuCount": 2,
            "memoryMB": 512,
            "diskSizeMB": 1024,
            "envdVersion": "0.6.9",
            "state": "running",
            "metadata": rental.facts["metadata"],
        }

    async def list(self, request: web.Request) -> web.Response:
        if unknown := set(request.query) - {"metadata", "state", "limit", "nextToken"}:
            raise bad(f"unknown parameters: {unknown}")
        wanted = urllib.parse.parse_qsl(request.query.get("metadata", ""))
        wanted = [(urllib.parse.unquote(k), urllib.parse.unquote(v)) for k, v in wanted]
        found = [
            self.detail(rental)
            for rental in self.landlord.rentals.values()
            if all(rental.facts["metadata"].get(k) == v for k, v in wanted)
        ]
        return web.json_response(found)

    async def get(self, request: web.Request) -> web.Response:
        return web.json_response(self.detail(self.find(request)))

    async def kill(self, request: web.Request) -> web.Response:
        await self.landlord.end(self.find(request))
        return web.Response(status=204)

    async def timeout(self, request: web.Request) -> web.Response:
        rental = self.find(request)
        body = await request.json()
        fields(body, {"timeout"}, set())
        rental.ends = time.monotonic() + self.seconds(body["timeout"])
        rental.renewed += 1
        return web.Response(status=204)

    async def connect(self, request: web.Request) -> web.Response:
        rental = self.find(request)
        body = await request.json()
        fields(body, set(), {"timeout", "memory"})
        rental.ends = max(rental.ends, time.monotonic() + self.seconds(body.get("timeout", 300)))
        return web.json_response(self.opened(rental))

    async def snapshot(self, request: web.Request) -> web.Response:
        rental = self.find(request)
        body = await request.json()
        fields(body, set(), {"name", "memory"})
        made = secrets.token_hex(10)
        image = self.landlord.directory / f"image-{made}"
        from cells import copy

        await asyncio.to_thread(copy, rental.cell.root, image)
        self.landlord.images[made] = image
        if "name" in body:
            self.names[body["name"]] = made
        return web.json_response({"snapshotID": made, "names": self.named(made)}, status=201)

    def named(self, snapshot: str) -> list[str]:
        return [name for name, there in self.names.items() if there == snapshot]

    async def snapshots(self, request: web.Request) -> web.Response:
        if unknown := set(request.query) - {"name", "limit", "nextToken", "sandboxID"}:
            raise bad(f"unknown parameters: {unknown}")
        name = request.query.get("name")
        found = [s for s in self.landlord.images if name is None or name == s or name in self.named(s)]
        return web.json_response([{"snapshotID": s, "names": self.named(s)} for s in found])

    async def delete_template(self, request: web.Request) -> web.Response:
        image = self.landlord.images.pop(request.match_info["id"], None)
        if image is None:
            raise bad("template not found", web.HTTPNotFound)
        return web.Response(status=204)

    # ---- the gateway ----

    async def gateway(self, request: web.Request) -> web.StreamResponse:
        rental = self.landlord.rentals.get(request.headers.get("E2b-Sandbox-Id", ""))
        port = int(request.headers.get("E2b-Sandbox-Port", "0"))
        if rental is None:
            raise web.HTTPBadGateway(text=json.dumps({"message": "The sandbox was not found", "code": 502}))
        envd, traffic = self.secrets[rental.id]
        if port == ENVD_PORT:
            if request.path != "/health" and request.headers.get("X-Access-Token") != envd:
                raise bad("unauthenticated", web.HTTPUnauthorized)
            return await self.envd(request, rental)
        if traffic is not None and request.headers.get("e2b-traffic-access-token") != traffic:
            raise bad("Sandbox is secured with traffic access token", web.HTTPForbidden)
        return await forward(request, rental, port)

    async def envd(self, request: web.Request, rental: Rental) -> web.StreamResponse:
        line = f"{request.method} {request.path}"
        if line == "GET /health":
            return web.Response(status=204)
        if line == "POST /files":
            return await self.upload(request, rental)
        if line == "GET /files":
            path = rental.cell.path(request.query["path"])
            if not path.is_file():
                raise bad(f"path '{request.query['path']}' does not exist", web.HTTPNotFound)
            return web.Response(body=path.read_bytes())
        if line == "POST /process.Process/Start":
            return await self.start(request, rental)
        raise bad(f"no such route: {line}", web.HTTPNotFound)

    async def upload(self, request: web.Request, rental: Rental) -> web.Response:
        if set(request.query) - {"path", "username"}:
            raise bad("unknown parameters")
        if request.query.get("username") != "root":
            raise bad("only root may write there", web.HTTPForbidden)
        path = rental.cell.path(request.query["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        if request.content_type == "multipart/form-data":
            part: Any = await (await request.multipart()).next()
            read = part.read_chunk
        else:
            assert request.content_type == "application/octet-stream"
            read = request.content.read
        with path.open("wb") as file:
            while chunk := await read(1 << 18):
                file.write(chunk)
        info = [{"path": request.query["path"], "name": path.name, "type": "file"}]
        return web.json_response(info)

    async def start(self, request: web.Request, rental: Rental) -> web.StreamResponse:
        if request.content_type != "application/connect+json" or request.headers.get("connect-protocol-version") != "1":
            raise bad("not the Connect protocol", web.HTTPUnsupportedMediaType)
        raw = await request.read()
        flags, length = struct.unpack(">BI", raw[:5])
        if flags or len(raw) != 5 + length:
            raise bad("not one message")
        body = json.loads(raw[5:])
        fields(body, {"process"}, {"stdin"})
        fields(body["process"], {"cmd"}, {"args", "envs", "cwd"})
        user = base64.b64decode(request.headers.get("Authorization", "").removeprefix("Basic ")).decode().rstrip(":")
        argv = [body["process"]["cmd"], *body["process"].get("args", [])]
        cwd = body["process"].get("cwd", "/")
        process = await rental.cell.run(argv, body["process"].get("envs", {}), user=user or "user", cwd=cwd)
        response = web.StreamResponse(headers={"Content-Type": "application/connect+json"})
        await response.prepare(request)
        lost = False

        async def say(message: dict[str, Any], flags: int = 0) -> None:
            nonlocal lost
            text = json.dumps(message).encode()
            if not lost:
                try:
                    await response.write(struct.pack(">BI", flags, len(text)) + text)
                except (ConnectionError, asyncio.CancelledError):
                    lost = True  # the process goes on without a listener

        async def drain(stream: asyncio.StreamReader, name: str) -> None:
            while chunk := await stream.read(1 << 16):
                await say({"event": {"data": {name: base64.b64encode(chunk).decode()}}})

        async def follow() -> None:
            assert process.stdout is not None
            assert process.stderr is not None
            await asyncio.gather(drain(process.stdout, "stdout"), drain(process.stderr, "stderr"))
            code = await process.wait()
            await say({"event": {"end": {"exitCode": code, "exited": True, "status": f"exit status {code}"}}})
            await say({}, 2)

        await say({"event": {"start": {"pid": process.pid}}})
        following = asyncio.ensure_future(follow())
        self.following.add(following)
        following.add_done_callback(self.following.discard)
        if not request.get("cut"):
            await asyncio.shield(following)
        return response


async def main() -> None:
    service = Service(Path(sys.argv[1]))
    landlord = service.landlord
    api = web.Application(middlewares=[landlord.middleware, service.keyed])
    api.add_routes(
        [
            web.post("/v2/sandboxes", service.create),
            web.get("/v2/sandboxes", service.list),
            web.get("/sandboxes/{id}", service.get),
            web.delete("/sandboxes/{id}", service.kill),
            web.post("/sandboxes/{id}/timeout", service.timeout),
            web.post("/v2/sandboxes/{id}/connect", service.connect),
            web.post("/sandboxes/{id}/snapshots", service.snapshot),
            web.get("/snapshots", service.snapshots),
            web.delete("/templates/{id}", service.delete_template),
            web.route("*", "/_test", landlord.test),
        ]
    )
    gateway = web.Application(middlewares=[landlord.middleware], client_max_size=1 << 40)
    gateway.router.add_route("*", "/{tail:.*}", service.gateway)
    await serve(landlord, api=api, gateway=gateway)


if __name__ == "__main__":
    asyncio.run(main())
