"""Work beside the event loop that must be over before anything else is done."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["in_thread", "several", "to_the_end"]

T = TypeVar("T")


async def several(times: int, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do the same job several times at once. The first exception is raised when the others have been cancelled."""
    tasks = [asyncio.ensure_future(job()) for _ in range(times)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def in_thread(work: Callable[..., T], *arguments: Any, undo: Callable[[T], object] | None = None) -> T:
    """Run `work` beside the loop, to its end even if this is cancelled; then what it gave is undone."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await to_the_end(asyncio.wait([task]))
        failed = task.cancelled() or task.exception() is not None
        if undo is not None and not failed:
            undo(task.result())
        raise


async def to_the_end(work: Coroutine[Any, Any, object]) -> None:
    """Await `work` to its end; a cancellation that comes meanwhile is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # taken
        raise cancelled
    task.result()
