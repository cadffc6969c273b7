"""Everything at once on a link that is cut again and again: calls, streams, logs, output, spans, events, requests.

What must hold: a call has one outcome and its target ran at most once; the items of a stream are contiguous; records,
lines and spans come in order, once, and every hole is counted; events of plugins come in order and never twice, and no
more are missing than can have been on their way when a link was cut.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import mixed_targets as m
import pytest
import storm_targets as storm
from judge import Outcome, judge
from processes import Runtime, eventually
from shim import Shim

import agentix
from agentix import AsyncClientNamespace, RuntimeClient, trace

DEADLINE = 60.0
BUFFER = 3000


class Desk(AsyncClientNamespace):
    namespace = "/agx-mixed"

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[int] = []
        self.asked: list[int] = []

    def on_up(self, data: dict[str, Any]) -> None:
        self.heard.append(data["n"])

    @agentix.request_handler("double")
    async def double(self, body: int) -> int:
        self.asked.append(body)
        return 2 * body


class Ears(logging.Handler, trace.Processor):
    """What came of records, lines and spans."""

    def __init__(self) -> None:
        super().__init__(0)
        self.said: dict[str, list[int]] = {"record": [], "line": [], "span": []}
        self.lost = {"log": 0, "trace": 0}

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.name == "agentix.sandbox.mixed_targets.log":
            self.said["record"].append(int(text))
        elif record.name == "agentix.sandbox.stdout":
            self.said["line"].append(int(text))
        elif found := re.search(r"(log|trace) buffer full: (\d+) ", text):
            self.lost[found[1]] += int(found[2])

    def on_span_end(self, s: trace.Span) -> None:
        self.said["span"].append(int(s.name))


@pytest.fixture
def ears() -> Iterator[Ears]:
    ears = Ears()
    logger = logging.getLogger("agentix")
    before, processors = logger.level, trace.get_processors()
    logger.addHandler(ears)
    logger.setLevel(1)
    trace.set_processors([ears])
    yield ears
    trace.set_processors(processors)
    logger.removeHandler(ears)
    logger.setLevel(before)


class Mix:
    """One task for each kind of traffic, until `over`."""

    def __init__(self, client: RuntimeClient, desk: Desk, journal: Path, seed: int) -> None:
        self.client = client
        self.desk = desk
        self.journal = str(journal)
        self.random = random.Random(seed)
        self.over = False
        self.begun: list[str] = []
        self.outcomes: list[Outcome] = []
        self.sent: dict[str, int] = dict.fromkeys(["record", "line", "span", "up", "down", "ask", "stream"], 0)
        self.unanswered = 0

    async def run(self) -> None:
        await asyncio.gather(
            *(self.calls(f"a{i}") for i in range(4)),
            self.streams(),
            self.streams_async(),
            self.numbered("record", lambda first, n: self.client.remote(m.record, first, n, "b" * self.some(0, 300))),
            self.numbered("line", lambda first, n: self.client.remote(m.lines, first, n)),
            self.numbered("span", lambda first, n: self.client.remote(m.spans, first, n)),
            self.numbered("up", lambda first, n: self.client.remote(m.up, first, n, bytes(self.some(0, 2000)))),
            self.down(),
            self.asks(),
        )

    def some(self, low: int, high: int) -> int:
        return self.random.randrange(low, high + 1)

    async def pause(self) -> None:
        await asyncio.sleep(self.random.random() * 0.05)

    async def calls(self, name: str) -> None:
        for i in itertools.count():
            if self.over:
                return
            key, size = f"{name}-{i}", self.random.choice([16, 100, 20_000, 300_000])
            self.begun.append(key)
            begun = time.monotonic()
            target = self.random.choice([storm.work, storm.work_async])
            value = await self.client.remote(target, self.journal, key, self.random.random() * 0.1, size)
            kind = "value" if value == storm.value_of(key, size) else "another's value"
            self.outcomes.append(Outcome(key, kind, time.monotonic() - begun, DEADLINE))

    async def streams(self) -> None:
        while not self.over:
            n, size, end = self.some(0, 600), self.some(0, 3000), self.some(1, 1200)
            seen = 0
            async for item in self.client.remote(m.items, n, size):
                assert item == (seen, bytes([seen % 256]) * size)
                seen += 1
                if seen == end:
                    break
            assert seen == min(n, end)
            self.sent["stream"] += seen

    async def streams_async(self) -> None:
        while not self.over:
            n = self.some(0, 300)
            got = [item async for item in self.client.remote(m.items_async, n, 0.001)]
            assert got == list(range(n))
            self.sent["stream"] += n

    async def numbered(self, kind: str, say: Callable[[int, int], Awaitable[Any]]) -> None:
        while not self.over:
            n = self.some(1, 2 * BUFFER) if kind == "record" and self.some(0, 9) == 0 else self.some(1, 100)
            await say(self.sent[kind], n)
            self.sent[kind] += n
            await self.pause()

    async def down(self) -> None:
        while not self.over:
            for _ in range(self.some(1, 30)):
                await self.desk.emit("down", {"n": self.sent["down"], "ballast": bytes(self.some(0, 2000))})
                self.sent["down"] += 1
            await self.pause()

    async def asks(self) -> None:
        while not self.over:
            answer = await self.client.remote(m.ask, self.sent["ask"], 1.0)
            assert answer in (None, 2 * self.sent["ask"])
            self.unanswered += answer is None
            self.sent["ask"] += 1


async def cuts(shim: Shim, n: int, seed: int) -> int:
    """End that many connections, at any time or at any byte of what passes next."""
    draw, done = random.Random(seed), 0
    while done < n:
        await asyncio.sleep(draw.random() * 0.2)
        links = shim.links()
        if not links:
            continue
        link, kind = draw.choice(links), draw.randrange(4)
        if kind == 0:
            done += shim.cut(reset=draw.random() < 0.5)
            continue
        if kind == 1:
            shim.end(link, reset=draw.random() < 0.5)
        else:
            way = draw.choice(link.ways())
            shim.change(way, cut_at=way.passed + draw.choice([1, draw.randrange(1, 5000)]), reset=draw.random() < 0.5)
        done += 1
    return done


def missing(name: str, came: list[int], sent: int) -> int:
    """How many of the numbers below `sent` did not come; those that did must be in order, once each."""
    assert all(a < b for a, b in itertools.pairwise(came)), f"{name}: twice or out of order"
    assert not came or came[-1] < sent, f"{name}: never sent"
    return sent - len(came)


@pytest.mark.parametrize("n", [60, pytest.param(1000, marks=pytest.mark.long)])
def test_everything_at_once(worker_python: str, tmp_path: Path, ears: Ears, n: int) -> None:
    seed, journal = random.randrange(1 << 30), tmp_path / "journal"
    complaints: list[Any] = []
    print(f"seed {seed}")

    async def main(shim: Shim) -> tuple[Mix, list[int]]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        desk = Desk()
        knobs: dict[str, Any] = {"http_sync_ms": 50, "reconnection_delay": 0.01, "reconnection_delay_max": 0.1}
        knobs["reconnection_attempts"] = 0  # on a busy machine a large call may be cut more often than the default
        client = RuntimeClient(shim.url, call_deadline=DEADLINE, **knobs)
        client.register_namespace(desk)
        async with client:
            mix = Mix(client, desk, journal, seed)
            running = asyncio.create_task(mix.run())
            cutting = asyncio.create_task(cuts(shim, n, seed))
            await asyncio.wait([running, cutting], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                cutting.cancel()
                await running
            await cutting
            mix.over = True
            await asyncio.wait_for(running, DEADLINE)
            shim.cut()  # links that are still to be cut at a byte are gone then
            await client.remote(m.up, mix.sent["up"], 1, b"")
            await desk.emit("down", {"n": mix.sent["down"]})
            await eventually(lambda: desk.heard[-1:] == [mix.sent["up"]], "the last event comes")
            mix.sent["up"] += 1
            mix.sent["down"] += 1
            for _ in range(1000):
                got: list[int] = await client.remote(m.got)
                if got[-1:] == [mix.sent["down"] - 1]:
                    break
                await asyncio.sleep(0.01)
            else:
                raise AssertionError("in vain: the last event of the host comes")
            # Closing waits for the rest, but no more than two seconds.
            last = {kind: [mix.sent[kind] - 1] for kind in ("record", "line", "span")}
            await eventually(
                lambda: all(ears.said[kind][-1:] == last[kind] for kind in last), "the last of all comes", 60
            )
        return mix, got

    with Runtime(worker_python, tmp_path, AGENTIX_LOG_BUFFER=str(BUFFER)) as runtime, Shim(runtime.url) as shim:
        mix, got = asyncio.run(main(shim))
    gaps = {kind: missing(kind, ears.said[kind], mix.sent[kind]) for kind in ("record", "line", "span")}
    gaps |= {"up": missing("up", mix.desk.heard, mix.sent["up"]), "down": missing("down", got, mix.sent["down"])}
    print(f"{n} cuts; {len(mix.begun)} calls; sent {mix.sent}; missing {gaps}, said to be lost {ears.lost}")
    print(f"unanswered {mix.unanswered} of {mix.sent['ask']} requests")
    assert judge(mix.begun, mix.outcomes, journal) == []
    assert 0 <= ears.lost["log"] - gaps["record"] - gaps["line"] <= 25  # the runtime's own words are items as well
    assert gaps["span"] == ears.lost["trace"] == 0
    for kind in ("up", "down"):  # what was on its way at a cut, and no more
        assert gaps[kind] <= min(30 * n, mix.sent[kind] // 2)
    assert missing("ask", mix.desk.asked, mix.sent["ask"]) <= mix.unanswered
    assert complaints == []
