"""What is podman's own about the backend; the rest is in test_docker.py, where each test runs on both engines."""

from __future__ import annotations

import sys
from typing import Any

import box_bundle
import engines
import pytest

from agentix.provider import podman

sys.path.insert(0, str(box_bundle.BOX / "src"))

import box_targets as t

from agentix import SandboxConfig

pytestmark = pytest.mark.usefixtures("places", "nothing_left")


@pytest.mark.parametrize("network", [None, "none"])
def test_by_its_own_module_and_name(
    run: Any,
    podman_engine: engines.Engine,
    bundle: box_bundle.Bundle,
    monkeypatch: pytest.MonkeyPatch,
    network: str | None,
) -> None:
    config = SandboxConfig(image=podman_engine.image("scratch"), bundle=bundle.directory)

    async def main(provider: podman.PodmanProvider) -> None:
        async with provider.session(config) as sandbox:
            assert (await sandbox.remote(t.environ))["container"] == "podman"

    monkeypatch.setenv("PATH", podman_engine.directory, prepend=":")
    settings = podman.DockerProviderConfig(container_engine="podman", network=network)
    for provider in (podman.PodmanProvider(), podman.PodmanProvider(settings)):
        run(main(provider))
