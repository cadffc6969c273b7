"""Settings of the backend."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Literal

from agentix.provider import _checks

if TYPE_CHECKING:
    from ._provider import DockerProvider

CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "KILL")
"""What is left to a sandbox: apt, su and chown need these, and task images need those."""
_CAPABILITY = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass
class DockerProviderConfig:
    """How containers are started; ValueError or TypeError says which setting is wrong.

    - `container_engine`: the engine's client, a path or a name on PATH: `docker`, `podman`, or one that takes the same
      words.
    - `network`: None for the engine's own default; `host`: the runtime listens on loopback; `none`: no network at all,
      calls go through a Unix socket; or any other network of the engine's.
    - `publish_host`: the host's address on which the runtime's port is published; `""`: all of them.
    - `gpu_args`: options in place of `--gpus N`, in which `{gpu}` stands for the number; `run_args`: further options of
      `run`. Both as a tuple, or as a string that is split like a shell's.
    - `bundle_cache_dir`: where bundles are deployed to; None: `~/.cache/agentix/bundles`.
    - `health_timeout`: seconds from the container's start to the runtime's answer.
    - `pull`: when to pull the image.
    - `lease`: seconds that a sandbox lives without a connection; None: for ever.
    - `cap_add`: the capabilities that are left; `no_new_privileges`; `pids_limit`: processes and threads (None: no
      limit); `read_only`: the image's file system cannot be written to.
    """

    container_engine: str = "docker"
    network: str | None = None
    publish_host: str = "127.0.0.1"
    gpu_args: tuple[str, ...] | str | None = None
    run_args: tuple[str, ...] | str = ()
    bundle_cache_dir: str | None = None
    health_timeout: float = 60.0
    pull: Literal["missing", "always", "never"] = "missing"
    lease: float | None = 900
    cap_add: tuple[str, ...] = CAPABILITIES
    no_new_privileges: bool = True
    pids_limit: int | None = 4096
    read_only: bool = False

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Check the fields again, as they may have been changed; raise as the constructor does."""
        _checks.word("container_engine", self.container_engine)
        if self.network is not None:
            _checks.word("network", self.network)
        if self.publish_host != "":
            _checks.word("publish_host", self.publish_host)
            try:
                ip_address(self.publish_host)
            except ValueError:
                raise ValueError(f"publish_host must be an address, or '': {self.publish_host!r}") from None
        self.gpu_arguments(1)
        self.run_arguments()
        if self.bundle_cache_dir is not None:
            _checks.path("bundle_cache_dir", self.bundle_cache_dir)
        _checks.positive("health_timeout", self.health_timeout)
        if self.pull not in ("missing", "always", "never"):
            raise ValueError(f"pull must be 'missing', 'always' or 'never': {self.pull!r}")
        if self.lease is not None:
            _checks.positive("lease", self.lease)
        for name in self.cap_add:
            if not _CAPABILITY.fullmatch(_checks.word("a name in cap_add", name)):
                raise ValueError(f"cap_add: {name!r} is not the name of a capability")
        if self.pids_limit is not None:
            _checks.count("pids_limit", self.pids_limit)
        _checks.instance("no_new_privileges", self.no_new_privileges, bool)
        _checks.instance("read_only", self.read_only, bool)

    def run_arguments(self) -> list[str]:
        """Return `run_args` as a list."""
        return _arguments("run_args", self.run_args)

    def gpu_arguments(self, count: int) -> list[str] | None:
        """Return `gpu_args` for so many devices; None if there are none of them."""
        if self.gpu_args is None:
            return None
        return [part.replace("{gpu}", str(count)) for part in _arguments("gpu_args", self.gpu_args)]

    def to_provider(self) -> DockerProvider:
        """Make the provider of this configuration."""
        from ._provider import DockerProvider

        return DockerProvider(self)


def _arguments(field: str, value: object) -> list[str]:
    if isinstance(value, str):
        try:
            parts: list[object] = [*shlex.split(value)]
        except ValueError as error:
            raise ValueError(f"{field}: {error}: {value!r}") from None
    elif isinstance(value, (tuple, list)):
        parts = [*value]  # pyright: ignore[reportUnknownVariableType]
    else:
        raise TypeError(f"{field} must be a tuple of strings or a string, not {type(value).__name__}")
    for part in parts:
        if not isinstance(part, str):
            raise TypeError(f"{field} must hold strings, not {type(part).__name__}")
        if "\0" in part:
            raise ValueError(f"{field} must not contain NUL")
    return [str(part) for part in parts]
