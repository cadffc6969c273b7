"""Generators that the end-to-end tests call in the sandbox."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any


def note(path: str, line: str) -> None:
    with open(path, "a") as stream:
        stream.write(line + "\n")


def count(n: int, seconds: float = 0) -> Iterator[int]:
    for i in range(n):
        if seconds:
            time.sleep(seconds)
        yield i


async def count_async(n: int, seconds: float = 0) -> AsyncGenerator[int]:
    for i in range(n):
        if seconds:
            await asyncio.sleep(seconds)
        yield i


def noted(path: str, n: int) -> Generator[int]:
    """Yields up to `n`, notes each before it is yielded, and how it ended."""
    try:
        for i in range(n):
            note(path, f"item {i}")
            yield i
        note(path, "end")
    finally:
        note(path, "finally")


async def noted_async(path: str, n: int) -> AsyncGenerator[int]:
    try:
        for i in range(n):
            note(path, f"item {i}")
            yield i
            await asyncio.sleep(0)
        note(path, "end")
    finally:
        await asyncio.sleep(0)
        note(path, "finally")


async def blocking_async(n: int) -> AsyncGenerator[int]:
    """Gives the loop no turn of its own accord."""
    for i in range(n):
        time.sleep(0.02)  # noqa: ASYNC251 - that is the point
        yield i


def fails(n: int) -> Iterator[int]:
    yield from range(n)
    raise LookupError("no more of these")


async def fails_async(n: int) -> AsyncGenerator[int]:
    for i in range(n):
        yield i
    raise LookupError("no more of these")


def large(n: int, size: int) -> Iterator[bytes]:
    for i in range(n):
        yield bytes([i % 256]) * size


def pid_then_die(n: int) -> Iterator[int]:
    yield from range(n)
    time.sleep(0.2)
    os._exit(7)


def gives_generator(n: int) -> Any:
    return count(n)


async def gives_generator_async(n: int) -> Any:
    return count_async(n)


def unpicklable() -> Iterator[Any]:
    yield 1
    yield lambda: None


def sleeps_between(path: str) -> Iterator[int]:
    try:
        yield 1
        time.sleep(30)
        yield 2
    finally:
        note(path, "finally")


def stubborn(path: str) -> Iterator[int]:
    """Goes on whatever is raised in it, and yields even when it is closed."""
    for i in range(10**9):
        try:
            yield i
        except GeneratorExit:
            note(path, "closed")
            return
        except BaseException:  # noqa: BLE001
            note(path, "raised")


def lines_of(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if os.path.exists(path) else []


def with_argument(function: Callable[[int], int], n: int) -> Iterator[int]:
    yield function(n)


# ---- the ambient context ----


def read_context(*keys: str) -> dict[str, Any]:
    from agentix import context

    return {key: context.get(key) for key in keys}


async def read_context_async(*keys: str) -> dict[str, Any]:
    await asyncio.sleep(0.01)
    return read_context(*keys)


def stream_context(*keys: str) -> Iterator[dict[str, Any]]:
    for _ in range(3):
        yield read_context(*keys)


def set_context(**values: Any) -> dict[str, Any]:
    from agentix import context

    context.set(**values)
    return context.snapshot()


def read_variable() -> Any:
    from agentix import context

    return context.var("agx_variable", default="unset").get()


def call_id() -> str | None:
    from agentix._ambient import current_call

    return current_call.get()


async def call_id_async() -> str | None:
    await asyncio.sleep(0)
    return call_id()
