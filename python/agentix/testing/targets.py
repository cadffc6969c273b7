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


async def nap(seconds: float, name: str = "") -> str:
    """Sleep; `nap_state` tells what became of a nap with a name, in whichever worker it was."""
    _note(name, "asleep")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        _note(name, "cancelled")
        raise
    _note(name, "rested")
    return "rested"


def nap_state(name: str) -> str:
    """Tell about a nap: `unknown`, `asleep`, `rested` or `cancelled`; what has ended is told once."""
    path = _place(name)
    try:
        with open(path) as file:
            state = file.read()
    except FileNotFoundError:
        return "unknown"
    if state in ("rested", "cancelled"):
        os.unlink(path)
    return state


def _note(name: str, state: str) -> None:
    if name:
        with open(_place(name) + ".new", "w") as file:
            file.write(state)
        os.replace(_place(name) + ".new", _place(name))


def _place(name: str) -> str:
    return os.path.join(os.environ.get("TMPDIR", "/tmp"), f"agentix-nap-{name}")
