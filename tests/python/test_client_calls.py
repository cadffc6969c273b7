"""Calls over POST /call: values, errors, many at once, all the ways to await one."""

from __future__ import annotations

import asyncio
import functools
import gc
import pickle
import threading
import time
from typing import Any

import pytest
from clienttools import add, core, echo, fail, nap, run, serving
from standin import Behaviour, StandIn

from agentix import Failed, Ok, RemoteCallError, RestrictedUnpickleError, RuntimeClient, RuntimeUnreachable

__all__ = ["run"]


def test_value(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):
            assert await client.remote(add, 1, b=2) == 3
            assert await client.remote(echo, {"a": [1.5, None, b"x"]}) == {"a": [1.5, None, b"x"]}
            assert len(server.connections) == 1

    run(main())


def test_results_are_acknowledged(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):
            for i in range(5):
                await client.remote(add, i, 0)
            session = core(client).session
            assert server.acked == {f"{session}-{i}" for i in range(1, 5)}

    run(main())


def test_target_error(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            with pytest.raises(RemoteCallError) as caught:
                await client.remote(fail, "too slow")
            assert str(caught.value).startswith("clienttools::fail: TimeoutError: too slow")
            assert caught.value.error.traceback is not None
            assert "sandbox.py" in caught.value.error.traceback
            assert not isinstance(caught.value, TimeoutError)

    run(main())


def test_try_remote(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            assert await client.try_remote(add, 1, 2) == Ok(3)
            failed = await client.try_remote(fail, "x")
            assert isinstance(failed, Failed)
            assert isinstance(failed.error, RemoteCallError)
            with pytest.raises(TypeError, match="lambda"):
                await client.try_remote(lambda: 1)

    run(main())


def test_bad_targets_are_refused_before_anything_is_sent(run: Any) -> None:
    class Thing:
        def method(self) -> None: ...

        def __call__(self) -> None: ...

    async def main() -> None:
        async with serving() as (server, client):
            for target in (lambda: 1, Thing().method, Thing(), functools.partial(add, 1), int, 7):
                with pytest.raises(TypeError):
                    client.remote(target)  # type: ignore[arg-type]
            assert server.connections == []

    run(main())


def test_arguments_that_cannot_be_pickled(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):
            with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
                await client.remote(echo, threading.Lock())
            endless: list[Any] = []
            for _ in range(100_000):
                endless = [endless]
            with pytest.raises(RecursionError):
                await client.remote(echo, endless)
            assert server.connections == []
            assert core(client).counts()["pending"] == 0

    run(main())


def test_self_referencing_argument(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            loop: list[Any] = []
            loop.append(loop)
            value = await client.remote(echo, loop)
            assert value[0] is value

    run(main())


def test_keywords_named_like_our_own(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):

            async def take(**kwargs: Any) -> Any:
                return kwargs

            server.functions["nap"] = take
            call: Any = client.remote
            assert await call(nap, fn=1, args=3, name=4) == {"fn": 1, "args": 3, "name": 4}

    run(main())


def test_gathered_calls(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):
            values = await asyncio.gather(*(client.remote(add, i, i) for i in range(1000)))
            assert values == [2 * i for i in range(1000)]
            assert len(server.connections) <= 300

    run(main())


def test_slow_calls_run_side_by_side(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            begun = time.monotonic()
            values = await asyncio.gather(*(client.remote(nap, 0.3, i) for i in range(100)))
            assert values == list(range(100))
            assert time.monotonic() - begun < 20

    run(main())


def test_every_way_to_await(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            assert await asyncio.create_task(client.remote(add, 1, 1)) == 2
            assert await asyncio.wait_for(client.remote(add, 1, 2), 5) == 3
            assert await asyncio.shield(client.remote(add, 1, 3)) == 4
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(client.remote(add, i, 0)) for i in range(5)]
            assert [task.result() for task in tasks] == [0, 1, 2, 3, 4]
            done, _ = await asyncio.wait([asyncio.ensure_future(client.remote(add, 1, 4))])
            assert done.pop().result() == 5
            call = client.remote(add, 1, 1)
            assert asyncio.iscoroutine(call)
            call.close()

    run(main())


def test_loop_run_takes_a_call() -> None:
    async def main() -> RuntimeClient:
        return RuntimeClient("http://127.0.0.1:9", reconnection=False)

    client = asyncio.run(main())
    with pytest.raises(RuntimeUnreachable):
        asyncio.run(client.remote(add, 1, 2))


def test_a_call_never_awaited_warns(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):
            with pytest.warns(RuntimeWarning, match=r"RuntimeClient\.remote.*never awaited"):
                client.remote(add, 1, 2)  # it is gone at once
            assert server.connections == []

    run(main())


def test_a_call_is_awaited_once(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            call = client.remote(add, 1, 2)
            assert await call == 3
            with pytest.raises(RuntimeError):
                await call

    run(main())


def test_a_task_held_by_nothing_but_its_call_is_finished(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):
            ended: list[int] = []

            async def fire() -> None:
                ended.append(await client.remote(nap, 0.1, 1))

            asyncio.get_running_loop().create_task(fire())  # noqa: RUF006
            await asyncio.sleep(0.02)
            gc.collect()
            await asyncio.sleep(0.3)
            assert ended == [1]
            assert len(server.executions) == 1

    run(main())


def test_large_values(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            for size in (1, 16 << 10, (16 << 10) + 1, 1 << 20, 8 << 20, 40 << 20):
                blob = bytes(range(256)) * (size // 256 + 1)
                assert await client.remote(echo, blob) == blob
            several = await asyncio.gather(*(client.remote(echo, bytes([i]) * (3 << 20)) for i in range(8)))
            assert several == [bytes([i]) * (3 << 20) for i in range(8)]

    run(main())


def test_a_foreign_value_is_refused(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):

            async def evil(*args: Any) -> Any:
                return Evil()

            server.functions["add"] = evil
            with pytest.raises(RestrictedUnpickleError):
                await client.remote(add, 1, 2)
            failed = await client.try_remote(add, 1, 2)
            assert isinstance(failed, Failed)
            assert isinstance(failed.error, RestrictedUnpickleError)

    run(main())


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("never",)


def test_contexts_are_the_callers(run: Any) -> None:
    import contextvars

    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")

    async def main() -> None:
        async with serving() as (_, client):

            async def one(i: int) -> int:
                variable.set(i)
                for _ in range(5):
                    await client.remote(nap, 0.001)
                    assert variable.get() == i
                return variable.get()

            assert await asyncio.gather(*(one(i) for i in range(50))) == list(range(50))

    run(main())


def test_health(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):
            health = await client.health()
            assert (health.status, health.version, health.instance) == ("ok", "9.9.9", server.instance)

    run(main())


def test_failed_health(run: Any) -> None:
    async def main() -> None:
        client = RuntimeClient("http://127.0.0.1:1")
        with pytest.raises(RuntimeUnreachable, match=r"http://127\.0\.0\.1:1 .*refused"):
            await client.health()
        with pytest.raises(RuntimeUnreachable, match=r"http://127\.0\.0\.1:1"):
            async with client:
                pass
        failed = await client.try_remote(add, 1, 2)
        assert isinstance(failed, Failed)
        assert isinstance(failed.error, RuntimeUnreachable)
        await client.close()

    run(main())


def test_two_loops_one_after_the_other() -> None:
    async def main(client: RuntimeClient, server: StandIn) -> int:
        server.functions["add"] = _added
        await server.start(server.port)
        try:
            return await client.remote(add, 1, 2)
        finally:
            await server.stop()

    async def _added(a: int, b: int) -> int:
        return a + b

    server = StandIn()
    asyncio.run(_find_port(server))
    client = RuntimeClient(server.url)
    assert asyncio.run(main(client, server)) == 3
    assert asyncio.run(main(client, server)) == 3  # neither closed nor told in between
    asyncio.run(client.close())


async def _find_port(server: StandIn) -> None:
    await server.start()
    await server.stop()


def test_two_loops_at_once() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            await client.remote(add, 1, 2)
            with pytest.raises(RuntimeError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, client.remote(add, 1, 2))

    asyncio.run(main())


def test_debug_mode() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            assert await asyncio.gather(*(client.remote(add, i, 1) for i in range(20))) == list(range(1, 21))

    asyncio.run(main(), debug=True)


def test_202_is_followed_to_the_value(run: Any) -> None:
    async def main() -> None:
        async with serving(behaviour=Behaviour(wait_cap=0.05)) as (server, client):
            blob = b"x" * 100_000
            assert await client.remote(nap, 0.4, blob) == blob
            asked = [r for c in server.connections for r in c.requests if r.target == "/call"]
            assert 3 <= len(asked) <= 12
            assert len(asked[0].body) > 100_000
            assert all(len(r.body) < 1000 for r in asked[1:])

    run(main())
