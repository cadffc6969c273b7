"""One client, one sandbox, two `asyncio.run`s: the second works, whatever connections the first has left behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import call_targets as t
import pytest

from agentix import RuntimeClient
from agentix.provider import Sandbox
from agentix.testing import serve


@pytest.fixture
def url(worker_python: str) -> Iterator[str]:
    """A runtime that lives in a loop of its own."""
    found: list[str] = []
    ready, over = threading.Event(), threading.Event()

    async def main() -> None:
        async with serve(python=worker_python) as url:
            found.append(url)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert ready.wait(30)
    yield found[0]
    over.set()
    thread.join(30)


async def some(remote: Any) -> list[Any]:
    """Calls on both roads."""
    return await asyncio.gather(remote(t.add, 1, 2), remote(t.sleep, 0.3, "a"), remote(t.sleep_async, 0.3, "b"))


@pytest.mark.parametrize("http_sync_ms", [None, 50])
def test_a_client(url: str, http_sync_ms: int | None) -> None:
    client = RuntimeClient(url, http_sync_ms=http_sync_ms)
    for _ in range(3):  # neither closed nor told in between
        assert asyncio.run(asyncio.wait_for(some(client.remote), 30)) == [3, "a", "b"]
    asyncio.run(client.close())


def test_a_client_that_left_a_call_behind(url: str) -> None:
    client = RuntimeClient(url, http_sync_ms=50)

    async def leave() -> None:
        task = asyncio.create_task(client.remote(t.sleep_async, 60))
        await asyncio.sleep(0.4)
        task.cancel()

    asyncio.run(leave())
    assert asyncio.run(asyncio.wait_for(some(client.remote), 30)) == [3, "a", "b"]
    asyncio.run(client.close())


def test_a_sandbox(url: str) -> None:
    sandbox = Sandbox(sandbox_id="s", runtime_url=url, status="running")
    for _ in range(3):
        assert asyncio.run(asyncio.wait_for(some(sandbox.remote), 30)) == [3, "a", "b"]
        assert asyncio.run(sandbox.health()).status == "ok"
    asyncio.run(sandbox.aclose())
