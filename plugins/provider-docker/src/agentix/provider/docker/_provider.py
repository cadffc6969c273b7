"""The backend's classes: they keep the sandboxes of this process and leave the decisions to the brains in C."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

from agentix import _core
from agentix.provider import _bundles, _checks
from agentix.provider import _places as shared
from agentix.provider._drive import Driver, remove_tree
from agentix.provider._lease import keep_lease
from agentix.provider.base import DeployedBundle, Sandbox, SandboxConfig, SandboxId, SandboxProvider, SandboxResource

from . import _places
from ._config import DockerProviderConfig

PORT_CANDIDATES = 4
"""Ports that one `create` tries before it gives up: between choosing one and publishing it, another may take it."""


class _Live:
    """A sandbox that this provider started, in this process or in the one that it was forked from."""

    def __init__(self, driver: Driver, url: str, token: str, ports: list[int]) -> None:
        self.driver = driver
        self.url = url
        self.token = token
        self.ports = ports
        self.process = os.getpid()


class DockerProvider(SandboxProvider):
    """Runs each sandbox as a container of a local engine, with the bundle mounted read-only at `/nix`."""

    _name = "docker"

    def __init__(self, config: DockerProviderConfig | None = None) -> None:
        self._config = config if config is not None else self._default_config()
        _checks.instance("config", self._config, DockerProviderConfig)
        self._config.validate()
        self._live: dict[str, _Live] = {}
        self._sweeping: asyncio.Task[bool] | None = None

    @staticmethod
    def _default_config() -> DockerProviderConfig:
        return DockerProviderConfig()

    async def create(self, config: SandboxConfig) -> Sandbox:
        """Start a sandbox and return it when its runtime has proved to be there.

        RuntimeError says which step failed, with the engine's last words and the container's last output; nothing is
        left behind then, nor after a cancellation.
        """
        config.validate()
        engine = self._engine()
        nix = await _bundles.locate(config.bundle, self._name, self._config.bundle_cache_dir)
        self._sweep_once(engine)
        sandbox_id, live = await self._create(engine, nix, config)
        self._live[sandbox_id] = live
        return _handle(sandbox_id, live.url, live.token, self._config.lease)

    async def delete(self, sandbox_id: SandboxId) -> None:
        """Remove a sandbox; an unknown id is passed over. RuntimeError if the engine could not do it: try again."""
        _checks.sandbox_id(sandbox_id)
        live = self._live.pop(sandbox_id, None)
        if live is not None and live.process == os.getpid():
            try:
                wish = await live.driver.end()
            finally:
                shared.ports.give_back(live.ports)
            if wish["kind"] == "failed":
                raise RuntimeError(wish["message"])
        elif _places.ID_PATTERN.fullmatch(sandbox_id):
            await self._delete_foreign(sandbox_id)

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Give a handle of a running sandbox, of another process of this user too. KeyError if there is none."""
        _checks.sandbox_id(sandbox_id)
        facts = None
        if _places.ID_PATTERN.fullmatch(sandbox_id):
            facts = await asyncio.to_thread(shared.facts_of, shared.base() / sandbox_id)
        found = await self._look(self._engine(), sandbox_id) if facts is not None else None
        if facts is None or found is None or found[0] != "running":
            raise KeyError(f"no sandbox {sandbox_id!r} runs here; it may have ended or been deleted")
        return _handle(sandbox_id, facts["url"], facts["token"], facts["lease"])

    async def deploy_bundle(
        self, bundle: Path, *, name: str | None = None, platform: str | None = None
    ) -> DeployedBundle:
        """Bring a bundle's tar into the cache, under the digest of its content; RuntimeError says why it cannot be."""
        return await _bundles.deploy(
            Path(bundle),
            self._name,
            self._config.bundle_cache_dir,
            engine=self._config.container_engine,
            name=name,
            platform=platform,
        )

    # ---- creating ----

    async def _create(self, engine: str, nix: Path, config: SandboxConfig) -> tuple[str, _Live]:
        directory = shared.make_container_sandbox("agentix-", 4, with_socket=self._config.network == "none")
        ports: list[int] = []
        try:
            try:
                fixed = (config.env or {}).get("AGENTIX_BIND_PORT")
                if fixed is None:
                    ports += shared.ports.take(self._publish_host(), PORT_CANDIDATES)
                candidates = [fixed] if fixed is not None else [str(port) for port in ports]
                driver = Driver(self._brain(engine, nix, directory, config, candidates))
            except BaseException:
                remove_tree(directory)
                raise
            wish = await driver.drive()  # which removes the directory, unless the container could not be removed
            if wish["kind"] != "done":
                raise RuntimeError(wish["message"])
            return directory.name, await self._settle_in(driver, directory, wish["url"], ports)
        except BaseException:
            shared.ports.give_back(ports)
            raise

    async def _settle_in(self, driver: Driver, directory: Path, url: str, ports: list[int]) -> _Live:
        """Tidy up after a start, and leave what other processes need to find the sandbox."""
        try:
            (directory / "env").unlink(missing_ok=True)
            facts = {"url": url, "engine": self._config.container_engine, "lease": self._config.lease}
            shared.describe(directory, **facts)
            token = (directory / "token").read_text()
        except BaseException:
            await driver.end()
            raise
        used = urlsplit(url).port if url.startswith("http://") else None
        shared.ports.give_back([port for port in ports if port != used])
        return _Live(driver, url, token, [port for port in ports if port == used])

    def _brain(self, engine: str, nix: Path, directory: Path, config: SandboxConfig, ports: list[str]) -> _core.Brain:
        settings = self._config
        resource = config.resource or SandboxResource()
        gpu_args = settings.gpu_arguments(resource.gpu) if resource.gpu is not None else None
        return _core.docker_sandbox(
            engine=engine,
            host_env=_host_environ(),
            id=directory.name,
            dir=directory,
            nix=nix,
            image=config.image,
            platform=config.platform,
            network=settings.network,
            publish_host=settings.publish_host,
            ports=ports,
            pull=settings.pull,
            cpus=None if resource.cpu is None else f"{resource.cpu:.9f}".rstrip("0").rstrip("."),
            memory=None if resource.memory is None else str(resource.memory),
            gpus=None if resource.gpu is None or gpu_args is not None else str(resource.gpu),
            cap_add=settings.cap_add,
            run_args=[*settings.run_arguments(), *(gpu_args or [])],
            host_label=shared.host_label(),
            config_env=[f"{name}={value}" for name, value in (config.env or {}).items()],
            lease=settings.lease or 0.0,
            ready=settings.health_timeout,
            pids_limit=settings.pids_limit or 0,
            no_new_privileges=settings.no_new_privileges,
            read_only=settings.read_only,
        )

    def _publish_host(self) -> str:
        return "127.0.0.1" if self._config.network in ("host", "none") else self._config.publish_host

    # ---- sandboxes of other processes ----

    async def _look(self, engine: str, sandbox_id: str) -> tuple[str, str] | None:
        """Return status and container id of a sandbox, or None."""
        wish = await self._command(engine, "look", sandbox_id)
        if wish["kind"] == "gone":
            return None
        status, container, label = wish["message"].split(" ", 2)
        return (status, container) if label == sandbox_id else None

    async def _delete_foreign(self, sandbox_id: str) -> None:
        engine = self._engine()
        found = await self._look(engine, sandbox_id)
        if found is not None:
            await self._command(engine, "remove", found[1])
        directory = shared.base() / sandbox_id
        if found is not None or not shared.is_in_use(directory):
            await asyncio.to_thread(remove_tree, directory)

    async def _command(self, engine: str, what: str, name: str = "") -> _core.Wish:
        wish = await Driver(_core.docker_command(what=what, engine=engine, host_env=_host_environ(), name=name)).drive()
        if wish["kind"] == "failed":
            raise RuntimeError(wish["message"])
        return wish

    # ---- what killed hosts left ----

    def _sweep_once(self, engine: str) -> None:
        """Begin to remove what killed processes left, beside the first `create`, which does not wait for it.

        If not all of it went, because another process is about to remove it too or the engine is busy, the next
        `create` goes on with it.
        """
        if self._sweeping is None or (self._sweeping.done() and not _is_swept(self._sweeping)):
            self._sweeping = asyncio.ensure_future(self._sweep(engine))
            self._sweeping.add_done_callback(_is_swept)

    async def _sweep(self, engine: str) -> bool:
        """Remove containers of dead hosts that ended or never ran, and directories that no container belongs to.

        False if one of them could not be removed; the others are.
        """
        whole = True
        listed = (await self._command(engine, "list"))["message"]
        rows = [line.split("\t") for line in listed.splitlines()]
        for name, status, host in rows:
            if status != "running" and not shared.is_host_alive(host):
                try:
                    await self._delete_foreign(name)
                except RuntimeError:
                    whole = False
        known = {row[0] for row in rows}
        for path in await asyncio.to_thread(_places.left_directories, self._config.container_engine):
            if path.name not in known:
                await asyncio.to_thread(remove_tree, path)
        return whole

    # ---- small things ----

    def _engine(self) -> str:
        name = self._config.container_engine
        found = shutil.which(name)
        if found is None:
            raise RuntimeError(f"container engine '{name}' not found on PATH; install it, or set container_engine=")
        return os.path.abspath(found)


class PodmanProvider(DockerProvider):
    """As `DockerProvider`, with podman unless the config says otherwise."""

    _name = "podman"

    @staticmethod
    def _default_config() -> DockerProviderConfig:
        return DockerProviderConfig(container_engine="podman")


def _handle(sandbox_id: str, url: str, token: str, lease: float | None) -> Sandbox:
    return keep_lease(Sandbox(sandbox_id=SandboxId(sandbox_id), runtime_url=url, token=token), lease)


def _is_swept(task: asyncio.Task[bool]) -> bool:
    """Whether a sweep that has ended did all there was to do. That it failed is nobody's concern: there are others."""
    return not task.cancelled() and task.exception() is None and task.result()


def _host_environ() -> list[str]:
    return [f"{name}={value}" for name, value in os.environ.items()]
