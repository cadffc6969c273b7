"""What a tunnel costs: a client's requests to a handler on the host, beside a direct connection over loopback.

    python bench/bridge.py            a table; figures are this machine's, in this run
    python bench/bridge.py --json     the same as data

Both ends run in processes of their own, and the client in a third. The direct service is aiohttp's; the handler behind
the tunnel says the same. A chunk carries the time at which it was made, so its delay is that of one way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

REQUESTS = 300
CHUNKS = 200
STREAMS = 200
LONG = 5000
SECONDS = 120


async def stamps(n: int, pause: float) -> AsyncIterator[bytes]:
    """Events that carry the time of their making."""
    for _ in range(n):
        yield b"data: %d\n\n" % time.monotonic_ns()
        if pause:
            await asyncio.sleep(pause)


# ---- the two ends ----


async def direct() -> None:
    """A service on loopback; says its address."""
    from aiohttp import web

    async def plain(request: web.Request) -> web.Response:
        return web.json_response(await request.json())

    async def events(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for piece in stamps(body["n"], body["pause"]):
            await response.write(piece)
        return response

    app = web.Application()
    app.router.add_post("/plain", plain)
    app.router.add_post("/events", events)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]} 0", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


async def tunnel() -> None:
    """A proxy with the same handlers, its runtime beside it; says its address and the runtime's process."""
    from agentix.bridge import ClientResponse, Proxy, Request, on

    from agentix import SandboxId
    from agentix.provider import Sandbox
    from agentix.testing import serve

    class Same:
        @on("/plain")
        async def plain(self, request: Request) -> ClientResponse:
            return ClientResponse.json(request.body)

        @on("/events")
        async def events(self, request: Request) -> ClientResponse:
            return ClientResponse.sse(stamps(request.body["n"], request.body["pause"]))

    async with serve() as url:
        sandbox = Sandbox(SandboxId("bench"), url)
        async with Proxy(Same()).session(sandbox) as handle:
            print(handle.url, runtime_of(url), flush=True)
            await asyncio.to_thread(sys.stdin.read)
        await sandbox.aclose()


def runtime_of(url: str) -> int:
    """The process of ours that is the runtime."""
    import os

    for entry in Path(f"/proc/{os.getpid()}/task").iterdir():
        for pid in (entry / "children").read_text().split():
            if "agentix-runtime" in Path(f"/proc/{pid}/cmdline").read_text():
                return int(pid)
    return 0


def rss(pid: int) -> float:
    """Resident MiB of a process."""
    fields = Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()
    return int(fields[0]) / 1024


# ---- the client ----


async def measure(url: str, runtime: int, host: int) -> dict[str, float]:
    """All figures of one end."""
    import aiohttp

    found: dict[str, float] = {}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def plain() -> float:
            since = time.monotonic()
            async with http.post(url + "/plain", json={"a": 1}) as reply:
                await reply.read()
            return (time.monotonic() - since) * 1000

        async def events(n: int, pause: float) -> list[float]:
            delays: list[float] = []
            async with http.post(url + "/events", json={"n": n, "pause": pause}) as reply:
                async for line in reply.content:
                    if line.startswith(b"data: "):
                        delays.append((time.monotonic_ns() - int(line[6:])) / 1e6)
            return delays

        await asyncio.gather(*(plain() for _ in range(20)))
        found["request, ms"] = statistics.median([await plain() for _ in range(REQUESTS)])
        since = time.monotonic()

        async def worker() -> None:
            for _ in range(REQUESTS // 10):
                await plain()

        await asyncio.gather(*(worker() for _ in range(32)))
        found["requests/s, 32 at once"] = 32 * (REQUESTS // 10) / (time.monotonic() - since)
        delays = await events(CHUNKS, 0.005)
        found["chunk, ms"] = statistics.median(delays)
        found["chunk p99, ms"] = statistics.quantiles(delays, n=100)[98]
        before = rss(runtime) if runtime else 0
        many = await asyncio.gather(*(events(20, 0.25) for _ in range(STREAMS)))
        every = [delay for one in many for delay in one]
        found[f"chunk of {STREAMS} streams, ms"] = statistics.median(every)
        if runtime:
            found["runtime, MiB more for them"] = rss(runtime) - before
            before, host_before = rss(runtime), rss(host)
        since = time.monotonic()
        await events(LONG, 0)
        found["chunks/s of one stream"] = LONG / (time.monotonic() - since)
        if runtime:
            await events(LONG * 4, 0)
            found["runtime, MiB more for a long stream"] = rss(runtime) - before
            found["host, MiB more for a long stream"] = rss(host) - host_before
    return found


def one(end: str) -> dict[str, float]:
    """Start an end, measure it from another process, stop it."""
    command = [sys.executable, __file__]
    with subprocess.Popen(
        [*command, "--end", end], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url, runtime = process.stdout.readline().split()
            client = [*command, "--client", url, runtime, str(process.pid)]
            out = subprocess.run(client, check=True, stdout=subprocess.PIPE, text=True, timeout=SECONDS).stdout
            process.stdin.close()
            process.wait(30)
        except BaseException:
            process.kill()
            raise
    return json.loads(out)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--end", choices=["direct", "tunnel"], help=argparse.SUPPRESS)
    parser.add_argument("--client", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.end:
        asyncio.run(direct() if chosen.end == "direct" else tunnel())
    elif chosen.client:
        url, runtime, host = chosen.client
        print(json.dumps(asyncio.run(measure(url, int(runtime), int(host)))))
    else:
        results = {end: one(end) for end in ("direct", "tunnel")}
        if chosen.json:
            print(json.dumps(results, indent=2))
            return
        print(f"{'':38}{'direct':>10}{'tunnel':>10}")
        for row, value in results["tunnel"].items():
            plain = results["direct"].get(row)
            print(f"{row:38}{'' if plain is None else f'{plain:.2f}':>10}{value:>10.2f}")


if __name__ == "__main__":
    main()
