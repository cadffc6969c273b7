"""What is podman's own about the backend; the rest is in test_docker.py, where each test runs on both engines."""

from __future__ import annotations

import asyncio
import sys

import box_bundle
import engines
import pytest

from agentix.provider import podman

sys.path.insert(0, str(box_bundle.BOX / "src"))

import box_targets as t

from agentix import SandboxConfig


@pytest.mark.parametrize("network", [None, "none"])
def test_by_its_own_module_and_name(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, network: str | None
) -> None:
    async def main(provider: podman.PodmanProvider, config: SandboxConfig) -> None:
        async with provider.session(config) as sandbox:
            assert (await sandbox.remote(t.environ))["container"] == "podman"
        assert engine.sandboxes() == []

    bundle = box_bundle.shared(tmp_path_factory)
    with engines.podman() as engine:
        monkeypatch.setenv("PATH", str(engine.directory), prepend=":")
        config = SandboxConfig(image=engine.image("scratch"), bundle=bundle.directory)
        settings = podman.DockerProviderConfig(container_engine="podman", network=network)
        for provider in (podman.PodmanProvider(), podman.PodmanProvider(settings)):
            asyncio.run(asyncio.wait_for(main(provider, config), 120))
