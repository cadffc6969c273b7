"""Decoding what a sandbox returns.

A pickle is a program, and the sandbox that wrote it is not trusted. `restricted_loads` runs it on a machine of our own
that knows values, the containers of the standard library and a fixed table of types, and nothing else: no name that the
sender chose is imported or called. What it rebuilds: None, bool, int, float, complex, str, bytes, bytearray, list,
tuple, dict, set, frozenset, range, slice, Ellipsis, NotImplemented; `datetime` with `timezone`, `Decimal`, `Fraction`,
`UUID`, paths, `OrderedDict`, `Counter`, `deque`, `defaultdict` of a builtin factory, `SimpleNamespace`; the builtin
exceptions; where the host has imported numpy, arrays and scalars of numbers, times, strings and raw bytes; and the
classes given to `allow_type`. Those classes themselves may be part of a value, too.
"""

import os
from collections.abc import Callable
from typing import Any

from agentix import _core

__all__ = ["allow_type", "restricted_loads"]

_TRUST_VARIABLE = "AGENTIX_PICKLE_TRUST"

_allowed: dict[tuple[str, str], type] = {}


def _trusts() -> bool:
    return os.environ.get(_TRUST_VARIABLE, "").strip().lower() in {"1", "true", "yes"}


def allow_type(cls: type) -> None:
    """Let sandboxes return instances of exactly `cls`, which its module and qualified name stand for.

    The class given here is the one that is rebuilt, whatever its module's attribute is later bound to; subclasses are
    not included. Its own code may then run on this host with arguments that the sandbox chose: `__new__`,
    `__setstate__`, and, if it says itself how it is pickled (`__reduce__`), its constructor. An Enum is looked up by
    value.

    Raises `TypeError` if `cls` is not a class, or is one that makes classes.
    """
    # A caller without type checks can pass anything.
    if not isinstance(cls, type):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"allow_type() takes a class, not {type(cls).__name__}")
    if issubclass(cls, type):
        raise TypeError(f"allow_type() takes no metaclass: {cls.__qualname__} makes classes")
    _allowed[cls.__module__, cls.__qualname__] = cls


def restricted_loads(data: bytes | bytearray | memoryview) -> Any:
    """Return the value that `data`, a pickle of any protocol, describes.

    Raises `agentix.RestrictedUnpickleError` if it names anything that is not on the allowlist, would cost more memory
    or time than a pickle of its size warrants, or is malformed.

    With `AGENTIX_PICKLE_TRUST=1` (or `true`, `yes`) in the environment this is `pickle.loads`.
    """
    return _load(data, None)


class ReturnLoader:
    """What decodes the values of calls of `fn`: its return annotation admits the classes it names, by plain rules."""

    __slots__ = ("_fn",)

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    def __call__(self, data: bytes | bytearray | memoryview) -> Any:
        if _core.has_environ(_TRUST_VARIABLE) and _trusts():
            return _load(data, None)
        return _core.restricted_loads(data, extra=_allowed, declared=self._declared)

    def _declared(self) -> dict[tuple[str, str], Any]:
        """Asked by the loader once in a load, when a name is not on the allowlist."""
        from agentix._declared import plans_of

        return plans_of(self._fn)


def _load(data: bytes | bytearray | memoryview, declared: Callable[[], dict[tuple[str, str], Any]] | None) -> Any:
    # Looked at on every call, so not through os.environ, which makes two exceptions of a missing name.
    if _core.has_environ(_TRUST_VARIABLE) and _trusts():
        import pickle

        return pickle.loads(data)
    return _core.restricted_loads(data, extra=_allowed, declared=declared)
