"""The backend's class: keeps the sandboxes of this process, leaves the decisions to the brains in C."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sysconfig
import weakref
from pathlib import Path
from typing import Any

from agentix import _core
from agentix.provider._drive import Driver
from agentix.provider.base import Sandbox, SandboxConfig, SandboxId, SandboxProvider

from . import _own, _places
from ._config import UvProviderConfig


class _Live:
    """A sandbox that this provider started."""

    def __init__(self, driver: Driver, url: str, token: str) -> None:
        self.driver = driver
        self.url = url
        self.token = token


class UvProvider(SandboxProvider):
    """Runs sandboxes as processes of this machine, in a virtual environment: no isolation, the fastest way to run.

    The environment is made once, by the first `create`. `image`, `bundle`, `platform` and `resource` of a
    `SandboxConfig` have no meaning here and are passed over; its `env` is merged over a scrubbed environment. Without a config the
    project in the current directory is installed.
    """

    def __init__(self, config: UvProviderConfig | None = None) -> None:
        self._config = config if config is not None else UvProviderConfig(project=".")
        self._runtime = _find_runtime()
        self._live: dict[str, _Live] = {}
        self._environment = _Environment(self._config)
        self._swept = False

    async def create(self, config: SandboxConfig) -> Sandbox:
        """Start a sandbox. RuntimeError says which step failed, with the last output of what failed."""
        config.validate()
        if not self._swept:
            self._swept = True
            await asyncio.to_thread(_places.sweep)
        python = await self._environment.python()
        sandbox_id = _places.new_sandbox_id()
        directory = _places.make_sandbox_dir(sandbox_id)
        driver = Driver(self._brain(directory, python, config))
        try:
            wish = await driver.drive()
            if wish["kind"] != "done":
                raise RuntimeError(wish["message"])
            token = (directory / "token").read_text()
            assert driver.child is not None
            _places.describe(directory, url=wish["url"], pid=driver.child.pid)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self._live[sandbox_id] = _Live(driver, wish["url"], token)
        return self._handle(sandbox_id, wish["url"], token)

    async def delete(self, sandbox_id: SandboxId) -> None:
        """End a sandbox and remove its directory; an unknown id is passed over."""
        live = self._live.pop(sandbox_id, None)
        if live is not None:
            await live.driver.end()
            return
        facts = await asyncio.to_thread(_places.find, sandbox_id)
        if facts is not None:
            await asyncio.to_thread(_end_foreign, facts["pid"], _places.base() / sandbox_id)

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Give a handle of a running sandbox, of another process of this user too. KeyError if there is none."""
        live = self._live.get(sandbox_id)
        if live is not None and live.driver.alive():
            return self._handle(sandbox_id, live.url, live.token)
        facts = await asyncio.to_thread(_places.find, sandbox_id)
        if facts is None:
            raise KeyError(f"no sandbox {sandbox_id!r} runs here; it may have ended or been deleted")
        return self._handle(sandbox_id, facts["url"], facts["token"])

    async def aclose(self) -> None:
        """Delete this provider's sandboxes and the environment it made."""
        for sandbox_id in list(self._live):
            await self.delete(SandboxId(sandbox_id))
        await self._environment.remove()

    async def __aenter__(self) -> UvProvider:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def _brain(self, directory: Path, python: str, config: SandboxConfig) -> Any:
        socket = str(directory / "s")
        return _core.uv_sandbox(
            runtime=self._runtime,
            python=python,
            dir=directory,
            cwd=directory / "work",
            token_file=directory / "token",
            socket=socket if len(os.fsencode(socket)) <= _places.SOCKET_PATH_MAX else None,
            host=self._config.host,
            ready=self._config.health_timeout,
            lease=self._config.lease or 0.0,
            host_env=_environ(),
            config_env=[f"{name}={value}" for name, value in (config.env or {}).items()],
        )

    @staticmethod
    def _handle(sandbox_id: str, url: str, token: str) -> Sandbox:
        return Sandbox(sandbox_id=SandboxId(sandbox_id), runtime_url=url, token=token)


class _Environment:
    """The provider's virtual environment: a given one, or one made by the first who asks, once."""

    def __init__(self, config: UvProviderConfig) -> None:
        self._config = config
        self._made: Path | None = None
        self._making: asyncio.Task[Path] | None = None
        self._askers = 0
        self._lock = -1
        self._finalizer: weakref.finalize[Any, Any] | None = None

    async def python(self) -> str:
        """Return the interpreter. Making it is shared by all who wait, and given up when the last of them is cancelled."""
        if self._config.reuse_venv is not None:
            return os.path.abspath(os.path.join(self._config.reuse_venv, "bin", "python"))
        if self._made is None:
            if self._making is None or self._making.get_loop() is not asyncio.get_running_loop():
                self._making = asyncio.ensure_future(self._make())
            making = self._making
            self._askers += 1
            try:
                self._made = await asyncio.shield(making)
            except asyncio.CancelledError:
                if self._askers == 1 and not making.done():
                    making.cancel()
                    await asyncio.wait([making])
                raise
            finally:
                self._askers -= 1
                if making.done():
                    self._making = None
        return str(self._made / "venv" / "bin" / "python")

    async def _make(self) -> Path:
        place = _places.base() / f"venv-{os.urandom(6).hex()}"
        place.mkdir(mode=0o700)
        self._lock = _places.lock(place / "lock")
        try:
            _places.write_private(place / "constraints.txt", _own.constraints())
            wish = await Driver(self._brain(place), copy=_own.copy_into).drive()
            if wish["kind"] != "done":
                raise RuntimeError(wish["message"])
        except BaseException:
            _remove(place, self._lock)
            raise
        self._finalizer = weakref.finalize(self, _remove, place, self._lock)
        return place

    def _brain(self, place: Path) -> Any:
        config = self._config
        return _core.uv_venv(
            uv=config.uv_bin if os.path.dirname(config.uv_bin) else _find_uv(config.uv_bin),
            venv=place / "venv",
            python=config.python,
            project=os.path.abspath(config.project) if config.project is not None else None,
            install=config.install,
            index_url=config.index_url,
            extra_index_url=config.extra_index_url,
            constraints=place / "constraints.txt",
            own=[dist.name for dist in _own.own_distributions()],
            env=_environ(),
        )

    async def remove(self) -> None:
        """Remove the environment, if this provider made one."""
        finalizer, self._finalizer, self._made = self._finalizer, None, None
        if finalizer is not None:
            await asyncio.to_thread(finalizer)


def _environ() -> list[str]:
    return [f"{name}={value}" for name, value in os.environ.items()]


def _remove(place: Path, lock: int) -> None:
    shutil.rmtree(place, ignore_errors=True)
    os.close(lock)


def _find_runtime() -> str:
    """Find `agentix-runtime` where this installation put its scripts, else on PATH."""
    beside = os.path.join(sysconfig.get_path("scripts"), "agentix-runtime")
    found = beside if os.access(beside, os.X_OK) else shutil.which("agentix-runtime")
    if found is None:
        raise RuntimeError("agentix-runtime was not found beside this interpreter or on PATH; reinstall agentix")
    return found


def _find_uv(name: str) -> str:
    """Find uv beside this interpreter, where its wheel puts it, else on PATH."""
    beside = os.path.join(sysconfig.get_path("scripts"), name)
    found = beside if os.access(beside, os.X_OK) else shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name!r} was not found beside this interpreter or on PATH; install uv, or set uv_bin=")
    return found


def _end_foreign(pid: int, directory: Path) -> None:
    """End a sandbox that another process of this user started."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not _is_server_of(pid, directory):
            return
        for number, seconds in ((signal.SIGTERM, 7.0), (signal.SIGKILL, 5.0)):
            signal.pidfd_send_signal(pidfd, number)
            if _ended(pidfd, seconds):
                break
    finally:
        os.close(pidfd)
    shutil.rmtree(directory, ignore_errors=True)


def _is_server_of(pid: int, directory: Path) -> bool:
    """A recorded pid may have been given to another process since: its command line must name the directory."""
    try:
        return os.fsencode(directory) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _ended(pidfd: int, seconds: float) -> bool:
    import select

    return bool(select.select([pidfd], [], [], seconds)[0])
