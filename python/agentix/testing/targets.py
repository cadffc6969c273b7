"""What the conformance suite calls in a sandbox. It belongs to the core, so that every bundle has it."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from typing import Any

LOGGER = "agentix.sandbox.conformance"
"""The logger that `speak` writes to: hosts take records below `agentix.sandbox.` under their own names."""


class Trouble(Exception):
    """What `fail` raises."""


def echo(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Give back what it was given."""
    return args, kwargs


def fail(text: str) -> None:
    """Raise."""
    raise Trouble(text)


def reverse(data: bytes) -> bytes:
    """Give back as many bytes, other ones."""
    return data[::-1]


async def count(to: int) -> AsyncIterator[int]:
    """Yield the numbers below `to`."""
    for number in range(to):
        yield number


def speak(text: str) -> None:
    """Say a text in each way: a record, a line on stdout, one on stderr from outside Python."""
    logging.getLogger(LOGGER).warning("%s as a record", text, extra={"said": text})
    print(f"{text} on stdout")
    os.write(2, f"{text} on stderr\n".encode())


def pids() -> tuple[int, int]:
    """Return the ids of the worker and of its parent, as they are in the sandbox."""
    return os.getpid(), os.getppid()


def variable(name: str) -> bytes | None:
    """Return a variable of the environment, byte for byte."""
    return os.environb.get(os.fsencode(name))


_naps: dict[str, str] = {}


async def nap(seconds: float, name: str = "") -> str:
    """Sleep; `nap_state` tells what became of a nap with a name."""
    _naps[name] = "asleep"
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        _naps[name] = "cancelled"
        raise
    _naps[name] = "rested"
    return "rested"


def nap_state(name: str) -> str:
    """Tell about a nap: `unknown`, `asleep`, `rested` or `cancelled`."""
    return _naps.get(name, "unknown")
