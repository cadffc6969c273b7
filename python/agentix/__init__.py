"""Agentix: call any importable Python function inside a sandbox.

    async with provider.session(SandboxConfig(image=..., bundle=...)) as sandbox:
        result = await sandbox.remote(fn, *args, **kwargs)

The public names are exactly those of `__all__`; each is imported when it is first used. Other distributions may add
modules of their own below this package (`agentix.bash`, `agentix.provider.docker`, ...).
"""

from ._lazy import exporter as _exporter
from ._lazy import extend_path as _extend_path

__path__ = _extend_path(__path__, __name__)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._callable import RemoteCallable
    from ._client import RuntimeClient
    from ._failures import (
        CallCancelled,
        CallTimeout,
        RemoteCallError,
        RemoteSioError,
        RestrictedUnpickleError,
        RuntimeUnreachable,
        WorkerExited,
    )
    from ._ids import SandboxId
    from ._namespaces import AsyncClientNamespace, request_handler
    from ._result import Failed, Ok, Result
    from ._version import __version__
    from .provider._registry import providers, register_provider
    from .provider.base import (
        BundleDeployer,
        DeployedBundle,
        Sandbox,
        SandboxConfig,
        SandboxInfo,
        SandboxProvider,
        SandboxResource,
    )
    from .sio import Namespace, register_namespace
    from .utils import context, log, trace
    from .utils.log import configure_logging

__all__ = [
    # remote calls
    "RuntimeClient",
    "RemoteCallable",
    "Namespace",
    "AsyncClientNamespace",
    "register_namespace",
    "request_handler",
    # providers and sandboxes
    "SandboxProvider",
    "Sandbox",
    "SandboxConfig",
    "SandboxResource",
    "SandboxId",
    "SandboxInfo",
    "providers",
    "register_provider",
    "BundleDeployer",
    "DeployedBundle",
    # failures and results
    "RemoteCallError",
    "CallCancelled",
    "CallTimeout",
    "WorkerExited",
    "RuntimeUnreachable",
    "RemoteSioError",
    "RestrictedUnpickleError",
    "Result",
    "Ok",
    "Failed",
    # beside the calls
    "configure_logging",
    "context",
    "log",
    "trace",
    "__version__",
]

# Where each name lives. To add one: here, in `__all__` and in the block for type checkers.
__getattr__, __dir__ = _exporter(
    __name__,
    {
        "agentix._callable": ["RemoteCallable"],
        "agentix._client": ["RuntimeClient"],
        "agentix._failures": [
            "CallCancelled",
            "CallTimeout",
            "RemoteCallError",
            "RemoteSioError",
            "RestrictedUnpickleError",
            "RuntimeUnreachable",
            "WorkerExited",
        ],
        "agentix._ids": ["SandboxId"],
        "agentix._namespaces": ["AsyncClientNamespace", "request_handler"],
        "agentix._result": ["Failed", "Ok", "Result"],
        "agentix._version": ["__version__"],
        "agentix.provider._registry": ["providers", "register_provider"],
        "agentix.provider.base": [
            "BundleDeployer",
            "DeployedBundle",
            "Sandbox",
            "SandboxConfig",
            "SandboxInfo",
            "SandboxProvider",
            "SandboxResource",
        ],
        "agentix.utils": ["context", "log", "trace"],
        "agentix.utils.log": ["configure_logging"],
        "agentix.sio": ["Namespace", "register_namespace"],
    },
)
