"""What runs in the sandbox: `upload` and `download`, and the far ends of transfers.

A transfer is a few calls with a token that the host chose. What it holds open here is kept under that token; it is
dropped when the host says so, or when nothing is heard of it for ten minutes.
"""

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from agentix import _conduits
from agentix._core import uninterrupted

from . import _conduit
from ._batch import CHUNK, DIRECTORY, Batch, checked, checksum_of, keep_memory
from ._confine import locate, naming
from ._landing import FileLanding, Landing, TreeLanding, discard
from ._result import TransferError, UploadResult
from ._source import Source, must_be_as_before, open_regular, read_exactly

__all__ = [
    "abort",
    "begin_get",
    "begin_put",
    "conduit",
    "download",
    "end_get",
    "end_put",
    "put",
    "receive",
    "rest",
    "send",
    "take",
    "upload",
]

VALUE_MAX = 250 << 20
"""Bytes: what a call can carry, less some room for the rest of it."""
IDLE_SECONDS = 600.0
CONDUIT_SECONDS = 30.0
BEGIN_SECONDS = 5.0


# ---- one value ----


async def upload(path: str, content: bytes) -> UploadResult:
    """Write a file below the upload root, whole or not at all; directories that are missing above it are made.

    To be called by `sandbox.remote`. `path` is relative to AGENTIX_UPLOAD_ROOT (default `/workspace`, read when this
    module is imported) or an absolute path in it; links are followed as if that were the root of the file system. A
    file that is replaced keeps its mode. Raises PermissionError for a path outside, for too many links and for what is
    no file, IsADirectoryError, OSError.
    """
    data = memoryview(content)  # raises TypeError for text
    return await _in_thread(_upload, path, data.cast("B"))


async def download(path: str) -> bytes:
    """Return the bytes of a file below the upload root.

    To be called by `sandbox.remote`; paths are those of `upload`. Raises FileNotFoundError, PermissionError for a path
    outside and for what is no regular file, IsADirectoryError, and OSError for more than 250 MiB, which
    `download_path` can do.
    """
    return await _in_thread(_download, path)


def _upload(stop: threading.Event, path: str, data: memoryview) -> UploadResult:
    with locate(path, make=True) as place, naming(path):
        with place.or_nothing():
            landing = FileLanding(place, os.urandom(16).hex(), len(data), None)
        try:
            for offset in range(0, len(data), CHUNK):
                _unless(stop)
                landing.write(data[offset : offset + CHUNK], offset)
            _unless(stop)
            landing.bytes = len(data)
            landing.finish(0, len(data))
        finally:
            landing.abort()
        return UploadResult(place.path, len(data))


def _download(stop: threading.Event, path: str) -> bytes:
    with locate(path) as place, naming(path):
        fd, about = open_regular(place)
        try:
            size = about.st_size
            if size > VALUE_MAX:
                raise OSError(
                    f"{place.path}: {size} bytes do not fit in one value; agentix.files.download_path can do it"
                )
            parts: list[bytes] = []
            for offset in range(0, size, CHUNK):
                _unless(stop)
                parts.append(read_exactly(fd, min(CHUNK, size - offset), offset, place.path))
            must_be_as_before(fd, about, place.path)
        finally:
            os.close(fd)
        return b"".join(parts)


class _Stopped(Exception):
    pass


def _unless(stop: threading.Event) -> None:
    if stop.is_set():
        raise _Stopped


async def _in_thread(work: Any, *arguments: Any) -> Any:
    """Run `work(stop, ...)` beside the loop. If this is cancelled, the work has ended when that is said."""
    import asyncio

    stop = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(work, stop, *arguments))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as exc:
            stop.set()
            cancelled = exc
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # taken
        raise cancelled
    return task.result()


# ---- transfers ----


class _Session:
    def __init__(self, end: Landing | Source) -> None:
        self.end = end
        self.touched = time.monotonic()
        self.expected: str | None = None  # the conduit that may come for it
        self._sock: socket.socket | None = None
        self._conduit = threading.Lock()  # held while one is used
        self._ending = threading.Lock()

    def touch(self, _: int = 0) -> None:
        self.touched = time.monotonic()

    def expect(self, name: str | None) -> bool:
        """Have no conduit but this one from now on; returns when an earlier one is not used any more."""
        before, self.expected = self.expected, name
        if before is not None:
            _conduits.forget(before)
        sock = self._sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:  # it is closed, or the other end is
                pass
        with self._conduit:
            return name is not None and _conduits.expect(name)

    @contextmanager
    def conduit(self, name: str) -> Generator[socket.socket]:
        """Use the conduit that was expected. Raises Lost if it does not come."""
        with self._conduit:
            try:
                sock = _conduits.take(name, CONDUIT_SECONDS)
            except TimeoutError as exc:
                raise _conduit.Lost(str(exc)) from None
            with sock:
                _conduit.tune(sock)
                self._sock = sock
                try:
                    if name == self.expected:
                        yield sock
                finally:
                    self._sock = None

    def drop(self) -> None:
        """Close everything; a second call does nothing."""
        try:
            uninterrupted(self.expect, None)
        finally:
            with self._ending:
                self._end()

    def _end(self) -> None:
        if isinstance(self.end, Source):
            return uninterrupted(self.end.close)
        try:
            self.end.abort()  # takes long if it is a large tree
        finally:
            uninterrupted(self.end.place.close)


_lock = threading.Lock()
_begun = threading.Condition(_lock)
_sessions: dict[str, _Session] = {}
_beginning: set[str] = set()
"""Tokens whose transfers are being begun; who drops one waits for that, lest something be made behind him."""
_watching = False
_dropped: deque[str] = deque(maxlen=1024)
"""Tokens whose transfers ended: a call of theirs that comes late must not begin one anew."""

P = ParamSpec("P")
T = TypeVar("T")


def _whole(function: Callable[P, T]) -> Callable[P, T]:
    """Do a step of a transfer whole, whether it is cancelled or not: what is opened halfway nobody would ever close.

    None takes long: those that may (`end_put` and `abort` of a tree) can be cancelled, and take care themselves.
    """

    @wraps(function)
    def step(*args: P.args, **kwargs: P.kwargs) -> T:
        return uninterrupted(lambda: function(*args, **kwargs))

    return step


@_whole
def begin_put(token: str, target: str, kind: str, size: int | None, mode: int) -> str:
    """Make ready to take a file or a tree; returns where it will be."""
    _check_token(token)
    with _begins(token):
        place = locate(target, make=True)
        with place.or_nothing():
            landing = (
                TreeLanding(place, token, mode, outside_links="keep")
                if kind == DIRECTORY
                else FileLanding(place, token, size or 0, mode)
            )
        _keep(token, _Session(landing))
        return place.path


@_whole
def put(token: str, checksum: int, batch: Batch) -> None:
    """Take a batch."""
    _landing_of(token).accept(checked((checksum, batch)))


def end_put(token: str, entries: int, size: int) -> None:
    """All is here: give it its name."""
    _landing_of(token).finish(entries, size)
    _drop(token)


@_whole
def begin_get(token: str, path: str) -> tuple[str, int | None, int]:
    """Open a file or a tree to be read; returns its kind, size and mode."""
    _check_token(token)
    with locate(path) as place, naming(path):
        source = Source.of(place)
    _keep(token, _Session(source))
    return source.kind, source.size, source.mode


@_whole
def take(token: str) -> tuple[int, Batch]:
    """Return a batch and its checksum; an empty one at the end."""
    batch = _source_of(token).take()
    return checksum_of(batch), batch


@_whole
def end_get(token: str) -> tuple[int, int]:
    """Return how many entries and bytes were taken, and close."""
    source = _source_of(token)
    _drop(token)
    return source.entries, source.bytes


@_whole
def conduit(token: str, name: str) -> int:
    """Make ready for a connection by this name; returns how much of a file is here, or -1 if none can come."""
    session = _session(token)
    end = session.end
    if not isinstance(end, FileLanding) and not (isinstance(end, Source) and end.kind != DIRECTORY):
        raise TransferError("only a file has a connection of its own")
    return (end.bytes if isinstance(end, FileLanding) else 0) if session.expect(name) else -1


def receive(token: str, name: str) -> bool:
    """Take the rest of a file from that connection; whether all of it came."""
    session, landing = _session(token), _landing_of(token)
    assert isinstance(landing, FileLanding)
    try:
        with session.conduit(name) as sock:
            _conduit.receive(sock, landing, session.touch)
    except _conduit.Lost:
        pass
    return landing.bytes == landing.size


def send(token: str, name: str, at: int) -> bool:
    """Send a file from an offset on over that connection; whether all of it went."""
    session, source = _session(token), _source_of(token)
    try:
        with session.conduit(name) as sock:
            _conduit.receive_all(sock, memoryview(bytearray(len(_conduit.GO))))
            _conduit.send(sock, source, at, session.touch)
            return True
    except _conduit.Lost:
        pass
    return False


@_whole
def rest(token: str, at: int) -> None:
    """Go on with the batches of a file from an offset: what is before it has come."""
    _source_of(token).seek(at)


def abort(token: str, target: str | None = None) -> None:
    """Drop a transfer, and what it has left of a target in case the process that had it was killed."""
    _check_token(token)
    known = _drop(token)
    if target is None or known:
        return
    try:
        with locate(target) as place:
            discard(place, token)
    except OSError:
        pass


def _check_token(token: str) -> None:
    if len(token) != 32 or not token.isalnum():  # it becomes part of a name
        raise ValueError("not the token of a transfer")


def _landing_of(token: str) -> Landing:
    end = _session(token).end
    if isinstance(end, Landing):
        return end
    raise TransferError("this transfer goes the other way")


def _source_of(token: str) -> Source:
    end = _session(token).end
    if isinstance(end, Source):
        return end
    raise TransferError("this transfer goes the other way")


def _session(token: str) -> _Session:
    with _lock:
        session = _sessions.get(token)
        if session is None:
            raise TransferError(
                "there is no such transfer: it was ended, or was idle for too long, or its worker ended"
            )
        session.touch()
        return session


@contextmanager
def _begins(token: str) -> Generator[None]:
    with _lock:
        if token in _dropped:
            raise TransferError("this transfer has ended")
        _beginning.add(token)
    try:
        yield
    finally:
        with _lock:
            _beginning.discard(token)
            _begun.notify_all()


def _keep(token: str, session: _Session) -> None:
    global _watching
    keep_memory()
    with _lock:
        wanted = token not in _dropped and token not in _sessions
        if wanted:
            _sessions[token] = session
            if not _watching:
                _watching = True
                threading.Thread(target=_watch, name="agentix-files", daemon=True).start()
    if not wanted:
        session.drop()
        raise TransferError("this transfer has ended")


def _drop(token: str) -> bool:
    session = uninterrupted(_forget, token)
    if session is None:
        return False
    try:
        session.drop()
    finally:  # if it is interrupted, all is closed nevertheless
        with _lock:
            _sessions.pop(token, None)
    return True


def _forget(token: str) -> _Session | None:
    with _lock:
        _dropped.append(token)
        _begun.wait_for(lambda: token not in _beginning, BEGIN_SECONDS)
        return _sessions.get(token)


def _watch() -> None:
    """End transfers whose host is gone, while there are any."""
    global _watching
    while True:
        time.sleep(min(IDLE_SECONDS / 4, 30.0))
        late = time.monotonic() - IDLE_SECONDS
        with _lock:
            if not _sessions:
                _watching = False
                return
            idle = [token for token, session in _sessions.items() if session.touched < late]
        for token in idle:
            try:
                _drop(token)
            except OSError:  # it cannot be removed
                pass


for _function in (upload, download):
    _function.__module__ = "agentix.files"
