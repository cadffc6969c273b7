"""Settings of the backend."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.provider import _checks

if TYPE_CHECKING:
    from ._provider import ApptainerProvider

BINARY = "apptainer"
FLAGS = ("--userns", "--no-init", "--writable-tmpfs", "--cleanenv", "--contain")
"""Of `exec`: no privilege; changes to the image are kept in memory; nothing of the host's environment, home or /tmp."""


@dataclass
class ApptainerProviderConfig:
    """How sandboxes are started; ValueError or TypeError says which setting is wrong.

    - `binary`: the program, a path or a name on PATH; as it is by default, `AGENTIX_APPTAINER_BIN` chooses another one.
    - `cache_dir`: where images and bundles are kept; None: `AGENTIX_APPTAINER_CACHE`, else `~/.cache/agentix/apptainer`
      for images and `~/.cache/agentix/bundles`, which the other backends share, for bundles.
    - `flags`: options of `exec` in place of `FLAGS`; None: `AGENTIX_APPTAINER_FLAGS`, split at blanks, else `FLAGS`.
    - `health_timeout`: seconds from the start to the runtime's answer; the pull of the image is not counted.
    - `lease`: seconds that a sandbox lives without a connection; None: for ever.
    """

    binary: str = BINARY
    cache_dir: str | None = None
    flags: tuple[str, ...] | None = None
    health_timeout: float = 60.0
    lease: float | None = 900

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Check the fields again, as they may have been changed; raise as the constructor does."""
        _checks.word("binary", self.binary)
        self.program()
        self.cache()
        self.exec_flags()
        _checks.positive("health_timeout", self.health_timeout)
        if self.lease is not None:
            _checks.positive("lease", self.lease)

    def program(self) -> str:
        """Return the program's name or path; ValueError if it is a path where there is none."""
        chosen = os.environ.get("AGENTIX_APPTAINER_BIN") if self.binary == BINARY else None
        name = _checks.word("AGENTIX_APPTAINER_BIN", chosen) if chosen else self.binary
        if "/" in name and not os.access(name, os.X_OK):
            raise ValueError(f"there is no program at {name}; set binary= or AGENTIX_APPTAINER_BIN to apptainer's path")
        return name

    def cache(self) -> Path | None:
        """Return the directory that was chosen for images and bundles, or None."""
        chosen = self.cache_dir if self.cache_dir is not None else os.environ.get("AGENTIX_APPTAINER_CACHE") or None
        if chosen is None:
            return None
        field = "cache_dir" if self.cache_dir is not None else "AGENTIX_APPTAINER_CACHE"
        return Path(_checks.path(field, chosen)).expanduser().absolute()

    def exec_flags(self) -> tuple[str, ...]:
        """Return the options of `exec`."""
        if self.flags is None:
            chosen = os.environ.get("AGENTIX_APPTAINER_FLAGS")
            return FLAGS if chosen is None else tuple(chosen.split())
        if not isinstance(self.flags, (tuple, list)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"flags must be a tuple of strings, not {type(self.flags).__name__}")
        for flag in self.flags:
            if not isinstance(flag, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"flags must hold strings, not {type(flag).__name__}")
            if not flag or not flag.isprintable():
                raise ValueError(f"flags must hold neither empty strings nor control characters: {flag!r}")
        return tuple(self.flags)

    def to_provider(self) -> ApptainerProvider:
        """Make the provider of this configuration."""
        from ._provider import ApptainerProvider

        return ApptainerProvider(self)
