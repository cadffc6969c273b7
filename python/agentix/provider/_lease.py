"""Renewing leases: a sandbox ends when no authenticated connection existed for the length of its lease.

Calls are such connections. A handle that is merely held makes one from time to time as well, until it is closed,
dropped, or the event loop that it was made in ends.
"""

from __future__ import annotations

import asyncio
import weakref

from .._client import RuntimeClient
from .._failures import RuntimeUnreachable
from .base import Sandbox

RENEWALS = 3
"""How often in the time of a lease: one that fails, or comes late, does no harm."""


def keep_lease(sandbox: Sandbox, lease: float | None) -> Sandbox:
    """Renew the lease (seconds; None: there is none) for as long as this handle lives; return the handle."""
    if lease is not None:
        task = asyncio.ensure_future(_renew(weakref.ref(sandbox), lease / RENEWALS))
        sandbox._add_cleanup(lambda: _stop(task))  # pyright: ignore[reportPrivateUsage]
    return sandbox


async def _renew(handle: weakref.ref[Sandbox], pause: float) -> None:
    while True:
        await asyncio.sleep(pause)
        sandbox = handle()
        if sandbox is None:
            return
        client = RuntimeClient(sandbox.runtime_url, pause, token=sandbox.token, headers=sandbox.headers)
        del sandbox
        try:
            async with asyncio.timeout(pause):
                await client.health()
        except (RuntimeUnreachable, TimeoutError):
            pass  # whoever calls learns of it
        finally:
            await client.close()


async def _stop(task: asyncio.Task[None]) -> None:
    """End the renewing; with a loop that has ended it has ended too."""
    if task.done() or task.get_loop() is not asyncio.get_running_loop():
        return
    task.cancel()
    await asyncio.wait([task])
