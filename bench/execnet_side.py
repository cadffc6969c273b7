"""execnet as its documentation shows it: a popen gateway, and channels whose remote ends answer calls.

python execnet_side.py [--quick]  prints its rows as JSON
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import blocking
import execnet
import probe

REMOTE = """
import bench_target
for name, args in channel:
    channel.send(getattr(bench_target, name)(*args))
"""


class Lane:
    def __init__(self, gateway: execnet.Gateway) -> None:
        self._channel = gateway.remote_exec(REMOTE)
        self.receive = self._channel.receive

    def send(self, name: str, *args: object) -> None:
        self._channel.send((name, args))

    def call(self, name: str, *args: object) -> Any:
        self._channel.send((name, args))
        return self._channel.receive()


class Server:
    def __init__(self, gateway: execnet.Gateway) -> None:
        self._gateway = gateway

    @property
    def pid(self) -> int:
        (pid,) = probe.children(os.getpid())[os.getpid()]
        return pid

    def lane(self) -> Lane:
        return Lane(self._gateway)


class Execnet:
    @contextlib.contextmanager
    def server(self) -> Iterator[Server]:
        group = execnet.Group()
        try:
            yield Server(group.makegateway(f"popen//python={sys.executable}"))
        finally:
            group.terminate(timeout=5)


if __name__ == "__main__":
    blocking.measure(Execnet(), probe.Report("execnet"), probe.Effort(sys.argv))
