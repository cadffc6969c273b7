"""Names of namespaces and sizes of events, on both sides."""

from __future__ import annotations

from .runtime.shared.framing import FrameTooLarge

RESERVED = ("/rpc", "/log", "/trace")
# Bytes: AGX_SIO_NAME_MAX in src/proto/limits.h.
_NAME_MAX = 256
# Bytes: AGX_EVENT_MAX in src/proto/limits.h.
EVENT_MAX = 16 << 20


def check_name(name: object) -> None:
    """Raise ValueError for a name that cannot be a plugin's namespace."""
    if not isinstance(name, str) or not name.startswith("/") or name == "/":
        raise ValueError(f'a namespace\'s name begins with "/" and says more, unlike {name!r}')
    if name in RESERVED:
        raise ValueError(f"the namespace {name} is reserved for Agentix itself")
    if len(name.encode()) > _NAME_MAX or not name.isprintable() or any(c in name for c in ",? "):
        raise ValueError(
            f"the name of the namespace {name[:40]!r} is too long, or has a character that cannot be in it"
        )


def check_size(namespace: str, event: str, payload: bytes) -> None:
    """Raise `FrameTooLarge` for an event whose packed data is larger than one may be."""
    if len(payload) > EVENT_MAX:
        raise FrameTooLarge(
            f"{namespace}: the event {event[:40]!r} has {len(payload):,} bytes of data and was not sent: one event may "
            f"have {EVENT_MAX:,}; send it in parts, or as an argument, a return value or items of a stream"
        )
