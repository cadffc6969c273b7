"""Conduits, seen from the worker: connections that the runtime hands over, each under the name that a host gave it.

They come as descriptors on a socket of their own, read by one thread from the first one on, or from the first that is
expected. Only names that somebody expects are kept.
"""

import os
import socket
import struct
import threading
import time

from agentix import _carrier

__all__ = ["expect", "forget", "serve", "take"]

EXPECTED_MAX = 256
_DESCRIPTORS = 4
"""So many are taken note of in one message, lest one be left open; there should be one."""

_changed = threading.Condition()
_come: dict[str, socket.socket | None] = {}
_reading = False


def expect(name: str) -> bool:
    """Keep what comes under this name from now on. False if no conduit can come."""
    if not serve():
        return False
    with _changed:
        if len(_come) >= EXPECTED_MAX:
            return False
        _come.setdefault(name, None)
    return True


def serve() -> bool:
    """Take in what comes from now on. False if no conduit can come; raises RuntimeError if there can be no thread."""
    global _reading
    carrier = _carrier.carrier
    handed = -1 if carrier is None else carrier.worker.conduits
    if handed < 0:
        return False
    with _changed:
        if not _reading:
            threading.Thread(target=_read, args=[handed], name="agentix-conduits", daemon=True).start()
            _reading = True
    return True


def take(name: str, seconds: float) -> socket.socket:
    """Wait for an expected conduit; it is the caller's then. Raises TimeoutError if it does not come."""
    end = time.monotonic() + seconds
    with _changed:
        while (sock := _come.get(name)) is None:
            left = end - time.monotonic()
            if left <= 0 or name not in _come:
                raise TimeoutError("the conduit did not come")
            _changed.wait(min(left, 1.0))  # a call that is cancelled meanwhile hears of it
        del _come[name]
        return sock


def forget(name: str) -> None:
    """Expect it no more; closes it if it came and was not taken."""
    with _changed:
        sock = _come.pop(name, None)
        _changed.notify_all()
    if sock is not None:
        sock.close()


def _read(handed: int) -> None:
    with socket.socket(fileno=os.dup(handed)) as channel:
        while True:
            try:
                text, controls, _, _ = channel.recvmsg(
                    256, socket.CMSG_SPACE(4 * _DESCRIPTORS), socket.MSG_CMSG_CLOEXEC
                )
            except OSError:
                return
            if not text:  # the runtime has ended
                return
            _keep(text.decode("latin-1"), [fd for _, kind, data in controls for fd in _descriptors(kind, data)])


def _descriptors(kind: int, data: bytes) -> list[int]:
    if kind != socket.SCM_RIGHTS:
        return []
    return [fd for (fd,) in struct.iter_unpack("i", data[: len(data) // 4 * 4])]


def _keep(name: str, fds: list[int]) -> None:
    with _changed:
        if len(fds) == 1 and _come.get(name, fds) is None:
            _come[name] = socket.socket(fileno=fds.pop())
            _changed.notify_all()
    for fd in fds:
        os.close(fd)
