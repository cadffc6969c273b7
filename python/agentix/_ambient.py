"""What a call carries along beside its arguments: the ambient context.

A module with state of its own to carry registers a carrier here when it is imported, under a key that begins with
`agentix.`; `agentix.utils.context` carries the user's values, under their own names. A process that has imported none
sends nothing and pays for nothing.
"""

from _contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

RESERVED = "agentix."
"""What the keys of carriers begin with, and no name of a user's value may."""

current_call: "ContextVar[str | None]" = ContextVar("agentix.call_id", default=None)
"""In a worker: the id of the call that runs in this context."""

_capture: "dict[str, Callable[[], Any]]" = {}
_HOMES = {"agentix.trace": "agentix.utils.trace._current"}


def register(key: str, capture: "Callable[[], Any]") -> None:
    """Let `capture()` be asked with each call for what `key` carries: a dict to be merged if `key` is "", else a value.

    Nothing is carried for a value that is None or empty.
    """
    _capture[key] = capture


def capture() -> bytes | None:
    """Return the pickled ambient context of the caller, or None if there is none.

    Raises TypeError, naming the value, if one cannot be pickled.
    """
    if not _capture:
        return None
    carried: dict[str, Any] = {}
    for key, take in _capture.items():
        value = take()
        if not value:
            continue
        if key:
            carried[key] = value
        else:
            carried.update(value)
    return _pickled(carried) if carried else None


def _pickled(carried: "dict[str, Any]") -> bytes:
    from _pickle import dumps

    try:
        return dumps(carried, 5)
    except Exception:
        for key, value in carried.items():
            try:
                dumps(value, 5)
            except Exception as error:
                raise TypeError(f"the ambient context's value {key!r} cannot be pickled: {error}") from error
        raise


def enter(carried: "dict[str, Any]") -> None:
    """Make the context that a call carried the one of the current `contextvars` context."""
    values: dict[str, Any] = {}
    for key, value in carried.items():
        if not key.startswith(RESERVED):
            values[key] = value
        elif key in _HOMES:  # another key is a later version's: nothing is known of it here
            _home_of(key).enter(value)
    if values:
        from .utils.context import enter

        enter(values)


def _home_of(key: str) -> "Any":
    import sys

    name = _HOMES[key]
    __import__(name)
    return sys.modules[name]
