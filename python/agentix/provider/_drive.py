"""The asyncio shell of the providers' brains: it carries out their wishes and tells them what came of it.

A brain (`agentix._core.Brain`, see `src/provider/brain.h`) decides; this module spawns, waits, signals and removes.
Processes are watched by pidfd on whichever loop runs at the moment, so a sandbox outlives the loop that made it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

TAIL_MAX = 64 * 1024
"""Bytes of a process's last output that are kept for error texts."""
READY_MAX = 4096
"""Bytes of the line by which a server says that it is ready."""
DRAIN_GRACE = 0.2
"""Seconds to wait for output after a process has ended: a grandchild may hold the pipe for ever."""


class Child:
    """A process in a session of its own; its output is drained and its end noticed while a loop watches it."""

    def __init__(self, wish: dict[str, Any], *, with_pipes: bool) -> None:
        """Start what the wish asks for; OSError if that fails. `with_pipes`: a ready and a lifeline descriptor too."""
        env = dict(pair.split("=", 1) for pair in wish["env"])
        self.ready = self.lifeline = -1
        self._tail = bytearray()
        self._on_event: Callable[[str, int, bytes], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        theirs: list[int] = []
        self._output, output = os.pipe2(os.O_CLOEXEC)
        try:
            if with_pipes:
                self.ready, ready = os.pipe2(os.O_CLOEXEC)
                theirs.append(ready)
                lifeline, self.lifeline = os.pipe2(os.O_CLOEXEC)
                theirs.append(lifeline)
                env["AGENTIX_READY_FD"], env["AGENTIX_LIFELINE_FD"] = str(ready), str(lifeline)
                os.set_blocking(self.ready, False)
            os.set_blocking(self._output, False)
            self._process = subprocess.Popen(
                wish["argv"],
                env=env,
                cwd=wish.get("cwd"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=theirs,
                start_new_session=True,
            )
        except BaseException:
            self._close(self._output, self.ready, self.lifeline)
            raise
        finally:
            self._close(output, *theirs)
        self.pid = self._process.pid
        self._pidfd = os.pidfd_open(self.pid)
        self._ready_line = bytearray()

    @staticmethod
    def _close(*descriptors: int) -> None:
        for fd in descriptors:
            if fd >= 0:
                os.close(fd)

    # ---- watching ----

    def watch(self, on_event: Callable[[str, int, bytes], None]) -> None:
        """Report `ready` and `exited` on the running loop from now on, to this callback alone."""
        self.unwatch()
        self._loop = asyncio.get_running_loop()
        self._on_event = on_event
        if self._pidfd >= 0:
            self._loop.add_reader(self._pidfd, self._exited)
        if self._output >= 0:
            self._loop.add_reader(self._output, self._drain)
        if self.ready >= 0:
            self._loop.add_reader(self.ready, self._read_ready)

    def unwatch(self) -> None:
        """Let go of the loop, which may be closed by now."""
        loop, self._loop, self._on_event = self._loop, None, None
        if loop is None or loop.is_closed():
            return
        for fd in (self._pidfd, self._output, self.ready):
            if fd >= 0:
                loop.remove_reader(fd)

    def _drain(self) -> None:
        try:
            data = os.read(self._output, TAIL_MAX)
        except BlockingIOError:
            return
        if not data:
            self._shut("_output")
        self._tail += data
        del self._tail[:-TAIL_MAX]

    def _read_ready(self) -> None:
        try:
            data = os.read(self.ready, READY_MAX)
        except BlockingIOError:
            return
        self._ready_line += data
        if data and b"\n" not in self._ready_line and len(self._ready_line) < READY_MAX:
            return
        self._shut("ready")
        if self._ready_line and self._on_event is not None:
            self._on_event("ready", 0, bytes(self._ready_line.partition(b"\n")[0]))

    def _exited(self) -> None:
        assert self._loop is not None
        code = self._process.wait()
        self._shut("_pidfd")
        if self.ready >= 0:
            self._read_ready()
        self._when_drained(self._loop.time() + DRAIN_GRACE, code)

    def _when_drained(self, deadline: float, code: int) -> None:
        """Report the exit once the pipe is at its end, or after the grace."""
        if self._loop is None or self._on_event is None:
            return
        if self._output >= 0 and self._loop.time() < deadline:
            self._loop.call_later(0.005, self._when_drained, deadline, code)
            return
        self._on_event("exited", code, self.tail())

    def _shut(self, name: str) -> None:
        fd: int = getattr(self, name)
        if fd >= 0:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(fd)
            os.close(fd)
            setattr(self, name, -1)

    # ---- verbs ----

    def tail(self) -> bytes:
        """Return the last output."""
        return bytes(self._tail)

    def alive(self) -> bool:
        """Tell whether the process still runs."""
        return self._process.poll() is None

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal, if the process still runs; to all its group, which no other process can have taken over."""
        if self._process.returncode is None:
            try:
                os.killpg(self.pid, number) if group else os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def close(self) -> None:
        """Give all descriptors back. Closing the lifeline ends a server that still runs."""
        self.unwatch()
        self._close(self._output, self.ready, self.lifeline, self._pidfd)
        self._output = self.ready = self.lifeline = self._pidfd = -1


class Driver:
    """Drives one brain from wish to wish."""

    def __init__(self, brain: Any, *, copy: Callable[[str], None] | None = None) -> None:
        """`copy`: puts our own distributions into the virtual environment at a path; runs in a thread."""
        self._brain = brain
        self._copy = copy
        self._happened: asyncio.Future[tuple[str, int, bytes]] | None = None
        self.child: Child | None = None

    async def drive(self) -> dict[str, Any]:
        """Go on until the brain is done, gone or failed; return that wish.

        Cancelling undoes what was done, however long the brain takes for it, and then raises `CancelledError`.
        """
        try:
            return await self._drive()
        except asyncio.CancelledError:
            self._brain.event("cancel")
            await _whatever_happens(self._drive())
            raise

    async def end(self) -> dict[str, Any]:
        """Ask for the end of what was started; return the last wish, or finish that even if cancelled."""
        self._brain.event("delete")
        return await _whatever_happens(self._drive())

    def alive(self) -> bool:
        """Tell whether what was started still runs."""
        return self.child is not None and self.child.alive()

    async def _drive(self) -> dict[str, Any]:
        steps: dict[str, Callable[[dict[str, Any]], Awaitable[None]]] = {
            "run": self._run,
            "start": self._start,
            "signal": self._signal,
            "copy": self._copy_own,
            "wait": self._wait,
        }
        while True:
            wish = self._brain.next()
            step = steps.get(wish["kind"])
            if step is not None:
                await step(wish)
                continue
            if wish["kind"] != "done":
                await self._undo(wish.get("path"))
            return wish

    # ---- one step each ----

    async def _run(self, wish: dict[str, Any]) -> None:
        child = self._spawn(wish, with_pipes=False)
        if child is None:
            return
        try:
            await self._one_event(child, wish["timeout"])
        finally:
            if child.alive():
                child.signal(signal.SIGKILL, group=True)
                child.unwatch()
                await asyncio.to_thread(child._process.wait)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
            child.close()

    async def _start(self, wish: dict[str, Any]) -> None:
        self.child = self._spawn(wish, with_pipes=True)
        if self.child is not None:
            await self._one_event(self.child, wish["timeout"])

    async def _signal(self, wish: dict[str, Any]) -> None:
        if self.child is not None:
            self.child.signal(wish["signal"])
        await self._wait(wish)

    async def _wait(self, wish: dict[str, Any]) -> None:
        assert self.child is not None
        await self._one_event(self.child, wish["timeout"])

    async def _copy_own(self, wish: dict[str, Any]) -> None:
        assert self._copy is not None
        try:
            await asyncio.to_thread(self._copy, wish["path"])
        except OSError as error:
            self._brain.event("copy_failed", 0, str(error).encode())
        else:
            self._brain.event("copied")

    async def _undo(self, path: str | None) -> None:
        if self.child is not None:
            self.child.close()
        if path is not None:
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)

    # ---- waiting ----

    def _spawn(self, wish: dict[str, Any], *, with_pipes: bool) -> Child | None:
        try:
            return Child(wish, with_pipes=with_pipes)
        except (OSError, subprocess.SubprocessError) as error:
            self._brain.event("spawn_failed", 0, f"{wish['argv'][0]}: {error}".encode())
            return None

    async def _one_event(self, child: Child, timeout: float) -> None:
        """Wait for the next thing that happens to the process, or the time-out (0: none), and tell the brain."""
        loop = asyncio.get_running_loop()
        self._happened = happened = loop.create_future()
        child.watch(self._on_event)
        timer = loop.call_later(timeout, self._on_event, "timer", 0, b"") if timeout else None
        try:
            kind, code, text = await happened
        finally:
            self._happened = None
            if timer is not None:
                timer.cancel()
        self._brain.event(kind, code, text or child.tail())

    def _on_event(self, kind: str, code: int, text: bytes) -> None:
        if self._happened is not None and not self._happened.done():
            self._happened.set_result((kind, code, text))


async def _whatever_happens(work: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """Finish `work` even if this task is cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
        except Exception:  # noqa: BLE001 - raised below by result()
            break
    if cancelled:
        raise asyncio.CancelledError
    return task.result()
