"""Settings of the backend."""

from __future__ import annotations

import math
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._provider import UvProvider


@dataclass
class UvProviderConfig:
    """What a `UvProvider` needs; ValueError says which setting is wrong.

    Either `project`, a directory with a `pyproject.toml` that is installed into a fresh environment (with the further
    requirements in `install`), or `reuse_venv`, an environment that already holds everything, `agentix` included.
    `python` is a version or an interpreter for the fresh environment; `index_url` and `extra_index_url` go to uv;
    `host` is the loopback address to listen on where a Unix socket cannot be used; `health_timeout` bounds the start
    and `lease` (None: unbounded) the life of a sandbox that nobody is connected to, both in seconds.
    """

    project: str | None = None
    python: str = "3.12"
    index_url: str | None = None
    extra_index_url: tuple[str, ...] = ()
    install: tuple[str, ...] = ()
    reuse_venv: str | None = None
    uv_bin: str = "uv"
    host: str = "127.0.0.1"
    health_timeout: float = 60.0
    lease: float | None = 900

    def __post_init__(self) -> None:
        if self.project is None and self.reuse_venv is None:
            raise ValueError(
                "UvProviderConfig needs project= (a directory to install) or reuse_venv= (an environment to use)"
            )
        if self.reuse_venv is not None and not Path(self.reuse_venv, "bin", "python").exists():
            raise ValueError(f"reuse_venv: there is no bin/python in {self.reuse_venv!r}; make the environment first")
        if self.reuse_venv is None and not Path(str(self.project), "pyproject.toml").is_file():
            raise ValueError(
                f"project: there is no pyproject.toml in {self.project!r}; give a project's root, or reuse_venv="
            )
        for name in ("python", "uv_bin", "host"):
            if not getattr(self, name) or getattr(self, name).startswith("-"):
                raise ValueError(f"{name}: {getattr(self, name)!r} is not a value that a command could take")
        for item in self.install:
            if not item or item.startswith("-"):
                raise ValueError(f"install: {item!r} is not a requirement")
        try:
            loopback = ip_address(self.host).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise ValueError(
                f"host: {self.host!r} is not a loopback address; nobody elsewhere is to reach these sandboxes"
            )
        if not _is_seconds(self.health_timeout):
            raise ValueError(f"health_timeout: {self.health_timeout!r} is not a number of seconds above 0")
        if self.lease is not None and not _is_seconds(self.lease):
            raise ValueError(f"lease: {self.lease!r} is not a number of seconds above 0; use None for no lease")

    def to_provider(self) -> UvProvider:
        """Make the provider of this configuration."""
        from ._provider import UvProvider

        return UvProvider(self)


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
