"""The functions every participant calls. This folder holds nothing else, so it can go on any worker's import path.

It imports only what is built into the interpreter: what a worker has to read is part of its start.
"""

import posix
import time


def add(a: int, b: int) -> int:
    return a + b


async def add_async(a: int, b: int) -> int:
    return a + b


def echo(value: object) -> object:
    return value


def leave() -> None:
    """End the process that runs this."""
    posix._exit(3)


def spin(seconds: float) -> int:
    """Python code that never waits."""
    end = time.monotonic() + seconds
    turns = 0
    while time.monotonic() < end:
        turns += 1
    return turns


def flood(seconds: float) -> int:
    """Print lines of 100 bytes, up to 100 MB of them a second, as a program does whose output is no terminal."""
    piece = (b"x" * 99 + b"\n") * 160
    begun = time.monotonic()
    written = 0
    while (ahead := time.monotonic() - begun) < seconds:
        if written > ahead * 1e8:
            time.sleep(0.001)
        written += posix.write(1, piece)
    return written
