"""What `bench/channels.py` calls: everything here goes by a side channel, or comes item by item."""

import logging
import os
import time
from collections.abc import Iterator

from agentix import Namespace, register_namespace


class Up(Namespace):
    namespace = "/bench-channels"

    def __init__(self) -> None:
        super().__init__()
        self.heard = 0

    def on_down(self, data: object) -> None:
        self.heard += 1


up = Up()
register_namespace(up)


async def emit(n: int) -> int:
    for i in range(n):
        await up.emit("up", i)
    return n


def heard() -> int:
    return up.heard


def items(n: int) -> Iterator[int]:
    yield from range(n)


async def items_async(n: int):  # noqa: ANN201 - an async generator; `typing` costs a worker its start
    for i in range(n):
        yield i


def lines(n: int, length: int, last: str) -> float:
    """Print `n` lines by writes of 64 KiB or so, as a program does whose output is no terminal."""
    begun = time.perf_counter()
    line = b"x" * (length - 1) + b"\n"
    block = line * max(1, 65536 // length)
    while n > 0:
        piece = block[: n * length]
        os.write(1, piece)
        n -= len(piece) // length
    os.write(1, last.encode() + b"\n")
    return time.perf_counter() - begun


def records(n: int, last: str) -> None:
    logger = logging.getLogger("bench.channels")
    for i in range(n):
        logger.info("record %d", i)
    logger.info(last)


def pid() -> int:
    return os.getpid()
