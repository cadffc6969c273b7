"""Texts of log records: which attributes are the record's own, templates, and what must not reach a terminal."""

import logging
import os
import re
import socket

RESERVED = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {
    "message",
    "asctime",
    "agentix_context",
    "agentix_sandbox",
    "taskName",
}
"""Attributes that `extra` cannot set."""
FORWARD = "agentix_forward"
"""The attribute of a record that goes to the host although those of its logger do not."""

_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_UNSAFE = re.compile(f"[{_CONTROLS}]")
_UNSAFE_LINE = re.compile(f"[{_CONTROLS}\t\n]")
_BRACES = re.compile(r"\{(uname|hostname|pid|id)\}")


def expand(template: str, ident: str) -> str:
    """Fill in {uname}, {hostname}, {pid} and {id}; other braces stay."""
    values = {"uname": _user, "hostname": socket.gethostname, "pid": lambda: str(os.getpid()), "id": lambda: ident}
    return _BRACES.sub(lambda match: values[match[1]](), template)


def escape(text: str) -> str:
    """Make control characters visible, except tab and newline."""
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_visible, text)


def escape_line(text: str) -> str:
    """Make control characters visible, all of them: the text stays on one line."""
    return text if text.isascii() and text.isprintable() else _UNSAFE_LINE.sub(_visible, text)


def _visible(match: re.Match[str]) -> str:
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(match[0])
    code = ord(match[0])
    return known or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid())
