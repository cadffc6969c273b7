"""What the storms call: every start and every end of a run is a line in a journal, on disk before the run goes on."""

from __future__ import annotations

import asyncio
import os
import socket
import time


def note(journal: str, what: str, key: str) -> None:
    """Append a line of 32 bytes, or a multiple: a kill may tear a write where a page ends, and they never lie there."""
    line = f"{what} {key}".encode()
    line = line.ljust((len(line) // 32 + 1) * 32 - 1) + b"\n"
    fd = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, line)
        os.fsync(fd)
    finally:
        os.close(fd)


def value_of(key: str, size: int) -> bytes:
    """What `work` returns: `size` bytes that no other key has, from 16 on."""
    return (key.encode().rjust(16, b".") * (size // 16 + 1))[:size]


def work(journal: str, key: str, seconds: float, size: int, ballast: bytes = b"") -> bytes:
    note(journal, "start", key)
    time.sleep(seconds)
    note(journal, "end", key)
    return value_of(key, size)


def hang_up(journal: str, seconds: float) -> None:
    """Ends the worker's side of its channel, descriptor 3, as a death does; the death itself is yet to come."""
    with socket.socket(fileno=os.dup(3)) as channel:
        channel.shutdown(socket.SHUT_WR)
    note(journal, "hung", "up")
    time.sleep(seconds)


async def work_async(journal: str, key: str, seconds: float, size: int, ballast: bytes = b"") -> bytes:
    note(journal, "start", key)
    await asyncio.sleep(seconds)
    note(journal, "end", key)
    return value_of(key, size)


def fail(journal: str, key: str, seconds: float, size: int, ballast: bytes = b"") -> bytes:
    work(journal, key, seconds, size)
    raise ValueError(f"as asked: {key}")
