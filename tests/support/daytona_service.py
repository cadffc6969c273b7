"""The Daytona service as its SDK sees it: the API, the proxy to the toolbox of each sandbox, and to their ports.

    python daytona_service.py DIRECTORY

The key is `dtn_` and 40 digits. A minute of the service is two seconds of ours.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

from aiohttp import MultipartWriter, web
from rentals import Landlord, Rental, bad, fields, forward, serve

KEY = "dtn_" + "7" * 40
MINUTE = 20.0
"""Seconds of one, unless a test orders `minute`."""
FOREVER = 1e9
CREATE = {"name", "snapshot", "user", "env", "labels", "public", "target", "cpu", "gpu", "memory", "disk", "volumes"}
CREATE |= {"autoStopInterval", "autoDeleteInterval", "buildInfo", "kvm", "spot"}
IMAGES = {"any"}
BROKEN = {"b" * 24: "boom", "a" * 24: "asleep"}
"""Bundles that every new volume has, and whose runtime does not come up."""


class Service:
    """All there is of the service."""

    def __init__(self, directory: Path) -> None:
        self.landlord = Landlord(directory)
        self.volumes: dict[str, dict[str, Any]] = {}
        self.previews: dict[str, str] = {}
        self.proxy = ""
        self.commands: dict[tuple[str, str], dict[str, Any]] = {}
        self.running: set[asyncio.Future[None]] = set()

    # ---- the API ----

    @web.middleware
    async def keyed(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path == "/_test":
            return await handler(request)
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            raise bad("Invalid credentials", web.HTTPUnauthorized)
        return await handler(request)

    def find(self, name: str) -> Rental:
        for rental in self.landlord.rentals.values():
            if name in (rental.id, rental.facts["name"]):
                return rental
        raise bad(f"Sandbox with ID or name {name} not found", web.HTTPNotFound)

    def seen(self, rental: Rental) -> dict[str, Any]:
        if rental.facts["state"] == "creating" and rental.facts["since"] + 0.15 < time.monotonic():
            rental.facts["state"] = "started"
        return {
            "id": rental.id,
            "organizationId": "org",
            "name": rental.facts["name"],
            "user": "root",
            "env": {},
            "labels": rental.facts["labels"],
            "public": False,
            "networkBlockAll": False,
            "kvm": False,
            "target": "us",
            "cpu": 1,
            "gpu": 0,
            "memory": 1,
            "disk": 3,
            "state": rental.facts["state"],
            "toolboxProxyUrl": f"{self.proxy}/toolbox",
        }

    async def create(self, request: web.Request) -> web.Response:
        body = await request.json()
        fields(body, {"name", "autoStopInterval", "autoDeleteInterval"}, CREATE)
        if body["autoDeleteInterval"] != 0 or body.get("public"):
            raise bad("not what this backend should ask for")
        if any(rental.facts["name"] == body["name"] for rental in self.landlord.rentals.values()):
            raise bad("a sandbox of that name exists", web.HTTPConflict)
        if "buildInfo" in body:
            fields(body["buildInfo"], {"dockerfileContent"}, set())
            words = body["buildInfo"]["dockerfileContent"].split()
            if words[0] != "FROM" or words[1] not in IMAGES:
                raise bad(f"cannot build {words}")
        elif {"cpu", "memory", "gpu", "disk"} & set(body):
            raise bad("resources are those of the snapshot")
        binds: dict[str, Path] = {}
        for volume in body.get("volumes", []):
            fields(volume, {"volumeId", "mountPath"}, {"subpath"})
            there = self.volumes.get(volume["volumeId"])
            if there is None or there["state"] != "ready":
                raise bad("the volume is not ready")
            binds[volume["mountPath"]] = self.landlord.directory / f"volume-{there['id']}"
        minutes = body["autoStopInterval"]
        seconds = minutes * self.minute() if minutes else FOREVER
        facts = {"name": body["name"], "labels": body.get("labels", {}), "asked": body}
        rental = await self.landlord.rent(
            seconds, binds=binds, state="creating", since=time.monotonic(), minutes=minutes, **facts
        )
        return web.json_response(self.seen(rental))

    async def get(self, request: web.Request) -> web.Response:
        return web.json_response(self.seen(self.find(request.match_info["id"])))

    async def delete(self, request: web.Request) -> web.Response:
        rental = self.find(request.match_info["id"])
        answer = {**self.seen(rental), "state": "destroying"}
        await self.landlord.end(rental)
        return web.json_response(answer)

    async def activity(self, request: web.Request) -> web.Response:
        rental = self.find(request.match_info["id"])
        self.touch(rental)
        rental.renewed += 1
        return web.Response(status=201)

    def minute(self) -> float:
        return next((fault["seconds"] for fault in self.landlord.faults if fault["do"] == "minute"), MINUTE)

    def touch(self, rental: Rental) -> None:
        rental.ends = time.monotonic() + (rental.facts["minutes"] * self.minute() or FOREVER)

    async def autostop(self, request: web.Request) -> web.Response:
        rental = self.find(request.match_info["id"])
        rental.facts["minutes"] = int(request.match_info["interval"])
        self.touch(rental)
        return web.json_response(self.seen(rental))

    async def preview(self, request: web.Request) -> web.Response:
        rental, port = self.find(request.match_info["id"]), request.match_info["port"]
        token = self.previews.setdefault(rental.id, secrets.token_hex(8))
        url = f"{self.proxy}/{port}-{rental.id}"
        return web.json_response({"sandboxId": rental.id, "url": url, "token": token})

    async def volume(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            body = await request.json()
            fields(body, {"name"}, set())
            made = secrets.token_hex(8)
            self.fill(self.landlord.directory / f"volume-{made}")
            found = {"id": made, "name": body["name"], "organizationId": "org", "state": "pending_create"}
            found |= {"createdAt": "2026-01-01", "updatedAt": "2026-01-01", "errorReason": None}
            self.volumes[made] = found
            return web.json_response(dict(found))
        for found in self.volumes.values():
            if found["name"] == request.match_info["name"]:
                answer = dict(found)
                found["state"] = "ready"
                return web.json_response(answer)
        raise bad("volume not found", web.HTTPNotFound)

    def fill(self, volume: Path) -> None:
        volume.mkdir()
        for key, name in BROKEN.items():
            with tarfile.open(volume / f"{key}.tar.gz", "w:gz") as tar:
                tar.add(self.landlord.images[name] / "nix", "nix")
            (volume / f"{key}.ok").touch()

    # ---- the proxy ----

    async def port(self, request: web.Request) -> web.StreamResponse:
        match = re.fullmatch(r"(\d+)-(\w+)", request.match_info["place"])
        rental = self.landlord.rentals.get(match[2]) if match else None
        if match is None or rental is None:
            raise bad("no such sandbox", web.HTTPNotFound)
        if request.headers.get("X-Daytona-Preview-Token") != self.previews.get(rental.id, ""):
            raise bad("unauthorized", web.HTTPUnauthorized)
        return await forward(request, rental, int(match[1]), f"/{request.match_info['place']}")

    async def toolbox(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            raise bad("Invalid credentials", web.HTTPUnauthorized)
        rental = self.find(request.match_info["id"])
        if self.seen(rental)["state"] != "started":
            raise bad("the sandbox is not started", web.HTTPBadRequest)
        rental.ends += FOREVER  # it is in use
        try:
            return await self.tool(request, rental, f"{request.method} /{request.match_info['tail']}")
        finally:
            self.touch(rental)

    async def tool(self, request: web.Request, rental: Rental, line: str) -> web.StreamResponse:
        if line == "POST /files/folder":
            path = rental.cell.path(request.query["path"])
            path.mkdir(parents=True)
            path.chmod(int(request.query["mode"], 8))
            return web.Response(status=201)
        if line == "POST /files/bulk-upload":
            return await self.upload(request, rental)
        if line == "POST /files/bulk-download":
            return await self.download(request, rental)
        if line == "POST /process/execute":
            return await self.execute(request, rental)
        if line == "POST /process/session":
            body = await request.json()
            fields(body, {"sessionId"}, set())
            rental.facts["session"] = body["sessionId"]
            return web.Response(status=201)
        if match := re.fullmatch(r"(?:GET|POST) /process/session/(\w+)/(exec|command/(\w+)(/logs)?)", line):
            if rental.facts.get("session") != match[1]:
                raise bad("session not found", web.HTTPNotFound)
            return await self.session(request, rental, match[3], bool(match[4]))
        raise bad(f"no such route: {line}", web.HTTPNotFound)

    async def upload(self, request: web.Request, rental: Rental) -> web.Response:
        path = None
        async for part in await request.multipart():
            assert part.name is not None
            if part.name.endswith(".path"):
                path = rental.cell.path((await part.read()).decode())
                continue
            if path is None or not path.parent.is_dir():
                raise bad("no such directory")
            with path.open("wb") as file:
                while chunk := await part.read_chunk(1 << 18):
                    file.write(chunk)
        return web.Response()

    async def download(self, request: web.Request, rental: Rental) -> web.Response:
        body = await request.json()
        fields(body, {"paths"}, set())
        writer = MultipartWriter("form-data")
        for name in body["paths"]:
            path = rental.cell.path(name)
            there = path.is_file()
            part = writer.append(path.read_bytes() if there else b'{"error": "not found", "statusCode": 404}')
            part.headers["Content-Type"] = "application/octet-stream" if there else "application/json"
            kind = "file" if there else "error"
            part.headers["Content-Disposition"] = f'form-data; name="{kind}"; filename="{name}"'
        return web.Response(body=writer)

    async def execute(self, request: web.Request, rental: Rental) -> web.Response:
        body = await request.json()
        fields(body, {"command"}, {"cwd", "timeout", "envs"})
        argv = ["/bin/sh", "-c", body["command"]]
        process = await rental.cell.run(argv, body.get("envs") or {}, cwd=body.get("cwd") or "/root")
        out, err = await process.communicate()
        return web.json_response({"exitCode": process.returncode, "result": (out + err).decode(errors="replace")})

    async def session(self, request: web.Request, rental: Rental, command: str | None, logs: bool) -> web.Response:
        if command is None:
            body = await request.json()
            fields(body, {"command", "runAsync"}, set())
            name = secrets.token_hex(6)
            entry = {"id": name, "command": body["command"]}
            self.commands[rental.id, name] = entry
            process = await rental.cell.run(["/bin/sh", "-c", body["command"]], {}, cwd="/root")
            following = asyncio.ensure_future(self.follow(process, entry))
            self.running.add(following)
            following.add_done_callback(self.running.discard)
            return web.json_response({"cmdId": name}, status=202)
        entry = self.commands[rental.id, command]
        if logs:
            said = entry.get("said", "")
            return web.json_response({"output": said, "stdout": said, "stderr": ""})
        return web.json_response({key: value for key, value in entry.items() if key != "said"})

    async def follow(self, process: asyncio.subprocess.Process, entry: dict[str, Any]) -> None:
        out, err = await process.communicate()
        entry["said"] = (out + err).decode(errors="replace")
        entry["exitCode"] = process.returncode


async def main() -> None:
    service = Service(Path(sys.argv[1]))
    landlord = service.landlord
    api = web.Application(middlewares=[landlord.middleware, service.keyed])
    api.add_routes(
        [
            web.post("/api/sandbox", service.create),
            web.get("/api/sandbox/{id}", service.get),
            web.delete("/api/sandbox/{id}", service.delete),
            web.post("/api/sandbox/{id}/last-activity", service.activity),
            web.post("/api/sandbox/{id}/autostop/{interval}", service.autostop),
            web.get("/api/sandbox/{id}/ports/{port}/preview-url", service.preview),
            web.get("/api/volumes/by-name/{name}", service.volume),
            web.post("/api/volumes", service.volume),
            web.route("*", "/_test", landlord.test),
        ]
    )
    proxy = web.Application(middlewares=[landlord.middleware], client_max_size=1 << 40)
    proxy.router.add_route("*", "/toolbox/{id}/{tail:.*}", service.toolbox)
    proxy.router.add_route("*", "/{place}/{tail:.*}", service.port)

    def started(urls: dict[str, str]) -> None:
        service.proxy = urls["proxy"]

    await serve(landlord, started, api=api, proxy=proxy)


if __name__ == "__main__":
    asyncio.run(main())
