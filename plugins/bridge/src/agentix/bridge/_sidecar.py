"""A service on the host that lives as long as a block."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import socket
from collections.abc import Callable, Mapping
from typing import cast

import aiohttp

from ._http import new_session

Command = list[str] | Callable[..., list[str]]

_TAIL = 4096
_TRIES = 3
_GRACE = 5.0


class SidecarError(RuntimeError):
    """A sidecar that ended before it was ready, or was not ready in time."""


class _PortTaken(SidecarError):
    pass


class Sidecar:
    """Starts a command and waits until `GET health_path` is answered with 2xx; the value of the block is its URL.

    In a command that is a list `{host}`, `{port}` and `{url}` are replaced, in values of `env` too; a command that is
    callable gets them by name, or host and port in this order. `env` is added to this process's variables. Port 0 is a
    free one, chosen on entry, and another if somebody else was faster (3 tries); any other port is kept.

    At the end of the block the command's processes are asked to end (SIGTERM), and killed after 5 s.

    Raises SidecarError if the command ends early (`code=N` and the last 4096 bytes of its stderr) or is not ready
    within `ready_timeout` seconds; OSError if it cannot be started.
    """

    def __init__(
        self,
        *,
        command: Command,
        host: str = "127.0.0.1",
        port: int = 0,
        health_path: str = "/healthz",
        env: Mapping[str, str] | Callable[[str, int], Mapping[str, str]] | None = None,
        ready_timeout: float = 30,
        poll_interval: float = 0.1,
    ) -> None:
        self._command = command
        self._host = host
        self._fixed_port = port
        self._port = port
        self._health_path = "/" + health_path.lstrip("/")
        self._env = env
        self._ready_timeout = ready_timeout
        self._poll_interval = poll_interval
        self._running: _Running | None = None

    @property
    def url(self) -> str:
        """The address; its port is 0 until a free one is chosen on entry."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def __aenter__(self) -> str:
        if self._running is not None:
            raise RuntimeError("this sidecar is running; make another one")
        for attempt in range(1, _TRIES + 1):
            if self._fixed_port == 0:
                self._port = _free_port(self._host)
            try:
                self._running = await self._start()
                return self.url
            except _PortTaken as failure:
                if self._fixed_port != 0 or attempt == _TRIES:
                    raise SidecarError(str(failure)) from None
        raise AssertionError("unreachable")

    async def __aexit__(self, *exc: object) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.stop()
        if self._fixed_port == 0:
            self._port = 0

    async def _start(self) -> _Running:
        process = await asyncio.create_subprocess_exec(
            *self._argv(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self._environment()},
            start_new_session=True,
        )
        running = _Running(process)
        try:
            await self._ready(running)
        except BaseException:
            await asyncio.shield(running.stop())
            raise
        return running

    async def _ready(self, running: _Running) -> None:
        session = new_session()
        try:
            async with asyncio.timeout(self._ready_timeout):
                while not await self._healthy(session):
                    if running.process.returncode is not None:
                        raise await running.early_exit()
                    await asyncio.sleep(self._poll_interval)
            if running.process.returncode is not None:  # whoever answered, it was not ours
                raise await running.early_exit()
        except TimeoutError:
            said = running.tail.text()
            raise SidecarError(f"not ready within {self._ready_timeout:g} s at {self.url}{said}") from None
        finally:
            await session.close()

    async def _healthy(self, session: aiohttp.ClientSession) -> bool:
        timeout = aiohttp.ClientTimeout(total=max(self._poll_interval * 10, 2))
        try:
            async with session.get(self.url + self._health_path, timeout=timeout, allow_redirects=False) as response:
                return 200 <= response.status < 300
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    def _argv(self) -> list[str]:
        if callable(self._command):
            return [str(part) for part in self._called(self._command)]
        return [self._filled(part) for part in self._command]

    def _called(self, command: Callable[..., list[str]]) -> list[str]:
        known = {"host": self._host, "port": self._port, "url": self.url}
        parameters = inspect.signature(command).parameters
        kinds = {parameter.kind for parameter in parameters.values()}
        if parameters.keys() <= known.keys() and inspect.Parameter.POSITIONAL_ONLY not in kinds:
            return command(**{name: known[name] for name in parameters})
        if inspect.Parameter.VAR_KEYWORD in kinds:
            return command(**known)
        return command(*([self._port] if len(parameters) == 1 else [self._host, self._port]))

    def _environment(self) -> dict[str, str]:
        if self._env is None:
            return {}
        given = self._env(self._host, self._port) if callable(self._env) else self._env
        return {name: self._filled(value) for name, value in given.items()}

    def _filled(self, text: str) -> str:
        text = text.replace("{host}", self._host).replace("{port}", str(self._port))
        return text.replace("{url}", self.url)


class _Tail:
    """The last bytes of an output, and whether there were more."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._cut = False

    def take(self, piece: bytes) -> None:
        self._kept += piece
        if len(self._kept) > _TAIL:
            del self._kept[: len(self._kept) - _TAIL]
            self._cut = True

    def text(self) -> str:
        if not self._kept:
            return ""
        note = f" (truncated to its last {_TAIL} bytes)" if self._cut else ""
        return f"; stderr{note}:\n{self._kept.decode(errors='replace')}"

    def says_port_taken(self) -> bool:
        text = self._kept.decode(errors="replace").lower()
        return "address already in use" in text or "eaddrinuse" in text


class _Running:
    """A started command, its output read for as long as it lives."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.tail = _Tail()
        self._drains = [
            asyncio.create_task(_drain(process.stdout, None)),
            asyncio.create_task(_drain(process.stderr, self.tail)),
        ]

    async def early_exit(self) -> SidecarError:
        await asyncio.wait(self._drains, timeout=1)  # a child that keeps the pipe open is not waited for
        error = _PortTaken if self.tail.says_port_taken() else SidecarError
        return error(f"the sidecar ended before it was ready: code={self.process.returncode}{self.tail.text()}")

    async def stop(self) -> None:
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_GRACE):
                await self.process.wait()
        except TimeoutError:
            pass
        finally:
            self._signal(signal.SIGKILL)  # what is left of its group, too
            await self.process.wait()
            for drain in self._drains:
                drain.cancel()
            await asyncio.gather(*self._drains, return_exceptions=True)
            self.process._transport.close()  # type: ignore[attr-defined]  # its pipes, which a grandchild may hold open

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


async def _drain(stream: asyncio.StreamReader | None, tail: _Tail | None) -> None:
    while stream is not None and (piece := await stream.read(65536)):
        if tail is not None:
            tail.take(piece)


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return cast("int", probe.getsockname()[1])
