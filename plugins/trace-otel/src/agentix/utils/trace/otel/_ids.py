"""Ids of Agentix as OpenTelemetry has them: 16 bytes for a trace, 8 for a span, neither all zero."""

import re
import secrets
from hashlib import sha256

_TRACE = re.compile(r"trace_([0-9a-f]{32})")
_SPAN = re.compile(r"span_[0-9a-f]{8}([0-9a-f]{16})")
_UNBOUND = "trace_unbound"
_OURS = secrets.token_hex(16)
"""What tells the spans outside any trace of this process from those of another."""


def trace_id(text: str) -> int:
    """Return the trace id for one of Agentix."""
    found = _TRACE.fullmatch(text)
    if found and int(found[1], 16):
        return int(found[1], 16)
    return _hashed(f"{_OURS} {text}" if text == _UNBOUND else text, 16)


def span_id(text: str) -> int:
    """Return the span id for one of Agentix."""
    found = _SPAN.fullmatch(text)
    return (found and int(found[1], 16)) or _hashed(text, 8)


def root_id(text: str) -> int:
    """Return the id of the span that stands for a trace."""
    return _hashed(f"root of {text}", 8)


def _hashed(text: str, size: int) -> int:
    return int.from_bytes(sha256(text.encode("utf-8", "backslashreplace")).digest()[:size]) or 1
