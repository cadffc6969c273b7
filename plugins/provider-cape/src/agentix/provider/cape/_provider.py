"""The backend's class: it keeps the sandboxes of this process and leaves the decisions to the brains in C."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import secrets
import threading
from pathlib import Path
from typing import Any

from agentix import _core
from agentix.provider import _checks
from agentix.provider import _places as shared
from agentix.provider._drive import Driver, remove_tree
from agentix.provider._lease import keep_lease
from agentix.provider.base import Sandbox, SandboxConfig, SandboxId, SandboxProvider, SandboxResource

from ._config import PORTS, CapeProviderConfig

ID_PATTERN = re.compile(r"cape-[0-9a-f]{12}")
_TIMES_OUT = re.compile(r"(no AGENTIX_ENDPOINT marker|its endpoint was not healthy) after [0-9.]+ s$")

_log = logging.getLogger("agentix.provider")


class _Live:
    """A sandbox that this provider started, in this process or in the one that it was forked from."""

    def __init__(self, driver: Driver, facts: dict[str, Any], meta: Path | None, port: int) -> None:
        self.driver = driver
        self.facts = facts
        self.meta = meta
        self.port = port
        self.process = os.getpid()


class CapeProvider(SandboxProvider):
    """Runs each sandbox as one request to a CAPE pool; its nodes see the bundle's directory already."""

    def __init__(self, config: CapeProviderConfig | None = None) -> None:
        self._config = config if config is not None else CapeProviderConfig()
        _checks.instance("config", self._config, CapeProviderConfig)
        self._config.validate()
        self._controller = self._config.controller()
        self._pool = self._config.pool_name()
        self._config.token()
        self._live: dict[str, _Live] = {}
        self._swept = False

    async def create(self, config: SandboxConfig) -> Sandbox:
        """Submit a request and return its sandbox when its runtime has proved to be there.

        TimeoutError if the request names no endpoint in time or nobody answers there, RuntimeError for all else that
        goes wrong, with the workload's output. The request is cancelled then, and after a cancellation too.
        """
        cpu, memory = self._amounts(config.resource)
        config.validate()
        program, token = self._config.program(), self._config.token()
        await self._sweep_once()
        directory = _make_sandbox()
        port, meta = 0, None
        try:
            try:
                port = _ports.take(self._config.runtime_port_base)
                meta = self._make_meta(directory.name)
                brain = self._brain(program, token, directory, meta, port, config, cpu, memory)
            except BaseException:
                remove_tree(directory)
                raise
            driver = Driver(brain)
            try:
                wish = await driver.drive()
            except asyncio.CancelledError:
                _tell_of_left(directory.name, driver, token)
                raise
            if wish["kind"] != "done":
                raise _failure(_safe(wish["message"], token))
            facts = {"url": wish["url"], "request": wish["path"], "lease": self._config.lease}
            facts["controller"] = self._controller
            try:
                shared.describe(directory, **facts)
                facts["token"] = (directory / "token").read_text().strip()
            except BaseException:
                await driver.end()
                raise
        except BaseException:
            _ports.give_back(port)
            _remove_meta(meta)
            raise
        self._live[directory.name] = _Live(driver, facts, meta, port)
        return self._handle(directory.name, facts, "running")

    async def delete(self, sandbox_id: SandboxId) -> None:
        """Cancel a sandbox's request; an unknown id is passed over.

        If the pool does not take the cancellation, a warning says so, everything stays, and it can be tried again.
        """
        _checks.sandbox_id(sandbox_id)
        live = self._live.pop(sandbox_id, None)
        if live is not None and live.process == os.getpid():
            try:
                await live.driver.end()
            finally:
                self._note_end(sandbox_id, live)
            return
        facts = await asyncio.to_thread(_find, sandbox_id)
        if facts is not None:
            await self._delete_foreign(sandbox_id, facts)

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Give a handle of a sandbox, of another process of this user too; its `status` is "running" or "exited".

        KeyError if there is none.
        """
        _checks.sandbox_id(sandbox_id)
        facts = await asyncio.to_thread(_find, sandbox_id)
        if facts is None:
            raise KeyError(f"Sandbox not found: {sandbox_id}")
        wish = await self._command("status", facts)
        if wish["kind"] == "failed":
            raise RuntimeError(_safe(wish["message"], self._config.token()))
        if wish["kind"] == "gone":
            raise KeyError(f"Sandbox not found: {sandbox_id}; the pool does not know its request any more")
        return self._handle(sandbox_id, facts, wish["message"])

    def _note_end(self, sandbox_id: str, live: _Live) -> None:
        """After an attempt to end it, which may have been in vain."""
        last = live.driver.last
        if last is not None and last["kind"] == "done" and (shared.base() / sandbox_id).exists():
            self._live[sandbox_id] = live
            _warn(sandbox_id, _safe(last["message"], self._config.token()))
            return
        _ports.give_back(live.port)
        _remove_meta(live.meta)

    async def _delete_foreign(self, sandbox_id: str, facts: dict[str, Any]) -> None:
        if await self._ask("cancel", sandbox_id, facts):
            await asyncio.to_thread(self._remove, sandbox_id)

    def _remove(self, sandbox_id: str) -> None:
        if self._config.meta_root is not None:
            _remove_meta(_meta_of(self._config.meta_root, sandbox_id))
        remove_tree(shared.base() / sandbox_id)

    # ---- creating ----

    def _brain(
        self,
        program: str,
        token: str,
        directory: Path,
        meta: Path | None,
        port: int,
        config: SandboxConfig,
        cpu: int | None,
        memory: int | None,
    ) -> _core.Brain:
        settings = self._config
        resource = config.resource or SandboxResource()
        return _core.cape_sandbox(
            binary=program,
            host_env=_environ(token, settings.token_env),
            id=directory.name,
            dir=directory,
            token=(directory / "token").read_text(),
            controller_url=self._controller,
            pool=self._pool,
            user=settings.user_name(),
            image=config.image,
            gpus=str(resource.gpu or 0),
            cpu_cores=None if cpu is None else str(cpu),
            memory_gb=None if memory is None else str(memory),
            isolation_policy=settings.isolation_policy,
            runtime_adapter=settings.runtime_adapter,
            max_duration=str(settings.max_duration_seconds),
            bundle=config.bundle,
            extra_binds=settings.extra_binds,
            workspace_root=settings.workspace_root.rstrip("/"),
            url_template=settings.url_template,
            port=str(port),
            meta=meta,
            config_env=[f"{name}={value}" for name, value in (config.env or {}).items()],
            lease=settings.lease or 0.0,
            ready=settings.health_timeout,
            failure_limit=settings.transient_failure_limit,
        )

    def _amounts(self, resource: SandboxResource | None) -> tuple[int | None, int | None]:
        """Return cores and GiB, both rounded up."""
        resource = resource or SandboxResource()
        try:
            size = resource.memory_bytes()
        except (TypeError, ValueError) as error:
            raise RuntimeError(f"cannot map memory {resource.memory!r} to GiB: {error}") from None
        cpu = self._config.cpu_cores if resource.cpu is None else max(math.ceil(resource.cpu), 1)
        memory = self._config.memory_gb if size is None else math.ceil(size / (1 << 30))
        return cpu, memory

    def _make_meta(self, name: str) -> Path | None:
        if self._config.meta_root is None:
            return None
        path = _meta_of(self._config.meta_root, name)
        path.mkdir(mode=0o700)
        return path

    async def _sweep_once(self) -> None:
        """Cancel what killed processes left, before the first sandbox."""
        if self._swept:
            return
        self._swept = True
        for path in await asyncio.to_thread(_left):
            facts = _find(path.name) or _submitted(path)
            if facts is None:
                await asyncio.to_thread(self._remove, path.name)
            elif facts["controller"] == self._controller:
                await self._delete_foreign(path.name, facts)

    # ---- requests of other processes ----

    async def _ask(self, what: str, sandbox_id: str, facts: dict[str, Any]) -> bool:
        wish = await self._command(what, facts)
        if wish["kind"] == "failed":
            _warn(sandbox_id, _safe(wish["message"], self._config.token()))
        return wish["kind"] != "failed"

    async def _command(self, what: str, facts: dict[str, Any]) -> _core.Wish:
        token = self._config.token()
        brain = _core.cape_command(
            what=what,
            binary=self._config.program(),
            host_env=_environ(token, self._config.token_env),
            controller_url=facts["controller"],
            request=facts["request"],
        )
        return await Driver(brain).drive()

    def _handle(self, sandbox_id: str, facts: dict[str, Any], status: str) -> Sandbox:
        sandbox = Sandbox(
            sandbox_id=SandboxId(sandbox_id), runtime_url=facts["url"], status=status, token=facts["token"]
        )
        return keep_lease(sandbox, facts["lease"] if status == "running" else None)


# ---- places ----


def _make_sandbox() -> Path:
    path = shared.make(shared.base(), f"cape-{secrets.token_hex(6)}")
    try:
        shared.write_token(path / "token")
    except BaseException:
        remove_tree(path)
        raise
    return path


def _find(sandbox_id: str) -> dict[str, Any] | None:
    return shared.facts_of(shared.base() / sandbox_id) if ID_PATTERN.fullmatch(sandbox_id) else None


def _submitted(path: Path) -> dict[str, Any] | None:
    """Return the request of a sandbox that was never finished, if its maker lived to hear of it."""
    try:
        controller, request = (path / "request").read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return {"controller": controller, "request": request}


def _left() -> list[Path]:
    shared.sweep_locks()
    return [path for path in shared.base().iterdir() if ID_PATTERN.fullmatch(path.name) and shared.is_left(path)]


def _meta_of(root: str, name: str) -> Path:
    return Path(root).expanduser() / name


def _remove_meta(meta: Path | None) -> None:
    if meta is not None:
        remove_tree(meta)


class _Ports:
    """The ports of the live sandboxes of this process."""

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._lock = threading.Lock()

    def take(self, base: int) -> int:
        with self._lock:
            for port in range(base, PORTS.stop):
                if port not in self._taken:
                    self._taken.add(port)
                    return port
        raise RuntimeError(f"no port from {base} on is free for another sandbox")

    def give_back(self, port: int) -> None:
        with self._lock:
            self._taken.discard(port)


_ports = _Ports()


# ---- words ----


def _environ(token: str, name: str) -> list[str]:
    """The program's environment: this process's, with the token where it looks for it and nowhere else."""
    env = {key: value for key, value in os.environ.items() if key not in ("CAPE_TOKEN_FILE", name)}
    return [f"{key}={value}" for key, value in {**env, "CAPE_TOKEN": token}.items()]


def _safe(message: str, token: str) -> str:
    return message.replace(token, "<redacted>")


def _failure(message: str) -> Exception:
    return TimeoutError(message) if _TIMES_OUT.search(message.partition("\n")[0]) else RuntimeError(message)


def _tell_of_left(sandbox_id: str, driver: Driver, token: str) -> None:
    """Who cancels does not get to see why the cancellation of a request did not succeed."""
    if driver.last is not None and "did not succeed" in (driver.last.get("message") or ""):
        _log.warning("sandbox %s may be left behind: %s", sandbox_id, _safe(driver.last["message"], token))


def _warn(sandbox_id: str, message: str) -> None:
    _log.warning("sandbox %s was not deleted; try again: %s", sandbox_id, message)
