"""How the conformance suite (`agentix-pytest`) uses the backend and looks at it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agentix.testing.conformance import Backend, Refusal

from agentix.provider import _places
from agentix.provider.base import Sandbox, SandboxProvider

from ._config import ApptainerProviderConfig
from ._provider import ID_PATTERN, ApptainerProvider


class Apptainer(Backend):
    """`binary` and `cache_dir` as in the backend's config."""

    name = "apptainer"

    def __init__(self, *, binary: str = "apptainer", cache_dir: str | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.binary = binary
        self.cache_dir = cache_dir

    def provider(self, lease: float | None = 900) -> SandboxProvider:
        return ApptainerProvider(ApptainerProviderConfig(binary=self.binary, cache_dir=self.cache_dir, lease=lease))

    def kill(self, sandbox: Sandbox) -> None:
        facts = _places.facts_of(_places.base() / sandbox.sandbox_id)
        assert facts is not None
        os.kill(int(facts["process"].split(":")[1]), signal.SIGKILL)

    def left(self) -> Iterable[str]:
        base = _places.base()
        yield from (str(path) for path in base.iterdir() if ID_PATTERN.fullmatch(path.name))
        shown = _within_its_mount(base)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (name := _belongs_to(entry, str(base), shown)):
                yield f"a process of {name}"

    def refusals(self) -> Iterable[Refusal]:
        advice = ("binary=", "AGENTIX_APPTAINER_BIN")
        yield Refusal(lambda: ApptainerProviderConfig(binary="/nowhere/apptainer"), "/nowhere/apptainer", *advice)
        nowhere = {"AGENTIX_APPTAINER_BIN": "/nowhere/apptainer"}
        yield Refusal(ApptainerProvider, "/nowhere/apptainer", *advice, variables=nowhere)
        yield Refusal(ApptainerProvider, "AGENTIX_APPTAINER_CACHE", variables={"AGENTIX_APPTAINER_CACHE": "-x"})
        for setting, value in {
            "binary": "",
            "cache_dir": "",
            "flags": ("",),
            "health_timeout": 0,
            "lease": -1,
        }.items():
            yield Refusal(lambda s=setting, v=value: ApptainerProviderConfig(**{s: v}), setting)  # pyright: ignore[reportArgumentType]
        yield Refusal(lambda: ApptainerProvider({}), "config", "ApptainerProviderConfig")  # pyright: ignore[reportArgumentType]


def _within_its_mount(path: Path) -> str:
    """The path as the mounts of something below it show it: from the root of the file system it lies on."""
    mount = next(parent for parent in (path, *path.parents) if os.path.ismount(parent))
    return f"/{path.relative_to(mount)}"


def _belongs_to(entry: Path, base: str, shown: str) -> str | None:
    """Name what a process names of the directory for sandboxes, or sees of it below /run/agentix.

    Those of another directory are somebody else's.
    """
    try:
        command = (entry / "cmdline").read_text(errors="replace")
        mounts = (entry / "mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return None
    if named := re.search(rf"{re.escape(base)}/([^/\0]*)", command):
        return named[1]
    seen = (re.search(rf"{re.escape(shown)}/(apptainer-\w+)", line) for line in mounts if " /run/agentix/" in line)
    return next((found[1] for found in seen if found), None)
