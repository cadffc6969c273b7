"""What host and sandbox both name: references to callables, call ids, the codec, frames and the bound on a message."""

from ..._lazy import exporter as _exporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._callable import RemoteCallable
    from ..._ids import CallId
    from .codec import ExtDecodeError, ExtType, pack, unpack
    from .framing import MAX_MESSAGE_BYTES, FrameTooLarge, pack_frame

__all__ = [
    "MAX_MESSAGE_BYTES",
    "CallId",
    "ExtDecodeError",
    "ExtType",
    "FrameTooLarge",
    "RemoteCallable",
    "pack",
    "pack_frame",
    "unpack",
]

__getattr__, __dir__ = _exporter(
    __name__,
    {
        "agentix._callable": ["RemoteCallable"],
        "agentix._ids": ["CallId"],
        "agentix.runtime.shared.codec": ["ExtDecodeError", "ExtType", "pack", "unpack"],
        "agentix.runtime.shared.framing": ["MAX_MESSAGE_BYTES", "FrameTooLarge", "pack_frame"],
    },
)
