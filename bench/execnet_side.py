"""execnet as its documentation shows it: a popen gateway and one channel whose remote end answers calls.

python execnet_side.py [--quick]  prints its rows as JSON
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import execnet
import probe

REMOTE = """
import bench_target
for name, args in channel:
    channel.send(getattr(bench_target, name)(*args))
"""


@contextlib.contextmanager
def gateway() -> Iterator[execnet.Gateway]:
    group = execnet.Group()
    try:
        yield group.makegateway(f"popen//python={sys.executable}")
    finally:
        group.terminate(timeout=5)


def only_child() -> int:
    (pid,) = probe.children(os.getpid())[os.getpid()]
    return pid


def measure(quick: bool) -> None:
    report, effort = probe.Report("execnet"), probe.Effort(quick)

    def call(channel: execnet.Channel, name: str, *args: object) -> Any:
        channel.send((name, args))
        return channel.receive()

    ready: list[float] = []
    first: list[float] = []
    with report.attempt("create_ready_ms", "create_first_ms", "server_ready_ms"):
        for _ in range(effort.creates):
            start = time.perf_counter()
            with gateway() as gw:
                ready.append(time.perf_counter() - start)
                assert call(gw.remote_exec(REMOTE), "add", 1, 2) == 3
                first.append(time.perf_counter() - start)
        report.starts(ready, first)
        report.rows["server_ready_ms"] = report.rows["create_ready_ms"]

    with report.attempt(*probe.SERVER_KEYS), gateway():
        probe.settle(only_child(), report, effort)

    with report.attempt(*probe.call_keys("sync"), "tree_pss_MiB"), gateway() as gw:
        channel = gw.remote_exec(REMOTE)
        report.latency("sync", probe.sequential(lambda: call(channel, "add", 1, 2), effort))
        report.rows["tree_pss_MiB"] = probe.tree_mib(os.getpid())
        for width in probe.IN_FLIGHT:
            report.rows[f"sync_c{width}_calls_s"] = probe.windowed(
                lambda: channel.send(("add", (1, 2))), channel.receive, width, effort
            )
    for mib in probe.ECHO_MIB:
        with report.attempt(f"echo_{mib}_MB_s"), gateway() as gw:
            channel = gw.remote_exec(REMOTE)
            with probe.time_limit():
                report.bandwidth(mib, probe.echo_seconds(partial(call, channel, "echo"), mib, effort))
    report.stand_in()
    report.print()


if __name__ == "__main__":
    measure("--quick" in sys.argv)
