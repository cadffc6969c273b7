"""The model of an agent in a sandbox, served by the host.

    async with Proxy(AnthropicClient()).session(sandbox) as handle:
        ...  # in the sandbox, `handle.url` answers like the model service

A *client* is any object with methods marked by `@on(path)`. What they need of the vendors' SDKs is imported when they
are made, so this package costs milliseconds.
"""

from agentix._lazy import exporter as _exporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._errors import AbridgeError
    from ._forward import Forward, SessionForward
    from ._proxy import Proxy
    from ._recorder import Recorder
    from ._replay import Replay
    from ._routes import on
    from ._sidecar import Command, Sidecar, SidecarError
    from ._types import Budget, Client, ClientResponse, DynamicRoutes, Handler, Request, TunnelHandle

__all__ = [
    "Proxy",
    "on",
    "Request",
    "ClientResponse",
    "Client",
    "Handler",
    "DynamicRoutes",
    "TunnelHandle",
    "AbridgeError",
    "Budget",
    "Forward",
    "SessionForward",
    "Recorder",
    "Replay",
    "Sidecar",
    "SidecarError",
    "Command",
]

# Where each name lives. To add one: here, in `__all__` and in the block for type checkers.
__getattr__, __dir__ = _exporter(
    __name__,
    {
        "agentix.bridge._errors": ["AbridgeError"],
        "agentix.bridge._forward": ["Forward", "SessionForward"],
        "agentix.bridge._proxy": ["Proxy"],
        "agentix.bridge._recorder": ["Recorder"],
        "agentix.bridge._replay": ["Replay"],
        "agentix.bridge._routes": ["on"],
        "agentix.bridge._sidecar": ["Command", "Sidecar", "SidecarError"],
        "agentix.bridge._types": [
            "Budget",
            "Client",
            "ClientResponse",
            "DynamicRoutes",
            "Handler",
            "Request",
            "TunnelHandle",
        ],
    },
)
