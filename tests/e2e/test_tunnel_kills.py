"""A host that is killed while agents wait: each is told so in time, and nothing is asked of the model service twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from bridge_peers import Service, serving
from processes import Runtime, eventually

pytestmark = pytest.mark.timeout(120)

WINDOW = 3.0
HOST = """
import asyncio, sys
from agentix import SandboxId
from agentix.bridge import Forward, Proxy
from agentix.provider import Sandbox

async def main():
    sandbox = Sandbox(SandboxId("box"), sys.argv[1])
    forward = Forward(sys.argv[2], paths=["/ask"])
    async with Proxy(forward, request_timeout=float(sys.argv[3])).session(sandbox) as handle:
        print(handle.url, flush=True)
        await asyncio.sleep(100)

asyncio.run(main())
"""


async def start(runtime: Runtime, service: Service) -> tuple[asyncio.subprocess.Process, str]:
    """Another host process, and where its tunnel is."""
    host = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOST, runtime.url, service.url, str(WINDOW)), stdout=subprocess.PIPE
    )
    assert host.stdout is not None
    line = await asyncio.wait_for(host.stdout.readline(), 60)
    return host, line.decode().strip()


async def end(host: asyncio.subprocess.Process) -> None:
    if host.returncode is None:
        host.kill()
    await asyncio.wait_for(host.wait(), 20)


def test_agents_of_a_killed_host_are_told(worker_python: str, tmp_path: Path, run: Any) -> None:
    async def main() -> None:
        with Runtime(worker_python, tmp_path) as runtime:
            async with serving(answer) as service, aiohttp.ClientSession() as http:
                await killed(runtime, service, http)

    holding = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.query_string == "new":
            return web.json_response({"n": "new"})
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if request.query_string == "stream":
            await reply.prepare(request)
            await reply.write(b"data: 1\n\n")
        await asyncio.wait_for(holding.wait(), 60)
        return reply

    async def killed(runtime: Runtime, service: Service, http: aiohttp.ClientSession) -> None:
        host, url = await start(runtime, service)
        hosts = [host]
        try:
            waiting = [told(http, url, str(n)) for n in range(3)]
            asking = [asyncio.ensure_future(one) for one in waiting]
            stream = await http.post(f"{url}/ask?stream", data=b"x")
            assert await stream.content.readany() == b"data: 1\n\n"
            await eventually(lambda: len(service.requests) == 4, "the model service was asked")
            await end(host)
            since = time.monotonic()
            asking.append(asyncio.ensure_future(told(http, url, "late")))

            host, other = await start(runtime, service)
            hosts.append(host)
            async with http.post(f"{other}/ask?new", data=b"x") as reply:
                assert (reply.status, await reply.json()) == (200, {"n": "new"})

            assert await asyncio.gather(*asking) == [504] * 4
            with pytest.raises(aiohttp.ClientError):
                await stream.content.read()
            stream.close()
            assert time.monotonic() - since < 10 * WINDOW
            async with http.post(f"{other}/ask?new", data=b"x") as reply:
                assert reply.status == 200, "the other tunnel goes on"
            asked = sorted(asked["path"] for asked in service.requests)
            assert asked == ["/ask?0", "/ask?1", "/ask?2", "/ask?new", "/ask?new", "/ask?stream"]
        finally:
            holding.set()
            for one in hosts:
                await end(one)

    run(main())


async def told(http: aiohttp.ClientSession, url: str, query: str) -> int:
    """The status that an agent gets, which must come with words."""
    async with http.post(f"{url}/ask?{query}", data=b"x") as reply:
        assert (await reply.json())["error"]["message"]
        return reply.status
