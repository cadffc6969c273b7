"""The frames between server and worker, and the bound on one message: an HTTP body or a frame."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["MAX_MESSAGE_BYTES", "FrameTooLarge", "pack_frame"]

# AGX_MAX_MESSAGE in src/proto/limits.h.
MAX_MESSAGE_BYTES: int = 256 << 20


class FrameTooLarge(ValueError):
    """A message is longer than `MAX_MESSAGE_BYTES`, or an event than 16 MiB; nothing of it was sent or read."""


FrameTooLarge.__module__ = "agentix.runtime.shared"


def pack_frame(payload: "Mapping[str, Any]") -> bytes:
    """Return a frame: four bytes of length, little-endian, and the map as msgpack.

    Raises `FrameTooLarge` if it would be longer than `MAX_MESSAGE_BYTES`, and what `pack` raises.
    """
    from .codec import pack

    body = pack(dict(payload))
    return len(body).to_bytes(4, "little") + body
