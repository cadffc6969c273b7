"""Calls of every kind over one worker, by the million: each is answered, once, with what is its own.

`AGENTIX_TEST_CALLS` says how many the long run makes. A lost wake-up shows as a call that nothing ends: the callers are
let run dry again and again, so that no later call can wake what an earlier one left asleep.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import call_targets as t
import pytest
from processes import Runtime

from agentix import CallCancelled, RemoteCallError, RuntimeClient

PATIENCE = 120.0
"""Seconds in which nothing at all ends, after which what is in flight counts as lost."""
WIDTHS = (1, 2, 16, 128)
LARGE = 300_000


class Callers:
    """So many callers at once, each with one call in flight."""

    def __init__(self, client: RuntimeClient, seed: int) -> None:
        self._client = client
        self._random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self._number = 0

    async def run(self, calls: int, width: int) -> None:
        left = calls

        async def caller() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await self._one()

        tasks = [asyncio.ensure_future(caller()) for _ in range(width)]
        while pending := [task for task in tasks if not task.done()]:
            before = self.done.total()
            done, _ = await asyncio.wait(pending, timeout=PATIENCE, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            assert done or self.done.total() > before, f"{len(pending)} callers wait in vain after {self.done}"

    async def _one(self) -> None:
        kinds, weights = zip(*KINDS.items(), strict=True)
        kind = self._random.choices(kinds, weights)[0]
        self._number += 1
        await kind(self, self._number)
        self.done[kind.__name__] += 1

    async def plain(self, n: int) -> None:
        assert await self._client.remote(t.echo, n) == n

    async def coroutine(self, n: int) -> None:
        assert await self._client.remote(t.add_async, n, 1) == n + 1

    async def sleeping(self, n: int) -> None:
        assert await self._client.remote(t.sleep_async, self._random.random() / 100, n) == n

    async def blocking(self, n: int) -> None:
        assert await self._client.remote(t.sleep, self._random.random() / 200, n) == n

    async def busy(self, n: int) -> None:
        assert await self._client.remote(t.busy, self._random.random() / 500, n) == n

    async def failing(self, n: int) -> None:
        with pytest.raises(RemoteCallError, match=str(n)):
            await self._client.remote(t.raise_keyword, user=str(n))

    async def large(self, n: int) -> None:
        value = n.to_bytes(4, "little") * (LARGE // 4)
        assert await self._client.remote(t.echo, value) == value

    async def cancelled(self, n: int) -> None:
        call = asyncio.ensure_future(self._client.remote(self._random.choice((t.sleep, t.sleep_async)), 0.02, n))
        await asyncio.sleep(self._random.random() / 50)
        call.cancel()
        try:
            assert await call == n
        except (asyncio.CancelledError, CallCancelled):
            pass


KINDS: dict[Callable[[Callers, int], Coroutine[Any, Any, None]], int] = {
    Callers.plain: 500,
    Callers.coroutine: 350,
    Callers.failing: 60,
    Callers.sleeping: 40,
    Callers.blocking: 20,
    Callers.busy: 10,
    Callers.cancelled: 10,
    Callers.large: 5,
}


async def stress(url: str, calls: int, rounds: int) -> None:
    async with RuntimeClient(url) as client:
        worker = await client.remote(os.getpid)
        begun = time.monotonic()
        done: Counter[str] = Counter()
        for turn in range(rounds):
            callers = Callers(client, turn)
            await callers.run(calls // rounds, WIDTHS[turn % len(WIDTHS)])
            done += callers.done
            if turn % 20 == 19 or turn == rounds - 1:
                print(f"{done.total()} calls in {time.monotonic() - begun:.0f} s, none lost: {dict(done)}", flush=True)
        assert done.total() == calls // rounds * rounds
        assert await client.remote(os.getpid) == worker


def test_calls_of_all_kinds_are_all_answered(worker_python: str, tmp_path: Path) -> None:
    with Runtime(worker_python, tmp_path) as runtime:
        asyncio.run(stress(runtime.url, 2000, 4))


@pytest.mark.long
@pytest.mark.timeout(0)
def test_a_million_calls_are_all_answered(worker_python: str, tmp_path: Path) -> None:
    with Runtime(worker_python, tmp_path) as runtime:
        asyncio.run(stress(runtime.url, int(os.environ.get("AGENTIX_TEST_CALLS", "1000000")), 400))
