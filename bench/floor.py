"""The floor: two Python processes that exchange pickles over a socketpair, with nothing between.

The other process is a bare interpreter (`-S -E`): no site, no package, no server. No Python-to-Python call through a
kernel socket can do with less of its own than a length, a pickle, and the answer's length and pickle.

It answers one call at a time. Where several are to run beside one another, each has such a process of its own.

    python floor.py [--quick]         prints the floor's rows as JSON
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import blocking
import probe
from floor_worker import receive, send

WORKER = Path(__file__).resolve().parent / "floor_worker.py"


class Pair:
    """A worker process and our end of the socketpair."""

    def __init__(self) -> None:
        self._sock, there = socket.socketpair()
        there.set_inheritable(True)
        argv = [sys.executable, "-S", "-E", str(WORKER), str(there.fileno())]
        self.pid = probe.spawn(argv, {"PATH": os.environ.get("PATH", os.defpath)})
        there.close()
        receive(self._sock)

    def call(self, name: str, *args: object) -> Any:
        send(self._sock, (name, args))
        return receive(self._sock)

    def send(self, name: str, *args: object) -> None:
        send(self._sock, (name, args))

    def receive(self) -> Any:
        return receive(self._sock)

    def close(self) -> None:
        self._sock.close()
        os.waitpid(self.pid, 0)


class Server:
    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._unused: Pair | None = self._pair()
        self.pid = self._unused.pid

    def _pair(self) -> Pair:
        return self._stack.enter_context(contextlib.closing(Pair()))

    def lane(self) -> Pair:
        pair, self._unused = self._unused or self._pair(), None
        return pair


class Floor:
    @contextlib.contextmanager
    def server(self) -> Iterator[Server]:
        with contextlib.ExitStack() as stack:
            yield Server(stack)


if __name__ == "__main__":
    blocking.measure(Floor(), probe.Report(), probe.Effort(sys.argv))
