"""The loops for participants whose calls block: the floor, execnet, rpyc, Ray. `side.py` has those of an event loop.

A participant says how to start a server and how to call into it; what is done with that is the same for all.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from itertools import cycle
from typing import Any, Protocol

import probe


class Lane(Protocol):
    """A way into a server. Answers come in the order of the calls; a lane belongs to one thread."""

    def call(self, name: str, *args: object) -> Any: ...
    def send(self, name: str, *args: object) -> None: ...
    def receive(self) -> Any: ...


class Server(Protocol):
    @property
    def pid(self) -> int: ...

    def lane(self) -> Lane:
        """One more way in, to be used at the same time as the others; closed along with the server."""
        ...


class Peer(Protocol):
    def server(self) -> AbstractContextManager[Server]:
        """A server that is ready."""
        ...


def measure(peer: Peer, report: probe.Report, effort: probe.Effort) -> None:
    if "create_first_ms" not in report.rows:
        starts(peer, report, effort)
    memory(peer, report, effort)
    small_calls(peer, report, effort)
    echoes(peer, report, effort)
    if not effort.light:
        respawns(peer, report, effort)
        beside(peer, report, effort)
        many(peer, report, effort)
    report.stand_in()
    report.print()


def starts(peer: Peer, report: probe.Report, effort: probe.Effort) -> None:
    ready: list[float] = []
    first: list[float] = []
    end = time.perf_counter() + effort.create_seconds
    with report.attempt("create_ready_ms", "create_first_ms", "server_ready_ms"), probe.time_limit():
        while len(first) < effort.creates and (not first or time.perf_counter() < end):
            start = time.perf_counter()
            with peer.server() as server:
                ready.append(time.perf_counter() - start)
                assert server.lane().call("add", 1, 2) == 3
                first.append(time.perf_counter() - start)
        report.starts(ready, first)
        report.rows["server_ready_ms"] = report.rows["create_ready_ms"]


def memory(peer: Peer, report: probe.Report, effort: probe.Effort) -> None:
    with report.attempt(*probe.SERVER_KEYS[1:]), probe.time_limit(), peer.server() as server:
        probe.settle(server.pid, report, effort)


def small_calls(peer: Peer, report: probe.Report, effort: probe.Effort) -> None:
    with report.attempt(*probe.call_keys("sync"), "tree_pss_MiB"), probe.time_limit(), peer.server() as server:
        lane = server.lane()
        report.latency("sync", probe.sequential(lambda: lane.call("add", 1, 2), effort))
        report.rows["tree_pss_MiB"] = probe.tree_mib(os.getpid())
        for width in probe.IN_FLIGHT:
            rate = probe.windowed(lambda: lane.send("add", 1, 2), lane.receive, width, effort)
            report.rows[f"sync_c{width}_calls_s"] = rate


def respawns(peer: Peer, report: probe.Report, effort: probe.Effort) -> None:
    """None of these brings back a worker that has ended: a new one is made in its place."""
    taken: list[float] = []
    end = time.perf_counter() + effort.create_seconds
    with report.attempt("respawn_ms"), probe.time_limit():
        while len(taken) < effort.respawns and (not taken or time.perf_counter() < end):
            with peer.server() as server:
                lane = server.lane()
                lane.call("add", 1, 2)
                start = time.perf_counter()
                with contextlib.suppress(Exception):
                    lane.call("leave")
                with peer.server() as other:
                    assert other.lane().call("add", 1, 2) == 3
                    taken.append(time.perf_counter() - start)
        report.rows["respawn_ms"] = statistics.median(taken) * 1e3


def echoes(peer: Peer, report: probe.Report, effort: probe.Effort) -> None:
    for group in effort.echo_groups:
        keys = [f"echo_{size}_MB_s" for size in group]
        with report.attempt(*keys), probe.time_limit(), peer.server() as server:
            lane = server.lane()
            lane.call("add", 1, 2)
            for size in group:
                times = probe.EchoTimes(size, effort)
                while times.wanted():
                    start = time.perf_counter()
                    back = lane.call("echo", times.blob)
                    times.add(time.perf_counter() - start, back)
                report.bandwidth(size, times.seconds())


class Noise:
    """Calls that go on in threads of their own until the block ends; a failure of theirs is raised then."""

    def __init__(self, server: Server, kinds: tuple[str, ...], seconds: float) -> None:
        self._over = threading.Event()
        self._failures: list[Exception] = []
        self._blob = os.urandom(probe.BESIDE_ECHO_BYTES) if "echo" in kinds else b""
        steps: dict[str, Callable[[Lane], object]] = {
            "cpu": lambda lane: lane.call("spin", seconds),
            "flood": lambda lane: lane.call("flood", seconds),
            "echo": self._echo,
        }
        lanes = [(steps[kind], server.lane()) for kind in kinds]
        self._threads = [threading.Thread(target=self._run, args=pair, daemon=True) for pair in lanes]

    def _echo(self, lane: Lane) -> None:
        while not self._over.is_set():
            lane.call("echo", self._blob)

    def _run(self, step: Callable[[Lane], object], lane: Lane) -> None:
        try:
            step(lane)
        except Exception as error:
            self._failures.append(error)

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(probe.STEP_SECONDS)
        if self._failures:
            raise self._failures[0]


def beside(peer: Peer, report: probe.Report, effort: probe.Effort) -> None:
    for kind, noises in probe.BESIDE.items():
        keys = (f"beside_{kind}_p50_us", f"beside_{kind}_p99_us")
        with report.attempt(*keys), probe.time_limit(), peer.server() as server:
            lane = server.lane()
            for _ in range(effort.warm_calls):
                lane.call("add", 1, 2)
            taken: list[float] = []
            with Noise(server, noises, effort.beside_seconds + 0.1):
                end = time.perf_counter() + effort.beside_seconds
                while (start := time.perf_counter()) < end:
                    lane.call("add", 1, 2)
                    taken.append(time.perf_counter() - start)
            report.beside(kind, taken)


class Crowd:
    """Servers that are there at once, each called at least once."""

    def __init__(self, peer: Peer, seconds: float) -> None:
        self._peer = peer
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._stack = ExitStack()
        self.lanes: list[Lane] = []

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def grow(self, count: int) -> None:
        with ThreadPoolExecutor(probe.OPENERS) as pool:
            list(pool.map(self._open, range(count - len(self.lanes))))
        if len(self.lanes) < count:
            raise TimeoutError(f"{len(self.lanes)} of {count} there after {self._seconds:g} s")

    def _open(self, _: int) -> None:
        if time.monotonic() < self._end:
            lane = self._stack.enter_context(self._peer.server()).lane()
            lane.call("add", 1, 2)
            self.lanes.append(lane)


def many(peer: Peer, report: probe.Report, effort: probe.Effort) -> None:
    few = 0.0
    with report.attempt(*probe.MANY_KEYS), Crowd(peer, effort.many_seconds) as crowd:
        for count in probe.MANY:
            crowd.grow(count)
            if count == probe.MANY[-1]:
                report.rows["many_client_kB"] = (probe.private_kb() - few) / (count - probe.MANY[-2])
            senders, receivers = cycle(crowd.lanes), cycle(crowd.lanes)
            with probe.time_limit():
                report.rows[f"many_{count}_calls_s"] = probe.windowed(
                    lambda it=senders: next(it).send("add", 1, 2),
                    lambda it=receivers: next(it).receive(),
                    probe.MANY_IN_FLIGHT,
                    effort,
                )
            few = probe.private_kb()
