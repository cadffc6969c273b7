"""The worker: runs the calls that the server hands down, one process, many threads, one event loop.

Threads take turns at reading frames (`agentix._core.Channel`): whoever reads a call runs it and answers it itself, so
a sync call costs no hand-over. Async targets, and whatever awaitable a plain function gives back, run on one loop in
the main thread, which starts it when the first of them comes. Imports are kept few: everything here is paid for by
every sandbox before its first call.
"""

from __future__ import annotations

import os
import sys
from _contextvars import copy_context
from _pickle import dumps, loads
from _thread import allocate_lock, get_ident
from threading import Thread
from typing import TYPE_CHECKING, Any

from agentix._callable import RemoteCallable
from agentix._core import Channel

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from types import TracebackType

THREADS_MAX = 1024
"""Sync calls that run at once; further ones wait for one of these threads."""
IDLE_MAX = 8
"""Threads that wait for a call; one that would be the next ends instead."""
PICKLE_PROTOCOL = 5

_CO_COROUTINE = 0x80  # flags of code objects, as inspect names them; importing it would cost milliseconds
_CO_ITERABLE_COROUTINE = 0x100
_OUR_FILES = (__file__, RemoteCallable.resolve.__code__.co_filename)  # left out at the top of tracebacks


class CallCancelledError(BaseException):
    """Raised inside a sync target whose call was cancelled; not an `Exception`, so that it is not swallowed by habit."""


class _Running:
    """A call between its start and its answer."""

    __slots__ = ("cancelled", "loop_task", "thread")

    def __init__(self) -> None:
        self.cancelled = False
        self.thread = 0
        self.loop_task: asyncio.Task[None] | None = None


class Worker:
    """The process's one dispatcher."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = allocate_lock()
        self._running: dict[str, _Running] = {}
        self._waiting: list[tuple[str, str | None, bytes | None]] = []  # calls beyond THREADS_MAX
        self._threads = 0
        self._idle = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_wanted = allocate_lock()
        self._loop_wanted.acquire()
        self._loop_ready = allocate_lock()
        self._loop_ready.acquire()

    # ---- threads ----

    def serve(self) -> None:
        """Announces the worker and runs until the server says otherwise; ends the process itself."""
        self._channel.send_ready()
        for _ in range(2):
            self._start_thread()
        while True:
            try:
                self._loop_wanted.acquire()
                return self._run_loop()
            except BaseException as error:  # noqa: BLE001 - a signal that user code sent to its own process
                _warn("the main thread was interrupted by %s", _type_name(error))

    def _start_thread(self) -> None:
        self._threads += 1
        self._idle += 1
        Thread(target=self._serve_calls, name=f"agentix-call-{self._threads}", daemon=True).start()

    def _serve_calls(self) -> None:
        while True:
            frame = self._receive()
            kind, name, target, arguments, _context = frame
            if kind == "call":
                if self._leave_reading(name, target, arguments):
                    self._run(name, target, arguments)
                    if not self._take_waiting():
                        return
            elif kind == "cancel":
                self.cancel(name)
            elif kind == "shutdown":
                self._exit()
            else:
                _warn("a frame of unknown type %r was passed over", name)

    def _receive(self) -> tuple[Any, ...]:
        try:
            frame = self._channel.receive()
        except Exception as error:  # noqa: BLE001 - whatever it is, there is nothing left to serve
            _warn("the link to the server failed: %s", error)
            frame = None
        if frame is None:
            self._exit()
        return frame

    def _leave_reading(self, name: str, target: str | None, arguments: bytes | None) -> bool:
        """Makes sure somebody else reads while this thread runs the call; False if the call must wait its turn."""
        with self._lock:
            if self._idle == 1:
                if self._threads >= THREADS_MAX:
                    self._waiting.append((name, target, arguments))
                    return False
                self._start_thread()
            self._idle -= 1
            return True

    def _take_waiting(self) -> bool:
        """Runs what had to wait; then this thread reads again (True) or, as there are enough readers, ends (False)."""
        while True:
            with self._lock:
                if not self._waiting:
                    if self._idle >= IDLE_MAX:
                        self._threads -= 1
                        return False
                    self._idle += 1
                    return True
                name, target, arguments = self._waiting.pop(0)
            self._run(name, target, arguments)

    # ---- one call ----

    def _run(self, call_id: str, target: str | None, arguments: bytes | None) -> None:
        running = self._running[call_id] = _Running()
        try:
            function = RemoteCallable(target or "").resolve()
        except BaseException as error:  # noqa: BLE001 - importing is user code
            return self._fail(call_id, running, error)
        try:
            args, kwargs = _load_arguments(arguments or b"")
        except BaseException as error:  # noqa: BLE001 - so is unpickling
            text = f"the arguments could not be decoded in the sandbox: {_type_name(error)}: {_text(error)}"
            return self._send_error(call_id, running, "ArgumentsDecodeError", text)
        if getattr(getattr(function, "__code__", None), "co_flags", 0) & _CO_COROUTINE:
            return self._hand_to_loop(call_id, running, lambda: function(*args, **kwargs))
        try:
            value = self._call(running, function, args, kwargs)
        except BaseException as error:  # noqa: BLE001 - any BaseException is this call's error
            return self._fail(call_id, running, error)
        if hasattr(type(value), "__await__") or _is_generator_coroutine(value):
            return self._hand_to_loop(call_id, running, lambda: value)
        return self._succeed(call_id, running, value)

    def _call(self, running: _Running, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a sync target here; while it runs, and only then, a cancel reaches this thread."""
        try:
            with self._lock:
                if running.cancelled:
                    raise CallCancelledError
                running.thread = get_ident()
            return copy_context().run(function, *args, **kwargs)
        finally:
            self._disarm(running)

    def _disarm(self, running: _Running) -> None:
        while True:
            try:
                with self._lock:
                    running.thread = 0
                if running.cancelled:
                    _raise_in_thread(get_ident(), None)  # takes back one that was set but has not been raised yet
                return
            except CallCancelledError:  # raised here, a moment after the target had ended
                continue

    def _succeed(self, call_id: str, running: _Running, value: Any) -> None:
        try:
            payload = dumps(value, PICKLE_PROTOCOL)
        except BaseException as error:  # noqa: BLE001 - pickling runs user code
            text = (
                f"the return value of type {_type_name_of(type(value))} could not be pickled, so it cannot be sent back: "
                f"{_type_name(error)}: {_text(error)}"
            )
            _close_quietly(value)
            return self._send_error(call_id, running, "ResultEncodeError", text)
        if not self._end(call_id, running):
            return None
        _flush()
        try:
            self._channel.send_result(call_id, payload)
        except OverflowError as error:
            self._channel.send_error(call_id, "FrameTooLarge", f"the return value is too large: {error}", None, False)
        return None

    def _fail(self, call_id: str, running: _Running, error: BaseException) -> None:
        if isinstance(error, CallCancelledError) or (running.cancelled and _type_name(error) == "CancelledError"):
            return self._answer_cancelled(call_id, running)
        return self._send_error(call_id, running, _type_name(error), _text(error), _traceback(error))

    def _send_error(
        self, call_id: str, running: _Running, kind: str, message: str, trace: str | None = None
    ) -> None:
        if self._end(call_id, running):
            _flush()
            self._channel.send_error(call_id, _clean(kind), _clean(message), trace and _clean(trace), False)

    def _answer_cancelled(self, call_id: str, running: _Running) -> None:
        if self._end(call_id, running):
            _flush()
            self._channel.send_error(call_id, "Cancelled", "the remote call was cancelled", None, True)

    def _end(self, call_id: str, running: _Running) -> bool:
        """Takes the call off the table; False if it has been answered. After this no cancel reaches its thread."""
        with self._lock:
            return self._running.pop(call_id, None) is running

    # ---- cancelling ----

    def cancel(self, call_id: str) -> None:
        """Asks a running call to end: a task is cancelled, a thread gets an exception. Unknown ids are passed over."""
        with self._lock:
            running = self._running.get(call_id)
            if running is None or running.cancelled:
                return
            running.cancelled = True
            if self._loop is not None and running.loop_task is not None:
                self._loop.call_soon_threadsafe(running.loop_task.cancel)
            elif running.thread:
                _raise_in_thread(running.thread, CallCancelledError)

    # ---- the loop ----

    def _hand_to_loop(self, call_id: str, running: _Running, make: Callable[[], Awaitable[Any]]) -> None:
        if self._loop is None:
            with self._lock:
                if self._loop_wanted.locked():
                    self._loop_wanted.release()
            with self._loop_ready:
                pass
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._start_task, call_id, running, make)

    def _start_task(self, call_id: str, running: _Running, make: Callable[[], Awaitable[Any]]) -> None:
        assert self._loop is not None
        running.loop_task = self._loop.create_task(self._await(call_id, running, make))
        if running.cancelled:
            running.loop_task.cancel()

    async def _await(self, call_id: str, running: _Running, make: Callable[[], Awaitable[Any]]) -> None:
        try:
            value = await make()
        except BaseException as error:  # noqa: BLE001 - SystemExit included: it must not end the loop
            self._fail(call_id, running, error)
        else:
            self._succeed(call_id, running, value)

    def _run_loop(self) -> None:
        import asyncio

        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        self._loop = loop
        self._loop_ready.release()
        while True:
            try:
                loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - a callback of user code raised SystemExit or the like
                _warn("a callback tried to end the event loop: %s", _text(error) or _type_name(error))

    # ---- the end ----

    def _exit(self) -> None:
        import atexit

        try:
            atexit._run_exitfuncs()  # noqa: SLF001 - os._exit below would skip what user code registered
        except BaseException as error:  # noqa: BLE001
            _warn("an exit function raised %s", _type_name(error))
        _flush()
        os._exit(0)


def _load_arguments(data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    try:
        args, kwargs = loads(data)
    except ModuleNotFoundError as error:
        if error.name != "pathlib._local":
            raise
        args, kwargs = _load_from_newer(data)
    return args, kwargs


def _load_from_newer(data: bytes) -> Any:
    """Python 3.13 names its paths `pathlib._local`; here they live in `pathlib`."""
    import io
    import pickle

    class Loader(pickle.Unpickler):
        def find_class(self, module: str, name: str, /) -> Any:
            return super().find_class("pathlib" if module == "pathlib._local" else module, name)

    return Loader(io.BytesIO(data)).load()


def _is_generator_coroutine(value: object) -> bool:
    """Whether it is a generator made by `types.coroutine`, which `await` takes although its type has no `__await__`."""
    return bool(getattr(getattr(value, "gi_code", None), "co_flags", 0) & _CO_ITERABLE_COROUTINE)


def _close_quietly(value: object) -> None:
    """Closes an unsendable coroutine or generator, at the top or inside a plain container, so it is not reported as forgotten."""
    for item in value if isinstance(value, (list, tuple, set)) else (value,):
        if hasattr(item, "cr_frame") or hasattr(item, "gi_frame"):
            try:
                item.close()
            except BaseException:  # noqa: BLE001, S110 - it is thrown away in any case
                pass


def _type_name_of(cls: type) -> str:
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _type_name(error: BaseException) -> str:
    return type(error).__name__


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as failure:  # noqa: BLE001 - __str__ is user code
        return f"<its text could not be made: {_type_name(failure)}>"


def _traceback(error: BaseException) -> str | None:
    try:
        from traceback import format_exception

        return "".join(format_exception(type(error), error, _without_our_frames(error.__traceback__)))
    except BaseException as failure:  # noqa: BLE001 - it calls user code
        return f"<the traceback could not be made: {_type_name(failure)}>"


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename in _OUR_FILES:
        trace = trace.tb_next
    return trace


def _clean(text: str) -> str:
    """Without lone surrogates, which UTF-8 cannot carry."""
    return text.encode("utf-8", "backslashreplace").decode()


def _raise_in_thread(thread: int, exception: type[BaseException] | None) -> None:
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception and ctypes.py_object(exception))


def _warn(message: str, *args: object) -> None:
    import logging

    logging.getLogger("agentix.worker").warning(message, *args)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # noqa: BLE001, S110 - closed or replaced by user code
            pass


def _prepare_process() -> None:
    """No path that depends on where the server was started; output line by line."""
    try:
        here = os.getcwd()
    except OSError:  # it was removed: then nothing can be imported from it either
        here = ""
    sys.path[:] = [entry for entry in sys.path if entry not in ("", ".", here)]
    sys.setswitchinterval(0.0005)  # a CPU-bound call holds up every other one for this long at a time
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]


def main(fd: int) -> None:
    """Entry point: `fd` is the worker's end of its private pair."""
    channel = Channel(fd)
    try:
        _prepare_process()
        worker = Worker(channel)
    except BaseException as error:
        channel.send_boot_error("", _type_name(error), _clean(_text(error)), _traceback(error), False)
        raise
    worker.serve()
