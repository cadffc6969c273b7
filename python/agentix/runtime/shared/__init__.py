"""What host and sandbox both name: references to callables, call ids, the bound on a message."""

from ..._lazy import exporter as _exporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._callable import RemoteCallable
    from ..._ids import CallId
    from .framing import MAX_MESSAGE_BYTES, FrameTooLarge

__all__ = ["MAX_MESSAGE_BYTES", "CallId", "FrameTooLarge", "RemoteCallable"]

__getattr__, __dir__ = _exporter(
    __name__,
    {
        "agentix._callable": ["RemoteCallable"],
        "agentix._ids": ["CallId"],
        "agentix.runtime.shared.framing": ["MAX_MESSAGE_BYTES", "FrameTooLarge"],
    },
)
