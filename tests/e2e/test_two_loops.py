"""One client, one sandbox, two `asyncio.run`s: the second works, whatever connections the first has left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import call_targets as t
import pytest

from agentix import RuntimeClient
from agentix.provider import Sandbox


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
