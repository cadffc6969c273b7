"""The floor: two Python processes that exchange pickles over a socketpair, with nothing between.

The other process is a bare interpreter (`-S -E`): no site, no package, no server. No Python-to-Python call through a
kernel socket can do with less of its own than a length, a pickle, and the answer's length and pickle.

    python floor.py [--quick]         prints the floor's rows as JSON
    python floor.py --serve FD        the other process
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import sys
from pathlib import Path
from typing import Any

LENGTH = struct.Struct("<I")


def receive_exactly(sock: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        read = sock.recv_into(view[got:])
        if not read:
            raise EOFError("the other process closed the socket")
        got += read
    return data


def receive(sock: socket.socket) -> Any:
    (size,) = LENGTH.unpack(receive_exactly(sock, LENGTH.size))
    return pickle.loads(receive_exactly(sock, size))


def send(sock: socket.socket, value: object) -> None:
    data = pickle.dumps(value, 5)
    sock.sendall(LENGTH.pack(len(data)))
    sock.sendall(data)


def serve(fd: int) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parent / "targets"))
    import bench_target

    sock = socket.socket(fileno=fd)
    send(sock, "ready")
    try:
        while True:
            name, args = receive(sock)
            send(sock, getattr(bench_target, name)(*args))
    except EOFError:
        pass


def measure(quick: bool) -> None:
    import contextlib
    import statistics
    import time
    from collections.abc import Iterator

    import probe

    report, effort = probe.Report(), probe.Effort(quick)

    @contextlib.contextmanager
    def other() -> Iterator[tuple[int, socket.socket]]:
        here, there = socket.socketpair()
        there.set_inheritable(True)
        argv = [sys.executable, "-S", "-E", __file__, "--serve", str(there.fileno())]
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
    if "--serve" in sys.argv:
        serve(int(sys.argv[sys.argv.index("--serve") + 1]))
    else:
        measure("--quick" in sys.argv)
