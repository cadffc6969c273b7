"""What the suite `agentix.testing.conformance` has to know of this backend."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from agentix.testing.conformance import Backend, Refusal

from agentix import Sandbox

from . import UnshareProvider, base


class Unshare(Backend):
    name = "unshare"

    def provider(self, lease: float | None = 900) -> UnshareProvider:
        return UnshareProvider(lease=lease or 900)

    def kill(self, sandbox: Sandbox) -> None:
        os.kill(json.loads((base() / sandbox.sandbox_id / "facts.json").read_text())["pid"], signal.SIGKILL)

    def left(self) -> Iterator[str]:
        yield from (str(path) for path in base().iterdir())
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and f"{base()}/".encode() in _command_of(entry):
                yield f"process {entry.name}"

    def refusals(self) -> Iterator[Refusal]:
        yield Refusal(lambda: UnshareProvider(lease=0), "lease", "UnshareProvider(lease=900)")
        yield Refusal(UnshareProvider, "unshare", "PATH", variables={"PATH": "/nowhere"})


def _command_of(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""
