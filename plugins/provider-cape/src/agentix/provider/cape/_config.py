"""Settings of the backend, and where the controller's token comes from."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.provider import _checks

if TYPE_CHECKING:
    from ._provider import CapeProvider

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PORTS = range(1, 65536)


@dataclass
class CapeProviderConfig:
    """Which pool, and how its requests are made; ValueError or TypeError says which setting is wrong.

    - `controller_url`: of the controller; None: what `CAPE_CONTROLLER_URL` says.
    - `pool`: whose capacity is asked for; `user`: for whom (None: the user of this process).
    - `token_file`: a file of yours alone with the controller's token; None: what `CAPE_TOKEN_FILE` names, or else the
      token is in the variable that `token_env` names.
    - `binary`: the `cape` program; None: what `CAPE_BINARY` says, or `cape` on PATH.
    - `workspace_root`: where each workload makes a directory; `url_template`: how its host and port become a URL;
      `runtime_port_base`: the first port; each live sandbox of this process has the next one that is free.
    - `meta_root`: a directory that this machine and the nodes share; None: there is none.
    - `extra_binds`: further mounts; `isolation_policy`, `runtime_adapter`, `max_duration_seconds`: said as they are.
    - `cpu_cores`, `memory_gb`: unless `SandboxConfig.resource` says other ones.
    - `transient_failure_limit`: errors of `cape status` in a row that are passed over.
    - `health_timeout`: seconds from the request to its endpoint, and again from there to the runtime's answer.
    - `lease`: seconds that a sandbox lives without a connection; None: until `max_duration_seconds`.
    """

    controller_url: str | None = None
    pool: str | None = None
    user: str | None = None
    token_env: str = "CAPE_TOKEN"
    token_file: str | None = None
    binary: str | None = None
    workspace_root: str = "/workspace"
    url_template: str = "http://{host}:{port}"
    runtime_port_base: int = 8710
    meta_root: str | None = None
    extra_binds: tuple[str, ...] = ()
    isolation_policy: str = "default"
    runtime_adapter: str | None = None
    cpu_cores: int | None = None
    memory_gb: int | None = None
    max_duration_seconds: int = 14400
    transient_failure_limit: int = 5
    health_timeout: float = 60.0
    lease: float | None = 900

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Check the fields again, as they may have been changed; raise as the constructor does."""
        for name in ("controller_url", "pool", "user", "binary", "runtime_adapter"):
            if getattr(self, name) is not None:
                _checks.word(name, getattr(self, name))
        for name in ("token_file", "meta_root"):
            if getattr(self, name) is not None:
                _checks.path(name, getattr(self, name))
        _checks.word("isolation_policy", self.isolation_policy)
        _checks.word("workspace_root", self.workspace_root)
        if not _NAME.fullmatch(self.token_env):
            raise ValueError(f"token_env is not the name of a variable: {self.token_env!r}")
        if not self.workspace_root.startswith("/") or (self.meta_root or "/")[0] not in "/~":
            raise ValueError("workspace_root and meta_root must be absolute paths")
        if "{host}" not in self.url_template or not self.url_template.startswith(("http://", "https://")):
            raise ValueError(f"url_template must look like 'http://{{host}}:{{port}}': {self.url_template!r}")
        for bind in self.extra_binds:
            if ":" not in _checks.word("a mount in extra_binds", bind):
                raise ValueError(f"a mount in extra_binds must look like 'there:here': {bind!r}")
        for name in ("cpu_cores", "memory_gb"):
            if getattr(self, name) is not None:
                _checks.count(name, getattr(self, name))
        _checks.count("max_duration_seconds", self.max_duration_seconds)
        if _checks.count("runtime_port_base", self.runtime_port_base) not in PORTS:
            raise ValueError(f"runtime_port_base is no port: {self.runtime_port_base}")
        if self.transient_failure_limit < 0:
            raise ValueError(f"transient_failure_limit must not be negative: {self.transient_failure_limit}")
        _checks.positive("health_timeout", self.health_timeout)
        if self.lease is not None:
            _checks.positive("lease", self.lease)

    # ---- what may come from the environment ----

    def controller(self) -> str:
        """Return the controller's URL; ValueError says where one could have come from."""
        found = self.controller_url or os.environ.get("CAPE_CONTROLLER_URL")
        if not found:
            raise ValueError(
                "CAPE_CONTROLLER_URL is not set: the cape backend needs the controller's URL; "
                "export CAPE_CONTROLLER_URL, or give CapeProviderConfig(controller_url=...)"
            )
        return _checks.word("CAPE_CONTROLLER_URL", found)

    def pool_name(self) -> str:
        """Return the pool; ValueError if there is none."""
        if self.pool is None:
            raise ValueError("the cape backend needs a pool; give CapeProviderConfig(pool=...)")
        return self.pool

    def user_name(self) -> str:
        """Return for whom the requests are made."""
        return self.user if self.user is not None else _checks.word("the user of this process", getpass.getuser())

    def program(self) -> str:
        """Return the path of the program; RuntimeError if there is none."""
        name = self.binary or os.environ.get("CAPE_BINARY") or "cape"
        found = shutil.which(_checks.word("CAPE_BINARY", name))
        if found is None:
            raise RuntimeError(f"the cape program {name!r} was not found; install it, or set CAPE_BINARY or binary=")
        return os.path.abspath(found)

    def token(self) -> str:
        """Return the controller's token, a file before a variable; ValueError names the source, never what it holds."""
        named = self.token_file or os.environ.get("CAPE_TOKEN_FILE")
        if named:
            return _from_file(named)
        found = os.environ.get(self.token_env)
        if found is None:
            raise ValueError(
                f"{self.token_env} is not set: the cape backend needs the controller's token; give "
                f"CapeProviderConfig(token_file=...), or export CAPE_TOKEN_FILE or {self.token_env}"
            )
        return _checks.secret(f"the token in {self.token_env}", found.strip())

    def to_provider(self) -> CapeProvider:
        """Make the provider of this configuration."""
        from ._provider import CapeProvider

        return CapeProvider(self)


def _from_file(name: str) -> str:
    path = Path(name).expanduser()
    try:
        info = path.stat()
        text = path.read_text()
    except OSError as error:
        raise ValueError(f"the token file {name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"the token file {name} cannot be read: it is not text") from None
    if stat.S_IMODE(info.st_mode) & 0o077:
        raise ValueError(f"the token file {name} can be read by others; chmod 600 it")
    return _checks.secret(f"the token in {name}", text.strip())
