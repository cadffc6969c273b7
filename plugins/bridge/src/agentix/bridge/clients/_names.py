"""Names in the lengths that the Chat Completions API takes, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

_NAME = 64
_USER = 64


def short_name(name: str) -> str:
    """Return a tool's name within 64 characters, always the same for the same name."""
    return name if len(name) <= _NAME else f"{name[: _NAME - 17]}_{_digest(name)[:16]}"


def short_user(user: str) -> str:
    """Return a user's id within 64 characters."""
    return user if len(user) <= _USER else _digest(user)


def long_names(names: Iterable[str]) -> dict[str, str]:
    """Return the names that had to be shortened, by their short form."""
    return {short_name(name): name for name in names if len(name) > _NAME}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
