"""Waiting for a reply in the loop's stead: only when nothing else is to be done, and nothing else is late for it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from asyncio import base_events
from collections.abc import Callable
from typing import Any

import call_targets as t
import pytest

from agentix import RemoteCallError, RuntimeClient

# The other method handles SIGALRM, and a program that does is left to wait as ever.
pytestmark = pytest.mark.timeout(method="thread")

Main = Callable[[RuntimeClient], Any]


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """How many turns the loop of each thread has made."""
    counted: dict[int, int] = {}
    run_once: Any = base_events.BaseEventLoop._run_once  # pyright: ignore[reportAttributeAccessIssue]

    def counting(self: Any) -> None:
        counted[threading.get_ident()] = counted.get(threading.get_ident(), 0) + 1
        run_once(self)

    monkeypatch.setattr(base_events.BaseEventLoop, "_run_once", counting)
    return counted


def play(url: str, main: Main, *, debug: bool | None = None) -> Any:
    async def whole() -> Any:
        async with asyncio.timeout(60), RuntimeClient(url) as client:
            await client.remote(t.add, 0, 0)
            return await main(client)

    return asyncio.run(whole(), debug=debug)


def my(turns: dict[int, int]) -> int:
    return turns[threading.get_ident()]


def test_a_row_of_calls_takes_hardly_a_turn(url: str, turns: dict[int, int]) -> None:
    async def main(client: RuntimeClient) -> None:
        before = my(turns)
        for i in range(500):
            assert await client.remote(t.add, i, 1) == i + 1
        assert my(turns) - before < 250  # one each, otherwise

    play(url, main)


def test_errors_and_large_values_come_that_way_too(url: str) -> None:
    async def main(client: RuntimeClient) -> None:
        for _ in range(20):
            with pytest.raises(RemoteCallError, match="raise_timeout"):
                await client.remote(t.raise_timeout)
        for size in (1, 1 << 16, 1 << 20, 5 << 20):
            blob = os.urandom(1 << 10) * (size // 1024 + 1)
            assert await client.remote(t.echo, blob) == blob

    play(url, main)


def test_calls_that_are_cancelled_before_they_are_sent(url: str) -> None:
    """Replies that come together resume tasks in a row; what those ask for is sent together, and not twice."""

    async def main(client: RuntimeClient) -> None:
        for _ in range(10):
            tasks: list[asyncio.Task[int]] = []

            async def go(i: int, tasks: list[asyncio.Task[int]]) -> int:
                assert await client.remote(t.add, i, 0) == i
                if i % 3 == 2:
                    tasks[i - 1].cancel()
                    tasks[i - 2].cancel()
                return await client.remote(t.add, i, 1000)

            tasks += [asyncio.create_task(go(i, tasks)) for i in range(60)]
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            for i, outcome in enumerate(outcomes):
                assert outcome == i + 1000 or (i % 3 < 2 and isinstance(outcome, asyncio.CancelledError))

    play(url, main)


def test_in_debug_mode_the_loop_waits(url: str, turns: dict[int, int]) -> None:
    """It reports what holds it up for long, which a wait does not."""

    async def main(client: RuntimeClient) -> None:
        before = my(turns)
        for i in range(50):
            await client.remote(t.add, i, 1)
        assert my(turns) - before > 40  # a turn that comes late may find two replies, one after the other

    play(url, main, debug=True)


def test_other_tasks_go_on(url: str) -> None:
    """What is ready runs before the reply; what becomes ready meanwhile is not kept waiting."""

    async def main(client: RuntimeClient) -> None:
        ticks: list[float] = []
        order: list[str] = []

        async def tick() -> None:
            while True:
                ticks.append(time.monotonic())
                await asyncio.sleep(0.02)

        ticker = asyncio.create_task(tick())
        await asyncio.sleep(0)
        await client.remote(t.sleep, 0.5, None)
        ticker.cancel()
        assert len(ticks) >= 8
        asyncio.get_running_loop().call_soon(order.append, "soon")
        await client.remote(t.add, 1, 2)
        order.append("reply")
        assert order == ["soon", "reply"]

    play(url, main)


def test_a_row_of_calls_starves_nobody(url: str) -> None:
    async def main(client: RuntimeClient) -> None:
        done: list[str] = []
        ours, theirs = os.pipe()
        loop = asyncio.get_running_loop()
        loop.add_reader(ours, lambda: (os.read(ours, 1), done.append("pipe")))
        loop.call_later(0.05, done.append, "timer")
        threading.Timer(0.05, os.write, (theirs, b"x")).start()
        threading.Timer(0.05, loop.call_soon_threadsafe, (done.append, "thread")).start()
        while len(done) < 3:
            await client.remote(t.add, 1, 2)
        loop.remove_reader(ours)
        os.close(ours)
        os.close(theirs)
        assert sorted(done) == ["pipe", "thread", "timer"]

    play(url, main)


def test_it_is_woken_by_another_thread(url: str) -> None:
    async def main(client: RuntimeClient) -> None:
        task = asyncio.create_task(client.remote(t.sleep, 30, None))
        asyncio.get_running_loop().call_soon(
            lambda: threading.Timer(0.2, loop.call_soon_threadsafe, (task.cancel,)).start()
        )
        begun = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - begun < 25

    async def with_loop(client: RuntimeClient) -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        await main(client)

    loop: Any = None
    play(url, with_loop)


def test_a_timeout_in_the_same_task(url: str) -> None:
    async def main(client: RuntimeClient) -> None:
        for seconds in (0, 0.0005, 0.01, 0.1):
            begun = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(seconds):
                    await client.remote(t.sleep, 30, None)
            assert time.monotonic() - begun < 25
        assert await client.remote(t.add, 1, 2) == 3

    play(url, main)


def test_cancelled_by_itself_before_it_waits(url: str) -> None:
    async def main(client: RuntimeClient) -> None:
        async def body() -> None:
            task: Any = asyncio.current_task()
            task.cancel()
            await client.remote(t.add, 1, 2)
            raise AssertionError("the call was not cancelled")

        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(body())

    play(url, main)


def test_a_signal_handler_runs_meanwhile(url: str) -> None:
    async def main(client: RuntimeClient) -> None:
        came: list[float] = []
        before = signal.signal(signal.SIGUSR1, lambda *_: came.append(time.monotonic()))
        try:
            begun = time.monotonic()
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            await client.remote(t.sleep, 3, None)
            assert came
            assert came[0] - begun < 2.9
        finally:
            signal.signal(signal.SIGUSR1, before)

    play(url, main)


def test_what_a_signal_handler_raises_ends_the_program(url: str) -> None:
    class Enough(BaseException):
        pass

    def handler(number: int, frame: Any) -> None:
        raise Enough

    async def main(client: RuntimeClient) -> None:
        for _ in range(400):
            await client.remote(t.sleep, 0.01, None)

    old = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5, 0.7)  # once it may come while a task runs, where asyncio drops it
    try:
        with pytest.raises(Enough):
            play(url, main)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_an_interrupt_cancels_the_main_task(url: str) -> None:
    async def main(client: RuntimeClient) -> None:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        await client.remote(t.sleep, 30, None)

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        play(url, main)
    assert time.monotonic() - begun < 20


def test_stepped_by_hand_it_gives_way(url: str) -> None:
    """Outside of a task nobody waits for anything: the first step comes back at once."""

    async def main(client: RuntimeClient) -> None:
        stepped: asyncio.Future[float] = asyncio.get_running_loop().create_future()

        def step() -> None:
            call: Any = client.remote(t.sleep, 5, None)
            begun = time.monotonic()
            call.send(None)
            stepped.set_result(time.monotonic() - begun)
            call.close()

        asyncio.get_running_loop().call_soon(step)
        assert await stepped < 4

    play(url, main)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with 3.12")
def test_an_eager_task_comes_back_to_its_creator(url: str) -> None:
    async def main(client: RuntimeClient) -> None:
        loop = asyncio.get_running_loop()
        begun = time.monotonic()
        make: Any = asyncio.Task
        tasks = [make(client.remote(t.sleep, 1.0, i), loop=loop, eager_start=True) for i in range(5)]
        assert time.monotonic() - begun < 0.9
        assert await asyncio.gather(*tasks) == list(range(5))

    play(url, main)


def test_a_loop_with_a_clock_of_its_own(url: str) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        real = loop.time
        loop.time = lambda: real() - 1000
        async with asyncio.timeout(60), RuntimeClient(url) as client:
            for i in range(5):
                assert await client.remote(t.add, i, 1) == i + 1

    asyncio.run(main())
