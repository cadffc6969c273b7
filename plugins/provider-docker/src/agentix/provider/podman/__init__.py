"""The `podman` backend: that of `agentix.provider.docker`, driven by podman."""

from agentix.provider.docker import DockerProviderConfig, PodmanProvider

__all__ = ["DockerProviderConfig", "PodmanProvider"]
