"""Targets of the tests of side channels."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

from agentix import Namespace, register_namespace


class Demo(Namespace):
    namespace = "/agx-demo"

    def __init__(self) -> None:
        super().__init__()
        self.got: list[Any] = []

    def on_ping(self, data: Any) -> None:
        self.got.append(data)

    async def on_later(self, data: Any) -> None:
        await asyncio.sleep(0.05)
        self.got.append(data)

    def on_wrong(self, data: Any) -> None:
        raise RuntimeError(f"no {data}")

    async def on_wrong_later(self, data: Any) -> None:
        await asyncio.sleep(0)
        raise SystemExit(f"not {data} either")


demo = Demo()
register_namespace(demo)


async def emit(event: str, data: Any, times: int = 1) -> int:
    for i in range(times):
        await demo.emit(event, {"i": i, "data": data} if times > 1 else data)
    return os.getpid()


async def ask(event: str, data: Any, timeout: float = 10) -> Any:
    return await demo.request(event, data, timeout=timeout)


async def ask_in_turn(n: int) -> list[Any]:
    return [await demo.request("fetch", i, timeout=10) for i in range(n)]


async def got(n: int) -> list[Any]:
    for _ in range(1000):
        if len(demo.got) >= n:
            break
        await asyncio.sleep(0.01)
    return demo.got


async def emit_bytes(n: int) -> None:
    await demo.emit("tick", bytes(n))


async def emit_two(n: int) -> None:
    await demo.emit("tick", bytes(n))
    await demo.emit("tick", "behind it")


def log_to_sio() -> None:
    logging.getLogger("agentix.sio").error("of user code")
    logging.getLogger("agentix.sio.more").error("of user code")


def die() -> None:
    os.kill(os.getpid(), 9)
