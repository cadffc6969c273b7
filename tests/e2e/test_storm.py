"""Storms: thousands of calls while workers and servers are killed and stopped, and links cut, slowed and swallowed.

What must hold is judged by `support/judge.py` from what the host and the targets noted, and by what the last server
says of its tables.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp
import msgpack
import pytest
import socketio
import storm_targets as t
from judge import Outcome, judge
from processes import Runtime, alive, descriptors, eventually, kill, rss
from shim import Link, Shim, Way

from agentix import CallTimeout, Ok, RemoteCallError, RuntimeClient, RuntimeUnreachable, WorkerExited

DEADLINE = 10.0
SHORT_DEADLINE = 0.15
AT_ONCE = 60
UNKNOWN = "whether the call has run is unknown"


class Host:
    """Makes calls and notes how each ends."""

    def __init__(self, url: str, journal: Path, seed: int) -> None:
        self.journal = str(journal)
        self.random = random.Random(seed)
        self.begun: list[str] = []
        self.outcomes: list[Outcome] = []
        knobs: dict[str, Any] = {"reconnection_attempts": 0, "reconnection_delay": 0.02, "reconnection_delay_max": 0.3}
        knobs |= {"cancel_grace": 1.0}
        self.clients = [
            RuntimeClient(url, http_sync_ms=100, call_deadline=DEADLINE, **knobs),
            RuntimeClient(url, http_sync_ms=None, call_deadline=DEADLINE, **knobs),
            RuntimeClient(url, http_sync_ms=50, call_deadline=SHORT_DEADLINE, **knobs),
        ]

    async def calls(self, n: int) -> None:
        """That many calls, some at once."""
        keys = iter(range(n))

        async def some() -> None:
            for i in keys:
                await self.one(f"call-{i}")

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))

    async def one(self, key: str) -> None:
        draw = self.random
        number = draw.choices(range(3), [10, 10, 1])[0]
        target = draw.choice([t.work, t.work_async, t.work_async, t.fail])
        seconds = draw.choice([0, 0, 0.01, 0.05, draw.random() * 0.4])
        size = draw.choice([16, 16, 100, 20_000, 300_000])
        ballast = bytes(draw.choice([0, 0, 0, 1000, 40_000]))
        call = self.clients[number].remote(target, self.journal, key, seconds, size, ballast)
        deadline = SHORT_DEADLINE if number == 2 else DEADLINE
        self.begun.append(key)
        begun = time.monotonic()
        task = asyncio.create_task(self._end_of(call, key, size))
        if draw.random() < 0.05:
            await asyncio.wait([task], timeout=draw.choice([0, 0.001, draw.random() * 0.2]))
            task.cancel()
        await asyncio.wait([task])
        kind, detail = ("cancelled", "") if task.cancelled() else task.result()
        self.outcomes.append(Outcome(key, kind, time.monotonic() - begun, deadline, detail))

    async def _end_of(self, call: Awaitable[bytes], key: str, size: int) -> tuple[str, str]:
        try:
            value = await call
        except WorkerExited as exc:
            return "worker-died", str(exc)
        except RemoteCallError as exc:
            return _kind_of(exc, key), str(exc) + f" reason {exc.error.reason}"
        except CallTimeout as exc:
            return "deadline", str(exc)
        except RuntimeUnreachable as exc:
            return "unreachable" if UNKNOWN in str(exc) else "never-started", str(exc)
        return ("value", "") if value == t.value_of(key, size) else ("another's value", repr(value[:40]))

    def counts(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for client in self.clients:
            total.update(client._core.counts())
        return total


def _kind_of(exc: RemoteCallError, key: str) -> str:
    if exc.error.type == "ValueError" and key in exc.error.message:
        return "target-error"
    if exc.error.type == "ResultUnavailable" and exc.error.reason == "instance_changed":
        return "unknown"
    return f"error {exc.error.type}"


class Weather:
    """Faults, one after the other, drawn by a seed."""

    def __init__(self, runtime: Runtime, shim: Shim, seed: int, *, kills: bool) -> None:
        self.runtime = runtime
        self.shim = shim
        self.random = random.Random(seed)
        self.count: Counter[str] = Counter()
        self._waiting: set[asyncio.Task[None]] = set()
        self._faults: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self.cut_all, 15),
            (self.cut_one, 15),
            (self.cut_at_a_byte, 30),
            (self.half_close, 8),
            (self.blackhole, 8),
            (self.slow, 8),
            (self.refuse, 5),
            (self.stop_server, 5),
        ]
        if kills:
            self._faults += [(self.kill_worker, 15), (self.kill_server, 8), (self.stop_worker, 5)]

    def begins(self) -> None:
        self.shim.plan = self.plan

    def plan(self, number: int) -> tuple[Way, Way]:
        up, down = Way(), Way()
        if self.random.random() < 0.05:
            self.random.choice([up, down]).cut_at = self.random.randrange(3000)
        return up, down

    async def fault(self) -> None:
        functions, weights = zip(*self._faults, strict=True)
        function = self.random.choices(functions, weights)[0]
        self.count[function.__name__] += 1
        await function()

    async def over(self) -> None:
        self.shim.plan = lambda number: (Way(), Way())
        await asyncio.gather(*self._waiting)

    def _later(self, seconds: float, function: Callable[[], object]) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            function()

        task = asyncio.create_task(wait())
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    def _a_link(self) -> Link | None:
        links = self.shim.links()
        return self.random.choice(links) if links else None

    # ---- links ----

    async def cut_all(self) -> None:
        self.shim.cut(reset=self.random.random() < 0.5)

    async def cut_one(self) -> None:
        link = self._a_link()
        if link:
            self.shim.end(link, reset=self.random.random() < 0.5)

    async def cut_at_a_byte(self) -> None:
        link = self._a_link()
        if link:
            way = self.random.choice(link.ways())
            self.shim.change(way, cut_at=way.passed + self.random.choice([1, self.random.randrange(1, 2000)]))

    async def half_close(self) -> None:
        link = self._a_link()
        if link:
            way = self.random.choice(link.ways())
            self.shim.change(way, half_close_at=way.passed + self.random.randrange(1, 500))
            self._later(2, lambda: self.shim.end(link, reset=True))

    async def blackhole(self) -> None:
        for link in self.shim.links():
            if self.random.random() < 0.5:
                for way in link.ways():
                    self.shim.change(way, swallow_at=way.passed)
                self._later(self.random.random() * 3, lambda link=link: self.shim.end(link, reset=True))

    async def slow(self) -> None:
        for link in self.shim.links():
            for way in link.ways():
                self.shim.change(way, piece=self.random.randrange(1, 200), every=0.001)
                self._later(0.5, lambda way=way: self.shim.change(way, piece=None, every=0.0, delay=0.0))

    async def refuse(self) -> None:
        self.shim.refuse = True
        self.shim.cut()
        self._later(0.3, lambda: setattr(self.shim, "refuse", False))

    # ---- processes ----

    async def stop_server(self) -> None:
        self.runtime.signal(signal.SIGSTOP)
        await asyncio.sleep(self.random.random())
        self.runtime.signal(signal.SIGCONT)

    async def stop_worker(self) -> None:
        for worker in self.runtime.workers()[:1]:
            os.kill(worker, signal.SIGSTOP)
            await asyncio.sleep(self.random.random())
            if alive(worker):
                os.kill(worker, signal.SIGCONT)

    async def kill_worker(self) -> None:
        workers = self.runtime.workers()
        if workers:
            kill(self.random.choice(workers))

    async def kill_server(self) -> None:
        await asyncio.to_thread(self.runtime.kill)
        await asyncio.to_thread(self.runtime.start)
        self.shim.target = self.runtime.url


async def storm(host: Host, weather: Weather, n: int, faults: int) -> None:
    """`n` calls; a fault whenever another share of them has ended."""
    for client in host.clients:
        await client.health()
    weather.begins()
    calls = asyncio.create_task(host.calls(n))
    for i in range(faults):
        await eventually(lambda i=i: len(host.outcomes) >= i * n // faults or calls.done(), "calls end", 60)
        await weather.fault()
    await weather.over()
    await calls
    for client in host.clients:  # in good weather: now all that is due can be said
        for _ in range(50):  # a worker may be starting
            last = await client.try_remote(len, "four")
            if last == Ok(4):
                break
            await asyncio.sleep(0.1)
        assert last == Ok(4)


async def answers_to_resume(url: str, session: str, ids: list[str]) -> Counter[str]:
    """What the server says of these ids to a stock client of that session: how many answers of each kind."""
    told: dict[str, str] = {}
    parts = urlsplit(url)
    unix = aiohttp.UnixConnector(unquote(parts.netloc)) if parts.scheme == "http+unix" else None
    http = aiohttp.ClientSession(connector=unix)
    stock = socketio.AsyncClient(reconnection=False, http_session=http)

    def on_error(data: bytes) -> None:
        event = msgpack.unpackb(data)
        assert event["call_id"] not in told
        told[event["call_id"]] = f"{event['error']['type']} {event['error'].get('reason')}"

    def on_result(data: bytes) -> None:
        event = msgpack.unpackb(data)
        assert event["call_id"] not in told
        told[event["call_id"]] = "result"

    stock.on("call:error", on_error, namespace="/rpc")
    stock.on("call:result", on_result, namespace="/rpc")
    base = "http://127.0.0.1" if unix else url
    await stock.connect(base, transports=["websocket"], namespaces=["/rpc"], auth={"session": session})
    await stock.emit("resume", msgpack.packb({"call_ids": ids}), namespace="/rpc")
    while (before := len(told)) < len(ids):  # many answers take a while on a busy machine: what must not be is silence
        await eventually(lambda before=before: len(told) > before, f"every id is answered: {before} of {len(ids)}", 30)
    await stock.disconnect()
    await http.close()
    return Counter(told.values())


STATE = re.compile(
    r"state: calls: (\d+) open, (\d+) bytes held for a worker, (\d+) retained .* (\d+) dropped; .*ns: (\d+)"
)


async def state_of(runtime: Runtime) -> dict[str, int]:
    """What the server says of its tables."""

    def said() -> list[tuple[str, ...]]:
        return STATE.findall(runtime.log.read_text())

    before = len(said())
    runtime.signal(signal.SIGUSR1)
    await eventually(lambda: len(said()) > before, "the server says its state")
    return dict(zip(["open", "held", "retained", "dropped", "connections"], map(int, said()[-1]), strict=True))


async def all_is_over(host: Host, runtime: Runtime, shim: Shim, resting: int) -> str:
    """The tables of both ends hold nothing but what is not acknowledged yet, and no descriptor is left."""
    for _ in range(800):  # targets of calls that ended here may run on, a cancel or an ack may be under way
        state = await state_of(runtime)
        counts = host.counts()
        if not state["open"] and not counts["cancels"] and state["retained"] <= counts["acks"]:
            break
        await asyncio.sleep(0.01)
    assert {name: counts[name] for name in ("pending", "waiting", "pausing", "linked", "cancels")} == dict.fromkeys(
        ("pending", "waiting", "pausing", "linked", "cancels"), 0
    )
    for client in host.clients:
        await client.close()
    for _ in range(500):
        state = await state_of(runtime)
        if not state["connections"]:
            break
        await asyncio.sleep(0.01)
    assert state["open"] == state["held"] == state["dropped"] == state["connections"] == 0, (
        state,
        shim.links(),
        of_port(runtime.url),
    )
    ids = [f"{client._core.session}-{i + 1}" for client in host.clients for i in range(len(host.begun) + 100)]
    answers: Counter[str] = Counter()
    for client in host.clients:
        answers += await answers_to_resume(
            runtime.url, client._core.session, [i for i in ids if i.startswith(client._core.session)]
        )
    kept = sum(n for answer, n in answers.items() if "Unavailable" not in answer)
    later = await state_of(runtime)  # a result that was answered inline goes by itself after a while
    assert later["retained"] <= kept <= state["retained"] <= counts["acks"], (answers, state, later, counts)
    for _ in range(500):
        if descriptors(runtime.pid) <= resting and len(runtime.workers()) <= 1:
            break
        await asyncio.sleep(0.01)
    assert descriptors(runtime.pid) <= resting
    return f"{state}, {dict(answers)}, RSS {rss(runtime.pid) >> 10} KiB"


def of_port(url: str) -> list[str]:
    """What the kernel knows of the connections of a server: state, queues."""
    port = f":{urlsplit(url).port or 0:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()
    return [line for line in lines if port in line and " 06 " not in line]


async def resting_descriptors(python: str, directory: Path) -> int:
    """Of a server that has a ready worker and no connection."""
    with Runtime(python, directory) as fresh:
        async with RuntimeClient(fresh.url) as client:
            await client.remote(len, "x")
        for _ in range(500):
            if not (await state_of(fresh))["connections"]:
                break
            await asyncio.sleep(0.01)
        return descriptors(fresh.pid)


def weathered(python: str, tmp_path: Path, n: int, faults: int, seed: int, *, kills: bool, unix: bool) -> Counter[str]:
    journal = tmp_path / "journal"
    (tmp_path / "fresh").mkdir()
    paths: dict[str, str | None] = {"server": str(tmp_path / "r"), "shim": str(tmp_path / "s")} if unix else {}
    print(f"seed {seed}")

    async def main(runtime: Runtime, shim: Shim) -> Host:
        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        resting = await resting_descriptors(python, tmp_path / "fresh")
        host = Host(shim.url, journal, seed)
        weather = Weather(runtime, shim, seed, kills=kills)
        begun = time.monotonic()
        await storm(host, weather, n, faults)
        took = time.monotonic() - begun
        print(f"{n} calls in {took:.1f} s; faults: {dict(weather.count)}")
        print(f"outcomes: {dict(Counter(outcome.kind for outcome in host.outcomes))}")
        print(await all_is_over(host, runtime, shim, resting))
        assert complaints == []
        return host

    with (
        Runtime(python, tmp_path, unix_path=paths.get("server")) as runtime,
        Shim(runtime.url, unix_path=paths.get("shim")) as shim,
    ):
        host = asyncio.run(main(runtime, shim))
    assert judge(host.begun, host.outcomes, journal) == []
    return Counter(outcome.kind for outcome in host.outcomes)


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("n", "faults", "unix"),
    [(1000, 50, False), pytest.param(10_000, 500, False, marks=LONG), pytest.param(10_000, 500, True, marks=LONG)],
    ids=["short", "tcp", "unix"],
)
def test_nothing_runs_twice_and_nothing_hangs(
    worker_python: str, tmp_path: Path, n: int, faults: int, unix: bool
) -> None:
    kinds = weathered(worker_python, tmp_path, n, faults, random.randrange(1 << 30), kills=True, unix=unix)
    assert kinds["value"] + kinds["target-error"] > n // 4


@pytest.mark.parametrize(
    ("n", "faults", "unix"),
    [(500, 25, True), pytest.param(5000, 300, False, marks=LONG)],
    ids=["short", "long"],
)
def test_where_only_links_fail_nothing_is_lost(
    worker_python: str, tmp_path: Path, n: int, faults: int, unix: bool
) -> None:
    kinds = weathered(worker_python, tmp_path, n, faults, random.randrange(1 << 30), kills=False, unix=unix)
    assert set(kinds) <= {"value", "target-error", "cancelled", "deadline"}
