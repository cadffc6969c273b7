"""The ambient context goes along with each call, and stays that call's own."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import call_targets as t
import pytest
import stream_targets as s
from test_roads import runtime

from agentix import RemoteCallError, context


def test_values_are_read_in_the_target(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            assert await client.remote(s.read_context, "a", "b") == {"a": None, "b": None}
            with context.scope(a=1, b={"x": [2]}):
                expected = {"a": 1, "b": {"x": [2]}, "c": None}
                assert await client.remote(s.read_context, "a", "b", "c") == expected
                assert await client.remote(s.read_context_async, "a", "b", "c") == expected
                assert [x async for x in client.remote(s.stream_context, "a")] == [{"a": 1}] * 3
            assert await client.remote(s.read_context, "a", "b") == {"a": None, "b": None}
            assert await client.remote(s.read_context_async, "a", "b") == {"a": None, "b": None}

    run(main())


def test_each_call_has_its_own(run: Any, worker_python: str) -> None:
    async def one(client: Any, n: int) -> bool:
        with context.scope(n=n):
            function = s.read_context if n % 2 else s.read_context_async
            return await client.remote(function, "n") == {"n": n}

    async def main() -> None:
        async with runtime(worker_python) as client:
            assert all(await asyncio.gather(*(one(client, n) for n in range(100))))
            assert await client.remote(s.set_context, x=1) == {"x": 1}
            assert await client.remote(s.read_context, "x") == {"x": None}

    run(main())


def test_variables(run: Any, worker_python: str) -> None:
    variable = context.var("agx_variable", default="unset")

    async def main() -> None:
        async with runtime(worker_python) as client:
            assert await client.remote(s.read_variable) == "unset"
            variable.set("set on the host")
            assert await client.remote(s.read_variable) == "set on the host"
            assert await client.remote(s.read_variable) == "set on the host"
            variable.set("unset")
            assert await client.remote(s.read_variable) == "unset"

    run(main())


def test_what_cannot_travel(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            with context.scope(lock=threading.Lock()), pytest.raises(TypeError, match="value 'lock' cannot be pickled"):
                client.remote(t.add, 1, 2)
            with context.scope(odd=Unloadable()), pytest.raises(RemoteCallError, match="the call's context") as caught:
                await client.remote(t.add, 1, 2)
            assert caught.value.error.type == "ArgumentsDecodeError"
            assert await client.remote(t.add, 1, 2) == 3

    run(main())


class Unloadable:
    """Its module is not to be had in the sandbox."""


def test_a_target_knows_its_call(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            calls = [client.remote(f) for _ in range(50) for f in (s.call_id, s.call_id_async)]
            ids = await asyncio.gather(*calls)
            assert len(set(ids)) == 100
            assert all(ids)

    run(main())
