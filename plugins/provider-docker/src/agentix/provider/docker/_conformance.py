"""How the conformance suite (`agentix-pytest`) uses the two backends and looks at them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from typing import Any

from agentix.testing.conformance import Backend, Refusal

from agentix.provider import _places as shared
from agentix.provider.base import Sandbox, SandboxProvider

from . import _places
from ._config import DockerProviderConfig
from ._provider import DockerProvider, PodmanProvider


class Docker(Backend):
    """`engine` is the client: a name on PATH or a path."""

    name = "docker"
    provider_class: type[DockerProvider] = DockerProvider

    def __init__(self, *, engine: str | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.engine = engine or self.name

    def provider(self, lease: float | None = 900) -> SandboxProvider:
        return self.provider_class(DockerProviderConfig(container_engine=self.engine, lease=lease))

    def kill(self, sandbox: Sandbox) -> None:
        self._ask("kill", sandbox.sandbox_id)

    def left(self) -> Iterable[str]:
        containers = self._ask("ps", "-a", "--filter", "label=agentix.sandbox", "--format", "{{.Names}}").split()
        directories = [path for path in shared.base().iterdir() if _places.ID_PATTERN.fullmatch(path.name)]
        return [*(f"container {name}" for name in containers), *map(str, directories)]

    def refusals(self) -> Iterable[Refusal]:
        for setting, value in {
            "container_engine": "",
            "network": "--privileged",
            "publish_host": "nowhere",
            "run_args": "'unended",
            "bundle_cache_dir": "",
            "health_timeout": 0,
            "pull": "sometimes",
            "lease": -1,
            "cap_add": ("--privileged",),
            "pids_limit": 0,
        }.items():
            yield Refusal(lambda s=setting, v=value: DockerProviderConfig(**{s: v}), setting)  # pyright: ignore[reportArgumentType]
        yield Refusal(lambda: DockerProvider({}), "config", "DockerProviderConfig")  # pyright: ignore[reportArgumentType]

    def _ask(self, *words: str) -> str:
        return subprocess.run([self.engine, *words], stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout


class Podman(Docker):
    """As `Docker`, with podman."""

    name = "podman"
    provider_class = PodmanProvider
