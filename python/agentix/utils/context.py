"""Values that go along with each call: what is set here on the host can be read in the sandbox.

    from agentix import context

    with context.scope(rollout=17):
        await sandbox.remote(step)      # in step: context.get("rollout") == 17

Values belong to the current `contextvars` context, as a task's do. They travel pickled, from the host to the sandbox
only: what a target sets is seen by what that target calls, and by nobody after it.
"""

from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

from agentix import _ambient

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

__all__ = ["clear", "get", "scope", "set", "snapshot", "var"]

_EMPTY: "Mapping[str, Any]" = {}
_UNSET: Any = object()

_bag: "ContextVar[Mapping[str, Any]]" = ContextVar("agentix.context", default=_EMPTY)
_vars: dict[str, ContextVar[Any]] = {}
_defaults: dict[str, Any] = {}


def var(name: str, *, default: Any) -> ContextVar[Any]:
    """Return the context variable `name`, whose value goes along with each call; the same one for the same name.

    In a sandbox it has the value that the caller's had. Raises ValueError for a name that begins with "agentix.".
    """
    known = _vars.get(name)
    if known is None:
        _must_be_free(name)
        known = _vars[name] = ContextVar(name, default=default)
        _defaults[name] = default
        carried = _bag.get().get(name, _UNSET)
        if carried is not _UNSET:  # the call's context was there before the module that declares the variable
            known.set(carried)
    return known


def get(key: str, default: Any = None) -> Any:
    """Return the value of `key`, or `default` if it is not set."""
    variable = _vars.get(key)
    value = _UNSET if variable is None else variable.get(_UNSET)
    return _bag.get().get(key, default) if value is _UNSET else value


def set(**values: Any) -> None:
    """Set values, beside those that are set already."""
    enter({**_bag.get(), **values})


@contextmanager
def scope(**values: Any) -> "Generator[dict[str, Any]]":
    """Set values for the body of a `with` statement, which gets all that are set then."""
    before = _bag.get()
    tokens = enter({**before, **values})
    try:
        yield snapshot()
    finally:
        _bag.set(before)
        for variable, token in tokens:
            variable.reset(token)


def snapshot() -> dict[str, Any]:
    """Return all values that are set, those of variables included; it is this that goes along with a call."""
    values = dict(_bag.get())
    for name, variable in _vars.items():
        value = variable.get(_UNSET)
        if value is not _UNSET and value is not _defaults[name]:
            values[name] = value
    return values


def clear() -> None:
    """Unset everything in the current context; variables go back to their defaults."""
    _bag.set(_EMPTY)
    for name, variable in _vars.items():
        if variable.get(_UNSET) is not _UNSET:
            variable.set(_defaults[name])


def enter(values: "Mapping[str, Any]") -> "list[tuple[ContextVar[Any], Token[Any]]]":
    """Make these all the values of the current context, each in its variable if there is one."""
    loose = {name: value for name, value in values.items() if name not in _vars}
    tokens = [(_vars[name], _vars[name].set(value)) for name, value in values.items() if name in _vars]
    _bag.set(loose)
    return tokens


def _must_be_free(name: str) -> None:
    if name.startswith(_ambient.RESERVED):
        raise ValueError(f"a context variable's name may not begin with {_ambient.RESERVED!r}: {name!r}")


_ambient.register("", snapshot)
