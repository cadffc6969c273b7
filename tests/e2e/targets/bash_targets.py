"""Targets that run commands from inside a sandbox."""

from __future__ import annotations

import asyncio
import os
import time

from agentix import bash


async def run_blocked(command: str, seconds: float) -> int:
    """Begin a command, then hold up the worker's loop, as code does that should have used a thread."""
    task = asyncio.ensure_future(bash.run(command))
    await asyncio.sleep(0.2)
    time.sleep(seconds)  # noqa: ASYNC251
    return (await task).exit_code


async def forget(command: str) -> str:
    """Begin a command and return without waiting for it."""
    task = asyncio.ensure_future(bash.run(command))
    _kept.append(task)
    await asyncio.sleep(0.2)
    return "forgotten"


_kept: list[object] = []


async def run_then_die(command: str, code: int) -> None:
    _kept.append(asyncio.ensure_future(bash.run(command)))
    await asyncio.sleep(0.3)
    os._exit(code)


async def run_within(command: str, seconds: float) -> str:
    """Bound a command by a timeout of one's own."""
    try:
        async with asyncio.timeout(seconds):
            await bash.run(command)
    except TimeoutError:
        return "over"
    return "in time"


def run_in_thread(command: str) -> bash.BashResult:
    """From a sync target, with a loop of its own."""
    return asyncio.run(bash.run(command))


async def run_many(command: str, n: int, timeout: float | None = None) -> list[object]:
    results = await asyncio.gather(*(bash.run(command, timeout=timeout) for _ in range(n)), return_exceptions=True)
    return [str(result) if isinstance(result, OSError) else result for result in results]


async def run_without_descriptors(command: str) -> str:
    """Fill the table of this worker's own descriptors; the runtime's are another matter."""
    held = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    try:
        return (await bash.run(command)).stdout
    finally:
        for fd in held:
            os.close(fd)


async def read_slowly(command: str, seconds: float) -> tuple[int, int]:
    """Take one event, wait, take the rest; return how many bytes each part was."""
    events = bash.run_stream(command)
    first = 0
    rest = 0
    async for event in events:
        if isinstance(event, bash.BashStdout):
            if not first:
                first = len(event.data)
                await asyncio.sleep(seconds)
            else:
                rest += len(event.data)
    return first, rest


def set_variable(name: str, value: str) -> None:
    os.environ[name] = value


def variables() -> dict[str, str]:
    return dict(os.environ)
