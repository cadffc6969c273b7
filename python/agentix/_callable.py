"""References to remote targets: a function of the host becomes `module::qualname`, which the worker looks up.

The worker imports this module when it starts, so it imports nothing but `sys`; what may be a target is decided on the
host, by `_target.py`.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_KNOWN_MAX = 1024


class RemoteCallable(str):
    """The name of a remote target, `module::qualname`."""

    __slots__ = ()

    @classmethod
    def validate(cls, fn: "Callable[..., Any]") -> "RemoteCallable":
        """Return the reference to `fn`; raise TypeError, which says the broken rule, if it cannot be called remotely.

        Functions, static methods and builtins that have a name in an importable module are accepted.
        """
        from ._target import name_of

        return cls(name_of(fn))

    @classmethod
    def _resolve(cls, fn: "Callable[..., Any]") -> "RemoteCallable":
        """Do what `validate` does, remembering the answer for functions: `remote` asks on every call."""
        try:
            return _known[fn]
        except (KeyError, TypeError):
            pass
        name = cls.validate(fn)
        if type(fn) in _FUNCTIONS:
            if len(_known) >= _KNOWN_MAX:
                _known.clear()
            _known[fn] = name
        return name

    def resolve(self) -> "Callable[..., Any]":
        """Import the module and return the callable.

        Raises ValueError if the text is not `module::qualname`, ModuleNotFoundError, AttributeError, TypeError if the
        name does not stand for a callable, and whatever the module raises when it is imported.
        """
        module, separator, qualname = self.partition("::")
        if not separator or not module or not qualname or module.startswith("."):
            raise ValueError(f"{str(self)!r} does not have the form module::qualname")
        __import__(module)
        found: Any = sys.modules[module]
        for part in qualname.split("."):
            found = getattr(found, part)
        if not callable(found):
            raise TypeError(f"{self} is not callable: it is of type {type(found).__name__}")
        return found


# Functions are few and live as long as their modules; other callables compare as they like and are not remembered.
_FUNCTIONS = (type(lambda: None), type(len))
_known: "dict[Callable[..., Any], RemoteCallable]" = {}

RemoteCallable.__module__ = "agentix"
