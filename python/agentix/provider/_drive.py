"""The asyncio shell of the providers' brains: it carries out their wishes and tells them what came of it.

A brain (`agentix._core.Brain`, see `src/provider/brain.h`) decides; this module spawns, waits, signals and removes.
Processes are watched by pidfd on whichever loop runs at the moment, so a sandbox outlives the loop that made it.

Cancelling never interrupts a step: it is one more event for the brain, which then wishes for whatever undoes what was
done, and the cancellation is raised when that is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._core import Brain, Wish

Event = tuple[str, int, bytes]

TAIL_MAX = 64 * 1024
"""Bytes of a process's last output that are kept for error texts."""
READY_MAX = 4096
"""Bytes of the line by which a server says that it is ready."""
PROBE_PAUSE = 0.004
"""Seconds between the first two questions to a runtime that may not listen yet; grows up to the next."""
PROBE_PAUSE_MAX = 0.1
DRAIN_GRACE = 0.2
"""Seconds to wait for output after a process has ended: a grandchild may hold the pipe for ever."""


class Child:
    """A process in a session of its own; its output is drained and its end noticed while a loop watches it."""

    def __init__(self, wish: Wish, *, with_pipes: bool) -> None:
        """Start what the wish asks for; OSError if that fails. `with_pipes`: a ready and a lifeline descriptor too."""
        self._output = self._ready = self._lifeline = self._pidfd = -1
        self._tail = bytearray()
        self._ready_line = bytearray()
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._code: int | None = None
        self._reported = False
        try:
            self._process = self._spawn(wish, with_pipes)
        except BaseException:
            self.close()
            raise
        self.pid = self._process.pid
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:
            self._process.kill()
            self._process.wait()
            self.close()
            raise
        _children.add(self)

    def _spawn(self, wish: Wish, with_pipes: bool) -> subprocess.Popen[bytes]:
        env = dict(pair.split("=", 1) for pair in wish["env"])
        theirs: list[int] = []
        try:
            self._output, output = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            theirs.append(output)
            os.set_blocking(output, True)
            if with_pipes:
                self._ready, ready = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
                theirs.append(ready)
                lifeline, self._lifeline = os.pipe2(os.O_CLOEXEC)
                theirs.append(lifeline)
                env["AGENTIX_READY_FD"], env["AGENTIX_LIFELINE_FD"] = str(ready), str(lifeline)
            return subprocess.Popen(
                wish["argv"],
                env=env,
                cwd=wish.get("cwd"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=theirs[1:],
                start_new_session=True,
            )
        finally:
            for fd in theirs:
                os.close(fd)

    # ---- watching ----

    def watch(self) -> None:
        """Let the running loop drain the output and notice the end, until another one does."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._unwatch()
            self._loop = loop
            for fd, handler in (
                (self._output, self._on_output),
                (self._ready, self._on_ready),
                (self._pidfd, self._on_exit),
            ):
                if fd >= 0:
                    loop.add_reader(fd, handler)
            if self._code is not None:  # the loop that noticed it has gone before it could wait for the output
                self._report_exit()

    def _unwatch(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            for fd in (self._output, self._ready, self._pidfd):
                if fd >= 0:
                    loop.remove_reader(fd)

    def _shut(self, name: str) -> None:
        fd: int = getattr(self, name)
        if fd >= 0:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(fd)
            setattr(self, name, -1)
            os.close(fd)

    def _on_output(self) -> None:
        try:
            data = os.read(self._output, TAIL_MAX)
        except BlockingIOError:
            return
        self._tail += data
        del self._tail[:-TAIL_MAX]
        if not data:
            self._shut("_output")
            if self._code is not None:
                self._report_exit()

    def _on_ready(self) -> None:
        try:
            data = os.read(self._ready, READY_MAX)
        except BlockingIOError:
            return
        self._ready_line += data
        if data and b"\n" not in self._ready_line and len(self._ready_line) < READY_MAX:
            return
        self._shut("_ready")
        if self._ready_line:
            self._report("ready", 0, bytes(self._ready_line.partition(b"\n")[0]))

    def _on_exit(self) -> None:
        self._code = self._process.wait()
        self._shut("_pidfd")
        if self._ready >= 0:
            self._on_ready()  # what it said with its last breath
        if self._output < 0:
            self._report_exit()
        elif self._loop is not None:
            self._loop.call_later(DRAIN_GRACE, self._report_exit)

    def _report_exit(self) -> None:
        if not self._reported and self._code is not None:
            self._reported = True
            self._report("exited", self._code, self.tail())

    def _report(self, kind: str, code: int, text: bytes) -> None:
        self._events.append((kind, code, text))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---- verbs ----

    async def event(self, timeout: float = 0) -> Event:
        """Wait for what happens next: `ready` or `exited`, or `timer` after `timeout` seconds (0: never)."""
        self.watch()
        if not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await asyncio.wait([self._waiter], timeout=timeout or None)
            finally:
                self._waiter = None
        return self._events.popleft() if self._events else ("timer", 0, self.tail())

    def tail(self) -> bytes:
        """Return the last output."""
        return bytes(self._tail)

    def alive(self) -> bool:
        """Tell whether the process still runs."""
        return self._code is None and self._process.poll() is None

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal, if the process still runs; to all its group, which no other process can have taken over."""
        if self._process.returncode is None:
            try:
                os.killpg(self.pid, number) if group else os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def close(self) -> None:
        """Give all descriptors back. Closing the lifeline ends a server that still runs."""
        self._unwatch()
        for name in ("_output", "_ready", "_lifeline", "_pidfd"):
            self._shut(name)

    def disown(self) -> None:
        """For a forked child: give up its copies, without a word to the loop or the process, which are its parent's."""
        self._loop = None
        self._process.returncode = 0
        self.close()


_children: weakref.WeakSet[Child] = weakref.WeakSet()


def _forget_children() -> None:
    """In a forked child of the host: its copies of the lifelines must not keep the sandboxes of a dead host alive."""
    for child in list(_children):
        child.disown()
    _children.clear()


os.register_at_fork(after_in_child=_forget_children)


class Probe:
    """Asks the runtime at a URL until it answers and proves that it knows the token."""

    def __init__(self, url: str, token: str, headers: Mapping[str, str] | None = None) -> None:
        self._url = url
        self._token = token
        self._headers = headers
        self._why = "it was not asked"

    async def event(self, timeout: float) -> Event:
        """Return `ready` with the server's instance, or `timer` after `timeout` seconds with what the last try met."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        pause = PROBE_PAUSE
        while True:
            instance = await self._ask(deadline)
            if instance is not None:
                return "ready", 0, instance.encode()
            if loop.time() + pause >= deadline:
                return "timer", 0, self.tail()
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, PROBE_PAUSE_MAX)

    async def _ask(self, deadline: float) -> str | None:
        from .._client import RuntimeClient
        from .._failures import RuntimeUnreachable

        client = RuntimeClient(self._url, token=self._token, headers=self._headers)
        try:
            async with asyncio.timeout_at(deadline):
                return (await client.health()).instance or ""
        except TimeoutError:
            self._why = f"the runtime at {self._url} did not answer in time"
        except (RuntimeUnreachable, OSError) as error:
            self._why = str(error)
        finally:
            await client.close()
        return None

    def tail(self) -> bytes:
        """Return what the last try met."""
        return self._why.encode(errors="replace")


class _Watched:
    """A runtime that is asked while the process that is to run it is watched: whichever tells something first."""

    def __init__(self, probe: Probe, child: Child) -> None:
        self._probe = probe
        self._child = child

    async def event(self, timeout: float) -> Event:
        tasks = [asyncio.ensure_future(source) for source in (self._child.event(), self._probe.event(timeout))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            kind, code, text = next(task for task in tasks if task.done()).result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return kind, code, self.tail() if kind == "timer" else text

    def tail(self) -> bytes:
        """Return what the process said last, else what the last try met."""
        return self._child.tail() or self._probe.tail()


class _Pause:
    """Nothing to watch: time passes."""

    async def event(self, timeout: float) -> Event:
        await asyncio.sleep(timeout)
        return "timer", 0, b""

    def tail(self) -> bytes:
        return b""


class Driver:
    """Drives one brain from wish to wish."""

    def __init__(self, brain: Brain, started: Callable[[int], object] | None = None) -> None:
        """Drive that brain; `started` is told the pid of what it starts, at once."""
        self._brain = brain
        self._started = started
        self._cancelled = False
        self._command: Child | None = None
        self.child: Child | None = None
        self.last: Wish | None = None
        """What it came to, also when a cancellation was raised."""

    async def drive(self) -> Wish:
        """Go on until the brain is done, gone or failed; return that wish.

        Cancelling undoes what was done, however long the brain takes for it, and then raises `CancelledError`.
        """
        wish = await self._go_on()
        if self._cancelled:
            if wish["kind"] == "done":  # the cancellation came where there was no event to make of it
                self._brain.event("cancel", 0, b"")
                await self._go_on()
            raise asyncio.CancelledError
        return wish

    async def end(self) -> Wish:
        """Ask for the end of what was started; return the last wish, which is `done` if it is still there.

        A cancellation changes nothing of that, and is raised when it is over.
        """
        self._brain.event("delete")
        wish = await self._go_on()
        if self._cancelled:
            self._cancelled = False
            raise asyncio.CancelledError
        return wish

    def alive(self) -> bool:
        """Tell whether what was started still runs."""
        return self.child is not None and self.child.alive()

    def watch(self) -> None:
        """Let the running loop drain the output of what was started."""
        if self.child is not None:
            self.child.watch()

    async def _go_on(self) -> Wish:
        steps: dict[str, Callable[[Wish], Awaitable[None]]] = {
            "run": self._run,
            "start": self._start,
            "signal": self._signal,
            "wait": self._wait,
            "probe": self._probe,
        }
        try:
            while True:
                wish = self._brain.next()
                if wish["kind"] != "wait":
                    await self._end_command()
                step = steps.get(wish["kind"])
                if step is not None:
                    await step(wish)
                    continue
                if wish["kind"] != "done":
                    await self._undo(wish.get("path"))
                self.last = wish
                return wish
        finally:
            if self._command is not None:
                self._command.signal(signal.SIGKILL, group=True)
                self._command.close()

    # ---- one step each ----

    async def _run(self, wish: Wish) -> None:
        self._command = self._spawn(wish, with_pipes=False)
        if self._command is not None:
            await self._tell_next(self._command, wish["timeout"])

    async def _end_command(self) -> None:
        """Kill what still runs of a command, with its group, and wait for its end."""
        command = self._command
        if command is None:
            return
        command.signal(signal.SIGKILL, group=True)
        while command.alive():
            try:
                await command.event()
            except asyncio.CancelledError:
                self._cancelled = True
        self._command = None
        command.close()

    async def _start(self, wish: Wish) -> None:
        self.child = self._spawn(wish, with_pipes=not wish["bare"], started=self._started)
        if self.child is not None and not wish["bare"]:
            await self._tell_next(self.child, wish["timeout"])

    async def _signal(self, wish: Wish) -> None:
        assert self.child is not None
        self.child.signal(wish["signal"])
        await self._wait(wish)

    async def _wait(self, wish: Wish) -> None:
        await self._tell_next(self._command or self.child or _Pause(), wish["timeout"])

    async def _probe(self, wish: Wish) -> None:
        try:
            probe = Probe(wish["url"], _read(wish["token_file"]).strip())
        except (OSError, ValueError) as error:
            self._brain.event("timer", 0, str(error).encode(errors="replace"))
            return
        await self._tell_next(probe if self.child is None else _Watched(probe, self.child), wish["timeout"])

    async def _undo(self, path: str | None) -> None:
        if self.child is not None:
            self.child.close()
        if path is not None:
            await self._in_thread(remove_tree, path)

    # ---- waiting ----

    def _spawn(self, wish: Wish, *, with_pipes: bool, started: Callable[[int], object] | None = None) -> Child | None:
        try:
            for path, mode, content in wish.get("files", ()):
                _write_anew(path, mode, content)
            child = Child(wish, with_pipes=with_pipes)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._brain.event("spawn_failed", 0, f"{wish['argv'][0]}: {error}".encode(errors="replace"))
            return None
        if started is not None:
            with contextlib.suppress(OSError):  # it only helps whoever comes after a killed host
                started(child.pid)
        return child

    async def _tell_next(self, source: Child | Probe | _Watched | _Pause, timeout: float) -> None:
        """Wait for the next event of what is watched and tell the brain. The first cancellation is such an event."""
        told = self._cancelled
        deadline = asyncio.get_running_loop().time() + timeout if timeout else 0
        while True:
            try:
                event = await source.event(timeout)
                break
            except asyncio.CancelledError:
                self._cancelled = True
                if not told:
                    event = "cancel", 0, source.tail()
                    break
                timeout = deadline and max(deadline - asyncio.get_running_loop().time(), 0.001)
        self._brain.event(*event)

    async def _in_thread(self, function: Callable[[str], None], path: str) -> None:
        """Do it to its end, even if this task is cancelled meanwhile."""
        # No task: when a loop ends, all tasks of it are cancelled.
        future = asyncio.get_running_loop().run_in_executor(None, function, path)
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                self._cancelled = True
        future.result()


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _write_anew(path: str, mode: int, content: bytes) -> None:
    """Write a file that a command reads, in place of an older one."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(content)
        os.fchmod(fd, mode)


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a directory with all that is in it, also what was made read-only; what cannot be removed stays."""
    shutil.rmtree(path, ignore_errors=True)
    if not os.path.lexists(path):
        return
    for directory, names, _ in os.walk(path):
        for name in [".", *names]:
            try:
                if not os.path.islink(os.path.join(directory, name)):
                    os.chmod(os.path.join(directory, name), 0o700)
            except OSError:
                pass
    shutil.rmtree(path, ignore_errors=True)
