"""The `docker` and `podman` backends: sandboxes as containers of a local engine."""

from ._config import DockerProviderConfig
from ._provider import DockerProvider, PodmanProvider

__all__ = ["DockerProvider", "DockerProviderConfig", "PodmanProvider"]
