"""Any value in the kinds that msgpack and JSON have: for log records and traces, which hold whatever users put in."""

from typing import Any, cast

DEPTH_MAX = 32
ITEMS_MAX = 10_000
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1


def plain(value: Any, *, binary: bool = True) -> Any:
    """Return `value` with everything that msgpack cannot carry replaced by its `repr`, within lists and dicts too.

    Keys become strings. What lies deeper than `DEPTH_MAX` is replaced likewise, and after `ITEMS_MAX` items what is
    left is named by its type alone, so that circles end. Without `binary`, bytes are replaced as well. Never raises.
    """
    return _Plain(binary).of(value, 0)


class _Plain:
    def __init__(self, binary: bool) -> None:
        self._binary = binary
        self._left = ITEMS_MAX

    def of(self, value: Any, depth: int) -> Any:
        self._left -= 1
        kind = cast(type[Any], type(value))
        if value is None or kind is bool or (kind is float and value - value == 0):
            return value
        if kind is str:
            return _clean(value)
        if kind is int and _INT_MIN <= value <= _INT_MAX:
            return value
        if kind is bytes and self._binary:
            return value
        if self._left < 0:
            return f"<{kind.__name__}>"
        if depth < DEPTH_MAX and kind is dict:
            return {self._key(key): self.of(item, depth + 1) for key, item in list(value.items())}
        if depth < DEPTH_MAX and kind in (list, tuple):
            return [self.of(item, depth + 1) for item in list(value)]
        return shown(value)

    def _key(self, key: Any) -> str:
        return _clean(key) if type(key) is str else shown(key)


def shown(value: Any) -> str:
    """Return the `repr` of a value whatever its class makes of that: then only the class is named."""
    try:
        return _clean(repr(value))
    except Exception:  # user code, or nested too deep
        return f"<{type(value).__name__}, which has no repr>"


def _clean(text: str) -> str:
    """Without lone surrogates, which UTF-8 cannot carry."""
    return text if text.isascii() else str.encode(text, "utf-8", "backslashreplace").decode()
