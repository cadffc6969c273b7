"""A link that is cut: at every byte of what is said on it, and time and again under one long call."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import call_targets as t
import pytest
import storm_targets as s
from judge import Outcome, judge
from processes import Runtime
from shim import Shim, Way, both

from agentix import RuntimeClient, RuntimeUnreachable

DEADLINE = 10.0


@pytest.mark.parametrize(
    ("seconds", "between"), [(8, 1), pytest.param(3600, 60, marks=pytest.mark.long)], ids=["8s", "hour"]
)
@pytest.mark.parametrize("http_sync_ms", [None, 200])
def test_a_long_call_outlives_its_links(
    worker_python: str, tmp_path: Path, http_sync_ms: int | None, seconds: int, between: int
) -> None:
    lines = tmp_path / "lines"

    async def main(url: str, shim: Shim) -> int:
        cuts = 0
        options: Any = {"reconnection_attempts": 0, "reconnection_delay_max": between / 5}
        async with RuntimeClient(url, http_sync_ms=http_sync_ms, **options) as client:
            call = asyncio.create_task(client.remote(t.append_line, str(lines), "once", seconds))
            while not call.done():
                await asyncio.wait([call], timeout=between)
                cuts += shim.cut() > 0
            assert await call == "once"
            assert client._core.counts()["pending"] == 0
        return cuts

    with Runtime(worker_python, tmp_path) as runtime, Shim(runtime.url) as shim:
        cuts = asyncio.run(asyncio.wait_for(main(shim.url, shim), seconds + 30))
    assert cuts > seconds // between // 2
    assert lines.read_text() == "once\n"


# ---- every byte ----


class Exchange:
    """One call by a new client through a shim, time and again, with one cut each time."""

    def __init__(self, shim: Shim, journal: Path, http_sync_ms: int | None) -> None:
        self.shim = shim
        self.journal = journal
        self.http_sync_ms = http_sync_ms
        self.begun: list[str] = []
        self.outcomes: list[Outcome] = []

    async def once(self, first: int, plan: Callable[[int], tuple[Way, Way]]) -> None:
        """`plan` gets the numbers of connections within this exchange."""
        key = f"call-{len(self.begun)}"
        self.shim.plan = lambda number: plan(number - first)
        self.begun.append(key)
        kind, detail = "value", ""
        began = time.monotonic()
        client = RuntimeClient(
            self.shim.url, http_sync_ms=self.http_sync_ms, call_deadline=DEADLINE, reconnection_delay=0.002
        )
        try:
            value = await client.remote(s.work, str(self.journal), key, 0, 64)
            assert value == s.value_of(key, 64)
            if self.shim.count - first == 1:
                await client.remote(len, "its request carries the acknowledgement")
        except RuntimeUnreachable as exc:
            kind, detail = "unreachable" if "unknown" in str(exc) else "never-started", str(exc)
        self.outcomes.append(Outcome(key, kind, time.monotonic() - began, DEADLINE, detail))
        await client.close()

    async def recorded(self) -> list[tuple[int, int]]:
        """How many bytes travel, up and down, on each connection of an exchange that nothing disturbs."""
        ways: list[tuple[Way, Way]] = []

        def plan(number: int) -> tuple[Way, Way]:
            ways.append((Way(), Way()))
            return ways[-1]

        await self.once(self.shim.count, plan)
        return [(up.passed, down.passed) for up, down in ways]

    async def cut_at(self, connection: int, direction: int, at: int, *, reset: bool) -> None:
        def plan(number: int) -> tuple[Way, Way]:
            ways = Way(), Way()
            if number == connection:
                ways[direction].cut_at = at
                ways[direction].reset = reset
            return ways

        await self.once(self.shim.count, plan)


@pytest.mark.parametrize("reset", [False, pytest.param(True, marks=pytest.mark.long)], ids=["fin", "rst"])
@pytest.mark.parametrize("http_sync_ms", [None, 1000], ids=["link", "http"])
@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.long)], ids=["thirds", "all"])
def test_a_cut_at_every_byte(
    worker_python: str, tmp_path: Path, http_sync_ms: int | None, reset: bool, stride: int
) -> None:
    async def main(exchange: Exchange) -> int:
        await exchange.once(exchange.shim.count, both)  # the worker is there now
        sizes = await exchange.recorded()
        for connection, both_ways in enumerate(sizes):
            for direction, size in enumerate(both_ways):
                for at in {*range(0, size + 1, stride), size}:
                    await exchange.cut_at(connection, direction, at, reset=reset)
        print(sizes, Counter(outcome.kind for outcome in exchange.outcomes))
        return sum(map(sum, sizes))

    journal = tmp_path / "journal"
    with Runtime(worker_python, tmp_path) as runtime, Shim(runtime.url) as shim:
        exchange = Exchange(shim, journal, http_sync_ms)
        assert asyncio.run(main(exchange)) > 500
    assert judge(exchange.begun, exchange.outcomes, journal) == []
    kinds = Counter(outcome.kind for outcome in exchange.outcomes)
    assert set(kinds) <= {"value", "never-started"}
    assert kinds["value"] > kinds["never-started"]
