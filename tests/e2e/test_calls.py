"""Calls from a host through the C client, the C server and a worker, and back, over POST /call."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import call_targets as t
import pytest

from agentix import (
    CallTimeout,
    Failed,
    Ok,
    RemoteCallError,
    RestrictedUnpickleError,
    RuntimeClient,
    RuntimeUnreachable,
    WorkerExited,
)
from agentix.testing import serve

TOKEN = "0123456789abcdef" * 4


@contextlib.asynccontextmanager
async def runtime(python: str, **options: Any) -> AsyncGenerator[RuntimeClient]:
    async with serve(python=python) as url, RuntimeClient(url, **options) as client:
        yield client


def test_values(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            assert await client.remote(t.add, 1, b=2) == 3
            assert await client.remote(t.add_async, 1, 2) == 3
            assert await client.remote(len, "four") == 4
            value = {"a": [1, 2.5, None, True, b"x", "\u20ac"], "t": (1, {2})}
            assert await client.remote(t.echo, value) == value
            assert await client.try_remote(t.add, 1, 2) == Ok(3)
            health = await client.health()
            assert health.status == "ok"
            assert health.version
            assert health.instance

    run(main())


def test_token_and_unix_socket(run: Any, worker_python: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with serve(python=worker_python, token=TOKEN, socket=str(tmp_path / "s")) as url:
            async with RuntimeClient(url, token=TOKEN) as client:
                assert await client.remote(t.add, 1, 2) == 3
            async with RuntimeClient(url) as client:
                with pytest.raises(RuntimeUnreachable, match="401"):
                    await client.remote(t.add, 1, 2)
            client = RuntimeClient(url, token="another")
            with pytest.raises(RuntimeUnreachable, match="did not prove"):
                await client.remote(t.add, 1, 2)
            await client.close()

    run(main())


@pytest.mark.parametrize("size", [0, 1, 100_000, 8_000_000, 64 << 20])
def test_large_values(run: Any, worker_python: str, size: int) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            blob = bytes(size)
            assert await client.remote(t.echo, blob) == blob

    run(main())


def test_many_at_once(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            values = await asyncio.gather(*(client.remote(t.add, i, i) for i in range(1000)))
            assert values == [2 * i for i in range(1000)]
            for target in (t.sleep, t.sleep_async):
                begun = time.monotonic()
                assert await asyncio.gather(*(client.remote(target, 1, i) for i in range(5))) == list(range(5))
                assert time.monotonic() - begun < 4.9
            values = await asyncio.gather(*(client.remote(t.sleep, 0.2, i) for i in range(25)))
            assert values == list(range(25))

    run(main())


@pytest.mark.parametrize(
    ("target", "args", "parts"),
    [
        (t.raise_quota, ("u1", 3), ["QuotaError", "user u1 is over the limit of 3", "call_targets.py"]),
        (t.raise_keyword, ("u2",), ["KeywordError", "keyword u2", "call_targets.py"]),
        (t.raise_http, (), ["HTTPError", "503", "busy", "call_targets.py"]),
        (t.raise_timeout, (), ["TimeoutError", "the target's own"]),
        (t.raise_base, ("SystemExit",), ["SystemExit"]),
        (t.raise_base, ("KeyboardInterrupt",), ["KeyboardInterrupt"]),
        (t.raise_base, ("GeneratorExit",), ["GeneratorExit"]),
        (t.raise_cancelled, (), ["CancelledError"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_exceptions_of_targets(
    run: Any, worker_python: str, target: Any, args: tuple[Any, ...], parts: list[str]
) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            worker = await client.remote(t.pid)
            begun = time.monotonic()
            with pytest.raises(RemoteCallError) as caught:
                await client.remote(target, *args)
            assert time.monotonic() - begun < 10
            for part in parts:
                assert part in str(caught.value)
            assert str(caught.value).startswith(f"call_targets::{target.__name__}: {parts[0]}")
            assert caught.value.error.traceback
            assert await client.remote(t.pid) == worker

    run(main())


@pytest.mark.parametrize("kind", ["function", "lock", "TextIOWrapper", "generator", "coroutine"])
def test_values_that_cannot_be_sent(run: Any, worker_python: str, kind: str) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            worker = await client.remote(t.pid)
            with pytest.raises(RemoteCallError) as caught:
                await client.remote(t.unpicklable, kind)
            assert caught.value.error.type == "ResultEncodeError"
            assert kind in caught.value.error.message
            assert await client.remote(t.pid) == worker

    run(main())


def test_loops_and_depth(run: Any, worker_python: str) -> None:
    """A value that holds itself comes back as such; one nested too deep fails at once, on either way."""

    async def main() -> None:
        async with runtime(worker_python) as client:
            loop: list[Any] = []
            loop.append(loop)
            back = await client.remote(t.echo, loop)
            assert back[0] is back
            back = await client.remote(t.self_referencing)
            assert back[0] is back
            deep: Any = []
            for _ in range(5000):
                deep = [deep]
            with pytest.raises(RecursionError):
                await client.remote(t.echo, deep)
            with pytest.raises((RemoteCallError, RestrictedUnpickleError), match=r"Recursion|depth|deep|nest"):
                await client.remote(t.nested, 5000)
            assert client._core.counts()["pending"] == 0
            assert await client.remote(t.add, 1, 2) == 3

    run(main())


@pytest.mark.parametrize(("how", "code"), [("exit", 7), ("kill", -9), ("segfault", -11)])
def test_a_worker_that_dies(run: Any, worker_python: str, how: str, code: int) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            worker = await client.remote(t.pid)
            others = [asyncio.create_task(client.remote(t.sleep, 30)) for _ in range(2)]
            await asyncio.sleep(0.2)
            begun = time.monotonic()
            ended = await asyncio.gather(client.remote(t.die, how), *others, return_exceptions=True)
            assert time.monotonic() - begun < 20
            for error in ended:
                assert isinstance(error, WorkerExited)
                assert error.returncode == code
                assert error.error.type == "WorkerDied"
            assert await client.remote(t.pid) != worker

    run(main())


def test_time(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with serve(python=worker_python) as url:
            async with RuntimeClient(url, call_deadline=0.5) as client:
                with pytest.raises(CallTimeout, match=r"call_targets::sleep exceeded deadline of 0\.5s"):
                    await client.remote(t.sleep, 2)
                failed = await client.try_remote(t.sleep_async, 2)
                assert isinstance(failed, Failed)
                assert isinstance(failed.error, CallTimeout)
            async with RuntimeClient(url, timeout=0.6) as client:
                assert await client.remote(t.sleep, 2, "value") == "value"
            async with RuntimeClient(url) as client:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(client.remote(t.sleep, 2), 0.3)
                with pytest.raises(RemoteCallError) as caught:
                    await client.remote(t.raise_timeout)
                assert caught.value.error.type == "TimeoutError"

    run(main())


def test_replies_that_race_their_timeouts(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:

            async def one(i: int) -> Any:
                try:
                    return await asyncio.wait_for(client.remote(t.sleep_async, 0.05, i), 0.045 + i * 0.01 / 200)
                except TimeoutError:
                    return None

            values = await asyncio.gather(*(one(i) for i in range(200)))
            assert all(value in (None, i) for i, value in enumerate(values))
            assert await asyncio.gather(*(client.remote(t.echo, i) for i in range(50))) == list(range(50))
            assert client._core.counts()["pending"] == 0

    run(main())


def test_cancelled_at_once(run: Any, worker_python: str, tmp_path: Path) -> None:
    path = tmp_path / "lines"

    async def main() -> None:
        async with runtime(worker_python) as client:
            for i in range(100):
                task = asyncio.create_task(client.remote(t.append_line, str(path), str(i)))
                for _ in range(i % 5):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await client.remote(t.append_line, str(path), "end")
            await asyncio.sleep(0.2)

    run(main())
    lines = Counter(path.read_text().splitlines())
    assert set(lines.values()) == {1}
    assert not any(int(line) % 5 == 0 for line in lines if line != "end")  # those were cancelled before they began


# ---- a road that fails ----


class Shim:
    """Stands between client and server and cuts connections: after so many bytes of the reply to each POST."""

    def __init__(self, url: str, cuts: list[int]) -> None:
        parts = urlsplit(url)
        self._to = (parts.hostname, parts.port)
        self._cuts = cuts
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Shim:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._relay(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection(*self._to)
        called = asyncio.Event()

        async def forth() -> None:
            while data := await reader.read(65536):
                if b"POST /call" in data:
                    called.set()
                back_writer.write(data)
            back_writer.close()

        async def back() -> None:
            while data := await back_reader.read(65536):
                if called.is_set() and self._cuts:
                    data = data[: self._cuts.pop(0)]
                    writer.write(data)
                    await writer.drain()
                    return
                called.clear()
                writer.write(data)

        tasks = [asyncio.create_task(forth()), asyncio.create_task(back())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            writer.close()
            back_writer.close()


@pytest.mark.parametrize("cuts", [[0], [0, 0, 0], [1], [17], [40, 80], [100]], ids=str)
def test_a_dropped_reply_runs_nothing_twice(run: Any, worker_python: str, tmp_path: Path, cuts: list[int]) -> None:
    path = tmp_path / "lines"

    async def main() -> None:
        async with (
            serve(python=worker_python) as url,
            Shim(url, list(cuts)) as shim,
            RuntimeClient(shim.url, reconnection_delay=0.02) as client,
        ):
            assert await client.remote(t.append_line, str(path), "once") == "once"
            assert await client.remote(t.add, 1, 2) == 3

    run(main())
    assert path.read_text() == "once\n"


def test_a_server_that_is_gone(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            url = await stack.enter_async_context(serve(python=worker_python))
            client = RuntimeClient(url, reconnection_attempts=2, reconnection_delay=0.02)
            call = asyncio.create_task(client.remote(t.sleep, 30))
            await asyncio.sleep(0.2)
            await stack.aclose()
            with pytest.raises((RuntimeUnreachable, RemoteCallError)):
                await call
            with pytest.raises(RuntimeUnreachable, match="refused"):
                await client.remote(t.add, 1, 2)
            await client.close()

    run(main())


def test_serve_says_why_it_cannot(run: Any) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="agentix-runtime did not start"):
            async with serve(socket="/nonexistent/directory/socket"):
                pass

    run(main())
