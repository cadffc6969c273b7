"""Where a bundle runs: the protocol of backends, what they are given and return, and the registry that finds them.

A backend is a distribution of its own that adds a module below this package (`agentix.provider.docker`) and names its
class in the entry-point group `agentix.provider`.
"""

from .._lazy import exporter as _exporter
from .._lazy import extend_path as _extend_path

__path__ = _extend_path(__path__, __name__)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._ids import SandboxId
    from ._registry import Registry, providers, register_provider
    from .base import (
        BundleDeployer,
        DeployedBundle,
        Sandbox,
        SandboxConfig,
        SandboxInfo,
        SandboxProvider,
        SandboxResource,
    )

__all__ = [
    "SandboxProvider",
    "Sandbox",
    "SandboxConfig",
    "SandboxResource",
    "SandboxId",
    "SandboxInfo",
    "BundleDeployer",
    "DeployedBundle",
    "Registry",
    "providers",
    "register_provider",
]

__getattr__, __dir__ = _exporter(
    __name__,
    {
        "agentix._ids": ["SandboxId"],
        "agentix.provider._registry": ["Registry", "providers", "register_provider"],
        "agentix.provider.base": [
            "BundleDeployer",
            "DeployedBundle",
            "Sandbox",
            "SandboxConfig",
            "SandboxInfo",
            "SandboxProvider",
            "SandboxResource",
        ],
    },
)
