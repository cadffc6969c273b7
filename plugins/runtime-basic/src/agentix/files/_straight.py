"""The host's side of one large file: through conduits (`_conduit.py`) as far as they carry it.

A call runs in the worker as long as the connection is used there: it says what failed, and it ends with its worker. If
the connection is lost, another one goes on from where that was. Where there can be none, batches of calls do the rest.
"""

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from agentix import CallTimeout, RemoteCallError
from agentix._conduit import opener_of

from . import _conduit
from ._landing import FileLanding
from ._result import TransferError
from ._sandbox import conduit, receive, send
from ._source import Source
from ._tasks import to_the_end

__all__ = ["straight_down", "straight_up"]

Said = Callable[[int], None]
Work = Callable[[socket.socket, Callable[[int], None]], None]

ATTEMPTS = 4
"""Connections in a row on which nothing moved."""
PAUSE_SECONDS = 0.2
TELL_SECONDS = 0.02


async def straight_up(sandbox: Any, token: str, origin: Source, said: Said) -> None:
    """Send a file to the landing that the worker has begun. How far it came is where `origin` stands afterwards."""

    async def attempt(sock: socket.socket, name: str, at: int) -> None:
        far = sandbox.remote(receive, token, name)
        await _Attempt(sock, far, said).run(lambda sock, moved: _conduit.send(sock, origin, at, moved))

    if (origin.size or 0) >= _conduit.FROM:
        at = await _attempts(sandbox, token, origin.size or 0, None, attempt)
        said(at)
        origin.seek(at)


async def straight_down(sandbox: Any, token: str, landing: FileLanding, said: Said) -> None:
    """Take a file from the source that the worker has opened. How far it came is what `landing` has afterwards."""

    async def attempt(sock: socket.socket, name: str, at: int) -> None:
        far = sandbox.remote(send, token, name, at)
        await _Attempt(sock, far, said).run(lambda sock, moved: _conduit.take(sock, landing, moved))

    if landing.size >= _conduit.FROM:
        await _attempts(sandbox, token, landing.size, landing, attempt)
        said(landing.bytes)


async def _attempts(
    sandbox: Any,
    token: str,
    size: int,
    landing: FileLanding | None,
    attempt: Callable[[socket.socket, str, int], Awaitable[None]],
) -> int:
    """Try until all is there, or it is of no use; returns how far it is."""
    opener = opener_of(sandbox)
    best, vain = -1, 0
    while opener is not None and vain < ATTEMPTS:
        name = secrets.token_hex(16)
        at = await _begin(sandbox, token, name, size)
        if at is None:
            break
        if landing is not None:
            at = landing.bytes
        vain = 0 if at > best else vain + 1
        best = max(at, best)
        if at == size:
            return at
        try:
            sock = await opener(name)
        except OSError:
            await asyncio.sleep(PAUSE_SECONDS * vain)
            continue
        if sock is None:
            break
        with sock:
            _conduit.tune(sock)
            try:
                await attempt(sock, name, at)
            except CallTimeout:  # the deadline is for a call, not for the file
                if vain >= ATTEMPTS - 1:
                    raise
    return max(best, 0)


async def _begin(sandbox: Any, token: str, name: str, size: int) -> int | None:
    """Have the worker expect a connection; returns how much of the file is there, or None if it can take none."""
    try:
        there = await sandbox.remote(conduit, token, name)
    except RemoteCallError as exc:
        if exc.error.type in ("AttributeError", "ImportError", "ModuleNotFoundError"):  # it is older than we are
            return None
        raise
    if type(there) is not int or there > size:
        raise TransferError("the sandbox did not say how much of the file it has")
    return there if there >= 0 else None


class _Attempt:
    """One connection: a thread at this end, a call for the other one, and whoever wants to know how far it is."""

    def __init__(self, sock: socket.socket, far: Awaitable[Any], said: Said) -> None:
        self._sock = sock
        self._far = asyncio.ensure_future(far)
        self._said = said
        self._loop = asyncio.get_running_loop()
        self._near: asyncio.Future[None] = self._loop.create_future()
        self._refused: asyncio.Future[None] = self._loop.create_future()
        self._refusal: BaseException | None = None
        self._at = 0
        self._telling = False
        self._tell_from = 0.0

    async def run(self, work: Work) -> None:
        """Use the connection to its end. Raises what failed, if it was not the connection."""
        try:
            threading.Thread(target=self._work, args=[work], name="agentix-file", daemon=True).start()
        except RuntimeError as exc:  # the system gives no more threads
            self._near.set_exception(exc)
        parts: set[asyncio.Future[Any]] = {self._near, self._far, self._refused}
        try:
            while not (self._near.done() and self._far.done()) and not self._failed():
                await asyncio.wait([part for part in parts if not part.done()], return_when=asyncio.FIRST_COMPLETED)
            if self._is_lost():  # the far end says why, or will notice soon
                self._shut()
                await asyncio.wait([self._far])
        finally:
            await to_the_end(self._end())
        self._raise()

    def _failed(self) -> bool:
        if self._refused.done() or (self._near.done() and self._near.exception() is not None):
            return True
        return self._far.done() and (
            self._far.cancelled() or self._far.exception() is not None or self._far.result() is not True
        )

    def _is_lost(self) -> bool:
        return self._near.done() and isinstance(self._near.exception(), _conduit.Lost) and not self._refused.done()

    def _shut(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other end has done so
            pass

    async def _end(self) -> None:
        self._shut()
        self._far.cancel()
        await asyncio.wait([self._near, self._far])
        for part in (self._near, self._far):
            if not part.cancelled():
                part.exception()  # taken, also if nobody asks since this was cancelled

    def _raise(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        near = self._near.exception()
        if near is not None and not isinstance(near, _conduit.Lost):
            raise near
        if not self._far.cancelled():
            self._far.result()

    # ---- in the thread ----

    def _work(self, work: Work) -> None:
        failure: BaseException | None = None
        try:
            work(self._sock, self._moved)
        except BaseException as exc:  # noqa: BLE001 - it is the task's
            failure = exc
        self._loop.call_soon_threadsafe(self._worked, failure)

    def _moved(self, at: int) -> None:
        self._at = at
        now = time.monotonic()
        if not self._telling and now >= self._tell_from:  # to wake the loop for each would be dear
            self._telling = True
            self._tell_from = now + TELL_SECONDS
            self._loop.call_soon_threadsafe(self._tell)

    # ---- from the thread ----

    def _worked(self, failure: BaseException | None) -> None:
        if failure is None:
            self._near.set_result(None)
        else:
            self._near.set_exception(failure)

    def _tell(self) -> None:
        self._telling = False
        if self._refused.done():
            return
        try:
            self._said(self._at)
        except BaseException as exc:  # noqa: BLE001 - it ends the transfer
            self._refusal = exc
            self._refused.set_result(None)
