"""Renewing leases: a sandbox ends when no authenticated connection existed for the length of its lease.

Calls are such connections. A handle that is merely held makes one from time to time as well, until it is closed,
dropped, or the event loop that it was made in ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Awaitable, Callable

from .._client import RuntimeClient
from .base import Sandbox

RENEWALS = 3
"""How often in the time of a lease: one that fails, or comes late, does no harm."""


def keep_lease(sandbox: Sandbox, lease: float | None) -> Sandbox:
    """Renew the lease (seconds; None: there is none) for as long as this handle lives; return the handle."""
    if lease is not None:
        pause = lease / RENEWALS
        keep(sandbox, pause, lambda held: _connect(held, pause))
    return sandbox


def keep(sandbox: Sandbox, pause: float, renew: Callable[[Sandbox], Awaitable[None]]) -> None:
    """Call `renew`, which may raise what it likes, every `pause` seconds for as long as this handle lives."""
    task = asyncio.ensure_future(_renew(weakref.ref(sandbox), pause, renew))
    sandbox._add_cleanup(lambda: _stop(task))  # pyright: ignore[reportPrivateUsage]


async def _renew(handle: weakref.ref[Sandbox], pause: float, renew: Callable[[Sandbox], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(pause)
        sandbox = handle()
        if sandbox is None:
            return
        renewing = renew(sandbox)
        del sandbox
        with contextlib.suppress(Exception):  # whoever calls learns of it
            await renewing
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return  # a library made an error of its own of the cancellation


async def _connect(sandbox: Sandbox, pause: float) -> None:
    client = RuntimeClient(sandbox.runtime_url, pause, token=sandbox.token, headers=sandbox.headers)
    del sandbox
    try:
        async with asyncio.timeout(pause):
            await client.health()
    finally:
        await client.close()


async def _stop(task: asyncio.Task[None]) -> None:
    """End the renewing; with a loop that has ended it has ended too."""
    if task.done() or task.get_loop() is not asyncio.get_running_loop():
        return
    task.cancel()
    await asyncio.wait([task])
