"""The bound on one message: an HTTP body or a frame between server and worker."""

# AGX_MAX_MESSAGE in src/proto/limits.h.
MAX_MESSAGE_BYTES: int = 256 << 20


class FrameTooLarge(ValueError):
    """A message is longer than `MAX_MESSAGE_BYTES`; nothing of it was sent or read."""


FrameTooLarge.__module__ = "agentix.runtime.shared"
