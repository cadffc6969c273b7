"""An event loop on a thread of its own, so that leases are renewed and logs arrive while a test does something else."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_UNDO_SECONDS = 60.0
"""How long an interrupted coroutine may take to undo what it did."""
_CLOSE_SECONDS = 30.0


class Loop:
    """Runs coroutines for whoever calls from another thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="agentix-tests", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Return what the coroutine returns; TimeoutError after `timeout` seconds.

        If the caller is interrupted, the coroutine is cancelled and has ended before the interruption goes on.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("this is the sandboxes' own loop: use `await` and the asynchronous sandbox here")
        done: concurrent.futures.Future[T] = concurrent.futures.Future()
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            tasks.append(self._loop.create_task(_bounded(coroutine, timeout)))
            tasks[0].add_done_callback(lambda task: _hand_over(task, done))

        self._loop.call_soon_threadsafe(start)
        try:
            return done.result()
        finally:
            if not done.done():
                self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
                concurrent.futures.wait([done], _UNDO_SECONDS)

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        if not self._loop.is_closed():
            self.run(_end_others(), _CLOSE_SECONDS)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLOSE_SECONDS)
            if not self._thread.is_alive():
                self._loop.close()


async def _bounded(coroutine: Coroutine[Any, Any, T], timeout: float | None) -> T:
    async with asyncio.timeout(timeout):
        return await coroutine


def _hand_over(task: asyncio.Task[T], done: concurrent.futures.Future[T]) -> None:
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await asyncio.get_running_loop().shutdown_default_executor()
