"""The worker: runs the calls that the server hands down, one process, many threads, one event loop.

Threads take turns at reading frames (`agentix._core.Channel`): whoever reads a call runs it and answers it itself, so
a sync call costs no hand-over. Async targets, and whatever awaitable a plain function gives back, run on one loop in
the main thread, which is made when the first of them comes. Imports are kept few: everything here is paid for by
every sandbox before its first call.

A call is in the table from the moment it is read until it is answered; whoever takes it off the table answers it, and
so it is answered once. A call that was cancelled in between is answered as cancelled, whatever its target made of it.
"""

from __future__ import annotations

import os
import sys
from _contextvars import copy_context
from _frozen_importlib_external import PathFinder
from _pickle import dumps, loads
from _thread import allocate_lock
from threading import Thread

from agentix import _carrier, _core, _log_hook
from agentix._ambient import current_call
from agentix._callable import RemoteCallable
from agentix._core import Call, Channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections import OrderedDict
    from collections.abc import Awaitable, Callable, Coroutine
    from contextvars import Context
    from functools import partial
    from signal import SIGINT, signal
    from types import FrameType, TracebackType
    from typing import Any, NoReturn

    from agentix._processes import Processes
    from agentix._streams import Streams
else:
    from _collections import OrderedDict
    from _functools import partial
    from _signal import SIGINT, signal

THREADS_MAX = 1024
"""Sync calls that run at once; further ones wait for one of these threads."""
IDLE_MAX = 8
"""Threads that wait for a call; one that would be the next ends instead."""
EXIT_SECONDS = 1.0
"""What functions registered with `atexit` may take; the server waits two."""
TARGETS_MAX = 1024
"""Targets whose function is remembered."""
PICKLE_PROTOCOL = 5

_CO_COROUTINE = 0x80  # flags of code objects, as inspect names them; importing it would cost milliseconds
_CO_ITERABLE_COROUTINE = 0x100
_NEWER_PATHS = "pathlib._local"
_WAKE = b"wake"  # what a spare waits for
_true_name = type.__dict__["__name__"].__get__  # of a class, whatever its metaclass makes of __name__
_PLAIN = frozenset(map(id, (type(None), bool, int, float, str, bytes, list, tuple, dict)))  # types never awaitable
_OUR_FILES = (__file__, RemoteCallable.resolve.__code__.co_filename)  # left out at the top of tracebacks


_NO_MEMORY = (
    b"agentix worker: no memory is left, not even to say so of a call; RLIMIT_AS may bound it. The worker ends\n"
)


class CallCancelledError(BaseException):
    """Raised inside a sync target whose call was cancelled. Not an `Exception`, lest it be swallowed by habit."""


class Worker:
    """The process's one dispatcher."""

    def __init__(self, fd: int) -> None:
        self._calls: dict[str, Call] = {}
        self._targets: dict[str, tuple[str, dict[str, Any], str, Callable[..., Any], bool]] = {}
        self.channel = Channel(fd, self._calls, self._targets, self._rest, IDLE_MAX, _server_reads_pieces())
        self._lock = allocate_lock()  # for the two below, and for adding to the channel's count of idle threads
        self._threads = 0
        self.conduits = -1
        self._waiting: OrderedDict[str, Call] = OrderedDict()  # calls for which there was no thread
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_wanted = allocate_lock()  # let go when there is one; no Event, which an interrupt can spoil
        self._loop_wanted.acquire()
        self._loop_lock = allocate_lock()
        self._watches = False  # the loop's own: it leads, or has not noticed yet that it does not any more
        self._exiting = allocate_lock()
        self._forked = False
        self._cancelled: list[Call] = []  # with `_lock`: taken from those that waited; a thread of its own answers them
        self._streams: Streams | None = None
        self.processes: Processes | None = None  # made by agentix._processes, with the first one
        self._carrier = _carrier.attach(self)
        _log_hook.watch()

    # ---- threads ----

    def serve(self) -> None:
        """Announce the worker and run until the server says otherwise; end the process itself."""
        os.register_at_fork(after_in_child=self._disown)
        self.channel.send_ready(self.conduits >= 0)
        with self._lock:
            self._start_thread()
            self._start_thread()
        signal(SIGINT, self._interrupt)
        while True:
            try:
                while self._loop is None:
                    self._loop_wanted.acquire()
                self._run_loop(self._loop)
            except BaseException as error:  # noqa: BLE001 - a callback of user code that raised SystemExit
                _warn("the main thread was interrupted by %s", _type_name(error))

    def _interrupt(self, _number: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, as Python does, but only in the target of a call: else calls would be lost."""
        if self.channel.stepping:
            raise KeyboardInterrupt
        depth = 0
        while frame is not None and frame.f_code.co_filename not in _OUR_FILES:
            frame = frame.f_back
            depth += 1
        if depth and frame is not None and frame.f_code is Worker._await.__code__:
            raise KeyboardInterrupt

    def _start_thread(self) -> None:
        Thread(target=self._serve_calls, name=f"agentix-call-{self._threads + 1}", daemon=True).start()
        self._threads += 1
        self.channel.enter()

    def _serve_calls(self) -> None:
        while True:
            frame = self._serve()
            if isinstance(frame, Call):
                if self._leave_reading(frame):
                    self._run(frame)
                    del frame  # it must not outlive its answer while this thread waits
                    if not self._return_to_reading():
                        return
            elif frame[0] == "return":
                if not self._return_to_reading():
                    return
            elif frame[0] == "lead":
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._lead, frame[1])
            else:
                self._obey(*frame)

    def _obey(self, kind: str, name: Any) -> None:
        if kind == "cancel":
            self.cancel(name)
        elif kind == "credit":
            if self._streams is not None:
                self._streams.credit(*name)
        elif kind == "shutdown":
            self._exit()
        elif kind == "conduit":
            self._look_at_conduits()
        elif kind == "sio_inbound":
            self._carrier.deliver()
        elif kind == "sio_flow":
            self._carrier.flow(name == "go")
        elif kind == "process":
            if self.processes is not None:
                self.processes.deliver()
        else:
            _warn("a frame of unknown type %r was passed over", name)

    @staticmethod
    def _look_at_conduits() -> None:
        from agentix import _conduits

        try:
            _conduits.serve()
        except (RuntimeError, MemoryError):  # the system gives no more threads; whoever expects one tries again
            pass

    def _serve(self) -> Any:
        try:
            frame = self.channel.serve()
        except MemoryError:
            _end_without_memory()
        except Exception as error:  # noqa: BLE001 - whatever it is, there is nothing left to serve
            _warn("the link to the server failed: %s", error)
            self._exit(1)
        if frame is None:
            self._exit()
        return frame

    def _leave_reading(self, call: Call) -> bool:
        """Make sure that somebody else reads while this thread runs the call; False if the call must wait its turn."""
        while not self.channel.leave():
            with self._lock:
                if not self._add_reader():
                    if self._threads > 1:
                        self._waiting[call.id] = call
                        self.channel.parked = True
                        return False
                    self.channel.leave(last=True)
                    return True
        return True

    def _add_reader(self) -> bool:
        if self._threads >= THREADS_MAX:
            return False
        try:
            self._start_thread()
        except (RuntimeError, MemoryError):  # the system gives no more threads
            return False
        return True

    def _return_to_reading(self) -> bool:
        """Run what had to wait; then this thread reads again (True) or, as there are enough readers, ends (False)."""
        while True:
            with self._lock:
                self.channel.parked = len(self._waiting) > 1
                if not self._waiting:
                    if self.channel.is_full():
                        self._threads -= 1
                        return False
                    self.channel.enter()
                    return True
                call = self._waiting.popitem(last=False)[1]
            self._run(call)

    # ---- one call ----

    def _run(self, call: Call) -> None:
        try:
            self._run_target(call)
        except BaseException as error:  # noqa: BLE001 - nothing that a call does may cost this thread
            self._answer_last(call, error)

    def _answer_last(self, call: Call, error: BaseException) -> None:
        if isinstance(error, MemoryError) and call.id not in self._calls:
            _end_without_memory()  # there was none for its answer: else nobody would ever say a word of it
        try:
            self._answer_error(call, "SystemError", f"the worker could not run the call: {_type_name(error)}")
        except MemoryError:
            _end_without_memory()

    def _run_target(self, call: Call) -> None:
        if call.cancelled:
            return self.answer_cancelled(call)
        prepared = self._prepare(call)
        if prepared is None:
            return None
        function, is_async, args, kwargs, context = prepared
        if is_async:
            return self._hand_to_loop(call, lambda: function(*args, **kwargs), context)
        try:
            value: Any = call.run(context.run, (function, *args), kwargs)
        except BaseException as error:  # noqa: BLE001 - any BaseException is this call's error
            return self.fail(call, error)
        return self._finish(call, value, context)

    def _prepare(self, call: Call) -> tuple[Callable[..., Any], bool, tuple[Any, ...], dict[str, Any], Context] | None:
        """Return a call's function, whether it is async, arguments and context; None: the call has been answered."""
        try:
            function, is_async = self._look_up(call.target)
        except BaseException as error:  # noqa: BLE001 - importing is user code
            return self.fail(call, error)
        try:
            args, kwargs = _arguments_of(call)
            call.arguments = None
        except BaseException as error:  # noqa: BLE001 - so is unpickling
            return self._refuse_arguments(call, error)
        context = self._context_of(call)
        return None if context is None else (function, is_async, args, kwargs, context)

    def _context_of(self, call: Call) -> Context | None:
        """Return a new context for a call, with what came along with it; None: the call has been answered."""
        current_call.set(call.id)
        context = copy_context()
        if call.context is not None:
            try:
                context.run(_enter_context, call.context)
            except BaseException as error:  # noqa: BLE001 - unpickling runs user code
                text = f"the call's context could not be decoded in the sandbox: {_type_name(error)}: {_text(error)}"
                self._answer_error(call, "ArgumentsDecodeError", text)
                return None
        return context

    def _finish(self, call: Call, value: Any, context: Context | None) -> None:
        """End a call with what its target returned, if it has not raised; `context` None: a new one."""
        if id(type(value)) in _PLAIN:  # pyright: ignore[reportUnknownArgumentType]
            return self._succeed(call, value)
        context = context or self._context_of(call)
        if context is None:
            return None
        if _is_awaitable(value):
            return self._hand_to_loop(call, lambda: value, context)
        if not _is_stream(value):
            return self._succeed(call, value)
        if _is_async_stream(value):
            return self._hand_to_loop(call, lambda: self._stream_on_loop(call, value, context), context)
        if self._may_stream(call, value):
            self._get_streams().run(call, value, context)
        return None

    def _refuse_arguments(self, call: Call, error: BaseException) -> None:
        text = f"the arguments could not be decoded in the sandbox: {_type_name(error)}: {_text(error)}"
        self._answer_error(call, "ArgumentsDecodeError", text)

    def _rest(self, call: Call, stage: str, what: Any) -> Coroutine[Any, Any, None] | None:
        """Go on with a call that the channel has begun and cannot end (`Channel.serve` says what the stages are)."""
        try:
            if stage == "raised":
                self.fail(call, what)
            elif stage == "value":
                self._finish(call, what, None)
            elif stage == "returned":
                if _is_stream(what):
                    return self._stream_on_loop(call, what, copy_context())
                self._succeed(call, what)
            elif stage == "undecodable":
                if isinstance(what, ModuleNotFoundError) and what.name == _NEWER_PATHS:
                    self._run_target(call)
                else:
                    self._refuse_arguments(call, what)
            elif stage == "decoded":
                self._run_target(call)
            elif stage == "unpicklable":
                self.refuse_value(call, *what)
            elif stage == "cancelled":
                self._send_cancelled(call)
            elif stage == "forked":
                _leave_fork(None)
            else:
                self._tell_unsent(call, what)
        except BaseException as error:  # noqa: BLE001 - nothing that a call does may cost this thread
            self._answer_last(call, error)

    def _look_up(self, target: str) -> tuple[Callable[..., Any], bool]:
        """Find a target and whether it is async; quickly, if its name still stands for what it did last time."""
        known = self._targets.get(target)
        if known is not None:
            module, namespace, name, function, is_async = known
            if namespace.get(name) is function and getattr(sys.modules.get(module), "__dict__", None) is namespace:
                return function, is_async
        function = RemoteCallable(target).resolve()
        is_async = bool(getattr(getattr(function, "__code__", None), "co_flags", 0) & _CO_COROUTINE)
        module, _, name = target.partition("::")
        if "." not in name:
            if len(self._targets) >= TARGETS_MAX:
                self._targets.clear()
            there: Any = getattr(sys.modules.get(module), "__dict__", None)
            if there is not None:  # a cancelled import takes its module away again
                self._targets[target] = module, there, name, function, is_async
        return function, is_async

    def _succeed(self, call: Call, value: object) -> None:
        try:
            payload = dumps(value, PICKLE_PROTOCOL)
        except BaseException as error:  # noqa: BLE001 - pickling runs user code
            return self.refuse_value(call, value, error)
        if not self._take(call):
            return None
        try:
            self.channel.send_result(call.id, payload)
        except (OverflowError, OSError, MemoryError) as error:
            self._tell_unsent(call, error)
        return None

    def refuse_value(self, call: Call, value: object, error: BaseException, what: str = "the return value of") -> None:
        """Answer that a value could not be pickled."""
        text = (
            f"{what} type {_name_of(type(value))} could not be pickled, so it cannot be sent back: "
            f"{_type_name(error)}: {_text(error)}"
        )
        _close_quietly(value)
        self._answer_error(call, "ResultEncodeError", text)

    def _tell_unsent(self, call: Call, error: BaseException) -> None:
        if isinstance(error, OSError):
            self._end_unheard("a result could not be sent: %s", error)
        if isinstance(error, MemoryError):
            return self._send_error(call, "MemoryError", "there is no memory to send the return value")
        return self._send_error(call, "FrameTooLarge", f"the return value is too large: {error}")

    def fail(self, call: Call, error: BaseException) -> None:
        """Answer that the target raised."""
        if self._forked:
            _leave_fork(error)
        self._answer_error(call, _type_name(error), _text(error), None if call.cancelled else _traceback(error))

    def _answer_error(self, call: Call, kind: str, message: str, trace: str | None = None) -> None:
        if self._take(call):
            self._send_error(call, _clean(kind), _clean(message), trace and _clean(trace))

    def _take(self, call: Call) -> bool:
        """Take the call off the table, after which no cancel finds it; False if it needs no answer from here."""
        _flush()
        if self._forked:
            _leave_fork(None)
        if self._calls.pop(call.id, None) is None:
            return False
        if call.cancelled:
            self._send_cancelled(call)
            return False
        return True

    def _send_cancelled(self, call: Call) -> None:
        self._send_error(call, "Cancelled", "the remote call was cancelled", cancelled=True)

    def answer_cancelled(self, call: Call) -> None:
        """Answer that the call was cancelled, if it has not been answered."""
        self._take(call)

    def _send_error(
        self, call: Call, kind: str, message: str, trace: str | None = None, *, cancelled: bool = False
    ) -> None:
        try:
            self.channel.send_error(call.id, kind, message, trace, cancelled)
        except OSError as error:
            self._end_unheard("an error could not be sent: %s", error)

    def _end_unheard(self, text: str, error: OSError) -> None:
        """End the process, so that the server ends this call: nobody would ever answer it, nor any later one."""
        _warn(text, error)
        self._exit(1)

    # ---- cancelling ----

    def cancel(self, call_id: str | None) -> None:
        """Ask a running call to end: a task is cancelled, a thread gets an exception. Unknown ids are passed over."""
        call = self._calls.get(call_id or "")
        if call is None or not call.cancel(CallCancelledError):
            return None
        with self._lock:
            waits = self._waiting.pop(call.id, None)
        if waits is not None:
            return self._answer_aside(call)
        if self._streams is not None:
            self._streams.cancel(call.id)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(_cancel_task, call)
        return None

    def _answer_aside(self, call: Call) -> None:
        """Answer a call that was cancelled while it waited, but not here: who reads must not wait for the server."""
        with self._lock:
            self._cancelled.append(call)
            if len(self._cancelled) > 1:
                return
        try:
            Thread(target=self._answer_those_aside, daemon=True).start()
        except (RuntimeError, MemoryError):  # the system gives no more threads
            self._answer_those_aside()

    def _answer_those_aside(self) -> None:
        while True:
            with self._lock:
                call = self._cancelled[0]
            self.answer_cancelled(call)
            with self._lock:
                del self._cancelled[0]
                if not self._cancelled:
                    return

    # ---- streams ----

    def _get_streams(self) -> Streams:
        from agentix._streams import Streams

        with self._lock:
            if self._streams is None:
                self._streams = Streams(self)
            return self._streams

    def _may_stream(self, call: Call, items: Any) -> bool:
        if call.stream is not None:
            return True
        _close_quietly(items)
        kind = _name_of(type(items))  # pyright: ignore[reportUnknownArgumentType]
        text = f"the return value of type {kind} is a stream, which this client did not offer to take"
        self._answer_error(call, "ResultEncodeError", text)
        return False

    async def _stream_on_loop(self, call: Call, items: Any, context: Context) -> None:
        """Send a stream that an async target gave, or that is async itself; a sync one must not hold up the loop."""
        if not self._may_stream(call, items):
            return
        if _is_async_stream(items):
            await self._get_streams().run_async(call, items)
        else:
            Thread(target=self._get_streams().run, args=(call, items, context), daemon=True).start()

    def send_item(self, call: Call, seq: int, payload: bytes) -> bool:
        """Send an item; False if it is too large, which ends the call."""
        try:
            self.channel.send_item(call.id, seq, payload)
        except OverflowError as error:
            self._answer_error(call, "FrameTooLarge", f"an item of the stream is too large: {error}")
            return False
        except OSError as error:
            self._end_unheard("an item could not be sent: %s", error)
        return True

    def end_stream(self, call: Call) -> None:
        """All items have been sent."""
        if not self._take(call):
            return
        try:
            self.channel.send_end(call.id)
        except OSError as error:
            self._end_unheard("the end of a stream could not be sent: %s", error)

    # ---- the loop ----

    def _lead(self, call: Call) -> None:
        """Read frames in the loop's thread, which runs most of them: then an async call costs no hand-over."""
        if self.channel.accept() and not self._watches:
            assert self._loop is not None
            try:
                self._loop.add_reader(self.channel.fd, self._poll)
                self._watches = True
            except BaseException as error:  # noqa: BLE001 - user code may have spoilt the loop; then threads read on
                _warn("the loop cannot watch the link: %s", _type_name(error))
                self.channel.has_loop = False
        self._begin(call)
        self._poll()

    def _poll(self) -> None:
        assert self._loop is not None
        again = False
        while True:
            try:
                frame = self.channel.poll(again) if self._watches else False
            except Exception as error:  # noqa: BLE001 - whatever it is, there is nothing left to serve
                _warn("the link to the server failed: %s", error)
                frame = None
            again = True
            if isinstance(frame, Call):
                self._begin(frame)
            elif frame is None:
                self._exit()
            elif frame is False:
                if self._watches:
                    self._watches = False
                    self._loop.remove_reader(self.channel.fd)
                return
            elif frame is True:
                return
            elif frame[0] == "turn":
                self._loop.call_soon(self._poll)
                return
            else:
                self._obey(*frame)

    def _begin(self, call: Call) -> None:
        """Start an async call in the loop's thread, which the channel has not."""
        prepared = self._prepare(call)
        if prepared is not None:
            function, _, args, kwargs, context = prepared
            self._start_task(call, lambda: function(*args, **kwargs), context)

    def _hand_to_loop(self, call: Call, make: Callable[[], Awaitable[Any]], context: Context) -> None:
        try:
            loop = self._loop or self._make_loop()
        except BaseException as error:  # noqa: BLE001 - user code may have spoilt asyncio
            return self.fail(call, error)
        loop.call_soon_threadsafe(self._start_task, call, make, context)
        return None

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that async targets run on, made now if need be."""
        return self._loop or self._make_loop()

    def _make_loop(self) -> asyncio.AbstractEventLoop:
        import asyncio

        with self._loop_lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self.channel.use_loop(self._loop)
                self._loop_wanted.release()
            return self._loop

    def _start_task(self, call: Call, make: Callable[[], Awaitable[Any]], context: Context) -> None:
        assert self._loop is not None
        try:
            awaitable = context.run(make)
            if call.cancelled:
                _close_quietly(awaitable)
                self.answer_cancelled(call)
            else:
                call.task = task = _start(self._loop, self._await(call, awaitable, context), context)
                if not task.done():
                    task.add_done_callback(partial(self._end_task, call, awaitable))
        except BaseException as error:  # noqa: BLE001 - wrong arguments, or a task factory of user code
            self.fail(call, error)

    async def _await(self, call: Call, awaitable: Awaitable[Any], context: Context) -> None:
        try:
            value = await awaitable
        except BaseException as error:  # noqa: BLE001 - SystemExit included: it must not end the loop
            self.fail(call, error)
        else:
            if _is_stream(value):
                await self._stream_on_loop(call, value, context)
            elif not self.channel.finish(call, value):  # which passes over a stream, for that has been answered
                self._succeed(call, value)

    def _end_task(self, call: Call, awaitable: Awaitable[Any], _task: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first step never takes it, so `_await` has not answered."""
        if call.id in self._calls:
            from asyncio import CancelledError

            _close_quietly(awaitable)
            self.fail(call, CancelledError())

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        if loop.is_closed():
            _warn("user code closed the event loop; the worker ends")
            os._exit(1)
        asyncio.set_event_loop(loop)
        loop.run_forever()

    # ---- the end ----

    def _exit(self, code: int = 0) -> NoReturn:
        """End the process, whatever still runs; once, by the first thread that comes here."""
        import atexit

        self._exiting.acquire()
        try:
            Thread(target=_exit_after, args=(EXIT_SECONDS,), daemon=True).start()
            atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - os._exit below would skip what user code registered
        except BaseException as error:  # noqa: BLE001
            _warn("an exit function raised %s", _type_name(error))
        _flush()
        os._exit(code)

    def _disown(self) -> None:
        self._forked = True
        self.channel.disown()


def _start(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None], context: Context
) -> asyncio.Task[None]:
    """Make a task and take its first step here and now: most have no second one."""
    from asyncio import Task

    if loop.get_task_factory() is not None:
        return context.run(loop.create_task, coroutine)
    if sys.version_info >= (3, 12):
        return Task(coroutine, loop=loop, eager_start=True, context=context)
    if "call_soon" in getattr(loop, "__dict__", ()):  # user code has put it there
        return context.run(loop.create_task, coroutine)
    first: list[tuple[Callable[[], object], Context]] = []

    def call_soon(callback: Callable[[], object], *, context: Context) -> None:
        first.append((callback, context))

    try:
        loop.call_soon = call_soon  # pyright: ignore[reportAttributeAccessIssue] - a task asks for its first step so
    except AttributeError:  # a loop of user code's choice
        return context.run(loop.create_task, coroutine)
    try:
        task = Task(coroutine, loop=loop, context=context)
    finally:
        del loop.call_soon
    for callback, own in first:
        own.run(callback)
    return task


def _leave_fork(error: BaseException | None) -> None:
    """End a forked child whose copy of the target is over: the call is its parent's to answer."""
    code: object = 0
    if isinstance(error, SystemExit):
        code = error.code
    elif error is not None:
        print(_traceback(error), file=sys.stderr, end="")
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    _flush()
    os._exit((code or 0) & 0xFF)


def _exit_after(seconds: float) -> None:
    from time import sleep

    sleep(seconds)
    os._exit(0)


def _cancel_task(call: Call) -> None:
    if call.task is not None:
        call.task.cancel()


def _enter_context(data: bytes) -> None:
    from agentix import _ambient

    _ambient.enter(loads(data))


def _arguments_of(call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
    arguments = call.arguments
    if isinstance(arguments, tuple):
        args, kwargs = arguments
        return tuple(args), dict(kwargs)
    return _load_arguments(arguments or b"")


def _load_arguments(data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    try:
        args, kwargs = loads(data)
    except ModuleNotFoundError as error:
        if error.name != _NEWER_PATHS:
            raise
        args, kwargs = _load_from_newer(data)
    return tuple(args), dict(kwargs)


def _load_from_newer(data: bytes) -> Any:
    """Python 3.13 names its paths `pathlib._local`; here they live in `pathlib`."""
    import io
    import pickle

    class Loader(pickle.Unpickler):
        def find_class(self, module: str, name: str, /) -> Any:
            return super().find_class("pathlib" if module == "pathlib._local" else module, name)

    return Loader(io.BytesIO(data)).load()


def _is_awaitable(value: object) -> bool:
    """Whether `await` takes it; a generator made by `types.coroutine` is one, although its type has no `__await__`."""
    if hasattr(type(value), "__await__"):
        return True
    return bool(getattr(getattr(value, "gi_code", None), "co_flags", 0) & _CO_ITERABLE_COROUTINE)


def _is_stream(value: object) -> bool:
    """Whether it is a generator or an async generator."""
    return hasattr(type(value), "gi_frame") or _is_async_stream(value)


def _is_async_stream(value: object) -> bool:
    return hasattr(type(value), "ag_frame")


def _close_quietly(value: Any) -> None:
    """Close a coroutine or generator that is thrown away, also inside a list or the like: it was not forgotten."""
    items = value if type(value) in (list, tuple, set) else (value,)
    for item in items:
        if hasattr(item, "cr_frame") or hasattr(item, "gi_frame"):
            try:
                item.close()
            except BaseException:  # noqa: BLE001, S110 - it is thrown away in any case
                pass


def _name_of(cls: type) -> str:
    try:
        return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    except BaseException:  # noqa: BLE001 - a metaclass is user code
        return _true_name(cls)


def _type_name(error: BaseException) -> str:
    return _true_name(type(error))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as failure:  # noqa: BLE001 - __str__ is user code
        return f"<its text could not be made: {_type_name(failure)}>"


def _traceback(error: BaseException) -> str:
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
    return str.encode(text, "utf-8", "backslashreplace").decode()


def _server_reads_pieces() -> bool:
    """Whether it said so when it started this process; nobody else is to read it."""
    return "frames/1" in os.environ.pop("AGENTIX_WORKER_FEATURES", "").split(",")


def _warn(message: str, *args: object) -> None:
    """Say it on stderr: what goes through logging is sent to the host, which a thread that reads must not wait for."""
    try:
        print(f"agentix worker: {message % args}", file=sys.__stderr__, flush=True)
    except (OSError, ValueError, AttributeError):  # it was closed
        pass


def _end_without_memory() -> NoReturn:
    """End the process, with what needs no memory: the server tells the host of its calls, which nobody here can."""
    try:
        os.write(2, _NO_MEMORY)
    finally:
        os._exit(1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # noqa: BLE001, S110 - closed or replaced by user code
            pass


def _prepare_process() -> None:
    """No import path that depends on where the server was started; output line by line."""
    try:
        here = os.getcwd()
    except OSError:  # it was removed: then nothing can be imported from it either
        here = ""
    sys.path[:] = [entry for entry in sys.path if os.path.isabs(entry) and os.path.realpath(entry) != here]
    sys.setswitchinterval(0.0005)  # a CPU-bound call holds up every other one for this long at a time
    streams: list[Any] = [sys.stdout, sys.stderr]
    for stream in streams:
        if stream is not None:  # as it is where the descriptor is closed
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _start_files() -> list[str]:
    """Return what an interpreter reads when it starts, beside the standard library; directories stand for names."""
    files = [sys.executable, os.path.join(sys.prefix, "pyvenv.cfg"), os.path.dirname(__file__), str(_core.__file__)]
    for entry in sys.path:
        if entry.endswith("-packages") and os.path.isdir(entry):  # site-packages, dist-packages
            files.append(entry)
            for path in [os.path.join(entry, name) for name in os.listdir(entry) if name.endswith(".pth")]:
                files += [path, *_named_by(path)]
    customs = [getattr(sys.modules.get(name), "__file__", None) for name in ("sitecustomize", "usercustomize")]
    return files + [file for file in customs if file]


def _named_by(path_file: str) -> list[str]:
    """Return the directories that a path file adds to those of modules, also the ones that are not there."""
    try:
        with open(path_file, encoding="utf-8", errors="surrogateescape") as lines:
            names = [line.strip() for line in lines if not line.startswith(("#", "import ", "import\t"))]
    except OSError:
        return []
    return [os.path.join(os.path.dirname(path_file), name) for name in names if name and "\0" not in name]


def _stamp(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _wait_as_spare(conduits: int) -> None:
    """Return when another worker has died and this one takes its place; end the process if that is not to be.

    Of users' code it has run what runs at any start, sitecustomize and path files, and no more. What it has read from
    disk may have changed since: then a fresh one is due.
    """
    files = _start_files()
    before = list(map(_stamp, files))
    PathFinder.find_spec(
        "agentix-nothing"
    )  # now they know the names in each directory, and read them only if it changes
    if os.read(conduits, len(_WAKE) + 1) != _WAKE or list(map(_stamp, files)) != before:
        os._exit(0)


def main(fd: int, conduits: int = -1, spare: bool = False) -> None:
    """Run the worker on its end of the private pair, and the one for conduits; never returns.

    A spare does all that a start takes, then waits for a word on `conduits`.
    """
    worker = Worker(fd)
    worker.conduits = conduits
    try:
        if conduits >= 0:
            os.set_inheritable(conduits, False)
        _prepare_process()
        if spare:
            _wait_as_spare(conduits)
    except BaseException as error:
        worker.channel.send_boot_error("", _type_name(error), _clean(_text(error)), _traceback(error), False)
        raise
    worker.serve()
