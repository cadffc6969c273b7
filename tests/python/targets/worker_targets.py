"""Targets for the tests of the worker: imported there, by name, never by the tests themselves."""

import asyncio
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import types
from typing import Any

from agentix._core import uninterrupted
from agentix._worker import CallCancelledError


class Custom(BaseException):
    """Neither an Exception nor anything that Python knows."""


class QuotaError(Exception):
    """Pickles, but cannot be rebuilt: its constructor takes other arguments than its base was given."""

    def __init__(self, user: str, limit: int) -> None:
        super().__init__(f"{user} is over {limit}")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    def __reduce__(self):
        raise RuntimeError("no state")


class Nameless(type):
    @property
    def __name__(cls) -> str:
        raise RuntimeError("no name")


class AnonymousError(Exception, metaclass=Nameless):
    pass


class Unpicklable:
    def __reduce__(self):
        raise KeyboardInterrupt("while pickling")


def explode() -> None:
    raise SystemExit("while unpickling")


class K:
    @staticmethod
    def m(x: int) -> int:
        return x + 1

    class Inner:
        @staticmethod
        async def m(x: int) -> int:
            return x + 2


EXCEPTIONS = {
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": lambda: KeyboardInterrupt("mine"),
    "GeneratorExit": lambda: GeneratorExit("mine"),
    "CancelledError": lambda: asyncio.CancelledError("mine"),
    "Custom": lambda: Custom("mine"),
    "StopIteration": lambda: StopIteration("mine"),
    "TimeoutError": lambda: TimeoutError("mine"),
    "CallCancelledError": lambda: CallCancelledError("mine"),
    "QuotaError": lambda: QuotaError("u1", 3),
    "Unspeakable": Unspeakable,
    "AnonymousError": AnonymousError,
    "ExceptionGroup": lambda: ExceptionGroup("many", [ValueError("one"), KeyError("two")]),
}


def fail(name: str) -> None:
    raise EXCEPTIONS[name]()


async def afail(name: str) -> None:
    await asyncio.sleep(0)
    raise EXCEPTIONS[name]()


def fail_with_text(text: str) -> None:
    raise ValueError(text)


def fail_in_chain(depth: int) -> None:
    try:
        if depth:
            fail_in_chain(depth - 1)
    finally:
        raise ValueError(f"level {depth}")


def recurse() -> None:
    recurse()


# ---- values ----


def give(name: str) -> object:
    loop: list[object] = []
    loop.append(loop)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    values: dict[str, object] = {
        "lambda": lambda: 1,
        "lock": threading.Lock(),
        "file": sys.stdin,
        "generators": [(i for i in range(3))],
        "generator": (i for i in range(3)),
        "loop": loop,
        "deep": deep,
        "unpicklable": Unpicklable(),
    }
    return values[name]


def give_coroutines() -> object:
    return [asyncio.sleep(1), asyncio.sleep(1)]


async def agenerator():
    yield 1


def echo(*args: object, **kwargs: object) -> object:
    return (args, kwargs) if kwargs else args[0]


async def aecho(value: object) -> object:
    await asyncio.sleep(0)
    return value


async def anow(value: object) -> object:
    return value


async def aall(*args: object, **kwargs: object) -> object:
    return args, kwargs


async def abig(size: int) -> bytes:
    return b"x" * size


def all_of(*args: object, **kwargs: object) -> object:
    return args, kwargs


def count(n: int):
    yield from range(n)


async def acount(n: int):
    for i in range(n):
        yield i


async def hold_loop(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - as it should not


def big(size: int) -> bytes:
    return b"x" * size


def size_of(value: bytes) -> int:
    return len(value)


def later(value: object) -> object:
    return aecho(value)


@types.coroutine
def old_style(value: object):
    yield
    return value


class Awaitable:
    def __await__(self):
        yield
        return "awaited"


def awaitable() -> object:
    return Awaitable()


# ---- running and cancelling ----

seen: list[str] = []
begun: set[str] = set()
released: set[str] = set()


def note(text: str) -> None:
    seen.append(text)


held: list[object] = []


async def own_task(rounds: int) -> tuple[bool, bool, bool, bool, bool]:
    """Whether it has a task that no other call has had, known, lasting, with a stack; whether callbacks work."""
    task = asyncio.current_task()
    assert task is not None
    own, known = all(task is not other for other in held), task in asyncio.all_tasks()
    held.append(task)
    stack = bool(task.get_stack())
    called = asyncio.Event()
    asyncio.get_running_loop().call_soon(called.set)
    async with asyncio.timeout(60):
        for _ in range(rounds):
            await asyncio.sleep(0)
        if rounds:
            await called.wait()
    repr(task)
    return own, known, task is asyncio.current_task(), stack, called.is_set()


async def time_out() -> None:
    async with asyncio.timeout(0.02):
        await asyncio.sleep(600)


async def cancel_self() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel("by itself")
    await asyncio.sleep(600)


async def asignal_later(number: int) -> None:
    await asyncio.sleep(0)
    os.kill(os.getpid(), number)
    while True:
        pass


async def give_generator() -> object:
    await asyncio.sleep(0)
    return (n for n in range(3))


async def give_object() -> object:
    return {1, 2}


async def anote(text: str) -> None:
    seen.append(text)


def notes() -> list[str]:
    return seen


def has_begun(text: str) -> bool:
    return text in begun


def _to_the_end(text: str) -> str:
    begun.add(text)
    while text not in released:
        time.sleep(0.002)
    seen.append(text)
    return text


def release(text: str) -> None:
    released.add(text)


def whole(text: str) -> str:
    """Cannot be interrupted but behind its work."""
    value = uninterrupted(_to_the_end, text)
    seen.append("gone on")
    return value


def whole_at_the_end(text: str) -> None:
    """Cannot be interrupted in what it does when it was interrupted."""
    try:
        spin(text)
    finally:
        uninterrupted(seen.append, "closed")


def whole_within(text: str) -> str:
    return uninterrupted(uninterrupted, whole, text)


def whole_that_raises(text: str) -> None:
    def fail() -> None:
        _to_the_end(text)
        raise ValueError(text)

    try:
        uninterrupted(fail)
    except ValueError:
        seen.append("caught")
    spin("afterwards")


def spin(text: str) -> None:
    try:
        begun.add(text)
        while True:
            time.sleep(0.002)
    finally:
        seen.append(text)


async def aspin(text: str) -> None:
    try:
        begun.add(text)
        await asyncio.sleep(600)
    finally:
        seen.append(text)


def stubborn(text: str) -> str:
    try:
        while True:
            time.sleep(0.002)
    except BaseException as error:
        seen.append(f"{text}: {type(error).__name__}")
    return "a value that nobody waits for"


async def astubborn(text: str) -> str:
    try:
        await asyncio.sleep(60)
    except BaseException as error:
        seen.append(f"{text}: {type(error).__name__}")
        raise ValueError("cleaning up failed") from error
    return text


def nap(seconds: float, value: object) -> object:
    time.sleep(seconds)
    return value


def work(rounds: int, value: object) -> object:
    """Python code without a pause: an exception may strike at any bytecode of it."""
    total = 0
    for i in range(rounds):
        total += len(str(i))
    return value


async def awork(rounds: int, value: object) -> object:
    for _ in range(rounds):
        await asyncio.sleep(0)
    return value


unblocked = threading.Event()
waiting_for_loop: list[int] = []


async def block_loop() -> None:
    """Nothing else runs on the loop until `unblock` finds so many calls waiting for it."""
    ready = asyncio.get_running_loop()._ready  # pyright: ignore[reportAttributeAccessIssue]
    begun.add("block_loop")
    while not unblocked.wait(0.005):
        waiting_for_loop[:] = [sum("_start_task" in repr(handle) for handle in list(ready))]


def unblock(expected: int) -> None:
    while waiting_for_loop != [expected]:
        time.sleep(0.005)
    unblocked.set()


async def block_loop_later() -> None:
    asyncio.get_running_loop().call_later(0.01, time.sleep, 1)


async def set_task_factory() -> None:
    def make(loop: asyncio.AbstractEventLoop, coroutine: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coroutine, loop=loop)

    asyncio.get_running_loop().set_task_factory(make)


async def wrap_call_soon() -> None:
    """Counts what is asked of the loop's call_soon()."""
    loop: Any = asyncio.get_running_loop()
    plain = loop.call_soon

    def counting(*args: Any, **kwargs: Any) -> Any:
        soon.append(1)
        return plain(*args, **kwargs)

    loop.call_soon = loop.wrapped = counting


soon: list[int] = []


async def asked_soon() -> tuple[int, bool]:
    """How often since the last time, and whether what was put there still stands."""
    loop: Any = asyncio.get_running_loop()
    n = len(soon)
    soon.clear()
    return n, loop.call_soon is loop.wrapped


async def inside() -> tuple[str, bool, bool, bool]:
    """What an async target can rely on from its first line: the loop's thread, a task, a context of its own."""
    task = asyncio.current_task()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        other = group.create_task(aecho(1))
    return (
        threading.current_thread().name,
        asyncio.get_running_loop() is asyncio.get_event_loop(),
        task is not None and asyncio.current_task() is task,
        await other == 1,
    )


async def cancel_all_tasks() -> int:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    return len(tasks)


def later_work(rounds: int, value: object) -> object:
    return awork(rounds, work(rounds, value))


def count_threads() -> int:
    return threading.active_count()


def is_loaded(module: str) -> bool:
    return module in sys.modules


_meeting = threading.Barrier(100)
_ameeting: list[asyncio.Future[None]] = []


def meet() -> None:
    """Returns when a hundred calls are in it."""
    _meeting.wait(60)


async def ameet() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    _ameeting.append(future)
    if len(_ameeting) == _meeting.parties:
        for each in _ameeting:
            each.set_result(None)
    async with asyncio.timeout(60):
        await future


def thread_name() -> str:
    return threading.current_thread().name


async def athread_is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def rss_kib() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def limit_memory(more: int) -> None:
    """Let the process's address space grow by so many bytes only."""
    import resource

    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (now + more,) * 2)


eaten: list[bytearray] = []


def eat_all_memory() -> str:
    """Take what there is, to the last few bytes."""
    n = 1 << 22
    while n > 64:
        try:
            eaten.append(bytearray(n))
        except MemoryError:
            n //= 2
    return "full"


def limit_threads(more: int) -> int:
    """Let the process have only so many more threads, by the size that each of them reserves."""
    import resource

    threading.stack_size(256 << 20)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (now + more * (257 << 20) + (64 << 20),) * 2)
    return more


# ---- the process ----


def read_stdin() -> tuple[bytes, str]:
    child = subprocess.run(["cat"], stdout=subprocess.PIPE, check=True, timeout=30)
    return child.stdout, os.readlink("/proc/self/fd/0")


CHILD_FDS = """
import os
for fd in range(64):
    try:
        os.fstat(fd)
        print(fd)
    except OSError:
        pass
"""


def child_descriptors() -> list[int]:
    command = [sys.executable, "-c", CHILD_FDS]
    child = subprocess.run(command, stdout=subprocess.PIPE, close_fds=False, check=True, text=True)
    return [int(line) for line in child.stdout.split()]


def forked_child_has(fd: int) -> bool:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.fstat(fd)
            os.write(writer, b"1")
        except OSError:
            os.write(writer, b"0")
        os._exit(0)
    os.waitpid(pid, 0)
    return os.read(reader, 1) == b"1"


def fork_and_return() -> int:
    """Returns twice: in this process, and in a child that must not answer."""
    return os.fork()


def fork_and_raise(code: object) -> int:
    pid = os.fork()
    if pid == 0:
        raise SystemExit(code) if code != "error" else ValueError("in the child")
    return pid


async def afork_and_return() -> int:
    return os.fork()


def exit_code_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def pool_of_processes(numbers: list[int]) -> list[int]:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(K.m, numbers)


def write_everywhere() -> int:
    os.write(1, b"partial")
    os.write(1, b"\x10\x00\x00\x00\x81\xa4type\xa6result")
    libc = ctypes.CDLL(None)
    libc.puts(b"from C")
    libc.fflush(None)
    subprocess.run(["echo", "kid"], check=True)
    print("from Python")
    print("and its errors", file=sys.stderr)
    return 42


def say(text: str, end: str) -> None:
    print(text, end=end)


def spoil_stdout(how: str) -> None:
    if how == "close":
        sys.stdout.close()
    elif how == "none":
        sys.stdout = None
    elif how == "object":
        sys.stdout = object()
    elif how == "raise":

        class Broken:
            def flush(self) -> None:
                raise SystemExit("flush")

        sys.stderr = Broken()
    elif how == "descriptor":
        os.close(1)


def signal_self(number: int) -> None:
    os.kill(os.getpid(), number)


async def asignal_self(number: int) -> str:
    os.kill(os.getpid(), number)
    await asyncio.sleep(0)
    return "lived"


def raise_in_callback() -> None:
    raise SystemExit("in a callback")


def no_task(*_args: object, **_kwargs: object) -> asyncio.Future[None]:
    raise RuntimeError("no task for you")


async def spoil_loop(how: str) -> None:
    loop = asyncio.get_running_loop()
    if how == "stop":
        loop.stop()
    elif how == "callback":
        loop.call_soon(raise_in_callback)
    elif how == "factory":
        loop.set_task_factory(no_task)
    elif how == "close":
        loop.run_forever = loop.close  # what the worker does next once it has stopped
        loop.stop()


def at_exit(text: str, seconds: float) -> None:
    import atexit

    def last_words() -> None:
        print(text, flush=True)
        time.sleep(seconds)

    atexit.register(last_words)


async def set_default_sigpipe() -> None:  # a coroutine, as only the main thread may set handlers
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
