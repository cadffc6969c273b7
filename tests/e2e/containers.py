"""What the tests of containers share: providers, host processes that can be killed, and looking at what is there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import box_bundle
import engines
from agentix.provider.docker import DockerProvider, DockerProviderConfig, PodmanProvider

PATIENCE = 120.0


def left(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*") if not path.name.startswith("host-"))


def provider_of(engine: engines.Engine, **settings: Any) -> DockerProvider:
    cls = PodmanProvider if engine.kind == "podman" else DockerProvider
    return cls(DockerProviderConfig(container_engine=engine.program, **settings))


HOST = """
import asyncio, signal, sys
sys.path.insert(0, {box!r})
import box_targets as t
from agentix import SandboxConfig
from agentix.provider.docker import DockerProvider, DockerProviderConfig
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it
async def main():
    provider = DockerProvider(DockerProviderConfig(container_engine={program!r}, lease={lease!r}))
    config = SandboxConfig(image={image!r}, bundle={bundle!r})
{body}
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def host(engine: engines.Engine, bundle: box_bundle.Bundle, body: str, lease: float = 900) -> subprocess.Popen[str]:
    """Another host process."""
    settings: dict[str, Any] = {"program": engine.program, "image": engine.image("busybox"), "bundle": bundle.directory}
    body = "".join(f"    {line}\n" for line in body.splitlines())
    code = HOST.format(box=str(box_bundle.BOX / "src"), lease=lease, body=body, **settings)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def running(engine: engines.Engine) -> list[str]:
    up = engine("ps", "--format", "{{.Names}}").split()
    return [name for name in engine.sandboxes() if name in up]


async def until(true: Callable[[], object]) -> None:
    while not await asyncio.to_thread(true):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
