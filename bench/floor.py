"""The floor: two Python processes that exchange pickles over a socketpair, with nothing between.

The other process is a bare interpreter (`-S -E`): no site, no package, no server. No Python-to-Python call through a
kernel socket can do with less of its own than a length, a pickle, and the answer's length and pickle.

    python floor.py [--quick]         prints the floor's rows as JSON
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import probe
from floor_worker import receive, send

WORKER = Path(__file__).resolve().parent / "floor_worker.py"


def measure(quick: bool) -> None:
    report, effort = probe.Report(), probe.Effort(quick)

    @contextlib.contextmanager
    def other() -> Iterator[tuple[int, socket.socket]]:
        here, there = socket.socketpair()
        there.set_inheritable(True)
        argv = [sys.executable, "-S", "-E", str(WORKER), str(there.fileno())]
        pid = probe.spawn(argv, {"PATH": os.environ.get("PATH", os.defpath)})
        there.close()
        try:
            receive(here)
            yield pid, here
        finally:
            here.close()
            os.waitpid(pid, 0)

    def call(sock: socket.socket, name: str, *args: object) -> Any:
        send(sock, (name, args))
        return receive(sock)

    ready: list[float] = []
    first: list[float] = []
    for _ in range(effort.creates):
        start = time.perf_counter()
        with other() as (_, sock):
            ready.append(time.perf_counter() - start)
            assert call(sock, "add", 1, 2) == 3
            first.append(time.perf_counter() - start)
    report.starts(ready, first)
    report.rows["server_ready_ms"] = statistics.median(ready) * 1e3

    with other() as (pid, sock):
        probe.settle(pid, report, effort)
        report.latency("sync", probe.sequential(lambda: call(sock, "add", 1, 2), effort))
        report.rows["tree_pss_MiB"] = probe.tree_mib(os.getpid())
        for width in probe.IN_FLIGHT:
            report.rows[f"sync_c{width}_calls_s"] = probe.windowed(
                lambda: send(sock, ("add", (1, 2))), lambda: receive(sock), width, effort
            )
        for mib in probe.ECHO_MIB:
            report.bandwidth(mib, probe.echo_seconds(lambda blob: call(sock, "echo", blob), mib, effort))
    report.stand_in()
    report.print()


if __name__ == "__main__":
    measure("--quick" in sys.argv)
