"""One implementation of the public API: whichever `agentix` this interpreter imports.

Only documented names are used, so the same loops measure any implementation.

    python side.py ours [--quick] [--light] --venv DIR
        sandboxes come from UvProvider(UvProviderConfig(reuse_venv=DIR))
    python side.py reference [--quick] [--light]
        the server is started as a process of its own and driven through RuntimeClient
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import logging
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import probe

sys.path.insert(0, str(probe.TARGETS))
import bench_target

READY_SECONDS = 60.0
LEAVE_SECONDS = 3.0
T = TypeVar("T")


class Handle(Protocol):
    """What a sandbox and a runtime client have in common."""

    def remote(self, fn: Callable[..., Any], *args: Any) -> Awaitable[Any]: ...


class Implementation(Protocol):
    def sandbox(self) -> contextlib.AbstractAsyncContextManager[Handle]: ...

    def server(self) -> contextlib.AbstractContextManager[int]:
        """A server alone, from its start to its own ready signal; gives its process id."""
        ...

    async def close(self) -> None: ...


def server_env(**more: str) -> dict[str, str]:
    """Only what a server needs, so that nothing of the caller's shell changes the figures; no log file."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "AGENTIX_LOG_DIR": "", **more}


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Ours:
    def __init__(self, venv: str) -> None:
        from agentix.provider.uv import UvProvider, UvProviderConfig

        from agentix import SandboxConfig

        self._venv = venv
        self._config = SandboxConfig(image="bench", bundle="bench", env={"AGENTIX_LOG_DIR": ""})
        self._provider = UvProvider(UvProviderConfig(reuse_venv=venv))

    def sandbox(self) -> contextlib.AbstractAsyncContextManager[Handle]:
        return self._provider.session(self._config)

    @contextlib.contextmanager
    def server(self) -> Iterator[int]:
        here = Path(sys.executable).parent / "agentix-runtime"
        program = str(here) if here.exists() else shutil.which("agentix-runtime")
        if program is None:
            raise FileNotFoundError("no agentix-runtime beside the interpreter or on PATH")
        with tempfile.TemporaryDirectory(prefix="agx-bench-") as scratch:
            reader, writer = os.pipe()
            os.set_inheritable(writer, True)
            env = server_env(AGENTIX_READY_FD=str(writer), AGENTIX_BIND_SOCKET=f"{scratch}/server.sock")
            pid = probe.spawn([program, "--python", f"{self._venv}/bin/python"], env)
            os.close(writer)
            try:
                with os.fdopen(reader, "rb") as signal_end:
                    line = signal_end.readline()
                if not line.startswith(b"ready"):
                    raise ConnectionError(f"the server said {line[:80]!r} instead of ready")
                yield pid
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
                os.waitpid(pid, 0)

    async def close(self) -> None:
        await self._provider.aclose()


class Reference:
    """The command line and the client are those its users have; nothing of its inside is touched."""

    def _start(self) -> tuple[subprocess.Popen[bytes], int]:
        with socket.socket() as finder:
            finder.bind(("127.0.0.1", 0))
            port = finder.getsockname()[1]
        command = [sys.executable, "-m", "uvicorn", "agentix.runtime.server.app:app"]
        command += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
        process = subprocess.Popen(
            command, env=server_env(), cwd=tempfile.gettempdir(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return process, port

    def _healthy(self, process: subprocess.Popen[bytes], port: int) -> bool:
        if process.poll() is not None:
            raise ConnectionError(f"the server ended with status {process.returncode} before it was healthy")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def _ready(self) -> tuple[subprocess.Popen[bytes], int]:
        process, port = self._start()
        try:
            end = time.monotonic() + READY_SECONDS
            while not self._healthy(process, port):
                if time.monotonic() > end:
                    raise TimeoutError("the server was not healthy in time")
                time.sleep(0.002)
        except BaseException:
            stop(process)
            raise
        return process, port

    @contextlib.asynccontextmanager
    async def sandbox(self) -> AsyncIterator[Any]:
        from agentix import RuntimeClient

        process, port = self._start()
        try:
            end = time.monotonic() + READY_SECONDS
            while not self._healthy(process, port):
                if time.monotonic() > end:
                    raise TimeoutError("the server was not healthy in time")
                await asyncio.sleep(0.002)
            async with RuntimeClient(f"http://127.0.0.1:{port}") as client:
                yield client
        finally:
            stop(process)

    @contextlib.contextmanager
    def server(self) -> Iterator[int]:
        process, _ = self._ready()
        try:
            yield process.pid
        finally:
            stop(process)

    async def close(self) -> None:
        pass


async def starts(impl: Implementation, report: probe.Report, effort: probe.Effort) -> None:
    ready: list[float] = []
    first: list[float] = []
    end = time.perf_counter() + effort.create_seconds
    with report.attempt("create_ready_ms", "create_first_ms"):
        while len(first) < effort.creates and (not first or time.perf_counter() < end):
            start = time.perf_counter()
            async with impl.sandbox() as handle:
                ready.append(time.perf_counter() - start)
                assert await handle.remote(bench_target.add, 1, 2) == 3
                first.append(time.perf_counter() - start)
        report.starts(ready, first)


def server_alone(impl: Implementation, report: probe.Report, effort: probe.Effort) -> None:
    taken: list[float] = []
    end = time.perf_counter() + effort.create_seconds
    with report.attempt(*probe.SERVER_KEYS):
        while len(taken) < effort.creates and (not taken or time.perf_counter() < end):
            start = time.perf_counter()
            with impl.server() as pid:
                taken.append(time.perf_counter() - start)
                if len(taken) == 1:
                    probe.settle(pid, report, effort)
        report.rows["server_ready_ms"] = statistics.median(taken) * 1e3


async def within(step: Coroutine[Any, Any, T]) -> T:
    """The step's outcome, or TimeoutError after STEP_SECONDS. Goes around whole loops: around a call it would count."""
    try:
        return await asyncio.wait_for(step, probe.STEP_SECONDS)
    except TimeoutError:
        raise TimeoutError(f"took longer than {probe.STEP_SECONDS} s") from None


async def sequential(call: Callable[[], Awaitable[Any]], effort: probe.Effort) -> list[float]:
    for _ in range(effort.warm_calls):
        await call()
    taken: list[float] = []
    end = time.perf_counter() + effort.call_seconds
    while len(taken) < effort.calls and (len(taken) < 100 or time.perf_counter() < end):
        start = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - start)
    return taken


async def in_flight(call: Callable[[], Awaitable[Any]], width: int, effort: probe.Effort) -> float:
    """Calls per second from `width` tasks, each with one call in flight at all times."""
    done, start = 0, time.perf_counter()

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() - start < effort.flight_seconds:
            await call()
            done += 1

    await asyncio.gather(*(caller() for _ in range(width)))
    return done / (time.perf_counter() - start)


async def small_calls(impl: Implementation, report: probe.Report, effort: probe.Effort) -> None:
    kinds = {"sync": bench_target.add, "async": bench_target.add_async}
    with report.attempt(*probe.call_keys(*kinds), "tree_pss_MiB"):
        async with impl.sandbox() as handle:
            for kind, target in kinds.items():
                call = partial(handle.remote, target, 1, 2)
                with report.attempt(f"{kind}_p50_us", f"{kind}_p99_us"):
                    report.latency(kind, await within(sequential(call, effort)))
                if kind == "sync":
                    report.rows["tree_pss_MiB"] = probe.tree_mib(os.getpid())
                for width in probe.IN_FLIGHT:
                    with report.attempt(f"{kind}_c{width}_calls_s"):
                        rate = await within(in_flight(call, width, effort))
                        report.rows[f"{kind}_c{width}_calls_s"] = rate


async def respawns(impl: Implementation, report: probe.Report, effort: probe.Effort) -> None:
    """From a call that ends its worker to the next result, by a new sandbox if that one does not come back."""
    taken: list[float] = []
    end = time.perf_counter() + effort.create_seconds
    with report.attempt("respawn_ms"):
        while len(taken) < effort.respawns and (not taken or time.perf_counter() < end):
            async with impl.sandbox() as handle:
                await handle.remote(bench_target.add, 1, 2)
                await asyncio.sleep(effort.rest_seconds)
                taken.append(await within(respawn(impl, handle)))
        report.rows["respawn_ms"] = statistics.median(taken) * 1e3


async def respawn(impl: Implementation, handle: Handle) -> float:
    start = time.perf_counter()
    try:
        async with asyncio.timeout(LEAVE_SECONDS):
            await handle.remote(bench_target.leave)
    except TimeoutError:
        raise TimeoutError(f"the call that ended its worker had not failed after {LEAVE_SECONDS:g} s") from None
    except Exception:
        pass
    try:
        assert await handle.remote(bench_target.add, 1, 2) == 3
    except Exception:
        async with impl.sandbox() as other:
            assert await other.remote(bench_target.add, 1, 2) == 3
    return time.perf_counter() - start


async def echo_seconds(handle: Handle, size: str, effort: probe.Effort) -> float:
    await handle.remote(bench_target.add, 1, 2)
    times = probe.EchoTimes(size, effort)
    while times.wanted():
        start = time.perf_counter()
        back = await handle.remote(bench_target.echo, times.blob)
        times.add(time.perf_counter() - start, back)
    return times.seconds()


async def echoes(impl: Implementation, report: probe.Report, effort: probe.Effort) -> None:
    for group in effort.echo_groups:
        with report.attempt(*(f"echo_{size}_MB_s" for size in group)):
            async with impl.sandbox() as handle:
                for size in group:
                    report.bandwidth(size, await within(echo_seconds(handle, size, effort)))


@contextlib.asynccontextmanager
async def noise(handle: Handle, kinds: tuple[str, ...], seconds: float) -> AsyncIterator[None]:
    """Calls that go on until the block ends; a failure of theirs is raised then."""
    over = asyncio.Event()
    blob = os.urandom(probe.BESIDE_ECHO_BYTES) if "echo" in kinds else b""

    async def echo() -> None:
        while not over.is_set():
            await handle.remote(bench_target.echo, blob)

    steps: dict[str, Callable[[], Awaitable[Any]]] = {
        "cpu": lambda: handle.remote(bench_target.spin, seconds),
        "flood": lambda: handle.remote(bench_target.flood, seconds),
        "echo": echo,
    }

    async def run(kind: str) -> None:
        await steps[kind]()

    async with asyncio.TaskGroup() as group:
        for kind in kinds:
            group.create_task(run(kind))
        yield
        over.set()


async def small_beside(handle: Handle, kinds: tuple[str, ...], effort: probe.Effort) -> list[float]:
    for _ in range(effort.warm_calls):
        await handle.remote(bench_target.add, 1, 2)
    taken: list[float] = []
    async with noise(handle, kinds, effort.beside_seconds + 0.1):
        end = time.perf_counter() + effort.beside_seconds
        while (start := time.perf_counter()) < end:
            await handle.remote(bench_target.add, 1, 2)
            taken.append(time.perf_counter() - start)
    return taken


async def beside(impl: Implementation, report: probe.Report, effort: probe.Effort) -> None:
    for kind, noises in probe.BESIDE.items():
        with report.attempt(f"beside_{kind}_p50_us", f"beside_{kind}_p99_us"):
            async with impl.sandbox() as handle:
                report.beside(kind, await within(small_beside(handle, noises, effort)))


class Crowd:
    """Sandboxes that are there at once, each called at least once; each is entered and left by a task of its own."""

    def __init__(self, impl: Implementation, seconds: float) -> None:
        self._impl = impl
        self._end = time.monotonic() + seconds
        self._seconds = seconds
        self._over = asyncio.Event()
        self._gate = asyncio.Semaphore(probe.OPENERS)
        self._tasks: list[asyncio.Task[None]] = []
        self.handles: list[Handle] = []

    async def __aenter__(self) -> Crowd:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        if len(self.handles) < len(self._tasks):
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def grow(self, count: int) -> None:
        arrived = asyncio.Semaphore(0)
        begun = [asyncio.create_task(self._keep(arrived)) for _ in range(count - len(self._tasks))]
        self._tasks += begun
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._end - time.monotonic()):
                for _ in begun:
                    await arrived.acquire()
        for task in begun:
            if task.done() and (error := task.exception()) is not None:
                raise error
        if len(self.handles) < count:
            raise TimeoutError(f"{len(self.handles)} of {count} there after {self._seconds:g} s")

    async def _keep(self, arrived: asyncio.Semaphore) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with self._gate:
                    handle = await stack.enter_async_context(self._impl.sandbox())
                    await handle.remote(bench_target.add, 1, 2)
                self.handles.append(handle)
                arrived.release()
                await self._over.wait()
        except BaseException:
            arrived.release()
            raise


async def shared_rate(handles: list[Handle], effort: probe.Effort) -> float:
    """Calls per second with MANY_IN_FLIGHT of them in flight, spread evenly over the sandboxes."""
    calls = [partial(handle.remote, bench_target.add, 1, 2) for handle in handles]
    done, start = 0, time.perf_counter()

    async def caller(call: Callable[[], Awaitable[Any]]) -> None:
        nonlocal done
        while time.perf_counter() - start < effort.flight_seconds:
            await call()
            done += 1

    await asyncio.gather(*(caller(calls[i % len(calls)]) for i in range(probe.MANY_IN_FLIGHT)))
    return done / (time.perf_counter() - start)


async def many(impl: Implementation, report: probe.Report, effort: probe.Effort) -> None:
    few = 0.0
    with report.attempt(*probe.MANY_KEYS):
        async with Crowd(impl, effort.many_seconds) as crowd:
            for count in probe.MANY:
                await crowd.grow(count)
                if count == probe.MANY[-1]:
                    report.rows["many_client_kB"] = (probe.private_kb() - few) / (count - probe.MANY[-2])
                report.rows[f"many_{count}_calls_s"] = await within(shared_rate(crowd.handles, effort))
                few = probe.private_kb()


async def measure(impl: Implementation, report: probe.Report, effort: probe.Effort) -> None:
    await starts(impl, report, effort)
    server_alone(impl, report, effort)
    await small_calls(impl, report, effort)
    await echoes(impl, report, effort)
    if not effort.light:
        await respawns(impl, report, effort)
        await beside(impl, report, effort)
        await many(impl, report, effort)
    await impl.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the agentix that this interpreter imports; prints JSON.")
    parser.add_argument("which", choices=("ours", "reference"))
    parser.add_argument("--quick", action="store_true", help="short loops")
    parser.add_argument("--light", action="store_true", help="leave out what takes longest")
    parser.add_argument("--venv", help="virtual environment of the worker (ours)")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)  # a busy host's log lines are not what is measured
    report, effort = probe.Report("agentix" if args.which == "ours" else "agentixx"), probe.Effort(sys.argv)
    impl: Implementation = Ours(args.venv) if args.which == "ours" else Reference()
    asyncio.run(measure(impl, report, effort))
    report.print()


if __name__ == "__main__":
    main()
