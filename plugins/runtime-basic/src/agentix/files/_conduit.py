"""One large file, straight from one side's disk to the other's: its bytes, piece by piece, over a connection.

A piece is its checksum and so many bytes of the file as PIECE says, the last one fewer; where it belongs is known, for
they come in order. Whoever takes them knows how far it is, so a connection that is lost costs one piece and
another one goes on from there. It costs a fraction of what calls do, which are pickled and pass through the runtime.

Both ends use the socket from a thread, blocking; it wakes once a second to look whether it is still wanted, and gives
up when nothing has moved for a while.
"""

import socket
import struct
import time
from collections.abc import Callable

from agentix._core import checksum

from ._landing import FileLanding
from ._result import TransferError
from ._source import Source

__all__ = ["FROM", "GO", "Lost", "receive", "receive_all", "send", "take", "tune"]

PIECE = 256 << 10
"""Bytes. What a processor keeps at hand: larger ones are slower."""
FROM = 4 << 20
"""Bytes of a file from which on it is worth a connection."""
GO = b"g"
"""What the host says first if it is to receive: the worker has the connection when it has read it."""
QUIET_SECONDS = 30.0
_SUM = struct.Struct("<Q")
_SECOND = struct.pack("ll", 1, 0)

Moved = Callable[[int], object]


class Lost(Exception):
    """The connection ended, or nothing moved for too long."""


def tune(sock: socket.socket) -> None:
    """Make a socket wait, a second at most."""
    sock.setblocking(True)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _SECOND)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SECOND)


def send(sock: socket.socket, source: Source, at: int, moved: Moved) -> None:
    """Send a file from an offset on. Raises Lost, and TransferError if it changes meanwhile."""
    size = source.size or 0
    buffer = bytearray(_SUM.size + PIECE)
    view = memoryview(buffer)
    while at < size:
        piece = view[_SUM.size : _SUM.size + min(PIECE, size - at)]
        source.read(piece, at)
        _SUM.pack_into(buffer, 0, checksum(piece))
        _send_all(sock, view[: _SUM.size + len(piece)])
        at += len(piece)
        moved(at)
    source.must_be_as_before()


def receive(sock: socket.socket, landing: FileLanding, moved: Moved) -> None:
    """Take what is missing of a file. Raises Lost, TransferError for a wrong checksum, and OSError."""
    at, size = landing.bytes, landing.size
    view = memoryview(bytearray(_SUM.size + PIECE))
    while at < size:
        piece = view[_SUM.size : _SUM.size + min(PIECE, size - at)]
        receive_all(sock, view[: _SUM.size + len(piece)])
        if _SUM.unpack_from(view)[0] != checksum(piece):
            raise TransferError("the checksum of a piece is wrong: it was altered on its way")
        landing.take(piece, at)
        at += len(piece)
        moved(at)


def take(sock: socket.socket, landing: FileLanding, moved: Moved) -> None:
    """Say that this end is ready, and receive."""
    _send_all(sock, memoryview(GO))
    receive(sock, landing, moved)


def _send_all(sock: socket.socket, data: memoryview) -> None:
    patience = _Patience()
    while data:
        try:
            data = data[sock.send(data) :]
        except BlockingIOError:
            patience.use()
        except OSError as exc:
            raise Lost(str(exc)) from None
        else:
            patience.renew()


def receive_all(sock: socket.socket, into: memoryview) -> None:
    """Fill a buffer. Raises Lost."""
    patience = _Patience()
    while into:
        try:
            n = sock.recv_into(into, len(into), socket.MSG_WAITALL)
        except BlockingIOError:
            patience.use()
            continue
        except OSError as exc:
            raise Lost(str(exc)) from None
        if not n:
            raise Lost("the connection was closed")
        into = into[n:]
        patience.renew()


class _Patience:
    """Until nothing has moved for too long."""

    def __init__(self) -> None:
        self._end = 0.0

    def renew(self) -> None:
        self._end = 0.0

    def use(self) -> None:
        now = time.monotonic()
        if not self._end:
            self._end = now + QUIET_SECONDS
        elif now > self._end:
            raise Lost(f"nothing moved for {QUIET_SECONDS:.0f} s")
