"""What a remote call gives whose target is a generator: its items, one by one, as they come."""

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._core import Pending

__all__ = ["DECODE_HERE_MAX", "RemoteStream", "decode"]

DECODE_HERE_MAX = 1 << 20
"""Bytes: larger values are decoded in a thread, so that the event loop goes on."""


async def decode(value: Any, load: Callable[[Any], Any]) -> Any:
    """Return what `load` makes of a pickle, without holding the event loop up for long."""
    return await asyncio.to_thread(load, value) if len(value) > DECODE_HERE_MAX else load(value)


class RemoteStream(AsyncIterator[Any]):
    """The items of a generator in the sandbox, in order; to be iterated once, by one task.

    The generator is ahead of the iteration by a bounded number of items. It is closed, so that its `finally` runs, when
    the stream is closed (`aclose`) or forgotten before its end. A step raises what the generator raised, or what ended
    the call: the errors of `RuntimeClient.remote`. A value that is refused ends only its own step.
    """

    def __init__(self, pending: "Pending | None", load: Callable[[Any], Any]) -> None:
        self._pending = pending
        self.load = load  # what an item's pickle becomes a value by
        self._items: deque[Any] = deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._ended = pending is None
        if pending is not None:
            stream = weakref.ref(self)  # the call must not keep alive who iterates it
            pending.add_done_callback(lambda _: _wake(stream()))

    def put(self, items: list[Any]) -> None:
        """Take over items that came, as pickles."""
        self._items.extend(items)
        _wake(self)

    async def __anext__(self) -> Any:
        while not self._ended:
            if self._items:
                value = self._items[0]
                if len(value) <= DECODE_HERE_MAX:
                    return self.load(self._take())
                loaded = await decode(value, self.load)
                if self._items and self._items[0] is value:  # a step that is cancelled above leaves it there
                    self._take()
                    return loaded
            elif self._pending is None or self._pending.done():
                self._end()
            else:
                await self._more()
        raise StopAsyncIteration

    def _take(self) -> Any:
        value = self._items.popleft()
        if self._pending is not None:
            self._pending.consumed(1, len(value))
        return value

    def _end(self) -> None:
        """Note the end of the call; raises what it ended with."""
        self._ended = True
        if self._pending is not None:
            self._pending.result()

    async def _more(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    async def aclose(self) -> None:
        """Close the generator in the sandbox, unless it has ended; what has come and was not taken is dropped."""
        self._ended = True
        self._items.clear()
        if self._pending is not None and not self._pending.done():
            self._pending.cancel()
        _wake(self)

    def __del__(self) -> None:
        pending = getattr(self, "_pending", None)
        if pending is None or pending.done():
            return
        try:
            pending.get_loop().call_soon_threadsafe(pending.cancel)
        except RuntimeError:  # the loop is closed, and the call with it
            pass

    def __repr__(self) -> str:
        return f"<RemoteStream{', ended' if self._ended else ''}, {len(self._items)} items at hand>"


def _wake(stream: RemoteStream | None) -> None:
    if stream is None:
        return
    waiters, stream._waiters = stream._waiters, []  # pyright: ignore[reportPrivateUsage]
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
