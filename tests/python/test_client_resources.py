"""What a client holds: descriptors, memory, tasks; and what may interrupt it."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import subprocess
import sys
from typing import Any

import pytest
from clienttools import BODIES, add, core, echo, nap, run, serving
from standin import StandIn

from agentix import RuntimeClient, RuntimeUnreachable

__all__ = ["run"]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def rss_kib() -> int:
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize() // 1024


def pendings() -> int:
    return sum(type(o).__name__ in ("Pending", "Body") for o in gc.get_objects())


def test_clients_that_nobody_closed_leave_nothing(run: Any) -> None:
    async def main() -> None:
        async with StandIn() as server:
            server.functions.update(BODIES)
            for _ in range(20):
                client = RuntimeClient(server.url)
                assert await asyncio.gather(*(client.remote(add, i, 0) for i in range(5))) == list(range(5))

    run(main())
    gc.collect()
    before = descriptors()
    run(main())
    gc.collect()
    assert descriptors() <= before
    assert pendings() == 0


def test_a_loop_that_ends_under_calls(run: Any) -> None:
    """The loop is closed with calls in flight and connections open; everything goes with it."""

    async def main() -> None:
        server = await StandIn().start()
        server.functions.update(BODIES)
        client = RuntimeClient(server.url)
        calls = [asyncio.create_task(client.remote(nap, 30)) for _ in range(5)]
        await asyncio.sleep(0.1)
        for call in calls:
            call.cancel()
        await server.stop()

    run(main())
    gc.collect()
    before = descriptors()
    run(main())
    gc.collect()
    assert descriptors() <= before
    assert pendings() == 0


def test_closed_at_once_the_descriptors_are_gone(run: Any) -> None:
    async def main() -> None:
        async with StandIn() as server:
            server.functions.update(BODIES)
            before = descriptors()
            client = RuntimeClient(server.url)
            await asyncio.gather(*(client.remote(nap, 0.05) for _ in range(20)))
            assert descriptors() > before
            await client.close()
            await asyncio.sleep(0.05)
            assert descriptors() <= before

    run(main())


def test_calls_leave_no_memory_behind() -> None:
    """In a process of its own: what other tests did to this one's heap would show as growth."""
    here = os.path.dirname(__file__)
    script = "import test_client_resources as t; t.measure_memory_of_calls()"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=here, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def measure_memory_of_calls() -> None:
    async def main() -> None:
        async with serving() as (server, client):
            blob = bytes(200_000)

            async def round_of_calls(n: int) -> None:
                for _ in range(n):
                    await client.remote(add, 1, 2)
                    await client.remote(echo, blob)
                    task = asyncio.create_task(client.remote(nap, 0))
                    await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                server.calls.clear()
                server.executions.clear()
                for connection in server.connections:
                    connection.requests = connection.requests[:1]
                    connection.received.clear()
                gc.collect()

            await round_of_calls(100)
            before, held = rss_kib(), pendings()
            await round_of_calls(300)  # 60 MB went each way
            assert rss_kib() - before < 12_000
            assert pendings() == held == 0
            assert core(client).counts()["pending"] == 0

    asyncio.run(main())


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_an_interruption_in_a_resumed_task_leaves_the_loop(interruption: type[BaseException]) -> None:
    """The task goes on inside our callback; what ends the program must still end it."""

    async def main() -> None:
        async with serving() as (_, client):
            await client.remote(add, 1, 2)
            others = [asyncio.create_task(client.remote(nap, 30)) for _ in range(3)]
            await asyncio.sleep(0.05)
            await asyncio.gather(asyncio.create_task(interrupt(client)), *others)

    async def interrupt(client: RuntimeClient) -> None:
        await client.remote(add, 1, 2)
        raise interruption("now")

    with pytest.raises(interruption):
        asyncio.run(main())


def test_a_client_closed_by_a_resumed_task(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):

            async def first() -> None:
                await client.remote(nap, 0.05)
                await client.close()

            calls = [asyncio.create_task(client.remote(nap, 30)) for _ in range(10)]
            await asyncio.gather(first(), *calls, return_exceptions=True)
            assert all(isinstance(call.exception(), RuntimeUnreachable) for call in calls)

    run(main())


def test_calls_made_by_resumed_tasks(run: Any) -> None:
    """A task resumed by a reply starts, gathers and cancels others before it gives way."""

    async def main() -> None:
        async with serving() as (_, client):

            async def chain(depth: int) -> int:
                value = await client.remote(add, depth, 0)
                if depth == 0:
                    return value
                left = asyncio.create_task(chain(depth - 1))
                doomed = asyncio.create_task(client.remote(nap, 30))
                right = await chain(depth - 1)
                doomed.cancel()
                await asyncio.gather(doomed, return_exceptions=True)
                return value + right + await left

            def total(depth: int) -> int:
                return depth + 2 * total(depth - 1) if depth else 0

            assert await chain(6) == total(6)

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with 3.12")
def test_eager_tasks() -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009
        async with serving() as (_, client):
            values = await asyncio.gather(*(client.remote(add, i, 0) for i in range(50)))
            assert values == list(range(50))

    asyncio.run(main())


def test_a_fork_of_the_process_makes_a_client_of_its_own(run: Any) -> None:
    """It would number its calls as the first process does, and so get that one's values."""

    async def main() -> None:
        async with serving() as (_, client):
            assert await client.remote(add, 1, 2) == 3
            read, write = os.pipe()
            pid = os.fork()
            if not pid:
                try:
                    asyncio._set_running_loop(None)
                    asyncio.run(client.health())
                    os.write(write, b"no error")
                except RuntimeError as exc:
                    os.write(write, str(exc).encode())
                finally:
                    os._exit(0)
            os.close(write)
            with open(read, "rb") as said:  # noqa: ASYNC230
                assert b"before this process was forked" in said.read()
            assert os.waitpid(pid, 0)[1] == 0  # noqa: ASYNC222
            assert await client.remote(add, 3, 4) == 7

    run(main())
