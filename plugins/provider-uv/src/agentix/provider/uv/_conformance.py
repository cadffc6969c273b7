"""How the conformance suite (`agentix-pytest`) uses the backend and looks at it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from agentix.testing.conformance import Backend, Refusal

from agentix.provider.base import Sandbox, SandboxProvider

from . import _places
from ._config import UvProviderConfig
from ._provider import UvProvider


class Uv(Backend):
    """`venv` is an environment that holds Agentix; the running one, if none is named."""

    name = "uv"
    without: ClassVar[Mapping[str, str]] = {"bundle": "it runs an environment; a bundle is passed over"}

    def __init__(self, *, venv: str = sys.prefix, **settings: Any) -> None:
        super().__init__(**{**settings, "bundle": "unused"})
        self.venv = venv

    def provider(self, lease: float | None = 900) -> SandboxProvider:
        return UvProvider(UvProviderConfig(reuse_venv=self.venv, lease=lease))

    def kill(self, sandbox: Sandbox) -> None:
        facts = _places.find(sandbox.sandbox_id)
        assert facts is not None
        os.kill(facts["pid"], signal.SIGKILL)

    def left(self) -> Iterable[str]:
        base = _places.base()
        yield from (str(path) for path in base.iterdir() if _places.ID_PATTERN.fullmatch(path.name))
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (name := _belongs_to(entry, str(base))):
                yield f"a process of {name}"

    def refusals(self) -> Iterable[Refusal]:
        yield Refusal(UvProviderConfig, "project=", "reuse_venv=")
        yield Refusal(lambda: UvProviderConfig(reuse_venv="/nowhere"), "reuse_venv", "make the environment first")
        yield Refusal(lambda: UvProviderConfig(project="/nowhere"), "project", "pyproject.toml")
        for setting, value in {
            "python": "-c",
            "uv_bin": "",
            "host": "0.0.0.0",
            "health_timeout": 0,
            "lease": -1,
            "install": ("--user",),
        }.items():
            yield Refusal(lambda s=setting, v=value: UvProviderConfig(reuse_venv=self.venv, **{s: v}), setting)  # pyright: ignore[reportArgumentType]


def _belongs_to(entry: Path, base: str) -> str | None:
    """Name what a process has its working directory in, as servers and workers do, or a word of its command."""
    try:
        words = [os.readlink(entry / "cwd"), *(entry / "cmdline").read_text(errors="replace").split("\0")]
    except OSError:
        return None
    for word in words:
        _, found, rest = f"{word}/".partition(f"{base}/")
        if found:
            return rest.split("/")[0] or base
    return None
