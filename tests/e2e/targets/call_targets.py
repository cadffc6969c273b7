"""What the end-to-end tests call in the sandbox."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import threading
import time
import urllib.error
from email.message import Message
from typing import Any


def add(a: int, b: int) -> int:
    return a + b


async def add_async(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


def echo(value: Any) -> Any:
    return value


def pid() -> int:
    return os.getpid()


def sleep(seconds: float, value: Any = None) -> Any:
    time.sleep(seconds)
    return value


def busy(seconds: float, value: Any = None) -> Any:
    """Keep a processor busy, and the interpreter's lock with it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    return value


async def sleep_async(seconds: float, value: Any = None) -> Any:
    await asyncio.sleep(seconds)
    return value


def burn(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def append_line(path: str, line: str, seconds: float = 0) -> str:
    with open(path, "a") as stream:
        stream.write(line + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    time.sleep(seconds)
    return line


class QuotaError(Exception):
    def __init__(self, user: str, limit: int) -> None:
        super().__init__(f"user {user} is over the limit of {limit}")


class KeywordError(Exception):
    def __init__(self, *, user: str) -> None:
        super().__init__(f"keyword {user}")


def raise_quota(user: str, limit: int) -> None:
    raise QuotaError(user, limit)


def raise_keyword(user: str) -> None:
    raise KeywordError(user=user)


def raise_http() -> None:
    raise urllib.error.HTTPError("http://x.test", 503, "busy", Message(), None)


def raise_timeout() -> None:
    raise TimeoutError("the target's own")


def raise_base(kind: str) -> None:
    raise {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt, "GeneratorExit": GeneratorExit}[kind]("x")


async def raise_cancelled() -> None:
    raise asyncio.CancelledError("own")


def unpicklable(kind: str) -> Any:
    async def coroutine() -> None: ...

    makers: dict[str, Any] = {
        "function": lambda: lambda: 1,
        "lock": threading.Lock,
        "TextIOWrapper": lambda: open(os.devnull),  # noqa: SIM115
        "generator": lambda: [(x for x in "abc")],
        "coroutine": lambda: [coroutine()],
    }
    return makers[kind]()


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def self_referencing() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def die(how: str) -> None:
    print("last words", flush=True)
    if how == "exit":
        os._exit(7)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    ctypes.string_at(0)


def lines_until(path: str, seconds: float) -> int:
    """Append a line every 10 ms; a cancel strikes between them."""
    until = time.monotonic() + seconds
    count = 0
    while time.monotonic() < until:
        append_line(path, "tick")
        count += 1
        time.sleep(0.01)
    return count


async def lines_until_async(path: str, seconds: float) -> int:
    until = time.monotonic() + seconds
    count = 0
    while time.monotonic() < until:
        append_line(path, "tick")
        count += 1
        await asyncio.sleep(0.01)
    return count


def never_heeds(path: str) -> None:
    """Take every cancel and go on."""
    while True:
        try:
            append_line(path, "tick", 0.01)
        except BaseException:
            pass
