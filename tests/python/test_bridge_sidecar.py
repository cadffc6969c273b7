"""Bridge: services that live as long as a block."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
import urllib.request
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from agentix.bridge import Sidecar, SidecarError
from bridge_peers import free_port

SERVER = """
import http.server, os, sys, time
print("noise " * 100000, flush=True)
print("noise " * 100000, file=sys.stderr, flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Handler.asked += 1
        self.send_response(503 if Handler.asked < 2 else 200)
        body = " ".join([str(os.getpid()), os.environ.get("MODE", ""), self.path]).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        print("noise " * 10000, file=sys.stderr, flush=True)
http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""
COMMAND = [sys.executable, "-c", SERVER, "{host}", "{port}"]


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await main
        assert asyncio.all_tasks() == {asyncio.current_task()}  # what read the output has ended

    asyncio.run(bounded())


async def get(url: str) -> str:
    def fetch() -> str:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.read().decode()

    return await asyncio.to_thread(fetch)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_lives_as_long_as_the_block() -> None:
    async def main() -> None:
        sidecar = Sidecar(command=COMMAND, env=lambda host, port: {"MODE": f"{host}:{port}:{{url}}"})
        assert sidecar.url == "http://127.0.0.1:0"
        for _ in range(2):
            async with sidecar as url:
                assert url == sidecar.url
                assert re.fullmatch(r"http://127\.0\.0\.1:[1-9]\d*", url)
                pid, mode, path = (await get(url + "/x")).split()
                assert mode == f"127.0.0.1:{url.rpartition(':')[2]}:{url}"
                assert path == "/x"
                for _ in range(20):
                    await get(url + "/noise")
            assert gone(int(pid))

    run(main())


def test_command_may_be_called() -> None:
    def by_order(where: str, number: int) -> list[str]:
        return [sys.executable, "-c", SERVER, where, str(number)]

    async def main() -> None:
        for command in (lambda host, port: by_order(host, port), by_order):
            async with Sidecar(command=command, health_path="ready") as url:
                assert (await get(url)).endswith(" /")

    run(main())


def test_early_exit_says_why() -> None:
    async def main() -> None:
        script = "import sys; sys.stderr.write('a' * 5000 + 'the end'); sys.exit(7)"
        with pytest.raises(SidecarError, match="code=7") as caught:
            async with Sidecar(command=[sys.executable, "-c", script]):
                pass
        assert "truncated" in str(caught.value)
        assert str(caught.value).endswith("the end")
        assert str(caught.value).count("a" * 100) < 42
        with pytest.raises(SidecarError, match=r"code=3$"):
            async with Sidecar(command=[sys.executable, "-c", "raise SystemExit(3)"]):
                pass

    run(main())


def test_not_ready_in_time() -> None:
    async def main() -> None:
        script = "import os, time; print(os.getpid(), file=open({0!r}, 'w'), flush=True); time.sleep(60)"
        with pytest.raises(SidecarError, match=r"not ready within 0\.5 s"):
            async with Sidecar(command=[sys.executable, "-c", script.format(os.devnull)], ready_timeout=0.5):
                pass
        with pytest.raises(FileNotFoundError):
            async with Sidecar(command=["/nowhere/to/be/found"]):
                pass

    run(main())


def test_taken_port_is_replaced_unless_it_was_asked_for(tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    script = f"""
import sys
open({str(tries)!r}, "a").write(sys.argv[2] + "\\n")
if len(open({str(tries)!r}).readlines()) < int(sys.argv[3]):
    sys.exit("OSError: [Errno 98] Address already in use")
{SERVER}
"""

    async def main() -> None:
        async with Sidecar(command=[sys.executable, "-c", script, "{host}", "{port}", "3"]) as url:
            ports = tries.read_text().split()
            assert len(set(ports)) == 3
            assert url.endswith(":" + ports[-1])
        tries.unlink()
        with pytest.raises(SidecarError, match="code=1"):
            async with Sidecar(command=[sys.executable, "-c", script, "{host}", "{port}", "9"]):
                pass
        assert len(tries.read_text().split()) == 3
        tries.unlink()
        with pytest.raises(SidecarError, match="already in use"):
            async with Sidecar(command=[sys.executable, "-c", script, "{host}", "{port}", "9"], port=free_port()):
                pass
        assert len(tries.read_text().split()) == 1

    run(main())


def test_deaf_process_and_its_children_go_too(tmp_path: Path) -> None:
    script = f"""
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "300"])
open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
{SERVER}
"""

    async def main() -> None:
        async with Sidecar(command=[sys.executable, "-c", script, "{host}", "{port}"]) as url:
            pid = int((await get(url)).split()[0])
        assert gone(pid)

    run(main())
    stat = Path("/proc", (tmp_path / "child").read_text(), "stat")
    for _ in range(100):
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except FileNotFoundError:
            return
        time.sleep(0.05)
    raise AssertionError("the child is still there")
