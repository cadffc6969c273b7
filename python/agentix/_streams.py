"""In a worker: targets that are generators, whose items are sent one by one as the host takes them.

A host offers credit, a number of items; it gives more as it consumes them. An item is made only when there is credit
for it, and, so that large ones do not pile up in the server, when little of what was sent is unconsumed. A sync
generator runs in the thread of its call, an async one on the loop. Imported with the first stream.
"""

from __future__ import annotations

from collections import deque
from contextvars import Context
from pickle import dumps
from threading import Lock, Semaphore
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Generator

    from agentix._core import Call
    from agentix._worker import Worker

UNCONSUMED_MAX = 4 << 20
"""Bytes sent and not consumed, above which the next item waits."""
PICKLE_PROTOCOL = 5

_END: Any = object()


class Flow:
    """How much of one stream may be sent."""

    def __init__(self, credit: int) -> None:
        self._lock = Lock()
        self._credit = credit
        self._next = 0
        self._sent: deque[int] = deque()  # the sizes of what is not consumed
        self._bytes = 0
        self.stopped = False
        self._wake: Any = None  # called once, when something has changed

    def add(self, n: int) -> None:
        """`n` more items were consumed, and as many more may be sent."""
        with self._lock:
            self._credit += n
            for _ in range(min(n, len(self._sent))):
                self._bytes -= self._sent.popleft()
            wake, self._wake = self._wake, None
        if wake is not None:
            wake()

    def stop(self) -> None:
        """Let nobody wait any more."""
        self.stopped = True
        self.add(0)

    def take(self, size: int) -> int:
        """An item of `size` bytes is about to be sent; return its number."""
        with self._lock:
            self._next += 1
            self._credit -= 1
            self._sent.append(size)
            self._bytes += size
            return self._next - 1

    def wait(self, wake: Any) -> bool:
        """Return whether an item may be sent, or nobody should wait; if not, `wake` is called when that may be so."""
        with self._lock:
            if self.stopped or (self._credit > 0 and (self._bytes < UNCONSUMED_MAX or not self._sent)):
                return True
            self._wake = wake
            return False


class Streams:
    """The streams of this worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._flows: dict[str, Flow] = {}

    def credit(self, call_id: str, n: int) -> None:
        """Pass credit on; what comes for a stream that has ended is late, and dropped."""
        flow = self._flows.get(call_id)
        if flow is not None:
            flow.add(n)

    def cancel(self, call_id: str) -> None:
        """A call was cancelled: it need not wait for credit."""
        flow = self._flows.get(call_id)
        if flow is not None:
            flow.stop()

    # ---- in a thread ----

    def run(self, call: Call, items: Generator[Any, Any, Any], context: Context) -> None:
        """Send the items of a generator, and answer the call."""
        flow = self._flows[call.id] = Flow(call.stream or 0)
        try:
            self._send_all(call, items, context, flow)
        finally:
            del self._flows[call.id]

    def _send_all(self, call: Call, items: Generator[Any, Any, Any], context: Context, flow: Flow) -> None:
        turn = Semaphore(0)
        try:
            while not call.cancelled:
                if not flow.wait(turn.release):
                    turn.acquire()
                    continue
                value = call.run(context.run, (next, items, _END), {})
                if value is _END:
                    return self._worker.end_stream(call)
                if not self._send(call, flow, value):
                    break
        except BaseException as error:  # noqa: BLE001 - any BaseException is this call's error
            return self._worker.fail(call, error)
        return self._close(call, items, context)

    def _close(self, call: Call, items: Generator[Any, Any, Any], context: Context) -> None:
        """Let the generator's `finally` run; the call has been answered, or is cancelled and is answered then."""
        try:
            context.run(items.close)
        except BaseException as error:  # noqa: BLE001 - as above
            return self._worker.fail(call, error)
        return self._worker.answer_cancelled(call)

    # ---- on the loop ----

    async def run_async(self, call: Call, items: AsyncGenerator[Any, Any]) -> None:
        """Send the items of an async generator, and answer the call."""
        import asyncio

        flow = self._flows[call.id] = Flow(call.stream or 0)
        try:
            await self._send_all_async(call, items, flow, asyncio.get_running_loop())
        except BaseException as error:  # noqa: BLE001 - SystemExit included: it must not end the loop
            self._worker.fail(call, error)
        finally:
            del self._flows[call.id]

    async def _send_all_async(
        self, call: Call, items: AsyncGenerator[Any, Any], flow: Flow, loop: asyncio.AbstractEventLoop
    ) -> None:
        try:
            while await self._may_send(flow, loop):
                try:
                    value = await anext(items)
                except StopAsyncIteration:
                    return self._worker.end_stream(call)
                if not self._send(call, flow, value):
                    return None
        finally:
            await items.aclose()

    async def _may_send(self, flow: Flow, loop: asyncio.AbstractEventLoop) -> bool:
        while True:
            changed = loop.create_future()
            if flow.wait(lambda: loop.call_soon_threadsafe(_set, changed)):  # noqa: B023 - called once, for this one
                if not flow.stopped:
                    return True
                changed = loop.create_future()  # lets the cancellation come: the generator may never await
            await changed

    # ---- both ----

    def _send(self, call: Call, flow: Flow, value: Any) -> bool:
        """Send one item; False if that ended the call, with an error that says why."""
        try:
            payload = dumps(value, PICKLE_PROTOCOL)
        except BaseException as error:  # noqa: BLE001 - pickling runs user code
            self._worker.refuse_value(call, value, error, "an item of the stream, of")
            return False
        return self._worker.send_item(call, flow.take(len(payload)), payload)


def _set(changed: asyncio.Future[None]) -> None:
    if not changed.done():
        changed.set_result(None)
