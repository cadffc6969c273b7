"""The backend's class: keeps the sandboxes of this process, leaves the decisions to the brains in C."""

from __future__ import annotations

import asyncio
import os
import shutil
import sysconfig
from pathlib import Path

from agentix import _core
from agentix.provider._drive import Driver, remove_tree
from agentix.provider._foreign import end_foreign
from agentix.provider._lease import keep_lease
from agentix.provider.base import Sandbox, SandboxConfig, SandboxId, SandboxProvider

from . import _places
from ._config import UvProviderConfig
from ._environment import Environment, host_environ


class _Live:
    """A sandbox that this provider started, in this process or in the one that it was forked from."""

    def __init__(self, driver: Driver, url: str, token: str) -> None:
        self.driver = driver
        self.url = url
        self.token = token
        self.process = os.getpid()


class UvProvider(SandboxProvider):
    """Runs sandboxes as processes of this machine, in a virtual environment: no isolation, the fastest way to run.

    The environment is made once, by the first `create`. `image`, `bundle`, `platform` and `resource` of a
    `SandboxConfig` have no meaning here and are passed over; its `env` is merged over a scrubbed environment. Without
    a config the project in the current directory is installed.
    """

    takes_bundle = False
    """The pytest plugin need not build one."""

    def __init__(self, config: UvProviderConfig | None = None) -> None:
        self._config = config if config is not None else UvProviderConfig(project=".")
        self._runtime = _find_runtime()
        self._live: dict[str, _Live] = {}
        self._environment = Environment(self._config)
        self._swept = False

    async def create(self, config: SandboxConfig) -> Sandbox:
        """Start a sandbox. RuntimeError says which step failed, with the last output of what failed."""
        config.validate()
        self._watch()
        if not self._swept:
            self._swept = True
            await asyncio.to_thread(_places.sweep)
        python = await self._environment.python()
        directory = _places.make_sandbox()
        try:
            live = await self._start(directory, python, config)
        except BaseException:
            remove_tree(directory)
            raise
        self._live[directory.name] = live
        return _handle(directory.name, live.url, live.token, self._config.lease)

    async def delete(self, sandbox_id: SandboxId) -> None:
        """End a sandbox and remove its directory; an unknown id is passed over."""
        self._watch()
        live = self._live.pop(sandbox_id, None)
        if live is not None and live.process == os.getpid():
            await live.driver.end()
            return
        facts = await asyncio.to_thread(_places.find, sandbox_id)
        if facts is not None:
            directory = _places.base() / sandbox_id
            await asyncio.to_thread(end_foreign, facts["pid"], directory, lambda pid: _is_server_of(pid, directory))

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Give a handle of a running sandbox, of another process of this user too. KeyError if there is none."""
        self._watch()
        live = self._live.get(sandbox_id)
        if live is not None and live.driver.alive():
            return _handle(sandbox_id, live.url, live.token, self._config.lease)
        facts = await asyncio.to_thread(_places.find, sandbox_id)
        if facts is None:
            raise KeyError(f"no sandbox {sandbox_id!r} runs here; it may have ended or been deleted")
        return _handle(sandbox_id, facts["url"], facts["token"], facts["lease"])

    async def aclose(self) -> None:
        """Delete this provider's sandboxes and the environment it made."""
        own = [SandboxId(name) for name, live in self._live.items() if live.process == os.getpid()]
        outcomes = await asyncio.gather(*map(self.delete, own), return_exceptions=True)
        await self._environment.remove()
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def __aenter__(self) -> UvProvider:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def _watch(self) -> None:
        """Let the running loop drain the output of all sandboxes: the one that did may be closed by now."""
        for live in self._live.values():
            if live.process == os.getpid():
                live.driver.watch()

    async def _start(self, directory: Path, python: str, config: SandboxConfig) -> _Live:
        driver = Driver(self._brain(directory, python, config))
        wish = await driver.drive()
        if wish["kind"] != "done":
            raise RuntimeError(wish["message"])
        assert driver.child is not None
        try:
            _places.describe(directory, url=wish["url"], pid=driver.child.pid, lease=self._config.lease)
            return _Live(driver, wish["url"], (directory / "token").read_text())
        except BaseException:
            await driver.end()
            raise

    def _brain(self, directory: Path, python: str, config: SandboxConfig) -> _core.Brain:
        socket = str(directory / "socket")
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
            host_env=host_environ(),
            config_env=[f"{name}={value}" for name, value in (config.env or {}).items()],
        )


def _handle(sandbox_id: str, url: str, token: str, lease: float | None) -> Sandbox:
    return keep_lease(Sandbox(sandbox_id=SandboxId(sandbox_id), runtime_url=url, token=token), lease)


def _is_server_of(pid: int, directory: Path) -> bool:
    """A recorded pid may have been given to another process since: its command line must name the directory."""
    try:
        return os.fsencode(directory) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _find_runtime() -> str:
    """Find `agentix-runtime` where this installation put its scripts, else on PATH."""
    beside = os.path.join(sysconfig.get_path("scripts"), "agentix-runtime")
    found = beside if os.access(beside, os.X_OK) else shutil.which("agentix-runtime")
    if found is None:
        raise RuntimeError("agentix-runtime was not found beside this interpreter or on PATH; reinstall agentix")
    return found
