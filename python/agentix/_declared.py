"""Which classes the return annotation of a function admits, and how each of them is rebuilt.

`remote(fn, ...)` names a function of the host, so what its annotation says comes from the host and not from the
sandbox. It is read once per function, when one of its values first names a class that is not on the allowlist. The
result maps (module, qualname) to a plan for the restricted loader, or to a text: why that class, though declared, is
not admitted without `allow_type`. An annotation that cannot be evaluated admits nothing, and is no error.

A class is rebuilt without any code of its own: a plain dataclass and a NamedTuple get exactly their declared fields, a
member of an Enum is looked up by value. The exception is a pydantic model, whose `model_validate` is there for this.
"""

import collections
import dataclasses
import enum
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["plans_of"]

Plan = tuple[str, type, dict[str, str], int, Callable[..., Any] | None]
"""How ("fields", "items", "enum" or "model"), the class, its fields, how many of them must be there, and what makes
a member or fills a model."""
Spaces = tuple[Mapping[str, Any], Mapping[str, Any]]

_KNOWN_MAX = 1024
_PARTS_MAX = 10_000
"""Pieces of one annotation, the fields of its classes included."""
_FLAG_BITS_MAX = 10
"""Enum keeps every combination of flags that was asked for; of more bits, only members with a name are admitted."""

_known: dict[Callable[..., Any], dict[tuple[str, str], Plan | str]] = {}


def plans_of(fn: Callable[..., Any]) -> dict[tuple[str, str], Plan | str]:
    """Return what the return annotation of `fn` admits: empty if there is none, or it says nothing."""
    try:
        return _known[fn]
    except (KeyError, TypeError):
        pass
    plans: dict[tuple[str, str], Plan | str] = {}
    annotation, spaces = _return_of(fn)
    todo = [(annotation, spaces)]
    for _ in range(_PARTS_MAX):
        if not todo:
            break
        try:
            todo += _parts(*todo.pop(), plans)
        except Exception:  # an annotation may be anything, and run anything of its author's
            continue
    if type(fn) in (types.FunctionType, types.BuiltinFunctionType):
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[fn] = plans
    return plans


# ---- what an annotation consists of ----


def _return_of(fn: Callable[..., Any]) -> tuple[Any, Spaces]:
    try:
        annotation = getattr(fn, "__annotations__", {}).get("return")
    except Exception:
        return None, ({}, {})
    inner = fn
    for _ in range(_KNOWN_MAX):  # functools.wraps() copies the annotations, but they mean names of the inner module
        if not hasattr(inner, "__wrapped__"):
            break
        inner = inner.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    return annotation, (getattr(inner, "__globals__", {}), {})


def _parts(part: Any, spaces: Spaces, plans: dict[tuple[str, str], Plan | str]) -> list[tuple[Any, Spaces]]:
    """Return what is left to look at once `part` has been; the plan of a class goes into `plans`."""
    if isinstance(part, typing.ForwardRef):
        part = part.__forward_arg__
    if isinstance(part, str):
        return [(eval(part, dict(spaces[0]), dict(spaces[1])), spaces)]
    origin = typing.get_origin(part)
    if origin is not None:
        return [(each, spaces) for each in _arguments(origin, typing.get_args(part))]
    if isinstance(part, type):
        return _class(part, plans)
    if isinstance(part, typing.NewType):
        return [(part.__supertype__, spaces)]
    if isinstance(part, typing.TypeVar):
        return [(each, spaces) for each in (part.__bound__, *part.__constraints__)]
    if hasattr(part, "__type_params__"):  # `type X = ...`, of Python 3.12
        return [(part.__value__, (vars(sys.modules[part.__module__]), {}))]
    return []


def _arguments(origin: Any, arguments: tuple[Any, ...]) -> Iterable[Any]:
    if origin is typing.Literal:
        return [type(each) for each in arguments if isinstance(each, enum.Enum)]
    if origin is typing.Annotated:
        return arguments[:1]
    if origin is type or origin is Callable:
        return []  # a class or a function itself, not an instance
    return (origin, *arguments)


def _class(cls: type, plans: dict[tuple[str, str], Plan | str]) -> list[tuple[Any, Spaces]]:
    key = cls.__module__, cls.__qualname__
    if key in plans or cls.__module__ in ("builtins", "typing", "types", "collections.abc", "collections"):
        return []
    if typing.is_typeddict(cls):
        return _annotations(cls, cls.__annotations__)
    plan = plans[key] = _plan(cls)
    if isinstance(plan, str):
        return []
    if plan[0] == "model":
        fields: dict[str, Any] = getattr(cls, "model_fields")  # noqa: B009  # pyright: ignore[reportUnknownVariableType]
        return [(field.annotation, _spaces(cls)) for field in fields.values()]
    if plan[0] == "fields":
        return _annotations(cls, {field.name: field.type for field in dataclasses.fields(cls)})
    return _annotations(cls, dict.fromkeys(plan[2]))


def _annotations(cls: type, annotations: Mapping[str, Any]) -> list[tuple[Any, Spaces]]:
    """The annotation of each name, with the namespaces of that class of the MRO which wrote it."""
    found: list[tuple[Any, Spaces]] = []
    for name, annotation in annotations.items():
        for owner in cls.__mro__:
            own: dict[str, Any] = vars(owner).get("__annotations__", {})
            if name in own:
                found.append((own[name] if annotation is None else annotation, _spaces(owner)))
                break
    return found


def _spaces(cls: type) -> Spaces:
    return vars(sys.modules[cls.__module__]), {cls.__name__: cls, **vars(cls)}


# ---- how a class is rebuilt ----


def _plan(cls: Any) -> Plan | str:
    if enum.Enum in cls.__mro__:
        return "enum", cls, {}, 1, _finder(cls)
    if _is_model(cls):
        reason = _foreign(cls, {"__new__"}, _never)
        return reason or ("model", cls, {}, 1, _filler(cls))
    if tuple in cls.__mro__ and isinstance(getattr(cls, "_fields", None), tuple):
        return _named_tuple(cls)
    if "__dataclass_fields__" in vars(cls):
        return _dataclass(cls)
    return "is declared, but is no dataclass, NamedTuple, Enum or pydantic model"


def _lookup(cls: type, name: str) -> tuple[type | None, Any]:
    for owner in cls.__mro__:
        if name in vars(owner):
            return owner, vars(owner)[name]
    return None, None


def _never(owner: type, name: str, found: Any) -> bool:
    return False


def _foreign(cls: type, names: Iterable[str], harmless: Callable[[type, str, Any], bool]) -> str | None:
    """Say which of these methods is the class's own, so that rebuilding an instance could run it."""
    for name in sorted(names):
        owner, found = _lookup(cls, name)
        if owner is not None and owner is not object and owner is not tuple and not harmless(owner, name, found):
            return f"is declared, but has its own {name}, which data of the sandbox's choice would reach"
    return None


_RUN = {"__setattr__", "__setstate__", "__reduce__", "__reduce_ex__", "__hash__", "__eq__", "__del__"}


def _dataclass(cls: Any) -> Plan | str:
    reason = _foreign(cls, _RUN | {"__new__", "__post_init__"}, _is_generated)
    if reason:
        return reason
    fields = dataclasses.fields(cls)
    for field in fields:
        found: object = _lookup(cls, field.name)[1]
        if hasattr(type(found), "__set__") and not isinstance(found, types.MemberDescriptorType):
            return f"is declared, but its field {field.name} is a property"
    return "fields", cls, {field.name: field.name for field in fields}, sum(field.init for field in fields), None


def _is_generated(owner: type, name: str, found: Any) -> bool:
    """Whether a method is what the dataclass decorator writes, and not the class's author."""
    if name == "__hash__" and found is None:
        return True
    if name == "__setstate__":
        return found is getattr(dataclasses, "_dataclass_setstate", owner)
    params = vars(owner).get("__dataclass_params__")
    if params is None or name not in ("__hash__", "__eq__", "__setattr__"):
        return False
    fields = [
        (field.name, object, dataclasses.field(compare=field.compare, hash=field.hash))
        for field in dataclasses.fields(owner)
    ]
    twin = dataclasses.make_dataclass(
        "Twin", fields, eq=params.eq, frozen=params.frozen, unsafe_hash=params.unsafe_hash
    )
    return _same_code(found, vars(twin).get(name))


def _same_code(one: Any, two: Any) -> bool:
    if not isinstance(one, types.FunctionType) or not isinstance(two, types.FunctionType):
        return False
    a, b = one.__code__, two.__code__
    return (a.co_code, a.co_consts, a.co_names, a.co_varnames, a.co_freevars) == (
        b.co_code,
        b.co_consts,
        b.co_names,
        b.co_varnames,
        b.co_freevars,
    )


def _named_tuple(cls: Any) -> Plan | str:
    fields: tuple[str, ...] = cls._fields
    make: Any = collections.namedtuple
    new = make("Twin", fields, rename=True).__new__
    reason = _foreign(
        cls, _RUN | {"__new__"}, lambda _, name, found: name == "__new__" and _same_code(_plain(found), new)
    )
    return reason or ("items", cls, {name: name for name in fields}, len(fields), None)


def _plain(function: Any) -> Any:
    return getattr(function, "__func__", function)  # of a static method


# ---- members and models ----


def _finder(cls: type[enum.Enum]) -> Callable[[Any], enum.Enum]:
    """Return what looks a member up by value, and neither makes one nor asks `_missing_`."""
    members: list[enum.Enum] = list(cls.__members__.values())
    by_value: dict[Any, enum.Enum] = cls._value2member_map_  # pyright: ignore[reportAssignmentType]
    mask = 0
    if issubclass(cls, enum.Flag) and _lookup(cls, "_missing_")[0] is enum.Flag:
        mask = getattr(cls, "_flag_mask_", 0)
        mask = mask if mask.bit_count() <= _FLAG_BITS_MAX else 0

    def find(value: Any) -> enum.Enum:
        try:
            found = by_value.get(value)
        except TypeError:  # not hashable
            found = next((each for each in members if each.value == value), None)
        if found is not None:
            return found
        if mask and type(value) is int and 0 <= value <= mask and not value & ~mask:
            return cls(value)
        raise LookupError("no member has that value")

    return find


def _is_model(cls: type) -> bool:
    pydantic = sys.modules.get("pydantic")
    base = getattr(pydantic, "BaseModel", None)
    return isinstance(base, type) and issubclass(cls, base) and hasattr(cls, "model_validate")


_MODEL_PARTS = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")


def _filler(cls: Any) -> Callable[[Any, Any], None]:
    """Return what gives a fresh instance the contents of one that `model_validate` has made of the state."""

    def fill(instance: Any, state: dict[str, Any]) -> None:
        values: dict[str, Any] = dict(state["__dict__"])
        if cls.model_config.get("extra") == "allow":
            values.update(state.get("__pydantic_extra__") or {})
        made = _validated(cls, values)
        if type(made) is not cls:
            raise TypeError(f"model_validate() gave a {type(made).__qualname__}")
        for name in _MODEL_PARTS:
            object.__setattr__(instance, name, getattr(made, name, None))
        sent = state.get("__pydantic_fields_set__")
        if type(sent) is set:
            object.__setattr__(instance, "__pydantic_fields_set__", sent & made.__pydantic_fields_set__)

    return fill


def _validated(cls: Any, values: dict[str, Any]) -> Any:
    if getattr(cls, "__pydantic_root_model__", False):
        return cls.model_validate(values["root"])
    aliases = {name: field.validation_alias for name, field in cls.model_fields.items()}
    if not any(aliases.values()):
        return cls.model_validate(values)
    if all(alias is None or isinstance(alias, str) for alias in aliases.values()):
        return cls.model_validate({aliases.get(name) or name: value for name, value in values.items()})
    return cls.model_validate(values, by_alias=False, by_name=True)  # pydantic 2.11
