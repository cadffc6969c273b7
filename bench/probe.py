"""What the participants share: timing loops, readings of /proc, and the one JSON object each prints.

A participant is a program of its own. It measures rows into a `Report` and prints it; a row that cannot be
measured is recorded with its reason, so that the table never has a silent gap.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

TARGETS = Path(__file__).resolve().parent / "targets"
ECHO_BYTES = {"1k": 1 << 10, "16k": 16 << 10, "256k": 256 << 10, "1m": 1 << 20, "10m": 10 << 20, "100m": 100 << 20}
IN_FLIGHT = (1, 8, 32, 128)
BESIDE = {"cpu": ("cpu",), "echo": ("echo",), "flood": ("flood",), "all": ("cpu", "echo", "flood")}
BESIDE_ECHO_BYTES = 100 << 20
MANY = (1, 10, 100)
OPENERS = 8  # how many of them are being made at once
MANY_IN_FLIGHT = 128  # in all, however many sandboxes share them
STEP_SECONDS = 8  # a loop that takes longer is given up: its rows are missing, the others are measured all the same


class Effort:
    """How long the loops run.

    `--quick` is for a look. `--light` leaves out what takes a slow participant longest (large echoes, respawns,
    `beside`, `many`): `run.py` asks the peers for these in every fifth round only.
    """

    def __init__(self, argv: Sequence[str] = ()) -> None:
        quick = "--quick" in argv
        self.light = "--light" in argv
        small = [size for size, count in ECHO_BYTES.items() if count <= 1 << 20]
        large = [[size] for size in ECHO_BYTES if size not in small]
        # Those of a group share a server; one that failed on a large value says nothing about the next.
        self.echo_groups = [small, *([] if self.light else large)]
        self.creates = 3 if quick else 5
        self.create_seconds = 1.5  # no further one begins after these
        self.respawns = 2 if quick else 3
        self.rest_seconds = 0.3  # before a worker ends: not all die young
        self.warm_calls = 200
        self.calls = 1000 if quick else 4000
        self.call_seconds = 0.5 if quick else 1.0
        self.flight_seconds = 0.2 if quick else 0.35
        self.echoes = 3  # the first one also pays for fresh memory, so fewer would measure something else
        self.echo_seconds = 0.1 if quick else 0.15
        self.settle_seconds = 0.5
        self.beside_seconds = 0.4 if quick else 0.6
        self.many_seconds = 8.0  # for all of MANY to exist


class Report:
    """Rows measured by one participant; printed as JSON on the real stdout."""

    def __init__(self, distribution: str | None = None) -> None:
        self.rows: dict[str, float] = {}
        self.failed: dict[str, str] = {}
        self.about: dict[str, str] = {"python": sys.version.split()[0]}
        if distribution:
            self.about[distribution] = importlib.metadata.version(distribution)
        # Libraries under test may print: only the report may reach stdout.
        self._out = os.dup(1)
        os.dup2(2, 1)

    @contextlib.contextmanager
    def attempt(self, *keys: str) -> Iterator[None]:
        """A failure inside is the reason why those of `keys` not measured by then are missing."""
        try:
            yield
        except Exception as error:
            for key in keys:
                if key not in self.rows:
                    self.failed[key] = reason(error)
        self.print()

    def latency(self, prefix: str, seconds: list[float]) -> None:
        self.rows[f"{prefix}_p50_us"] = statistics.median(seconds) * 1e6
        self.rows[f"{prefix}_p99_us"] = percentile(seconds, 99) * 1e6

    def bandwidth(self, size: str, seconds: float) -> None:
        """Both directions count: an echo carries the value twice."""
        self.rows[f"echo_{size}_MB_s"] = 2 * ECHO_BYTES[size] / 1e6 / seconds

    def beside(self, kind: str, seconds: list[float]) -> None:
        self.rows[f"beside_{kind}_p50_us"] = statistics.median(seconds) * 1e6
        self.rows[f"beside_{kind}_p99_us"] = percentile(seconds, 99) * 1e6

    def starts(self, ready: list[float], first: list[float]) -> None:
        self.rows["create_ready_ms"] = statistics.median(ready) * 1e3
        self.rows["create_first_ms"] = statistics.median(first) * 1e3

    def stand_in(self) -> None:
        """For a participant without coroutine targets: its plain calls stand in the coroutine rows."""
        for key in ("p50_us", "p99_us", *(f"c{n}_calls_s" for n in IN_FLIGHT)):
            if f"sync_{key}" in self.rows:
                self.rows[f"async_{key}"] = self.rows[f"sync_{key}"]
            else:
                self.failed[f"async_{key}"] = self.failed.get(f"sync_{key}", "not measured")

    def print(self) -> None:
        """What is known by now, as one line. The last one counts, even if the participant is too slow to end."""
        text = json.dumps({"about": self.about, "rows": self.rows, "failed": self.failed})
        os.write(self._out, text.encode() + b"\n")


def reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__


def percentile(values: list[float], share: int) -> float:
    """The smallest value that at least `share` percent of the values do not exceed."""
    return sorted(values)[-(-len(values) * share // 100) - 1]


def call_keys(*prefixes: str) -> list[str]:
    """The rows that the loops over small calls fill."""
    return [f"{p}_{k}" for p in prefixes for k in ("p50_us", "p99_us", *(f"c{n}_calls_s" for n in IN_FLIGHT))]


def sequential(call: Callable[[], object], effort: Effort) -> list[float]:
    """Seconds of each of a run of calls, one after another."""
    for _ in range(effort.warm_calls):
        call()
    taken: list[float] = []
    end = time.perf_counter() + effort.call_seconds
    while len(taken) < effort.calls and (len(taken) < 100 or time.perf_counter() < end):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return taken


def windowed(send: Callable[[], object], receive: Callable[[], object], width: int, effort: Effort) -> float:
    """Calls per second with `width` of them in flight, for a peer whose sending and receiving are separate."""
    for _ in range(width):
        send()
    done = 0
    start = now = time.perf_counter()
    while now - start < effort.flight_seconds:
        receive()
        send()
        done += 1
        now = time.perf_counter()
    for _ in range(width):
        receive()
    return done / (now - start)


class EchoTimes:
    """Which of a few echoes counts: the median of many small ones, the best of a few large ones."""

    def __init__(self, size: str, effort: Effort) -> None:
        self.blob = os.urandom(ECHO_BYTES[size])
        self._taken: list[float] = []
        self._effort = effort
        self._end = time.perf_counter() + effort.echo_seconds

    def wanted(self) -> bool:
        now = time.perf_counter()
        if len(self._taken) < self._effort.echoes:
            return not self._taken or now < self._end + STEP_SECONDS / 4
        return len(self.blob) <= 1 << 20 and now < self._end

    def add(self, seconds: float, back: object) -> None:
        """The comparison stands outside the clock."""
        self._taken.append(seconds)
        if back != self.blob:
            raise ValueError("the echo differs from what was sent")

    def seconds(self) -> float:
        return statistics.median(self._taken) if len(self.blob) < 1 << 20 else min(self._taken)


@contextlib.contextmanager
def time_limit(seconds: int = STEP_SECONDS) -> Iterator[None]:
    """For peers whose calls block: raises TimeoutError inside after these seconds."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def children(root: int) -> dict[int, list[int]]:
    """The process tree under `root`: parent -> its children."""
    by_parent: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError, ValueError):
            stat = Path(f"/proc/{name}/stat").read_text(errors="replace")
            by_parent.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(name))
    tree: dict[int, list[int]] = {}
    todo = [root]
    while todo:
        parent = todo.pop()
        tree[parent] = by_parent.get(parent, [])
        todo += tree[parent]
    return tree


def resident_mib(pid: int) -> float:
    """VmRSS: what the process has in memory, shared pages counted whole."""
    return _field_kib(f"/proc/{pid}/status", "VmRSS:") / 1024


def proportional_mib(pid: int) -> float:
    """PSS: as VmRSS, but a page shared by n processes counts 1/n."""
    return _field_kib(f"/proc/{pid}/smaps_rollup", "Pss:") / 1024


def private_kb() -> float:
    """What only this process has in memory, in units of 1000 bytes."""
    gc.collect()
    return sum(_field_kib("/proc/self/smaps_rollup", f"Private_{kind}:") for kind in ("Clean", "Dirty")) * 1.024


def tree_mib(root: int) -> float:
    """PSS of everything below `root`, without `root` itself."""
    total = 0.0
    for pid in set(children(root)) - {root}:
        with contextlib.suppress(OSError):
            total += proportional_mib(pid)
    return total


def _field_kib(path: str, field: str) -> int:
    for line in Path(path).read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise LookupError(f"{path} has no {field}")


def spawn(argv: list[str], env: dict[str, str]) -> int:
    """fork and exec with as little around it as Python allows; descriptors marked inheritable pass; no output."""
    return os.posix_spawn(argv[0], argv, env, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])


def settle(pid: int, report: Report, effort: Effort) -> None:
    """Memory of a server at its ready signal, and again when it has been idle for a while."""
    report.rows["server_rss_ready_MiB"] = resident_mib(pid)
    time.sleep(effort.settle_seconds)
    report.rows["server_rss_MiB"] = resident_mib(pid)
    report.rows["server_pss_MiB"] = proportional_mib(pid)


BESIDE_KEYS = tuple(f"beside_{kind}_{part}_us" for kind in BESIDE for part in ("p50", "p99"))
MANY_KEYS = (*(f"many_{n}_calls_s" for n in MANY), "many_client_kB")
SERVER_KEYS = ("server_ready_ms", "server_rss_ready_MiB", "server_rss_MiB", "server_pss_MiB")
