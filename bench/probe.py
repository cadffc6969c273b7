"""What the participants share: timing loops, readings of /proc, and the one JSON object each prints.

A participant is a program of its own. It measures rows into a `Report` and prints it; a row that cannot be
measured is recorded with its reason, so that the table never has a silent gap.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TARGETS = Path(__file__).resolve().parent / "targets"
ECHO_MIB = (1, 10, 100)
IN_FLIGHT = (16, 128)
STEP_SECONDS = 20  # a loop that takes longer is given up: its rows are missing, the others are measured all the same


class Effort:
    """How long the loops run. `--quick` is for a look; the gate uses the full one."""

    def __init__(self, quick: bool) -> None:
        self.creates = 3 if quick else 5
        self.warm_calls = 200
        self.calls = 1000 if quick else 4000
        self.call_seconds = 1.0 if quick else 3.0
        self.flight_seconds = 0.3 if quick else 1.0
        self.echoes = 3  # the first one also pays for fresh memory, so fewer would measure something else
        self.settle_seconds = 1.0


class Report:
    """Rows measured by one participant; printed once, as JSON, on the real stdout."""

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

    def latency(self, prefix: str, seconds: list[float]) -> None:
        self.rows[f"{prefix}_p50_us"] = statistics.median(seconds) * 1e6
        self.rows[f"{prefix}_p99_us"] = percentile(seconds, 99) * 1e6

    def bandwidth(self, mib: int, seconds: float) -> None:
        """Both directions count: an echo carries the value twice."""
        self.rows[f"echo_{mib}_MB_s"] = 2 * mib * 1.048576 / seconds

    def starts(self, ready: list[float], first: list[float]) -> None:
        self.rows["create_ready_ms"] = statistics.median(ready) * 1e3
        self.rows["create_first_ms"] = statistics.median(first) * 1e3

    def stand_in(self) -> None:
        """For a participant without coroutine targets: its plain calls stand in the coroutine rows."""
        for key in ("p50_us", *(f"c{n}_calls_s" for n in IN_FLIGHT)):
            if f"sync_{key}" in self.rows:
                self.rows[f"async_{key}"] = self.rows[f"sync_{key}"]
            else:
                self.failed[f"async_{key}"] = self.failed.get(f"sync_{key}", "not measured")

    def print(self) -> None:
        text = json.dumps({"about": self.about, "rows": self.rows, "failed": self.failed})
        with os.fdopen(self._out, "w") as out:
            out.write(text + "\n")


def reason(error: BaseException) -> str:
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


def echo_seconds(echo: Callable[[bytes], bytes], mib: int, effort: Effort) -> float:
    """The best of a few echoes of random bytes; the comparison stands outside the clock."""
    blob, best = os.urandom(mib << 20), float("inf")
    for _ in range(effort.echoes):
        start = time.perf_counter()
        back = echo(blob)
        best = min(best, time.perf_counter() - start)
        if back != blob:
            raise ValueError("the echo differs from what was sent")
    return best


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """For peers whose calls block: raises TimeoutError inside after STEP_SECONDS."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"took longer than {STEP_SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(STEP_SECONDS)
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
    """fork and exec with as little around it as Python allows; descriptors marked inheritable pass."""
    return os.posix_spawn(argv[0], argv, env)


def settle(pid: int, report: Report, effort: Effort) -> None:
    """Memory of a server at its ready signal, and again when it has been idle for a while."""
    report.rows["server_rss_ready_MiB"] = resident_mib(pid)
    time.sleep(effort.settle_seconds)
    report.rows["server_rss_MiB"] = resident_mib(pid)
    report.rows["server_pss_MiB"] = proportional_mib(pid)


SERVER_KEYS = ("server_ready_ms", "server_rss_ready_MiB", "server_rss_MiB", "server_pss_MiB")
