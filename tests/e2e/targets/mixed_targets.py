"""What the test of everything at once calls in the sandbox; all that it says is numbered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from agentix import Namespace, register_namespace, trace


class Mixed(Namespace):
    namespace = "/agx-mixed"

    def __init__(self) -> None:
        super().__init__()
        self.got: list[int] = []

    def on_down(self, data: dict[str, Any]) -> None:
        self.got.append(data["n"])


mixed = Mixed()
register_namespace(mixed)


def record(first: int, n: int, ballast: str = "") -> None:
    logger = logging.getLogger("mixed_targets.log")
    for i in range(first, first + n):
        logger.info("%d", i, extra={"ballast": ballast})


def lines(first: int, n: int) -> None:
    for i in range(first, first + n):
        print(i)


def spans(first: int, n: int) -> None:
    for i in range(first, first + n):
        with trace.span(str(i)):
            pass


async def up(first: int, n: int, ballast: bytes) -> None:
    for i in range(first, first + n):
        await mixed.emit("up", {"n": i, "ballast": ballast})


async def ask(n: int, timeout: float) -> Any:
    """The host's answer, or None if none came: the question or the answer was on its way when the link was cut."""
    try:
        return await mixed.request("double", n, timeout=timeout)
    except TimeoutError:
        return None


def got() -> list[int]:
    return mixed.got


def items(n: int, size: int) -> Iterator[tuple[int, bytes]]:
    for i in range(n):
        yield i, bytes([i % 256]) * size


async def items_async(n: int, seconds: float) -> AsyncGenerator[int]:
    for i in range(n):
        if seconds:
            await asyncio.sleep(seconds)
        yield i
