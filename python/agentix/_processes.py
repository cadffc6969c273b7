"""In a worker: processes that the runtime runs for it, so that they end when they must, whatever the worker is doing.

    process = start(["/bin/ls", "-l"], cwd="/tmp")
    async with process:  # leaving it ends whatever still runs
        async for fd, data in process:
            ...
        ended = await process.wait()

For plugins of ours (`agentix.bash` and others); not part of the public package. A process belongs to the call that
started it: it ends, with everything it has started, when that call is cancelled or over. What goes over the link to
the runtime is described in docs/reference/wire.md.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any

from . import _carrier
from ._ambient import current_call

if TYPE_CHECKING:
    from types import TracebackType

    from ._core import Channel

__all__ = ["Ended", "Process", "start"]

CREDIT = 512 << 10
"""Bytes of output that may be on their way or unread."""
CREDIT_STEP = 128 << 10
"""Bytes consumed before the runtime is told."""
INPUT_WINDOW = 256 << 10
"""Bytes of input on their way: AGX_PROC_IN_BYTES in src/proto/limits.h."""
INPUT_CHUNK = 64 << 10
NO_LIMIT = (1 << 64) - 1
"""The largest number that a frame can say, and so the largest `limit`."""
_TIMEOUT_MAX = 1e15  # seconds; a longer one would be no number of milliseconds
END_SECONDS = 30.0
"""How long `Process.__aexit__` waits for the end; the runtime needs less even for a tree that cannot be killed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended."""

    code: int
    """Its exit code; if a signal killed it, the negated number of that."""
    cause: str
    """`exited`, `timeout`, `ended`, `cancelled`, `call_ended` or `lost`: see the wire."""
    written: tuple[int, int]
    """Bytes it wrote to stdout and stderr, whatever the limit was."""


class Processes:
    """The processes of this worker. Verbs of other threads than a process's own loop are told to that loop."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._numbers = count(1)
        self._running: dict[int, Process] = {}
        self._inbox: deque[tuple[str, int, Any, Any]] = deque()
        self._lock = Lock()  # whoever holds it hands out what has come, in order
        channel.processes = self._inbox

    def add(self, process: Process) -> int:
        number = next(self._numbers)
        self._running[number] = process
        return number

    def drop(self, number: int) -> None:
        self._running.pop(number, None)

    def deliver(self) -> None:
        """Hand out what has come."""
        with self._lock:
            while self._inbox:
                kind, number, value, what = self._inbox.popleft()
                process = self._running.get(number)
                if process is not None:
                    process._hear((kind, value, what))  # pyright: ignore[reportPrivateUsage]


_processes: Processes | None = None
_making = Lock()


def _of_this_worker() -> Processes:
    global _processes
    carrier = _carrier.carrier
    if carrier is None:
        raise RuntimeError(
            "processes are started by the runtime of a sandbox, and this is not a sandbox's worker: "
            "call this with `await sandbox.remote(...)`"
        )
    with _making:
        if _processes is None:
            _processes = carrier.worker.processes = Processes(carrier.worker.channel)
        return _processes


def start(
    argv: Sequence[str | bytes],
    *,
    path: str | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    limit: int | None = None,
    timeout: float | None = None,
    for_call: bool = True,
) -> Process:
    """Ask the runtime for a process. Call it in a coroutine; the process is that loop's.

    `argv[0]` is the program unless `path` is given; it is not searched for. `cwd` and `env` None: the worker's own; an
    `env` that is given replaces it. `stdin`: what the program reads; None: `/dev/null`. `limit`: bytes of each stream
    that are passed on; what comes beyond is read and dropped. `timeout`, in seconds: after it everything is killed, and
    the cause is `timeout`; None or infinity: never. `for_call` False: the process outlives the call, and ends with the
    worker.

    Raises RuntimeError outside a sandbox's worker, ValueError for a NUL, a bad name, or a `timeout` that is negative or
    NaN, OverflowError for a `limit` that no frame can say. That the program cannot be started is an OSError of the
    first verb that waits.
    """
    if not argv:
        raise ValueError("argv is empty: there is no program to start")
    milliseconds = _milliseconds(timeout)
    processes = _of_this_worker()
    program = os.fsencode(path if path is not None else argv[0])
    directory = os.getcwd() if cwd is None else os.path.abspath(cwd)
    if not os.path.isabs(program):
        program = os.path.join(os.fsencode(directory), program)
    process = Process(processes, asyncio.get_running_loop(), stdin)
    processes.channel.start_process(
        process.number,
        current_call.get() if for_call else None,
        _plain(program, "the program"),
        _strings(argv, "an argument"),
        _strings(_variables(os.environ if env is None else env), "a variable"),
        _plain(os.fsencode(directory), "cwd"),
        stdin is not None,
        CREDIT,
        NO_LIMIT if limit is None else limit,
        milliseconds,
    )
    process._feed()  # pyright: ignore[reportPrivateUsage]
    return process


def _milliseconds(timeout: float | None) -> int:
    """As a frame says it: 0 is no timeout."""
    if timeout is None or timeout == math.inf:
        return 0
    if not timeout >= 0:
        raise ValueError(f"timeout is {timeout}, a number of seconds cannot be negative, nor NaN; None is no timeout")
    return max(1, round(min(timeout, _TIMEOUT_MAX) * 1000))


def _plain(value: bytes, what: str) -> bytes:
    if b"\0" in value:
        raise ValueError(f"{what} holds a NUL: {value[:100]!r}")
    return value


def _strings(values: Sequence[str | bytes], what: str) -> bytes:
    encoded = [value if isinstance(value, bytes) else os.fsencode(value) for value in values]
    joined = b"\0".join(encoded) + b"\0" if encoded else b""
    if joined.count(b"\0") != len(encoded):
        raise ValueError(f"{what} holds a NUL")
    return joined


def _variables(env: Mapping[str, str]) -> list[str]:
    for name in env:
        if not name or "=" in name:
            raise ValueError(f"{name!r} is no name of a variable")
    return [f"{name}={value}" for name, value in env.items()]


class Process:
    """A process, as the loop that started it sees it. Not safe to use from elsewhere."""

    def __init__(self, processes: Processes, loop: asyncio.AbstractEventLoop, stdin: bytes | None) -> None:
        self._processes = processes
        self._loop = loop
        self._thread = get_ident()
        self._heard: deque[tuple[str, Any, Any]] = deque()  # not looked at yet; the loop's own, but for append
        self._output: deque[tuple[int, bytes]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._consumed = 0
        self._input = memoryview(stdin) if stdin is not None else None
        self._window = INPUT_WINDOW
        self._ended: Ended | None = None
        self._error: OSError | None = None
        self.number = processes.add(self)

    # ---- what comes ----

    def _hear(self, event: tuple[str, Any, Any]) -> None:
        """In whatever thread reads the link."""
        self._heard.append(event)
        if get_ident() == self._thread:
            self._look()
            return
        try:
            self._loop.call_soon_threadsafe(self._look)
        except RuntimeError:  # the loop is closed: nobody waits any more
            self._processes.drop(self.number)

    def _look(self) -> None:
        while self._heard:
            kind, value, what = self._heard.popleft()
            if kind == "out":
                self._output.append((value, what))
            elif kind == "credit":
                self._window += value
                self._feed()
            elif kind == "error":
                self._error = OSError(value, what)
                self._processes.drop(self.number)
            else:
                signal, cause, out, err = what
                self._ended = Ended(-signal if signal else value, cause, (out, err))
                self._processes.drop(self.number)
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _change(self) -> None:
        if self._waiter is None:
            self._waiter = self._loop.create_future()
        await asyncio.shield(self._waiter)

    def _feed(self) -> None:
        """Send input as far as the runtime takes it."""
        channel, number = self._processes.channel, self.number
        while self._input is not None and self._window > 0:
            chunk = self._input[: min(INPUT_CHUNK, self._window)]
            channel.send_process("in", number, 0, chunk)
            self._input = self._input[len(chunk) :] if chunk else None
            self._window -= len(chunk)

    def _give_back(self, size: int) -> None:
        self._consumed += size
        if self._consumed >= CREDIT_STEP and self._ended is None:
            self._processes.channel.send_process("credit", self.number, self._consumed)
            self._consumed = 0

    # ---- verbs ----

    @property
    def ended(self) -> Ended | None:
        """How it ended, once it has; its output may not have been read by then."""
        return self._ended

    def __aiter__(self) -> AsyncIterator[tuple[int, bytes]]:
        return self

    async def __anext__(self) -> tuple[int, bytes]:
        """Return (1 or 2, output), in the order in which it was read; stop when the process has ended."""
        while not self._output:
            if self._error is not None:
                raise self._error
            if self._ended is not None:
                raise StopAsyncIteration
            await self._change()
        fd, data = self._output.popleft()
        self._give_back(len(data))
        return fd, data

    async def wait(self) -> Ended:
        """Wait until it has ended; output that nobody reads is dropped. Raises OSError if it was not started."""
        async for _ in self:
            pass
        assert self._ended is not None
        return self._ended

    async def communicate(self) -> tuple[bytes, bytes, Ended]:
        """Return all output and how it ended. Cancelled, it ends the process first."""
        parts: tuple[list[bytes], list[bytes]] = ([], [])
        async with self:
            async for fd, data in self:
                parts[fd - 1].append(data)
            return b"".join(parts[0]), b"".join(parts[1]), await self.wait()

    def kill(self) -> None:
        """Kill it with everything it has started; `wait()` tells when nothing of that is left."""
        if self._ended is None and self._error is None:
            self._processes.channel.send_process("end", self.number)

    def send_signal(self, number: int) -> None:
        """Send a signal to its process group."""
        if self._ended is None and self._error is None:
            self._processes.channel.send_process("signal", self.number, number)

    async def __aenter__(self) -> Process:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, and wait for that: afterwards nothing of it runs."""
        if self._ended is not None or self._error is not None:
            return
        self.kill()
        try:
            async with asyncio.timeout(END_SECONDS):
                await self.wait()
        except (OSError, TimeoutError):
            pass
