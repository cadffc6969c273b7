"""Real processes for tests of faults: a runtime server that may be killed and started again, and what /proc says.

It imports nothing of what it tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

_READY_SECONDS = 30.0


def executable() -> str:
    return str(Path(sys.executable).parent / "agentix-runtime")


class Runtime:
    """An `agentix-runtime` on a port of the loopback interface, or on a Unix socket. `start()` again after an end."""

    def __init__(self, python: str, directory: Path, *, unix_path: str | None = None, **environ: str) -> None:
        self.url = ""
        self.instance = ""
        self.log = directory / "runtime.log"
        self._python = python
        self._environ = {k: v for k, v in os.environ.items() if not k.startswith("AGENTIX_")}
        self._environ |= {"AGENTIX_SPARE_WORKERS": "0"} | environ  # what its children are is for tests to say
        self._environ |= {"AGENTIX_BIND_HOST": "127.0.0.1", "AGENTIX_BIND_PORT": "0"}
        if unix_path is not None:
            self._environ["AGENTIX_BIND_SOCKET"] = unix_path
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Runtime:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs, self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [executable(), "--python", self._python],
                env={**self._environ, "AGENTIX_READY_FD": str(theirs.fileno())},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            theirs.close()
            ours.settimeout(_READY_SECONDS)
            words = ours.makefile().readline().split()
        if words[:1] != ["ready"]:
            self.end()
            raise RuntimeError(f"agentix-runtime did not start: {self.log.read_text()[-4096:]}")
        self.url, self.instance = words[1], words[2]

    def workers(self) -> list[int]:
        """The ids of its workers, those included that are being retired."""
        return children(self.pid)

    def kill(self) -> None:
        """`kill -9` the server, and wait until it and its workers are gone."""
        workers = self.workers()
        self.signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()
        until(lambda: not any(alive(worker) for worker in workers), "the workers of a killed server end")

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def until(true: Callable[[], object], what: str, seconds: float = 20.0) -> None:
    """Wait, on this thread, until something is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.005)


async def eventually(true: Callable[[], object], what: str, seconds: float = 20.0) -> None:
    """Wait, in a coroutine, until something is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"in vain: {what}"
        await asyncio.sleep(0.005)


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def alive(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def rss(pid: int) -> int:
    """Bytes of memory that are resident."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def peak(pid: int) -> int:
    """Bytes of memory that were resident at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def hung_up(sock: socket.socket) -> bool:
    """Whether the peer has closed, without waiting."""
    poller = select.poll()
    poller.register(sock, select.POLLRDHUP)
    return bool(poller.poll(0))
