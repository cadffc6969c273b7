"""A relay between a client and a server, TCP or Unix socket, that misbehaves on demand.

It runs on a thread of its own, so that a client under test, or one that is stopped, has no part in it. Each connection
is a `Link` of two `Way`s, `up` (client to server) and `down`; what a way does to its bytes are plain attributes, which
may be set from any thread at any time, through `Shim.change`. It imports nothing of what it tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

T = TypeVar("T")
_CHUNK = 65536
_ENOUGH = 1 << 20


@dataclass
class Way:
    """One direction of a connection."""

    cut_at: int | None = None  # so many bytes pass, then the connection ends on both sides
    reset: bool = False  # and it ends by RST
    half_close_at: int | None = None  # so many bytes pass, then an end of file; the other way goes on
    swallow_at: int | None = None  # what comes after so many bytes is read and lost, and so is the end of file
    delay: float = 0.0  # seconds by which every piece is late
    piece: int | None = None  # bytes that pass at once ...
    every: float = 0.0  # ... and the seconds from one to the next
    paused: bool = False  # nothing is read: the sender feels it
    held: bool = False  # what comes is read, and `recorded`, but does not pass yet
    record: bool = False
    recorded: bytearray = field(default_factory=bytearray, repr=False)
    passed: int = 0
    _ahead: bytearray = field(default_factory=bytearray, repr=False)
    _eof: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            self._changed.clear()
            await self._changed.wait()

    def _limit(self) -> tuple[int, str]:
        """The first of what is to happen after so many bytes; "" if nothing is."""
        limits = [(self.cut_at, "cut"), (self.half_close_at, "half-close"), (self.swallow_at, "swallow")]
        return min(((at, what) for at, what in limits if at is not None), default=(sys.maxsize, ""))


class Link:
    """One connection through the shim."""

    def __init__(self, number: int, up: Way, down: Way) -> None:
        self.number = number
        self.up = up
        self.down = down
        self.ended = False
        self._writers: list[asyncio.StreamWriter] = []
        self._over: Callable[[], object] = bool
        self._relay: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Link {self.number}{', ended' if self.ended else ''}: {self.up}, {self.down}>"

    def ways(self) -> tuple[Way, Way]:
        return self.up, self.down

    def _end(self, reset: bool) -> None:
        if self.ended:
            return
        self.ended = True
        self._over()
        for writer in self._writers:
            if reset:
                with contextlib.suppress(OSError):
                    sock = writer.get_extra_info("socket")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                writer.close()


def both(number: int) -> tuple[Way, Way]:
    """The plan of a shim that only relays."""
    return Way(), Way()


class Shim:
    """`with Shim(url) as shim:` and `shim.url` leads to `url`, by the plan: the two ways of each new connection."""

    def __init__(
        self, url: str, plan: Callable[[int], tuple[Way, Way]] = both, *, unix_path: str | None = None
    ) -> None:
        self.target = url  # may be set anew: where new connections lead
        self.plan = plan  # likewise; called on the shim's thread with the connection's number, from 0
        self.refuse = False  # new connections are accepted and reset at once
        self.url = ""
        self.count = 0
        self._unix_path = unix_path
        self._links: dict[int, Link] = {}
        self._openings: set[asyncio.Task[Any]] = set()
        self._closing = False
        self._writers: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="shim", daemon=True)

    # ---- used from any thread ----

    def __enter__(self) -> Shim:
        self._thread.start()
        try:
            self._run(self._listen())
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._run(self._close())
        self._leave()

    def links(self) -> list[Link]:
        """Connections that have not ended, oldest first."""
        return self.do(lambda: [link for link in self._links.values() if not link.ended])

    def cut(self, *, reset: bool = True) -> int:
        """End every connection now; gives how many there were."""

        def end() -> int:
            alive = [link for link in self._links.values() if not link.ended]
            for link in alive:
                link._end(reset)
            return len(alive)

        return self.do(end)

    def end(self, link: Link, *, reset: bool = False) -> None:
        """End one connection now."""
        self.do(lambda: link._end(reset))

    def change(self, way: Way, **attributes: Any) -> None:
        """Set attributes of a way, e.g. `held=False`."""

        def set_all() -> None:
            for name, value in attributes.items():
                if not hasattr(way, name):
                    raise AttributeError(name)
                setattr(way, name, value)
            way._changed.set()

        self.do(set_all)

    def blackhole(self) -> int:
        """From now on every connection there is swallows what comes from either end; new ones are not touched."""
        links = self.links()
        for link in links:
            for way in link.ways():
                self.change(way, swallow_at=0)
        return len(links)

    def do(self, function: Callable[[], T]) -> T:
        """Run a function on the shim's thread and give what it returns."""

        async def run() -> T:
            return function()

        return self._run(run())

    # ---- on the shim's thread ----

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def _leave(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        if self._unix_path is not None:
            self._server = await asyncio.start_unix_server(self._accepted, self._unix_path, backlog=4096)
            self.url = "http+unix://" + quote(self._unix_path, safe="")
        else:
            self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, backlog=4096)
            self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        self._closing = True
        for sock in self._server.sockets:
            self._loop.remove_reader(sock.fileno())
        # asyncio leaks what it has just accepted if it is cancelled, or the server closed, before this.
        for _ in range(3):
            await asyncio.sleep(0)
        self._server.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()} - self._openings:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        for _ in range(3):  # transports say their last
            await asyncio.sleep(0)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closing:
            writer.transport.abort()
            return
        number, self.count = self.count, self.count + 1
        link = Link(number, *self.plan(number))
        self._links[number] = link
        link._writers.append(writer)
        self._writers.add(writer)
        link._relay = self._loop.create_task(self._relay(link, reader, writer))

    async def _relay(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.refuse:
                return
            there_reader, there_writer = await self._opened()
            link._writers.append(there_writer)
            self._writers.add(there_writer)
            if link.ended:  # while this one was made
                there_writer.transport.abort()
                return
            jobs = [
                self._take(link.up, reader),
                self._pass(link, link.up, there_writer),
                self._take(link.down, there_reader),
                self._pass(link, link.down, writer),
            ]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(job) for job in jobs]
                link._over = lambda: [task.cancel() for task in tasks]
        except* (OSError, RuntimeError):  # RuntimeError: an end of file after the end
            pass
        finally:
            link._end(self.refuse)
            await self._closed(link)

    async def _closed(self, link: Link) -> None:
        """What was passed may leave, for a while: a peer that reads nothing does not hold its connection for ever."""
        try:
            for writer in link._writers:
                with contextlib.suppress(OSError, TimeoutError):
                    await asyncio.wait_for(writer.wait_closed(), 0.5)
        finally:
            for writer in link._writers:
                with contextlib.suppress(AttributeError):  # asyncio's own, of a transport that has closed by itself
                    writer.transport.abort()
            del self._links[link.number]

    async def _opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the target; asyncio would leak one that was cancelled when it had just come about."""
        opening = asyncio.ensure_future(self._open())
        self._openings.add(opening)
        opening.add_done_callback(self._openings.discard)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                (await opening)[1].transport.abort()
            raise

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self.target)
        if parts.scheme == "http+unix":
            return await asyncio.open_unix_connection(unquote(parts.netloc))
        return await asyncio.open_connection(parts.hostname, parts.port)

    async def _take(self, way: Way, reader: asyncio.StreamReader) -> None:
        """Read what comes into `way._ahead`."""
        while not way._eof:
            await way._until(lambda: not way.paused and len(way._ahead) < (_ENOUGH if way.held else _CHUNK))
            data = await reader.read(_CHUNK)
            if way.record:
                way.recorded += data
            way._ahead += data
            way._eof = not data
            way._changed.set()

    async def _pass(self, link: Link, way: Way, writer: asyncio.StreamWriter) -> None:
        """Let `way._ahead` go on, as it may."""
        while True:
            await way._until(lambda: not way.held and (bool(way._ahead) or way._eof))
            if way._ahead and way.delay:
                await asyncio.sleep(way.delay)
            limit, what = way._limit()
            piece = bytes(way._ahead[: min(way.piece or _CHUNK, max(limit - way.passed, 0))])
            if piece:
                del way._ahead[: len(piece)]
                writer.write(piece)
                way.passed += len(piece)
                way._changed.set()
                await writer.drain()
            if what and way.passed >= limit:
                await self._at_the_limit(link, way, writer, what)
                return
            if not way._ahead and way._eof:
                writer.write_eof()
                return
            if way.every:
                await asyncio.sleep(way.every)

    async def _at_the_limit(self, link: Link, way: Way, writer: asyncio.StreamWriter, what: str) -> None:
        if what == "cut":
            link._end(way.reset)
            return
        if what == "half-close":
            writer.write_eof()
        while True:  # a black hole tells nobody of an end
            way._ahead.clear()
            way._changed.set()
            await way._until(lambda: bool(way._ahead))
