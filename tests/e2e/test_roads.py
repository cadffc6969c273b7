"""Both roads of our client to the real runtime: long calls, cancels that reach the sandbox, links that are cut."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import call_targets as t
import pytest

from agentix import CallTimeout, RuntimeClient, RuntimeUnreachable
from agentix.testing import serve

BOTH = pytest.mark.parametrize("http_sync_ms", [None, 50])


@contextlib.asynccontextmanager
async def runtime(python: str, **options: Any) -> AsyncGenerator[RuntimeClient]:
    async with serve(python=python) as url, RuntimeClient(url, **options) as client:
        yield client


class Shim:
    """Between client and runtime: passes bytes on, and cuts all connections when told to."""

    def __init__(self, url: str) -> None:
        self._port = urlsplit(url).port
        self._writers: list[asyncio.StreamWriter] = []
        self.cuts = 0

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator[str]:
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            self.cut()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, there_writer]
        await asyncio.gather(self._one_way(reader, there_writer), self._one_way(there_reader, writer))

    @staticmethod
    async def _one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self) -> None:
        self.cuts += 1
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.transport.abort()


async def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


async def stands_still(path: Path) -> bool:
    before = lines(path)
    await asyncio.sleep(0.3)
    return lines(path) == before


@BOTH
def test_short_and_long_calls(run: Any, worker_python: str, http_sync_ms: int | None) -> None:
    async def main() -> None:
        async with runtime(worker_python, http_sync_ms=http_sync_ms) as client:
            assert await client.remote(t.add, 1, 2) == 3
            assert await client.remote(t.sleep, 0.4, "sync") == "sync"
            assert await client.remote(t.sleep_async, 0.4, "async") == "async"
            calls = [client.remote(t.sleep_async, 0.1 * (i % 4), i) for i in range(200)]
            assert await asyncio.gather(*calls) == list(range(200))
            blob = bytes(20 << 20)
            assert await client.remote(t.echo, blob) == blob

    run(main())


@BOTH
@pytest.mark.parametrize("target", [t.lines_until, t.lines_until_async])
def test_a_cancel_stops_the_target(
    run: Any, worker_python: str, tmp_path: Path, http_sync_ms: int | None, target: Any
) -> None:
    path = tmp_path / "lines"

    async def main() -> None:
        async with runtime(worker_python, http_sync_ms=http_sync_ms) as client:
            task = asyncio.create_task(client.remote(target, str(path), 30))
            await until(lambda: lines(path) > 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0.5)
            assert await stands_still(path)
            assert await client.remote(t.add, 1, 2) == 3

    run(main())


def test_a_deadline_stops_the_target(run: Any, worker_python: str, tmp_path: Path) -> None:
    path = tmp_path / "lines"

    async def main() -> None:
        async with runtime(worker_python, call_deadline=0.5) as client:
            with pytest.raises(CallTimeout, match=r"exceeded deadline of 0\.5s"):
                await client.remote(t.lines_until_async, str(path), 30)
            await asyncio.sleep(0.5)
            assert await stands_still(path)

    run(main())


def test_a_target_that_heeds_nothing_dies_with_its_worker(run: Any, worker_python: str, tmp_path: Path) -> None:
    path = tmp_path / "lines"

    async def main() -> None:
        async with runtime(worker_python, cancel_grace=0.3) as client:
            before = await client.remote(t.pid)
            task = asyncio.create_task(client.remote(t.never_heeds, str(path)))
            await until(lambda: lines(path) > 5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(1)
            assert await stands_still(path)
            assert await client.remote(t.pid) != before

    run(main())


@BOTH
def test_a_cut_link_loses_nothing_and_runs_nothing_twice(
    run: Any, worker_python: str, tmp_path: Path, http_sync_ms: int | None
) -> None:
    path = tmp_path / "lines"

    async def main() -> None:
        async with serve(python=worker_python) as url:
            shim = Shim(url)
            async with (
                shim.listening() as road,
                RuntimeClient(
                    road, http_sync_ms=http_sync_ms, reconnection_delay=0.05, reconnection_attempts=0
                ) as client,
            ):
                calls = [
                    asyncio.create_task(client.remote(t.append_line, str(path), f"{i}", 0.1 * i)) for i in range(20)
                ]
                for _ in range(8):
                    await asyncio.sleep(0.25)
                    shim.cut()
                assert await asyncio.gather(*calls) == [str(i) for i in range(20)]
        assert sorted(path.read_text().split(), key=int) == [str(i) for i in range(20)]

    run(main())


def test_without_reconnection_a_cut_fails_what_waits(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with serve(python=worker_python) as url:
            shim = Shim(url)
            async with shim.listening() as road, RuntimeClient(road, http_sync_ms=None, reconnection=False) as client:
                assert await client.remote(t.add, 1, 2) == 3
                calls = [asyncio.create_task(client.remote(t.sleep_async, 30)) for _ in range(5)]
                await asyncio.sleep(0.3)
                shim.cut()
                for outcome in await asyncio.gather(*calls, return_exceptions=True):
                    assert isinstance(outcome, RuntimeUnreachable)

    run(main())


@BOTH
def test_fresh_clients_call_at_once(run: Any, worker_python: str, http_sync_ms: int | None) -> None:
    async def main() -> None:
        async with serve(python=worker_python) as url:

            async def one(n: int) -> int:
                async with RuntimeClient(url, http_sync_ms=http_sync_ms) as client:
                    return await client.remote(t.add, n, n)

            assert await asyncio.gather(*(one(n) for n in range(50))) == [2 * n for n in range(50)]

    run(main())
