"""Ray on this machine alone: one actor that takes several calls at once, by `ray.get`; otherwise its defaults.

Ray listens on the machine's own address and asks the network which that is. So it runs in a network namespace that has
nothing but loopback: this program starts itself anew in one.

python ray_side.py [--quick]      prints its rows as JSON
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import blocking
import probe

ALONE = "AGENTIX_BENCH_RAY_ALONE"
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
STORE_BYTES = 1 << 30


def alone() -> None:
    """Go on in a network namespace of this process's own, if that has not been done yet."""
    if ALONE not in os.environ:
        unshare = shutil.which("unshare")
        if unshare is None or subprocess.run([unshare, "-rn", "true"], capture_output=True).returncode:
            raise SystemExit("Ray needs a network namespace of its own, and this machine does not permit one")
        os.execve(unshare, [unshare, "-rn", sys.executable, *sys.argv], {**os.environ, ALONE: "1"})
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


class Lane:
    def __init__(self, actor: Any) -> None:
        import ray

        self._actor = actor
        self._get = ray.get
        self._pending: collections.deque[Any] = collections.deque()

    def call(self, name: str, *args: object) -> Any:
        return self._get(getattr(self._actor, name).remote(*args))

    def send(self, name: str, *args: object) -> None:
        self._pending.append(getattr(self._actor, name).remote(*args))

    def receive(self) -> Any:
        return self._get(self._pending.popleft())


class Server:
    def __init__(self, actor: Any) -> None:
        self._actor = actor

    @property
    def pid(self) -> int:
        """Of the raylet, the server of Ray's that an actor's process belongs to."""
        pids = [pid for kids in probe.children(os.getpid()).values() for pid in kids]
        return next(pid for pid in pids if Path(f"/proc/{pid}/comm").read_text() == "raylet\n")

    def lane(self) -> Lane:
        return Lane(self._actor)


class Ray:
    """A server is an actor of the one Ray that runs: that is what a user makes many of, and makes anew."""

    def __init__(self) -> None:
        import ray

        sys.path.insert(0, str(probe.TARGETS))
        import bench_target

        names = ("add", "echo", "leave", "spin", "flood")
        target = type("Target", (), {name: staticmethod(getattr(bench_target, name)) for name in names})
        self._actor = ray.remote(num_cpus=0, max_concurrency=8)(target)

    @contextlib.contextmanager
    def server(self) -> Iterator[Server]:
        import ray

        actor = self._actor.remote()
        try:
            yield Server(actor)
        finally:
            ray.kill(actor)


@contextlib.contextmanager
def running() -> Iterator[None]:
    import ray

    scratch = tempfile.mkdtemp(prefix="r-")  # short: a socket's path has 107 bytes
    try:
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=STORE_BYTES,
            _temp_dir=scratch,
        )
        yield
    finally:
        with contextlib.suppress(Exception):
            ray.shutdown()
        shutil.rmtree(scratch, ignore_errors=True)


def main() -> None:
    alone()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray  # noqa: F401 - imported before the clock starts, as with the others

    report, effort = probe.Report("ray"), probe.Effort(sys.argv)
    start = time.perf_counter()
    with running():
        ready = time.perf_counter() - start
        peer = Ray()
        with peer.server() as server:
            assert server.lane().call("add", 1, 2) == 3
            report.starts([ready], [time.perf_counter() - start])
        report.rows["server_ready_ms"] = ready * 1e3
        blocking.measure(peer, report, effort)


if __name__ == "__main__":
    main()
