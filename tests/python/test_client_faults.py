"""What goes wrong on the way: squatters, lost replies, restarts, deadlines, cancellation, garbage."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from clienttools import BODIES, add, core, echo, fail, nap, run, serving
from standin import Behaviour, StandIn

from agentix import CallTimeout, Failed, RemoteCallError, RuntimeClient, RuntimeUnreachable

__all__ = ["run"]

TOKEN = "a-token-that-nobody-may-see"


# ---- the token ----


def test_token(run: Any) -> None:
    async def main() -> None:
        async with serving(token=TOKEN) as (server, client):
            assert await client.remote(add, 1, 2) == 3
            assert all(c.proved for c in server.connections)
            assert TOKEN not in repr(client)

    run(main())


def test_token_from_a_file(run: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    monkeypatch.setenv("AGENTIX_CLIENT_TOKEN_FILE", str(path))

    async def main() -> None:
        async with StandIn(token=TOKEN) as server:
            server.functions.update(BODIES)
            async with RuntimeClient(server.url) as client:
                assert await client.remote(add, 1, 2) == 3

    run(main())


@pytest.mark.parametrize(
    "behaviour", [Behaviour(prove=False), Behaviour(proof_token="another")], ids=["no proof", "wrong proof"]
)
def test_a_squatter_gets_no_token(run: Any, behaviour: Behaviour) -> None:
    async def main() -> None:
        async with StandIn(token=TOKEN, behaviour=behaviour) as server:
            client = RuntimeClient(server.url, token=TOKEN)
            with pytest.raises(RuntimeUnreachable, match="did not prove"):
                await client.remote(echo, "a secret argument")
            with pytest.raises(RuntimeUnreachable, match="did not prove"):
                await client.health()
            await client.close()
        for connection in server.connections:
            assert TOKEN.encode() not in connection.received
            assert b"secret" not in connection.received
            assert [r.target for r in connection.requests] == ["/health"]

    run(main())


def test_a_squatter_after_the_server_left(run: Any) -> None:
    """The port changes hands while a call is in flight."""

    async def main() -> None:
        server = await StandIn(token=TOKEN).start()
        server.functions.update(BODIES)
        client = RuntimeClient(server.url, token=TOKEN)
        call = asyncio.create_task(client.remote(nap, 5))
        await asyncio.sleep(0.1)
        await server.stop()
        async with StandIn(token=TOKEN, behaviour=Behaviour(prove=False)) as squatter:
            await squatter.stop()
            await squatter.start(server.port)
            with pytest.raises(RuntimeUnreachable, match="did not prove"):
                await call
            assert all(TOKEN.encode() not in c.received for c in squatter.connections)
        await client.close()

    run(main())


def test_a_token_missing_or_wrong(run: Any) -> None:
    async def main() -> None:
        async with StandIn(token=TOKEN) as server, RuntimeClient(server.url) as client:
            with pytest.raises(RuntimeUnreachable, match="401"):
                await client.remote(add, 1, 2)

    run(main())


# ---- losses ----


def test_a_dropped_reply_does_not_run_the_call_twice(run: Any) -> None:
    async def main() -> None:
        async with serving(behaviour=Behaviour(drop_replies=1)) as (server, client):
            assert await client.remote(add, 1, 2) == 3
            assert sum(server.executions.values()) == 1
            assert len(server.connections) == 3  # one asked for a link

    run(main())


def test_many_dropped_replies(run: Any) -> None:
    async def main() -> None:
        async with serving(behaviour=Behaviour(drop_replies=40)) as (server, client):
            values = await asyncio.gather(*(client.remote(add, i, 1) for i in range(100)))
            assert values == list(range(1, 101))
            assert sum(server.executions.values()) == 100

    run(main())


def test_connections_closed_while_idle_cost_nothing(run: Any) -> None:
    async def main() -> None:
        async with serving(behaviour=Behaviour(close_after_reply=True)) as (server, client):
            for i in range(10):
                assert await client.remote(add, i, 0) == i
                if i % 2:  # also when the client has had no chance to notice
                    await asyncio.sleep(0.02)
            assert sum(server.executions.values()) == 10

    run(main())


def test_a_connection_closed_while_the_loop_did_not_look(run: Any) -> None:
    """Noticed before the next call is sent, so that even a client that never reconnects does not lose it."""

    async def main() -> None:
        async with serving(reconnection=False) as (server, client):
            assert await client.remote(add, 1, 2) == 3
            server.drop_connections()
            await asyncio.sleep(0)  # the server's side closes; ours is not told
            time.sleep(0.1)  # noqa: ASYNC251
            assert await client.remote(add, 2, 3) == 5

    run(main())


def test_a_lost_connection_under_a_long_call(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):
            call = asyncio.create_task(client.remote(nap, 0.4, "value"))
            await asyncio.sleep(0.1)
            server.drop_connections()
            assert await call == "value"
            assert sum(server.executions.values()) == 1

    run(main())


def test_a_restarted_server_is_not_asked_again(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):
            call = asyncio.create_task(client.remote(nap, 5))
            await asyncio.sleep(0.1)
            server.restart()
            with pytest.raises(RemoteCallError) as caught:
                await call
            assert caught.value.error.type == "ResultUnavailable"
            assert caught.value.error.reason == "instance_changed"
            assert await client.remote(add, 1, 2) == 3

    run(main())


def test_a_result_the_server_dropped(run: Any) -> None:
    async def main() -> None:
        async with serving(behaviour=Behaviour(drop_replies=1, lose_kept=True)) as (_, client):
            with pytest.raises(RemoteCallError) as caught:
                await client.remote(add, 1, 2)
            assert caught.value.error.reason == "dropped"

    run(main())


def test_a_server_that_comes_back_in_time(run: Any) -> None:
    async def main() -> None:
        server = await StandIn().start()
        server.functions.update(BODIES)
        client = RuntimeClient(server.url, reconnection_delay=0.05, randomization_factor=0)
        assert await client.remote(add, 1, 2) == 3
        await server.stop()
        call = asyncio.create_task(client.remote(add, 2, 3))
        await asyncio.sleep(0.2)
        await server.start(server.port)
        assert await call == 5
        await client.close()
        await server.stop()

    run(main())


def test_a_server_that_does_not_come_back(run: Any) -> None:
    async def main() -> None:
        server = await StandIn().start()
        server.functions.update(BODIES)
        client = RuntimeClient(server.url, reconnection_attempts=2, reconnection_delay=0.02)
        pending = [asyncio.create_task(client.remote(nap, 5)) for _ in range(3)]
        await asyncio.sleep(0.1)
        await server.stop()
        ended = await asyncio.gather(*pending, return_exceptions=True)
        assert [type(e) for e in ended] == [RuntimeUnreachable] * 3
        assert server.url in str(ended[0])
        assert "whether the call has run is unknown" in str(ended[0])
        await client.close()

    run(main())


def test_no_reconnection(run: Any) -> None:
    async def main() -> None:
        async with serving(reconnection=False) as (server, client):
            pending = [asyncio.create_task(client.remote(nap, 5)) for _ in range(3)]
            await asyncio.sleep(0.1)
            server.drop_connections()
            ended = await asyncio.gather(*pending, return_exceptions=True)
            assert [type(e) for e in ended] == [RuntimeUnreachable] * 3

    run(main())


def test_close_ends_pending_calls(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            pending = [asyncio.create_task(client.remote(nap, 5)) for _ in range(20)]
            await asyncio.sleep(0.05)
            await client.close()
            await client.close()
            ended = await asyncio.gather(*pending, return_exceptions=True)
            assert [type(e) for e in ended] == [RuntimeUnreachable] * 20
            with pytest.raises(RuntimeUnreachable, match="closed"):
                await client.remote(add, 1, 2)
            with pytest.raises(RuntimeUnreachable, match="closed"):
                await client.health()

    run(main())


# ---- time ----


def test_deadline(run: Any) -> None:
    async def main() -> None:
        async with serving(call_deadline=0.2) as (_, client):
            begun = time.monotonic()
            with pytest.raises(CallTimeout, match=r"clienttools::nap exceeded deadline of 0\.2s"):
                await client.remote(nap, 3)
            assert 0.15 < time.monotonic() - begun < 2.9
            assert await client.remote(nap, 0.01, "in time") == "in time"
            failed = await client.try_remote(nap, 3)
            assert isinstance(failed, Failed)
            assert isinstance(failed.error, CallTimeout)
            with pytest.raises(RemoteCallError) as caught:
                await client.remote(fail, "own")
            assert caught.value.error.type == "TimeoutError"

    run(main())


def test_timeout_does_not_bound_a_call(run: Any) -> None:
    async def main() -> None:
        async with serving(timeout=0.4) as (server, client):
            assert await client.remote(nap, 1.2, "value") == "value"
            assert sum(server.executions.values()) == 1

    run(main())


def test_timeout_of_a_silent_server(run: Any) -> None:
    async def main() -> None:
        behaviour = Behaviour(silent=True)
        async with serving(behaviour=behaviour, timeout=0.2, reconnection_attempts=1, reconnection_delay=0.01) as (
            _,
            client,
        ):
            with pytest.raises(RuntimeUnreachable, match="no answer in time"):
                await client.remote(add, 1, 2)

    run(main())


def test_wait_for(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.remote(nap, 3), 0.1)
            assert await client.remote(add, 1, 2) == 3

    run(main())


def test_replies_that_race_their_timeouts(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):

            async def one(i: int) -> Any:
                try:
                    return await asyncio.wait_for(client.remote(nap, 0.05, i), 0.045 + i * 0.01 / 200)
                except TimeoutError:
                    return None

            values = await asyncio.gather(*(one(i) for i in range(200)))
            assert all(value in (None, i) for i, value in enumerate(values))
            assert await asyncio.gather(*(client.remote(echo, i) for i in range(50))) == list(range(50))
            assert core(client).counts()["pending"] == 0

    run(main())


# ---- cancellation ----


def test_cancelled_at_once_is_never_sent(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):
            for _ in range(100):
                task = asyncio.create_task(client.remote(add, 1, 2))
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert sum(server.executions.values()) == 0
            for delay in range(100):
                task = asyncio.create_task(client.remote(add, 1, 2))
                for _ in range(delay % 7):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert await client.remote(add, 1, 2) == 3
            assert core(client).counts()["pending"] == 0

    run(main())


def test_cancelled_in_flight(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):
            task = asyncio.create_task(client.remote(nap, 0.8))
            await asyncio.sleep(0.05)
            begun = time.monotonic()
            task.cancel("reason")
            with pytest.raises(asyncio.CancelledError, match="reason"):
                await task
            assert time.monotonic() - begun < 0.7
            async with asyncio.timeout(20):
                while not core(client).counts()["acks"]:  # noqa: ASYNC110 - the late reply is heard out
                    await asyncio.sleep(0.01)
            assert await client.remote(add, 1, 2) == 3
            assert f"{core(client).session}-1" in server.acked

    run(main())


def test_cancelled_while_a_large_argument_is_sent(run: Any) -> None:
    async def main() -> None:
        async with serving() as (server, client):
            await client.remote(add, 1, 2)
            task = asyncio.create_task(client.remote(echo, bytes(60 << 20)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert await client.remote(add, 1, 2) == 3
            assert sum(server.executions.values()) == 2

    run(main())


def test_a_closed_coroutine_abandons_its_call(run: Any) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            call = client.remote(nap, 5)
            iterator = call.__await__()
            next(iterator)
            assert core(client).counts()["pending"] == 1
            iterator.close()
            assert core(client).counts()["pending"] == 0

    run(main())


# ---- hostile servers ----

GARBAGE = [
    b"",
    b"garbage\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nContent-Length: 300000000\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000,
    b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"\x91" * 100_000,
    b"HTTP/1.1 200 OK\r\nContent-Length: 100008\r\n\r\n\x82\xa2ok\xc3\xa1k\x90" + b"\x91" * 100_000,
    b"HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n\x82\xa2ok\xc3\xa5value\xc6\xff\xff\xff\xff1234",
]


@pytest.mark.parametrize("reply", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage(run: Any, reply: bytes) -> None:
    async def main() -> None:
        async with serving(behaviour=Behaviour(raw_reply=reply), reconnection_attempts=2, reconnection_delay=0.01) as (
            server,
            client,
        ):
            with pytest.raises(RuntimeUnreachable, match=r"http://127\.0\.0\.1:"):
                await client.remote(add, 1, 2)
            assert len(server.connections) <= 4
            server.behave.raw_reply = None
            assert await client.remote(add, 1, 2) == 3

    run(main())


@pytest.mark.parametrize("reply", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_for_health(run: Any, reply: bytes) -> None:
    async def main() -> None:
        async with serving(behaviour=Behaviour(raw_health=reply)) as (_, client):
            with pytest.raises(RuntimeUnreachable):
                await client.remote(add, 1, 2)

    run(main())


@pytest.mark.parametrize("status", [204, 403, 404, 405, 415, 500, 503])
def test_statuses(run: Any, status: int) -> None:
    async def main() -> None:
        async with serving(behaviour=Behaviour(status=status), reconnection_attempts=2, reconnection_delay=0.01) as (
            _,
            client,
        ):
            with pytest.raises(RuntimeUnreachable, match=str(status)):
                await client.remote(add, 1, 2)

    run(main())


def test_status_413(run: Any) -> None:
    async def main() -> None:
        async with serving(behaviour=Behaviour(status=413)) as (_, client):
            with pytest.raises(RemoteCallError) as caught:
                await client.remote(add, 1, 2)
            assert caught.value.error.type == "FrameTooLarge"

    run(main())
