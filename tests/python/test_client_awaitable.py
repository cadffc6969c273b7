"""What `remote` returns behaves as a coroutine does: begun once, ended at any step, missed if it never was."""

from __future__ import annotations

import asyncio
import collections.abc
import gc
import inspect
import sys
import threading
import traceback
import warnings
from typing import Any

import pytest
from clienttools import add, core, echo, fail, nap, run, serving

from agentix import RemoteCallError, RuntimeClient, RuntimeUnreachable

__all__ = ["run"]


def nothing_is_left(client: RuntimeClient) -> bool:
    return core(client).counts()["pending"] == 0


def test_what_it_is(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            call: Any = client.remote(add, 1, 2)
            assert issubclass(type(call), collections.abc.Coroutine)
            assert issubclass(type(call), collections.abc.AsyncIterable)
            assert not issubclass(type(call), collections.abc.Iterable)
            assert asyncio.iscoroutine(call)
            assert inspect.isawaitable(call)
            assert (call.__name__, call.__qualname__) == ("remote", "RuntimeClient.remote")
            assert "clienttools::add" in repr(call)
            kind: Any = type(call)
            assert repr(kind[int]).endswith("RemoteCall[int]")
            assert not hasattr(kind, "__iter__")
            with pytest.raises(TypeError):
                kind()
            task = asyncio.create_task(call)
            assert "RuntimeClient.remote" in repr(task)
            assert await task == 3

    run(main())


def test_awaited_once_only(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):
            call = client.remote(add, 1, 2)
            assert await call == 3
            for _ in range(2):
                with pytest.raises(RuntimeError, match="reuse"):
                    await call
            with pytest.raises(RuntimeError, match="reuse"):
                call.throw(KeyError("late"))
            call.close()
            assert sum(server.executions.values()) == 1

    run(main())


def test_awaited_by_two_tasks(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):
            call = client.remote(nap, 0.1, "v")

            async def wait() -> Any:
                return await call

            first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
            with pytest.raises(RuntimeError, match="awaited already"):
                await second
            assert await first == "v"
            assert sum(server.executions.values()) == 1

    run(main())


def test_awaited_by_another_loop(run: Any) -> None:
    """While its own runs: refused there, and no harm is done here."""
    outcomes: list[BaseException | None] = []

    async def main() -> None:
        async with serving() as (_, client):
            own = asyncio.create_task(client.remote(nap, 0.3, 1))
            await asyncio.sleep(0.05)

            async def other() -> None:
                with pytest.raises(RuntimeError, match="another event loop"):
                    await client.remote(add, 1, 2)
                outcomes.append(None)

            thread = threading.Thread(target=asyncio.run, args=(other(),))
            thread.start()
            await asyncio.to_thread(thread.join, 20)
            assert await own == 1

    run(main())
    assert outcomes == [None]


def test_values_of_all_shapes(run: Any) -> None:
    """A tuple is not unpacked by the StopIteration that carries it, an exception not raised."""
    values = [None, 0, (), (1, 2), (1, (2, "x")), [], {"a": [1]}, b"", b"x" * (3 << 20), "y" * (2 << 20), KeyError("k")]

    async def main() -> None:
        async with serving() as (_, client):
            for value in values:
                by_task = await asyncio.create_task(client.remote(echo, value))
                for got in (await client.remote(echo, value), by_task):
                    assert type(got) is type(value)
                    assert got == value or repr(got) == repr(value)

    run(main())


# ---- ended from outside ----


def test_cancelled_before_it_began(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):
            task = asyncio.create_task(client.remote(add, 1, 2))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.remote(add, 1, 2), 0)
            assert server.executions == {}
            assert nothing_is_left(client)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(main())


def test_timeout_of_zero_around_it(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            await client.remote(add, 1, 2)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await client.remote(nap, 30)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.remote(nap, 30), 0.05)
            assert nothing_is_left(client)
            assert await client.remote(add, 1, 2) == 3

    run(main())


def test_cancelled_by_itself_before_it_waits(run: Any) -> None:
    """The cancellation comes out of this await, not out of a later one."""

    async def main() -> None:
        async with serving() as (_, client):
            await client.remote(add, 1, 2)
            reached: list[int] = []

            async def body() -> None:
                task = asyncio.current_task()
                assert task is not None
                task.cancel("by itself")
                reached.append(await client.remote(add, 1, 2))

            with pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(body())
            assert reached == []

    run(main())


def test_cancelled_while_a_large_value_is_loaded(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            big = list(range(1_500_000))
            for wait in (0.2, 0.4, 0.6, 0.8):
                task = asyncio.create_task(client.remote(echo, big))
                await asyncio.sleep(wait)
                task.cancel()
                done = (await asyncio.gather(task, return_exceptions=True))[0]
                assert isinstance(done, asyncio.CancelledError) or done == big
            assert await client.remote(echo, big) == big

    run(main())


def test_thrown_into_at_each_step(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            new = client.remote(add, 1, 2)
            with pytest.raises(KeyError, match="early"):
                new.throw(KeyError("early"))
            await client.remote(add, 1, 2)
            waiting: Any = client.remote(nap, 30)
            assert waiting.send(None) is not None
            assert core(client).counts()["pending"] == 1
            with pytest.raises(ValueError, match="typed"):
                waiting.throw(ValueError, "typed", None)
            assert nothing_is_left(client)
            for made in (KeyError, KeyError("x")):
                with pytest.raises(KeyError):
                    client.remote(add, 1, 2).throw(made)
            for wrong in (7, int):
                call: Any = client.remote(add, 1, 2)
                with pytest.raises(TypeError):
                    call.throw(wrong)
                call.close()
            with pytest.raises(TypeError, match="separate value"):
                client.remote(add, 1, 2).throw(KeyError("x"), KeyError("y"))

    run(main())


def test_closed_at_each_step(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            await client.remote(add, 1, 2)
            client.remote(add, 1, 2).close()
            waiting: Any = client.remote(nap, 30)
            waiting.send(None)
            waiting.close()
            waiting.close()
            dropped: Any = client.remote(nap, 30)
            dropped.send(None)
            assert core(client).counts()["pending"] == 1
            del dropped
            assert nothing_is_left(client)
            fresh: Any = client.remote(add, 1, 2)
            with pytest.raises(TypeError, match="just-started"):
                fresh.send(1)
            fresh.close()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(main())


def test_a_closed_client_refuses_when_it_is_awaited(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            call = client.remote(add, 1, 2)
            await client.close()
            for late in (call, client.remote(add, 1, 2)):
                with pytest.raises(RuntimeUnreachable, match="is closed"):
                    await late
            async with client:
                assert await client.remote(add, 1, 2) == 3

    run(main())


# ---- never begun ----


@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_never_awaited(run: Any, in_a_cycle: bool) -> None:
    async def main() -> None:
        async with serving() as (server, client):

            def make() -> None:
                knot: list[Any] = [client.remote(echo, 1)]
                if in_a_cycle:
                    knot.append(knot)
                del knot
                gc.collect()

            with pytest.warns(RuntimeWarning) as caught:
                make()
            assert [str(warning.message) for warning in caught] == [
                "coroutine 'RuntimeClient.remote' was never awaited"
            ]
            assert server.connections == []

    run(main())


def test_never_awaited_and_where_it_was_made(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            sys.set_coroutine_origin_tracking_depth(3)
            try:
                with pytest.warns(RuntimeWarning, match="never awaited") as caught:
                    client.remote(add, 1, 2)
            finally:
                sys.set_coroutine_origin_tracking_depth(0)
            text = str(caught[0].message)
            assert "Coroutine created at (most recent call last)" in text
            assert "test_client_awaitable.py" in text
            assert "client.remote(add, 1, 2)" in text

    run(main())


def test_never_awaited_where_warnings_are_errors(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append(type(args.exc_value)))

    async def main() -> None:
        async with serving() as (_, client):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    raise KeyError("what is being raised stays")
                except KeyError:
                    client.remote(add, 1, 2)
                    assert isinstance(sys.exc_info()[1], KeyError)

    run(main())
    assert told == [RuntimeWarning]


# ---- what is raised ----


def test_the_traceback_ends_where_it_was_awaited(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            for _ in range(3):
                with pytest.raises(RemoteCallError) as caught:
                    await client.remote(fail, "x")
                assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)] == ["main"]
                assert caught.value.__context__ is None

    run(main())


def test_except_star_and_groups(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            seen: list[str] = []
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(client.remote(fail, "a"))
                    group.create_task(client.remote(nap, 30))
            except* RemoteCallError as raised:
                seen += [str(error) for error in raised.exceptions]
            assert len(seen) == 1
            assert nothing_is_left(client)

    run(main())


def test_nothing_grows(run: Any) -> None:
    """Calls that are awaited, failed, cancelled, dropped and thrown into leave no objects."""

    async def round_of(client: RuntimeClient) -> None:
        for i in range(100):
            await client.remote(add, i, i)
            await client.remote(echo, {"a": [i]})
            with pytest.raises(RemoteCallError):
                await client.remote(fail, "x")
            client.remote(add, 1, 2).close()
            task = asyncio.create_task(client.remote(nap, 30))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        gc.collect()

    async def main() -> None:
        async with serving() as (_, client):
            await round_of(client)
            await asyncio.sleep(0.01)  # the last gather() still has its task
            gc.collect()
            assert [o for o in gc.get_objects() if type(o).__name__ in {"RemoteCall", "Pending"}] == []

    run(main())
