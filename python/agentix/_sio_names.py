"""Names of namespaces, on both sides."""

from __future__ import annotations

RESERVED = ("/rpc", "/log", "/trace")
# Bytes: AGX_SIO_NAME_MAX in src/proto/limits.h.
_NAME_MAX = 256


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
