"""Load: many calls in flight on one link, many idle links, peers that stop in the middle of joining, busy workers."""

from __future__ import annotations

import asyncio
import base64
import os
import resource
import signal
import socket
import time
from pathlib import Path
from typing import Any

import call_targets as t
import msgpack
import pytest
import socketio
from processes import Runtime, descriptors, eventually, hung_up, peak, rss, until

from agentix import RuntimeClient, RuntimeUnreachable

LONG = pytest.mark.long
UPGRADE = (
    "GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
)


@pytest.fixture
def runtime(worker_python: str, tmp_path: Path) -> Any:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    with Runtime(worker_python, tmp_path) as runtime:
        yield runtime
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def report(what: str, runtime: Runtime, begun: float) -> None:
    worker = max(peak(pid) for pid in runtime.workers())
    took = time.monotonic() - begun
    print(f"{what}: {took:.1f} s; RSS at most: server {peak(runtime.pid) >> 20} MiB, worker {worker >> 20} MiB")


@pytest.mark.parametrize("n", [2000, pytest.param(10_000, marks=LONG)])
@pytest.mark.parametrize("http_sync_ms", [None, 1000], ids=["link", "http"])
def test_many_calls_in_flight(runtime: Runtime, n: int, http_sync_ms: int | None) -> None:
    """Ours holds some back, since a server tells only so many ids of a session apart; none is lost."""

    async def main() -> None:
        async with RuntimeClient(runtime.url, http_sync_ms=http_sync_ms) as client:
            await client.remote(t.add_async, 1, 2)
            begun = time.monotonic()
            values = await asyncio.gather(*(client.remote(t.sleep_async, 1, i) for i in range(n)))
            assert values == list(range(n))
            report(f"{n} calls of a second, http_sync_ms={http_sync_ms}", runtime, begun)
            counts = client._core.counts()
            assert counts["pending"] == counts["waiting"] == counts["linked"] == 0

    asyncio.run(main())


@LONG
@pytest.mark.parametrize("http_sync_ms", [None, 1000], ids=["link", "http"])
def test_more_bytes_at_once_than_may_wait(runtime: Runtime, http_sync_ms: int | None) -> None:
    """What the server has no room for is kept by the client and sent again; none fails, the server stays bounded."""
    blob = os.urandom(1 << 20)

    async def main() -> None:
        async with asyncio.timeout(240), RuntimeClient(runtime.url, http_sync_ms=http_sync_ms) as client:
            await client.remote(t.add, 1, 2)
            begun = time.monotonic()
            values = await asyncio.gather(*(client.remote(len, blob) for _ in range(1024)))
            assert values == [1 << 20] * 1024
            report(f"1,024 calls of 1 MiB, http_sync_ms={http_sync_ms}", runtime, begun)
            assert peak(runtime.pid) < 2 << 30  # 512 MiB that wait, up to 1 GiB that is being gathered

    asyncio.run(main())


@LONG
def test_calls_that_find_no_room_hold_up_no_others(runtime: Runtime, tmp_path: Path) -> None:
    """While the worker takes nothing: small calls wait in front of them, cancels and deadlines are heard."""
    blob = bytes(200 << 20)
    notes = tmp_path / "notes"

    async def main() -> None:
        async with asyncio.timeout(240), RuntimeClient(runtime.url) as client:
            await client.remote(t.add, 1, 2)
            [worker] = runtime.workers()
            os.kill(worker, signal.SIGSTOP)
            try:
                large = [asyncio.create_task(client.remote(len, blob)) for _ in range(4)]
                await eventually(lambda: client._core.counts()["pausing"] == 2, "two of them find no room", 60)
                small = asyncio.create_task(client.remote(t.add, 3, 4))
                gone = asyncio.create_task(client.remote(t.append_line, str(notes), "gone"))
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(small), 0.5)
                gone.cancel()
                large.pop().cancel()  # one that was refused
                await eventually(lambda: client._core.counts()["pausing"] == 1, "one is given up", 60)
            finally:
                os.kill(worker, signal.SIGCONT)
            assert await asyncio.gather(*large) == [len(blob)] * 3
            assert await small == 7
            with pytest.raises(asyncio.CancelledError):
                await gone
            assert not notes.exists()

    asyncio.run(main())


@pytest.mark.parametrize("n", [2000, pytest.param(10_000, marks=LONG)])
def test_many_calls_in_flight_of_a_stock_client(runtime: Runtime, n: int) -> None:
    """All at once, on one link, acknowledged one by one."""

    async def main() -> None:
        import pickle

        told: dict[str, bytes] = {}
        errors: list[Any] = []
        stock = socketio.AsyncClient(reconnection=False)

        async def on_result(data: bytes) -> None:
            event = msgpack.unpackb(data)
            assert event["call_id"] not in told
            told[event["call_id"]] = event["value"]
            await stock.emit("ack", msgpack.packb({"call_id": event["call_id"]}), namespace="/rpc")

        stock.on("call:result", on_result, namespace="/rpc")
        stock.on("call:error", lambda data: errors.append(msgpack.unpackb(data)), namespace="/rpc")
        await stock.connect(runtime.url, transports=["websocket"], namespaces=["/rpc"], auth={"session": "load"})
        begun = time.monotonic()
        for i in range(n):
            call = {
                "call_id": f"foreign {i}",
                "callable": "call_targets::sleep_async",
                "arguments": pickle.dumps(((2, i), {})),
            }
            await stock.emit("call", msgpack.packb(call), namespace="/rpc")
        await eventually(lambda: len(told) + len(errors) == n, "all have ended", 120)
        report(f"{n} calls of two seconds by a stock client", runtime, begun)
        assert errors == []
        assert {pickle.loads(value) for value in told.values()} == set(range(n))
        await stock.disconnect()

    asyncio.run(main())


def upgraded(url: str, *, join: bool) -> socket.socket:
    """A WebSocket on /socket.io/, and in /rpc if it is to join."""
    sock = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 5)
    sock.sendall(UPGRADE.format(key=base64.b64encode(os.urandom(16)).decode()).encode())
    got = b""
    while b"pingInterval" not in got:
        got += sock.recv(4096)
    if join:
        sock.sendall(b"\x81\x87\x00\x00\x00\x0040/rpc,")
        while b"40/rpc" not in got:
            got += sock.recv(4096)
    return sock


def test_idle_links_are_cheap(runtime: Runtime) -> None:
    warm = [upgraded(runtime.url, join=True) for _ in range(20)]
    before = rss(runtime.pid)
    idle = [upgraded(runtime.url, join=True) for _ in range(1000)]
    each = (rss(runtime.pid) - before) / len(idle)
    print(f"an idle link: {each / 1024:.1f} KiB")
    for sock in warm + idle:
        sock.close()
    assert each <= 16 << 10


@LONG  # 10 s; one alone is by default, with Socket.IO
def test_who_stops_before_joining_is_closed(runtime: Runtime) -> None:
    """And those who have not even finished their upgrade; /health answers all the while."""
    until(lambda: runtime.workers(), "there is a worker")

    async def health() -> float:
        begun = time.monotonic()
        async with RuntimeClient(runtime.url) as client:
            await client.health()
        return time.monotonic() - begun

    asyncio.run(health())
    before = descriptors(runtime.pid)
    begun = time.monotonic()
    silent = [upgraded(runtime.url, join=False) for _ in range(100)]
    port = int(runtime.url.rpartition(":")[2])
    begun_only = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(100)]
    for sock in begun_only:
        sock.sendall(UPGRADE.encode()[:60])
    worst = 0.0
    while not all(hung_up(sock) for sock in silent + begun_only):
        assert time.monotonic() - begun < 60
        worst = max(worst, asyncio.run(health()))
        time.sleep(0.2)
    assert worst < 5
    assert time.monotonic() - begun > 5  # they had their time
    for sock in silent + begun_only:
        sock.close()
    until(lambda: descriptors(runtime.pid) <= before, "descriptors are given back")


@pytest.mark.parametrize("seconds", [2, pytest.param(90, marks=LONG)])
@pytest.mark.parametrize("at_once", [1, 16])
def test_busy_workers_cost_no_link(runtime: Runtime, seconds: int, at_once: int) -> None:
    """The server is another process than the worker: it goes on answering, and the link lives."""

    async def main() -> None:
        async with RuntimeClient(runtime.url, http_sync_ms=100) as client:
            calls = [asyncio.create_task(client.remote(t.busy, seconds, i)) for i in range(at_once)]
            worst = 0.0
            while not all(call.done() for call in calls):
                begun = time.monotonic()
                assert (await client.health()).status == "ok"
                worst = max(worst, time.monotonic() - begun)
                await asyncio.sleep(0.2)
            assert await asyncio.gather(*calls) == list(range(at_once))
            assert worst < 1.9

    asyncio.run(main())


@pytest.mark.parametrize("seconds", [2, pytest.param(30, marks=LONG)])
@pytest.mark.parametrize("http_sync_ms", [None, 100], ids=["link", "http"])
def test_a_host_whose_loop_stood_still_gets_its_results(
    runtime: Runtime, seconds: int, http_sync_ms: int | None
) -> None:
    async def main() -> None:
        async with RuntimeClient(runtime.url, http_sync_ms=http_sync_ms) as client:
            calls = [asyncio.create_task(client.remote(t.sleep_async, seconds / 2, i)) for i in range(20)]
            await asyncio.sleep(0.3)
            time.sleep(seconds)  # noqa: ASYNC251
            assert await asyncio.gather(*calls) == list(range(20))

    asyncio.run(main())


def test_a_long_call_holds_up_no_others(runtime: Runtime) -> None:
    """However many come and go beside it; the server tells only so many ids apart, but that one it has."""

    async def main() -> None:
        async with RuntimeClient(runtime.url, http_sync_ms=100) as client:
            call = asyncio.ensure_future(client.remote(t.sleep_async, 600))
            await eventually(lambda: client._core.counts()["linked"] == 1, "the server has said that it has it", 60)
            for begin in range(0, 4500, 100):
                values = await asyncio.gather(*(client.remote(t.add, begin, i) for i in range(100)))
                assert values == [begin + i for i in range(100)]
            assert not call.done()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(asyncio.wait_for(main(), 240))


@pytest.mark.parametrize("deadline", [0, -1, float("nan")])
def test_deadlines_that_cannot_be(deadline: float) -> None:
    with pytest.raises(ValueError, match=r"deadline|timeout"):
        RuntimeClient("http://127.0.0.1:1", call_deadline=deadline)
    with pytest.raises(ValueError, match="timeout"):
        RuntimeClient("http://127.0.0.1:1", timeout=deadline)


def test_cancelled_before_it_began(runtime: Runtime, tmp_path: Path) -> None:
    """On the link: what was cancelled at once has not run, or once and to no end that anybody counts on."""
    path = tmp_path / "lines"

    async def main() -> None:
        async with RuntimeClient(runtime.url, http_sync_ms=None) as client:
            for i in range(100):
                task = asyncio.create_task(client.remote(t.append_line, str(path), str(i)))
                for _ in range(i % 5):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await client.remote(t.append_line, str(path), "end")
            assert client._core.counts()["pending"] == 0

    asyncio.run(main())
    lines = path.read_text().splitlines()
    assert len(lines) == len(set(lines))
    assert not any(line != "end" and int(line) % 5 == 0 for line in lines)


def test_a_server_that_is_not_there_is_told_at_once() -> None:
    async def main() -> None:
        begun = time.monotonic()
        client = RuntimeClient("http://127.0.0.1:1")
        with pytest.raises(RuntimeUnreachable, match=r"127\.0\.0\.1:1"):
            await client.remote(t.add, 1, 2)
        assert time.monotonic() - begun < 30
        await client.close()

    asyncio.run(main())
