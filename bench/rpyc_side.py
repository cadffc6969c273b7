"""rpyc in its classic mode, as its documentation shows it: a threaded server on loopback, one connection, defaults.

python rpyc_side.py [--quick]     prints its rows as JSON
python rpyc_side.py --serve       the server process; prints its port
"""

from __future__ import annotations

import collections
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any


def serve() -> None:
    from rpyc.core import SlaveService
    from rpyc.utils.server import ThreadedServer

    server = ThreadedServer(SlaveService, hostname="127.0.0.1", port=0)
    threading.Thread(target=server.start).start()
    while not server.active:  # its port is known before it listens
        time.sleep(0.001)
    print(server.port, flush=True)


def measure(quick: bool) -> None:
    import probe
    import rpyc

    report, effort = probe.Report("rpyc"), probe.Effort(quick)

    @contextlib.contextmanager
    def server() -> Iterator[tuple[int, int]]:
        process = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()
            process.communicate()

    @contextlib.contextmanager
    def session() -> Iterator[tuple[int, Callable[..., Any], Callable[..., Any]]]:
        with server() as (pid, port), contextlib.closing(rpyc.classic.connect("127.0.0.1", port)) as connection:
            target = connection.modules.bench_target
            yield pid, target.add, target.echo

    ready: list[float] = []
    first: list[float] = []
    with report.attempt("create_ready_ms", "create_first_ms", "server_ready_ms"):
        for _ in range(effort.creates):
            start = time.perf_counter()
            with server() as (_, port):
                ready.append(time.perf_counter() - start)
                with contextlib.closing(rpyc.classic.connect("127.0.0.1", port)) as connection:
                    assert connection.modules.bench_target.add(1, 2) == 3
                    first.append(time.perf_counter() - start)
        report.starts(ready, first)
        report.rows["server_ready_ms"] = report.rows["create_ready_ms"]

    with report.attempt(*probe.SERVER_KEYS), server() as (pid, _):
        probe.settle(pid, report, effort)

    with report.attempt(*probe.call_keys("sync"), "tree_pss_MiB"), session() as (_, add, _):
        report.latency("sync", probe.sequential(lambda: add(1, 2), effort))
        report.rows["tree_pss_MiB"] = probe.tree_mib(os.getpid())
        add_later = rpyc.async_(add)
        pending: collections.deque[Any] = collections.deque()
        for width in probe.IN_FLIGHT:
            report.rows[f"sync_c{width}_calls_s"] = probe.windowed(
                lambda: pending.append(add_later(1, 2)), lambda: pending.popleft().value, width, effort
            )
    for mib in probe.ECHO_MIB:
        with report.attempt(f"echo_{mib}_MB_s"), session() as (_, _, echo), probe.time_limit():
            report.bandwidth(mib, probe.echo_seconds(echo, mib, effort))
    report.stand_in()
    report.print()


if __name__ == "__main__":
    serve() if "--serve" in sys.argv else measure("--quick" in sys.argv)
