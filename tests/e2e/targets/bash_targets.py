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


async def start_raw(path: bytes, argv: bytes, env: bytes, cwd: bytes) -> str:
    """Ask the runtime for what no plugin would ask it; return what it says to that."""
    from agentix import _carrier, _processes

    assert _carrier.carrier is not None
    processes = _processes._of_this_worker()  # pyright: ignore[reportPrivateUsage]
    process = _processes.Process(processes, asyncio.get_running_loop(), None)
    processes.channel.start_process(process.number, None, path, argv, env, cwd, False, 1000, 1000, 0)
    try:
        return repr(await process.wait())
    except OSError as error:
        return str(error)


async def overfeed(size: int) -> tuple[str, int]:
    """Send a process more input than may be on its way."""
    from agentix._processes import start

    process = start(["/bin/sleep", "60"], stdin=b"x" * size)
    channel = process._processes.channel  # pyright: ignore[reportPrivateUsage]
    channel.send_process("in", process.number, 0, b"x" * 1000)
    ended = await process.wait()
    return ended.cause, ended.code


async def talk_of_nobody() -> str:
    """Frames for processes that there are not."""
    from agentix._processes import _of_this_worker  # pyright: ignore[reportPrivateUsage]

    channel = _of_this_worker().channel
    for verb in ("in", "credit", "signal", "end"):
        channel.send_process(verb, 1 << 60, 9, b"x")
    return "fine"


async def signal_and_wait(number: int) -> tuple[int, str]:
    from agentix._processes import start

    process = start(["/bin/sh", "-c", "trap 'exit 5' USR1; echo ready; while :; do sleep 0.05; done"])
    async with process:
        async for _ in process:
            process.send_signal(number)
        ended = await process.wait()
    return ended.code, ended.cause


async def detached(command: str) -> int:
    """A process that outlives its call; return its id."""
    from agentix._processes import start

    process = start(["/bin/sh", "-c", f"echo $$; {command}"], for_call=False)
    _kept.append(process)
    return int((await anext(aiter(process)))[1])
