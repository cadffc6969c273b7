"""The client's second road, against a stand-in that speaks Socket.IO: long calls, losses, cancelling, no HTTP."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from clienttools import BODIES, add, core, echo, fail, nap, run, serving
from standin import Behaviour, StandIn

from agentix import CallTimeout, RemoteCallError, RuntimeClient, RuntimeUnreachable

__all__ = ["run"]


def link(server: StandIn) -> Any:
    (only,) = server.links.values()
    return only


def sent_calls(server: StandIn) -> int:
    return sum(r.target == "/call" for c in server.connections for r in c.requests)


async def until(condition: Any) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


def test_short_calls_need_no_link(run: Any) -> None:
    async def main() -> None:
        async with serving(socketio=True) as (server, client):
            for i in range(20):
                assert await client.remote(add, i, 1) == i + 1
            assert len(server.connections) == 1

    run(main())


def test_a_long_call_is_told_on_the_link(run: Any) -> None:
    async def main() -> None:
        async with serving(socketio=True, token="t", http_sync_ms=50) as (server, client):
            assert await client.remote(nap, 0.2, "long") == "long"
            assert sent_calls(server) == 1
            assert await client.remote(nap, 0.2, "again") == "again"
            await until(lambda: len(server.acked) == 2)
            assert server.sio_events["call"] == 0
            assert len(server.connections) == 2
            with pytest.raises(RemoteCallError, match="TimeoutError: late"):
                await client.remote(fail, "late")

    run(main())


def test_without_http(run: Any) -> None:
    async def main() -> None:
        async with serving(socketio=True, http_sync_ms=None) as (server, client):
            assert await client.remote(add, 1, 2) == 3
            with pytest.raises(RemoteCallError, match="TimeoutError: no"):
                await client.remote(fail, "no")
            assert await asyncio.gather(*(client.remote(add, i, 0) for i in range(300))) == list(range(300))
            assert sent_calls(server) == 0
            await until(lambda: len(server.acked) == 302)
            assert len(server.masks) > 300  # never the same mask

    run(main())


def test_large_values(run: Any) -> None:
    async def main() -> None:
        async with serving(socketio=True, http_sync_ms=None) as (_, client):
            blob = bytes(range(256)) * (24 << 12)
            values = await asyncio.gather(*(client.remote(echo, blob) for _ in range(3)))
            assert all(value == blob for value in values)
            assert await client.remote(add, 1, 2) == 3

    run(main())


@pytest.mark.parametrize("sync", [50, None])
def test_a_dropped_link(run: Any, sync: int | None) -> None:
    async def main() -> None:
        async with serving(socketio=True, http_sync_ms=sync) as (server, client):
            calls = [asyncio.create_task(client.remote(nap, 0.3 + i / 100, i)) for i in range(10)]
            for _ in range(3):
                await until(lambda: server.links)
                await asyncio.sleep(0.06)
                before = link(server)
                before.writer.transport.abort()
                await until(lambda before=before: before not in server.links.values())
            assert await asyncio.gather(*calls) == list(range(10))

    run(main())


@pytest.mark.parametrize("sync", [50, None])
def test_every_connection_dropped_again_and_again(run: Any, sync: int | None) -> None:
    async def main() -> None:
        options: dict[str, Any] = {"reconnection_attempts": 0, "reconnection_delay": 0.01}
        async with serving(socketio=True, http_sync_ms=sync, **options) as (server, client):
            blob = b"x" * 200_000
            assert await client.remote(add, 1, 2) == 3  # a first connection that is lost would be the end
            calls = [asyncio.create_task(client.remote(nap, i / 100, (i, blob))) for i in range(40)]
            for _ in range(12):
                await asyncio.sleep(0.03)
                server.drop_connections()
            assert await asyncio.gather(*calls) == [(i, blob) for i in range(40)]

    run(main())


@pytest.mark.parametrize("status", [500, 404, 503])
def test_failing_posts(run: Any, status: int) -> None:
    async def main() -> None:
        async with serving(socketio=True, behaviour=Behaviour(status=status)) as (_, client):
            assert await client.remote(add, 1, 2) == 3

    run(main())


def test_a_reply_dropped(run: Any) -> None:
    async def main() -> None:
        async with serving(socketio=True, behaviour=Behaviour(drop_replies=1)) as (server, client):
            assert await client.remote(add, 1, 2) == 3
            assert sent_calls(server) == 1

    run(main())


def test_a_restarted_server(run: Any) -> None:
    async def main() -> None:
        async with serving(socketio=True, http_sync_ms=None) as (server, client):
            call = asyncio.create_task(client.remote(nap, 5))
            await until(lambda: server.executions)
            server.restart()
            with pytest.raises(RemoteCallError) as info:
                await call
            assert info.value.error.reason == "instance_changed"
            assert await client.remote(add, 1, 2) == 3

    run(main())


@pytest.mark.parametrize("sync", [50, None])
def test_no_reconnection(run: Any, sync: int | None) -> None:
    async def main() -> None:
        async with serving(socketio=True, http_sync_ms=sync, reconnection=False) as (server, client):
            calls = [asyncio.create_task(client.remote(nap, 5)) for _ in range(3)]
            await until(lambda: server.links and len(server.executions) == 3)
            await asyncio.sleep(0.1)
            link(server).writer.transport.abort()
            for result in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(result, RuntimeUnreachable)
            assert await client.remote(add, 1, 2) == 3

    run(main())


@pytest.mark.parametrize("sync", [1000, 20, None])
def test_cancelled_in_flight(run: Any, sync: int | None) -> None:
    async def main() -> None:
        async with serving(socketio=True, http_sync_ms=sync) as (server, client):
            call = asyncio.create_task(client.remote(nap, 5))
            other = asyncio.create_task(client.remote(nap, 0.5, "other"))
            await asyncio.sleep(0.1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await until(lambda: server.cancelled)
            assert await other == "other"
            await until(lambda: set(server.cancelled) <= server.acked)
            assert len(set(server.cancelled)) == 1

    run(main())


def test_cancels_leave_before_the_client_does(run: Any) -> None:
    async def main() -> None:
        async with StandIn(socketio=True) as server:
            server.functions.update(BODIES)
            async with RuntimeClient(server.url) as client:
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(client.remote(nap, 5), 0.05)
            await until(lambda: server.cancelled)

    run(main())


@pytest.mark.parametrize("sync", [1000, 20, None])
def test_deadline(run: Any, sync: int | None) -> None:
    async def main() -> None:
        async with serving(socketio=True, http_sync_ms=sync, call_deadline=0.1) as (server, client):
            with pytest.raises(CallTimeout, match=r"deadline of 0\.1s"):
                await client.remote(nap, 5)
            await until(lambda: server.cancelled)

    run(main())


@pytest.mark.parametrize("sync", [20, None])
def test_cancelled_at_any_moment(run: Any, sync: int | None) -> None:
    async def main() -> None:
        async with serving(socketio=True, http_sync_ms=sync) as (server, client):
            calls = [asyncio.create_task(client.remote(nap, 0.05, i)) for i in range(200)]
            for i, call in enumerate(calls):
                await asyncio.sleep(0.0005)
                if i % 3:
                    call.cancel()
            results = await asyncio.gather(*calls, return_exceptions=True)
            for i, result in enumerate(results):
                assert result == i or (i % 3 and isinstance(result, asyncio.CancelledError))
            assert await asyncio.gather(*(client.remote(add, i, 1) for i in range(50))) == list(range(1, 51))
            await until(lambda: all(call.done() for call in server.calls.values()))
            assert core(client).counts()["linked"] == 0

    run(main())


def test_timeout_does_not_bound_a_call(run: Any) -> None:
    async def main() -> None:
        async with serving(socketio=True, timeout=0.2, http_sync_ms=None) as (_, client):
            assert await client.remote(nap, 0.6, "late") == "late"

    run(main())


def test_heartbeats(run: Any) -> None:
    async def main() -> None:
        async with serving(socketio=True, http_sync_ms=None) as (server, client):
            server.ping_ms = 50
            assert await client.remote(nap, 0.4, 1) == 1
            assert server.pongs >= 5
            time.sleep(0.3)  # noqa: ASYNC251 the loop stands still; nothing is lost by it
            assert await client.remote(add, 1, 2) == 3
            assert len(server.connections) == 1

    run(main())


def test_close_ends_what_is_awaited(run: Any) -> None:
    async def main() -> None:
        async with serving(socketio=True, http_sync_ms=None) as (server, client):
            call = asyncio.create_task(client.remote(nap, 5))
            await until(lambda: server.executions)
            await client.close()
            with pytest.raises(RuntimeUnreachable, match="closed"):
                await call

    run(main())
