"""The backend's class: it keeps the sandboxes of this process and leaves the decisions to the brains in C."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path
from typing import Any

from agentix import _core
from agentix.provider import _bundles, _checks, _places
from agentix.provider._drive import Driver, remove_tree
from agentix.provider._foreign import end_foreign
from agentix.provider._lease import keep_lease
from agentix.provider.base import DeployedBundle, Sandbox, SandboxConfig, SandboxId, SandboxProvider, SandboxResource

from . import _images
from ._config import ApptainerProviderConfig

ID_PATTERN = re.compile(r"apptainer-[0-9a-f]{12}")


class _Live:
    """A sandbox that this provider started, in this process or in the one that it was forked from."""

    def __init__(self, driver: Driver, url: str, token: str, port: int | None) -> None:
        self.driver = driver
        self.url = url
        self.token = token
        self.port = port
        self.process = os.getpid()


class ApptainerProvider(SandboxProvider):
    """Runs each sandbox by `apptainer exec`, with the bundle mounted read-only at `/nix`: no daemon, no root.

    The network is the host's; the runtime listens on a Unix socket in a directory of this user alone, or on loopback
    where its path would be too long; calls need the sandbox's token in both cases.
    """

    def __init__(self, config: ApptainerProviderConfig | None = None) -> None:
        self._config = config if config is not None else ApptainerProviderConfig()
        _checks.instance("config", self._config, ApptainerProviderConfig)
        self._config.validate()
        self._live: dict[str, _Live] = {}
        self._swept = False

    async def create(self, config: SandboxConfig) -> Sandbox:
        """Start a sandbox and return it when its runtime has proved to be there.

        RuntimeError says which step failed, with the program's last output; nothing is left behind then, nor after a
        cancellation.
        """
        config.validate()
        self._watch()
        binary = self._binary()
        nix = await _bundles.locate(config.bundle, "apptainer", self._bundle_cache())
        image = await _images.locate(config.image, config.platform, self._image_cache(), binary, _host_environ())
        if not self._swept:
            self._swept = True
            await asyncio.to_thread(_sweep)
            await asyncio.to_thread(_images.sweep, self._image_cache())
        sandbox_id, live = await self._create(binary, nix, image, config)
        self._live[sandbox_id] = live
        return _handle(sandbox_id, live.url, live.token, self._config.lease)

    async def delete(self, sandbox_id: SandboxId) -> None:
        """End a sandbox and remove its directory; an unknown id is passed over."""
        _checks.sandbox_id(sandbox_id)
        self._watch()
        live = self._live.pop(sandbox_id, None)
        if live is not None and live.process == os.getpid():
            try:
                await live.driver.end()
            finally:
                _give_back(live.port)
            return
        facts = await asyncio.to_thread(_facts_of, sandbox_id)
        if facts is not None:
            await asyncio.to_thread(_end, _places.base() / sandbox_id, facts)

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Give a handle of a running sandbox, of another process of this user too. KeyError if there is none."""
        _checks.sandbox_id(sandbox_id)
        self._watch()
        facts = await asyncio.to_thread(_facts_of, sandbox_id)
        if facts is None or not _places.is_host_alive(facts["process"]):
            raise KeyError(f"no sandbox {sandbox_id!r} runs here; it may have ended or been deleted")
        return _handle(sandbox_id, facts["url"], facts["token"], facts["lease"])

    async def deploy_bundle(
        self, bundle: Path, *, name: str | None = None, platform: str | None = None
    ) -> DeployedBundle:
        """Bring a bundle's tar into the cache, under the digest of its content; RuntimeError says why it cannot be."""
        return await _bundles.deploy(Path(bundle), "apptainer", self._bundle_cache(), name=name, platform=platform)

    # ---- creating ----

    async def _create(self, binary: str, nix: Path, image: Path, config: SandboxConfig) -> tuple[str, _Live]:
        directory = _places.make_container_sandbox("apptainer-", 6, with_socket=True)
        port: int | None = None
        try:
            try:
                if len(os.fsencode(directory / "socket" / "s")) > _places.SOCKET_PATH_MAX:
                    (port,) = _places.ports.take("127.0.0.1", 1)
                brain = self._brain(binary, nix, image, directory, port, config)
                driver = Driver(brain, lambda pid: _places.write_new(directory / "process", _places.process_label(pid)))
            except BaseException:
                remove_tree(directory)
                raise
            wish = await driver.drive()  # which removes the directory if it fails
            if wish["kind"] != "done":
                raise RuntimeError(wish["message"])
            return directory.name, await self._settle_in(driver, directory, wish["url"], port)
        except BaseException:
            _give_back(port)
            raise

    async def _settle_in(self, driver: Driver, directory: Path, url: str, port: int | None) -> _Live:
        """Leave what other processes need to find the sandbox; its environment need not lie there any more."""
        assert driver.child is not None
        try:
            process = _places.process_label(driver.child.pid)
            _places.describe(directory, url=url, process=process, lease=self._config.lease)
            (directory / "environ").write_bytes(b"")
            return _Live(driver, url, (directory / "token").read_text(), port)
        except BaseException:
            await driver.end()
            raise

    def _brain(
        self, binary: str, nix: Path, image: Path, directory: Path, port: int | None, config: SandboxConfig
    ) -> _core.Brain:
        resource = config.resource or SandboxResource()
        memory = resource.memory_bytes()
        return _core.apptainer_sandbox(
            binary=binary,
            host_env=_host_environ(),
            flags=self._config.exec_flags(),
            dir=directory,
            nix=nix,
            image=image,
            cpus=None if resource.cpu is None else f"{resource.cpu:.9f}".rstrip("0").rstrip("."),
            memory=None if memory is None else str(memory),
            port=None if port is None else str(port),
            gpu=resource.gpu is not None,
            config_env=[f"{name}={value}" for name, value in (config.env or {}).items()],
            lease=self._config.lease or 0.0,
            ready=self._config.health_timeout,
        )

    # ---- small things ----

    def _watch(self) -> None:
        """Let the running loop drain the output of all sandboxes: the one that did may be closed by now."""
        for live in self._live.values():
            if live.process == os.getpid():
                live.driver.watch()

    def _binary(self) -> str:
        name = self._config.program()
        found = shutil.which(name)
        if found is None:
            raise RuntimeError(
                f"'{name}' not found on PATH; install Apptainer, or set binary= or AGENTIX_APPTAINER_BIN"
            )
        return os.path.abspath(found)

    def _bundle_cache(self) -> str | None:
        cache = self._config.cache()
        return None if cache is None else str(cache / "bundles")

    def _image_cache(self) -> Path:
        root = os.environ.get("XDG_CACHE_HOME", "")
        default = (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "agentix" / "apptainer"
        return (self._config.cache() or default) / "images"


def _handle(sandbox_id: str, url: str, token: str, lease: float | None) -> Sandbox:
    return keep_lease(Sandbox(sandbox_id=SandboxId(sandbox_id), runtime_url=url, token=token), lease)


def _give_back(port: int | None) -> None:
    if port is not None:
        _places.ports.give_back([port])


def _facts_of(sandbox_id: str) -> dict[str, Any] | None:
    return _places.facts_of(_places.base() / sandbox_id) if ID_PATTERN.fullmatch(sandbox_id) else None


def _end(directory: Path, facts: dict[str, Any]) -> None:
    label = facts["process"]
    if _places.is_host_alive(label):
        end_foreign(int(label.split(":")[1]), directory, lambda _: _places.is_host_alive(label))
    remove_tree(directory)  # also if it ended just now


def _sweep() -> None:
    """Remove what killed hosts left of sandboxes that have ended; the others end by their lease."""
    _places.sweep_locks()
    for path in _places.base().iterdir():
        if ID_PATTERN.fullmatch(path.name) and _places.is_left(path):
            facts = _places.facts_of(path)
            if facts is None:
                _end(path, {"process": _started(path)})  # its runtime, whose lease would end it, may never have come up
            elif not _places.is_host_alive(facts["process"]):
                remove_tree(path)


def _started(directory: Path) -> str:
    """Return who the process of a sandbox is that was never finished, or ""."""
    try:
        return (directory / "process").read_text()
    except FileNotFoundError:
        return ""


def _host_environ() -> list[str]:
    return [f"{name}={value}" for name, value in os.environ.items()]
