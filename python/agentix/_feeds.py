"""The reliable streams of a client, `/log` and `/trace`, on the host.

Their protocol is C (`src/client/side.c`): what comes here is new, in order, with a count of what was lost. Handlers of
logs may be slow, and calls must not wait for them, so one thread of the process hands everything on. The sandbox hears
of it only when it has (`dealt`), so what waits here is bounded by the window, and how fast it goes by a rate.

`_makers` has a function for each stream, which every client calls once for its `take(items, lost)`; that is given
unpacked items in that thread. In a flood something is lost with every batch: the first loss is said at once, then the
sum of the others once in some seconds, and all of it when the client is closed.
"""

import asyncio
import logging
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, cast

from ._namespaces import BATCH, EVENT
from .runtime.shared.codec import pack, unpack

if TYPE_CHECKING:
    from ._core import ClientCore

__all__ = ["Feeds"]

Take = Callable[[list[Any], int], None]
_Source = tuple[object, str, str]  # address, instance, stream

_log = logging.getLogger("agentix.sio")

_FINISH_SECONDS = 2.0
# Records a second that one client may make this process handle, on average; a sandbox that has more to say waits.
_RATE = 50_000.0
_BURST = 5_000.0
_SAY_SECONDS = 5.0
_SOURCES_MAX = 16384


def _logs() -> Take:
    def take(items: list[Any], lost: int) -> None:
        from . import _log_replay

        _log_replay.take(items, lost)

    return take


def _traces() -> Take:
    replayers: list[Any] = []

    def take(items: list[Any], lost: int) -> None:
        if not replayers:
            from .utils.trace._replay import Replayer

            replayers.append(Replayer())
        replayers[0].take_all(items, lost)

    return take


_makers: dict[str, Callable[[], Take]] = {"/log": _logs, "/trace": _traces}


class _Losses:
    """What was lost of one stream, and when that is to be said."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._unsaid = 0
        self._next = 0.0

    def add(self, lost: int) -> int:
        """How many are to be said now."""
        self._unsaid += lost
        return self.due() if time.monotonic() >= self._next else 0

    def due(self) -> int:
        n, self._unsaid = self._unsaid, 0
        if n:
            self._next = time.monotonic() + _SAY_SECONDS
            _unsaid.discard(self)
        return n

    def wait(self) -> None:
        if self._unsaid:
            _unsaid.add(self)

    def say(self, *, now: bool = False) -> None:
        lost = self.due() if now else self.add(0)
        if lost:
            self._take([], lost)


class _Told:
    """What this process has been told of the streams of each runtime, so that two clients of one tell nothing twice.

    A runtime is an address and an instance: an instance alone is a sandbox's word, which must not silence another's.
    Used in the thread only.
    """

    def __init__(self) -> None:
        self._last: OrderedDict[_Source, int] = OrderedDict()
        self._takes: weakref.WeakValueDictionary[_Source, Take] = weakref.WeakValueDictionary()

    def news(self, source: _Source, items: list[Any], last: int, lost: int) -> tuple[list[Any], int]:
        """Return which of the items, the newest of which has the number `last`, and how many of those lost are new."""
        known = self._last.get(source, 0)
        first = last - len(items) + 1
        self._last[source] = max(known, last)
        self._last.move_to_end(source)
        if len(self._last) > _SOURCES_MAX:
            self._last.popitem(last=False)
        return items[max(0, known + 1 - first) :], min(lost, max(0, first - 1 - known)) if known else lost

    def take_of(self, source: _Source, take: Take) -> Take:
        """The one that takes for all clients of this source, since a span may start for one and end for another."""
        return self._takes.setdefault(source, take)


class Feeds:
    """What one client reads from the runtime at `address`."""

    def __init__(self, address: object) -> None:
        self._address = address
        self.core: ClientCore | None = None
        self.silent = False  # the client was closed: what still waits is not handed on
        self._takers: dict[str, Take] = {}
        self._losses: dict[str, _Losses] = {}
        self._under_way: dict[str, int] = {}  # batches that the thread has not handed on
        self._flushed: set[int] = set()
        self._token = 0
        self._news: asyncio.Event | None = None
        self._credit = _BURST
        self._since = time.monotonic()

    def begin(self, core: "ClientCore") -> None:
        """Read all streams there are, as soon as there is a link."""
        self.core = core
        for name, make in _makers.items():
            self._takers[name] = make()
            self._losses[name] = _Losses(self._takers[name])
            self._under_way[name] = 0
            core.join(name, True)

    def hear(self, kind: int, name: str, event: str, payload: bytes, skip: int, last: int, lost: int) -> bool:
        """Something came; False if it is no stream's."""
        take = self._takers.get(name)
        if take is None:
            return False
        if kind == BATCH:
            self._put(name, payload, skip, last, lost)
        elif kind == EVENT and event == "flushed":
            token = _map(payload).get("token")
            if isinstance(token, int) and token <= self._token:
                self._flushed.add(token)
        if self._news is not None:
            self._news.set()
        return True

    def _put(self, name: str, payload: bytes | None, skip: int = 0, last: int = 0, lost: int = 0) -> None:
        self._under_way[name] += 1
        instance = self.core.instance if self.core is not None else ""
        _replayer().put((self, asyncio.get_running_loop(), (self._address, instance, name), payload, skip, last, lost))

    def _has_dealt(self, name: str, last: int) -> None:
        self._under_way[name] -= 1
        assert self.core is not None
        self.core.dealt(name, last)
        if self._news is not None:
            self._news.set()

    async def finish(self) -> None:
        """Wait, within bounds, until everything that the sandbox has written by now has been handed on."""
        core = self.core
        if core is None or not core.here or not core.counts()["connections"]:
            return
        self._news = asyncio.Event()
        try:
            async with asyncio.timeout(_FINISH_SECONDS):
                await self._finish(core)
        except TimeoutError:
            pass
        finally:
            self._news = None

    async def _finish(self, core: "ClientCore") -> None:
        core.hurry()
        failures = core.counts()["failures"]
        while not all(core.joined(name) for name in self._takers):  # -1: the server has no such stream
            counts = core.counts()
            if counts["absent"] or counts["failures"] > failures or not counts["connections"]:
                return
            await self._wait()
        tokens: dict[str, int] = {}
        for name in (name for name in self._takers if core.joined(name) == 1):
            self._token += 1
            tokens[name] = self._token
            core.emit(name, "flush", pack({"token": self._token}))
        for name, token in tokens.items():
            while token not in self._flushed or self._under_way[name]:
                if core.joined(name) != 1:
                    return
                await self._wait()
        for name in tokens:
            self._put(name, None)
        while any(self._under_way[name] for name in tokens):
            await self._wait()

    async def _wait(self) -> None:
        """For news; some things are only to be seen, not heard."""
        assert self._news is not None
        self._news.clear()
        try:
            async with asyncio.timeout(0.05):
                await self._news.wait()
        except TimeoutError:
            pass

    # ---- in the thread ----

    def take(self, source: _Source, payload: bytes | None, skip: int, last: int, lost: int) -> None:
        """Hand a batch on; without one, say what has not been said."""
        _, instance, name = source
        losses = self._losses[name]
        if payload is None:
            losses.say(now=True)
            return
        items = _map(payload).get("items")
        items = cast("list[Any]", items)[skip:] if isinstance(items, list) else []
        if self.silent:
            return
        take = self._takers[name]
        if instance:  # else it cannot be told whether others hear the same
            items, lost = _told.news(source, items, last, lost)
            take = _told.take_of(source, take)
        take(items, losses.add(lost))
        losses.wait()
        self.pace(len(items))

    def pace(self, n: int) -> None:
        """Sleep if more comes than may."""
        now = time.monotonic()
        self._credit = min(_BURST, self._credit + (now - self._since) * _RATE) - n
        self._since = now
        if self._credit < 0:
            time.sleep(min(1.0, -self._credit / _RATE))


_Work = tuple[Feeds, asyncio.AbstractEventLoop, _Source, bytes | None, int, int, int]
_queue: "SimpleQueue[_Work] | None" = None
_starting = threading.Lock()
_unsaid: set[_Losses] = set()  # of the thread
_told = _Told()


def _replayer() -> "SimpleQueue[_Work]":
    global _queue
    with _starting:
        if _queue is None:
            _queue = SimpleQueue()
            threading.Thread(target=_replay_all, args=(_queue,), name="agentix-feeds", daemon=True).start()
        return _queue


def _replay_all(queue: "SimpleQueue[_Work]") -> None:
    while True:
        try:
            streams, loop, source, payload, skip, last, lost = queue.get(timeout=1.0 if _unsaid else None)
        except Empty:
            for losses in tuple(_unsaid):
                _guard("a stream", losses.say)
            continue
        _guard(source[2], streams.take, source, payload, skip, last, lost)
        try:
            loop.call_soon_threadsafe(streams._has_dealt, source[2], last)  # pyright: ignore[reportPrivateUsage]
        except RuntimeError:
            pass  # the loop has ended, and with it the client
        del streams, loop, source, payload


def _guard(name: str, work: Callable[..., object], *args: Any) -> None:
    """Do it, whatever it raises: the thread serves every client, and nothing would start it again."""
    try:
        work(*args)
    except BaseException:
        try:
            _log.exception("what a sandbox said on %s could not be handled", name)
        except BaseException as error:  # a handler of the host's own
            print(f"agentix: what a sandbox said on {name} could not be handled: {error!r}", file=sys.stderr)


def _map(payload: bytes) -> dict[Any, Any]:
    try:
        value = unpack(payload)
    except ValueError:
        return {}
    return cast("dict[Any, Any]", value) if isinstance(value, dict) else {}


def _after_fork() -> None:
    global _queue, _starting, _told
    _queue = None
    _unsaid.clear()
    _told = _Told()
    _starting = threading.Lock()


__import__("os").register_at_fork(after_in_child=_after_fork)
