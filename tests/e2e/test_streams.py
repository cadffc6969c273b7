"""Streams from a real runtime: order, credit, ends of every kind, and links that are cut."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import call_targets as t
import pytest
import stream_targets as s
from test_roads import Shim, runtime, until

from agentix import CallTimeout, Failed, Ok, RemoteCallError, RuntimeClient, WorkerExited
from agentix.testing import serve

KINDS = pytest.mark.parametrize("kind", ["sync", "async"])
ROADS = pytest.mark.parametrize("http_sync_ms", [None, 1000])


async def collect(stream: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in stream]


async def collect_into(got: list[Any], stream: AsyncIterator[Any]) -> None:
    async for item in stream:
        got.append(item)


@KINDS
@ROADS
def test_items_come_in_order(run: Any, worker_python: str, kind: str, http_sync_ms: int | None) -> None:
    count: Callable[..., Any] = s.count if kind == "sync" else s.count_async

    async def main() -> None:
        async with runtime(worker_python, http_sync_ms=http_sync_ms) as client:
            assert [x async for x in client.remote(count, 1000)] == list(range(1000))
            assert await collect(await client.remote(count, 3)) == [0, 1, 2]
            assert await collect(client.remote(count, 0)) == []
            assert await collect(await client.remote(count, 0)) == []
            assert await client.remote(t.add, 1, 2) == 3

    run(main())


def test_what_a_function_returns_may_be_a_stream(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            assert await collect(await client.remote(s.gives_generator, 5)) == [0, 1, 2, 3, 4]
            assert await collect(await client.remote(s.gives_generator_async, 5)) == [0, 1, 2, 3, 4]
            assert await collect(client.remote(s.gives_generator, 2)) == [0, 1]
            match await client.try_remote(s.count, 2):
                case Ok(stream):
                    assert await collect(stream) == [0, 1]
                case other:
                    pytest.fail(f"{other}")
            with pytest.raises(TypeError, match="a value of type int, not a stream"):
                await collect(client.remote(t.add, 1, 2))

    run(main())


@KINDS
def test_a_generator_is_ahead_by_a_bounded_number(run: Any, worker_python: str, kind: str, tmp_path: Path) -> None:
    noted: Callable[..., Any] = s.noted if kind == "sync" else s.noted_async
    path = str(tmp_path / "noted")

    async def main() -> None:
        async with runtime(worker_python) as client:
            stream = await client.remote(noted, path, 100_000)
            assert await anext(stream) == 0
            await until(lambda: len(s.lines_of(path)) >= 250)
            await asyncio.sleep(0.3)
            assert len(s.lines_of(path)) <= 400
            assert [await anext(stream) for _ in range(2000)] == list(range(1, 2001))
            await stream.aclose()
            await until(lambda: "finally" in s.lines_of(path))
            assert "end" not in s.lines_of(path)
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            assert await client.remote(t.add, 1, 2) == 3

    run(main())


@KINDS
@pytest.mark.parametrize("how", ["break", "drop", "cancel"])
def test_an_early_end_runs_finally(run: Any, worker_python: str, kind: str, how: str, tmp_path: Path) -> None:
    noted: Callable[..., Any] = s.noted if kind == "sync" else s.noted_async
    path = str(tmp_path / "noted")

    async def body(client: RuntimeClient) -> None:
        if how == "drop":
            stream = await client.remote(noted, path, 10_000)
            assert await anext(stream) == 0
            return
        async for item in client.remote(noted, path, 10_000):
            if item == 300 and how == "break":
                break
            if item == 300:
                await asyncio.sleep(60)

    async def main() -> None:
        async with runtime(worker_python) as client:
            task = asyncio.create_task(body(client))
            if how == "cancel":
                await until(lambda: len(s.lines_of(path)) > 300)
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            del task
            await until(lambda: "finally" in s.lines_of(path))
            assert "end" not in s.lines_of(path)

    run(main())


def test_an_early_end_of_one_that_gives_no_turn(run: Any, worker_python: str) -> None:
    """It ends between two items, in the middle of its credit; the worker goes on with other calls."""

    async def main() -> None:
        async with runtime(worker_python) as client:
            worker = await client.remote(t.pid)
            stream = aiter(client.remote(s.blocking_async, 100_000))
            assert [await anext(stream) for _ in range(3)] == [0, 1, 2]
            await stream.aclose()
            assert await client.remote(t.add_async, 1, 2) == 3
            assert await client.remote(t.pid) == worker

    run(main())


@KINDS
def test_an_error_comes_after_the_items(run: Any, worker_python: str, kind: str) -> None:
    fails: Callable[..., Any] = s.fails if kind == "sync" else s.fails_async

    async def main() -> None:
        async with runtime(worker_python) as client:
            got: list[Any] = []
            with pytest.raises(RemoteCallError, match="LookupError: no more of these") as caught:
                await collect_into(got, client.remote(fails, 300))
            assert got == list(range(300))
            assert "stream_targets.py" in (caught.value.error.traceback or "")
            with pytest.raises(RemoteCallError, match="no more"):
                await collect(client.remote(fails, 0))
            assert isinstance(await client.try_remote(fails, 0), Failed)

    run(main())


def test_an_item_that_cannot_be_sent(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            got: list[Any] = []
            with pytest.raises(RemoteCallError, match="could not be pickled") as caught:
                await collect_into(got, client.remote(s.unpicklable))
            assert got == [1]
            assert caught.value.error.type == "ResultEncodeError"

    run(main())


def test_the_worker_dies(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            got: list[Any] = []
            with pytest.raises(WorkerExited) as caught:
                await collect_into(got, client.remote(s.pid_then_die, 20))
            assert got == list(range(20))
            assert caught.value.returncode == 7
            assert await collect(client.remote(s.count, 3)) == [0, 1, 2]

    run(main())


def test_a_deadline_ends_a_stream(run: Any, worker_python: str, tmp_path: Path) -> None:
    path = str(tmp_path / "noted")

    async def main() -> None:
        async with runtime(worker_python, call_deadline=2, cancel_grace=1.0) as client:
            started = time.monotonic()
            with pytest.raises(CallTimeout, match="exceeded deadline"):
                await collect(client.remote(s.count_async, 10**6, 0.01))
            assert time.monotonic() - started < 50
            with pytest.raises(CallTimeout):
                await collect(client.remote(s.noted, path, 10**7))
            await until(lambda: "finally" in s.lines_of(path))

    run(main())


def test_a_step_can_be_given_up_without_losing_an_item(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            stream = await client.remote(s.count_async, 10, 0.05)
            got = []
            while len(got) < 10:
                with contextlib.suppress(TimeoutError):
                    got.append(await asyncio.wait_for(anext(stream), 0.02))
            assert got == list(range(10))

    run(main())


@KINDS
def test_large_items_do_not_pile_up(run: Any, worker_python: str, kind: str) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            seen = 0
            async for item in client.remote(s.large, 40, 3 << 20):
                assert item == bytes([seen]) * (3 << 20)
                seen += 1
                if seen == 5:
                    await asyncio.sleep(0.2)
            assert seen == 40

    run(main())


def test_streams_and_calls_at_once(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            streams = [
                collect(client.remote(s.count if n % 2 else s.count_async, 500))  # type: ignore[arg-type]
                for n in range(20)
            ]
            calls = [client.remote(t.add, n, n) for n in range(200)]
            results = await asyncio.gather(*streams, *calls)
            assert results[:20] == [list(range(500))] * 20
            assert results[20:] == [2 * n for n in range(200)]

    run(main())


def test_a_stubborn_generator_is_closed(run: Any, worker_python: str, tmp_path: Path) -> None:
    path = str(tmp_path / "noted")

    async def main() -> None:
        async with runtime(worker_python) as client:
            stream = await client.remote(s.stubborn, path)
            assert await anext(stream) == 0
            await stream.aclose()
            await until(lambda: "closed" in s.lines_of(path))
            assert await client.remote(t.add, 1, 2) == 3

    run(main())


@pytest.mark.parametrize("http_sync_ms", [None, 50])
def test_a_link_that_is_cut_again_and_again_loses_nothing(
    run: Any, worker_python: str, http_sync_ms: int | None
) -> None:
    async def main() -> None:
        async with serve(python=worker_python) as url:
            shim = Shim(url)
            async with (
                shim.listening() as shimmed,
                RuntimeClient(
                    shimmed, http_sync_ms=http_sync_ms, reconnection_delay=0.01, reconnection_attempts=0
                ) as client,
            ):
                seed = random.Random(7)

                async def cut() -> None:
                    while True:
                        await asyncio.sleep(seed.random() * 0.1)
                        shim.cut()

                await client.remote(len, "x")  # a first connection that is lost would be the end
                cutting = asyncio.create_task(cut())
                try:
                    results = await asyncio.gather(
                        *(collect(client.remote(s.count_async, 400, 0.005)) for _ in range(3)),
                        *(collect(client.remote(s.count, 3000, 0.0005)) for _ in range(3)),
                    )
                finally:
                    cutting.cancel()
                assert results[:3] == [list(range(400))] * 3
                assert results[3:] == [list(range(3000))] * 3
                assert shim.cuts > 5

    run(main())
