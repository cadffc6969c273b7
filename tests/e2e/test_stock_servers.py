"""Our client against servers of stock parts: `python-socketio` on aiohttp, and npm `socket.io`."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import call_targets as t
import pytest

from agentix import CallTimeout, RemoteCallError, RuntimeClient, RuntimeUnreachable

sys.path.insert(0, str(Path(__file__).parents[1] / "interop"))
from stock_peers import StockServer, stock_server

BOTH = pytest.mark.parametrize("kind", ["python", "node"])
EVERY_WAY = pytest.mark.parametrize("transports", ["polling", "websocket", "polling,websocket"])
RECONNECT = {"reconnection_delay": 0.05, "reconnection_attempts": 0}


def runs(journal: dict[str, Any]) -> set[int]:
    return set(journal["runs"].values())


async def journal_once(server: StockServer, true: Any) -> dict[str, Any]:
    """The journal, as soon as it is so."""
    deadline = time.monotonic() + 10
    while not true(journal := await server.journal()):
        assert time.monotonic() < deadline, journal
        await asyncio.sleep(0.05)
    return journal


@BOTH
def test_a_short_call_is_a_post(run: Any, kind: str) -> None:
    async def main() -> None:
        async with stock_server(kind) as server, RuntimeClient(server.url) as client:
            assert (await client.health()).version == "stock"
            assert await client.remote(t.add, 1, b=2) == 3
            with pytest.raises(RemoteCallError, match="over the limit") as info:
                await client.remote(t.raise_quota, "ann", 5)
            assert info.value.error.type == "QuotaError"
            assert "raise_quota" in str(info.value)
            journal = await server.journal()
            assert journal["posts"] == 2
            assert journal["events"] == {}
            assert len(journal["acked"]) == 1  # the first, with the second's POST

    run(main())


@BOTH
@EVERY_WAY
def test_every_call_over_the_link(run: Any, kind: str, transports: str) -> None:
    async def main() -> None:
        async with (
            stock_server(kind, transports=transports) as server,
            RuntimeClient(server.url, http_sync_ms=None) as client,
        ):
            assert await client.remote(t.add, 1, 2) == 3
            values = await asyncio.gather(*(client.remote(t.add_async, n, n) for n in range(100)))
            assert values == [2 * n for n in range(100)]
            with pytest.raises(RemoteCallError, match="over the limit"):
                await client.remote(t.raise_quota, "ann", 5)
            journal = await journal_once(server, lambda j: len(j["acked"]) == 102)
            assert journal["posts"] == 0
            assert journal["links"] == 1
            assert journal["events"]["call"] == 102
            assert runs(journal) == {1}
            used = "polling" if transports == "polling" else "websocket"
            assert journal["transports"].keys() == {used, f"events by {used}"}

    run(main())


@BOTH
@EVERY_WAY
def test_a_long_call_is_handed_over(run: Any, kind: str, transports: str) -> None:
    async def main() -> None:
        async with (
            stock_server(kind, transports=transports) as server,
            RuntimeClient(server.url, http_sync_ms=100) as client,
        ):
            assert await client.remote(t.sleep, 0.6, "sync") == "sync"
            assert await client.remote(t.sleep_async, 0.6, "async") == "async"
            journal = await journal_once(server, lambda j: len(j["acked"]) == 2)
            assert (journal["posts"], journal["events"].get("call", 0)) == (2, 0)
            assert journal["events"]["resume"] >= 1
            assert runs(journal) == {1}

    run(main())


@BOTH
@pytest.mark.parametrize("transports", ["polling", "websocket"])
@pytest.mark.parametrize("http_sync_ms", [None, 50])
def test_a_cut_link_is_resumed(run: Any, kind: str, transports: str, http_sync_ms: int | None, tmp_path: Path) -> None:
    path = tmp_path / "lines"

    async def main() -> None:
        async with (
            stock_server(kind, transports=transports) as server,
            RuntimeClient(server.url, http_sync_ms=http_sync_ms, **RECONNECT) as client,
        ):
            calls = [asyncio.create_task(client.remote(t.append_line, str(path), str(n), 0.3 * n)) for n in range(6)]
            cuts = 0
            for _ in range(4):
                await asyncio.sleep(0.3)
                cuts += await server.cut()
            assert await asyncio.gather(*calls) == [str(n) for n in range(6)]
            assert cuts > 1
            assert runs(await server.journal()) == {1}

    run(main())
    assert sorted(path.read_text().split()) == [str(n) for n in range(6)]


@BOTH
@pytest.mark.parametrize("transports", ["polling", "websocket"])
def test_cancel(run: Any, kind: str, transports: str) -> None:
    async def main() -> None:
        async with (
            stock_server(kind, transports=transports) as server,
            RuntimeClient(server.url, http_sync_ms=50) as client,
        ):
            task = asyncio.create_task(client.remote(t.sleep_async, 60))
            await asyncio.sleep(0.4)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await journal_once(server, lambda j: j["events"].get("cancel") == 1 and len(j["acked"]) == 1)
            assert await client.remote(t.add, 1, 2) == 3
            started = time.monotonic()
            async with RuntimeClient(server.url, http_sync_ms=50, call_deadline=0.3) as hasty:
                with pytest.raises(CallTimeout):
                    await hasty.remote(t.sleep_async, 60)
                await journal_once(server, lambda j: j["events"].get("cancel") == 2)
            assert time.monotonic() - started < 50

    run(main())


@BOTH
@pytest.mark.parametrize("post", ["none", "404", "405", "500", "503", "reset"])
def test_a_broken_post_falls_back_to_the_link(run: Any, kind: str, post: str, tmp_path: Path) -> None:
    path = tmp_path / "lines"

    async def main() -> None:
        async with stock_server(kind, post=post) as server, RuntimeClient(server.url, **RECONNECT) as client:
            for n in range(3):
                assert await client.remote(t.append_line, str(path), str(n)) == str(n)
            assert runs(await server.journal()) == {1}

    run(main())
    assert path.read_text().split() == ["0", "1", "2"]


@BOTH
def test_no_socketio_at_all(run: Any, kind: str) -> None:
    async def main() -> None:
        async with (
            stock_server(kind, transports="") as server,
            RuntimeClient(server.url, http_sync_ms=50) as client,
        ):
            assert await client.remote(t.sleep_async, 0.6, "polled") == "polled"
            assert runs(await server.journal()) == {1}

    run(main())


@BOTH
@pytest.mark.parametrize("http_sync_ms", [None, 50])
def test_another_instance(run: Any, kind: str, http_sync_ms: int | None, tmp_path: Path) -> None:
    path = tmp_path / "lines"

    async def main() -> None:
        async with (
            stock_server(kind) as server,
            RuntimeClient(server.url, http_sync_ms=http_sync_ms, **RECONNECT) as client,
        ):
            task = asyncio.create_task(client.remote(t.append_line, str(path), "x", 30))
            for _ in range(100):
                if path.exists():
                    break
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.3)
            await server.restart()
            with pytest.raises(RemoteCallError) as info:
                await task
            assert (info.value.error.type, info.value.error.reason) == ("ResultUnavailable", "instance_changed")
            assert await client.remote(t.add, 1, 2) == 3

    run(main())
    assert path.read_text() == "x\n"


@BOTH
def test_without_reconnection(run: Any, kind: str) -> None:
    async def main() -> None:
        async with (
            stock_server(kind) as server,
            RuntimeClient(server.url, http_sync_ms=None, reconnection=False) as client,
        ):
            task = asyncio.create_task(client.remote(t.sleep_async, 30))
            await journal_once(server, lambda j: j["events"].get("call") == 1)
            await server.cut()
            with pytest.raises(RuntimeUnreachable):
                await task

    run(main())


@BOTH
def test_a_server_that_knows_no_token_gets_none(run: Any, kind: str) -> None:
    async def main() -> None:
        async with stock_server(kind) as server:
            async with RuntimeClient(server.url) as client:
                assert await client.remote(t.add, 1, 2) == 3
            client = RuntimeClient(server.url, token="0123456789abcdef" * 4)
            with pytest.raises(RuntimeUnreachable, match="did not prove"):
                await client.remote(t.add, 1, 2)
            await client.close()
            assert (await server.journal())["posts"] == 1

    run(main())


@BOTH
def test_large_values(run: Any, kind: str) -> None:
    async def main() -> None:
        async with (
            stock_server(kind) as server,
            RuntimeClient(server.url, http_sync_ms=None) as client,
        ):
            for size in (999_999, 1_000_001, 16 << 20):
                blob = bytes(size)
                assert await client.remote(t.echo, blob) == blob
        # What the server says that it takes is kept to, and only the call that is larger fails.
        async with (
            stock_server(kind, largest=1_000_000) as server,
            RuntimeClient(server.url, http_sync_ms=None) as client,
        ):
            small = asyncio.create_task(client.remote(t.sleep_async, 0.5, "here"))
            with pytest.raises(RemoteCallError) as info:
                await client.remote(t.echo, bytes(2_000_000))
            assert info.value.error.type == "FrameTooLarge"
            assert await small == "here"

    run(main())
