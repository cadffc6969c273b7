"""What may be a remote target: something that the sandbox finds again under its module and qualified name.

Refused with TypeError before anything is sent: what has no such name, or whose name would find something else.
"""

import os
import sys
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

# AGX_MAX_CALLABLE in src/proto/limits.h.
MAX_BYTES = 4096

_MAIN = ("__main__", "__mp_main__")
_ADVICE = "define a function at the top level of a module and pass what it needs as arguments"


def name_of(fn: Any) -> str:
    """Return `module::qualname` of `fn`; raise TypeError, which says the broken rule, if it cannot be a target."""
    _check_kind(fn)
    module: Any = getattr(fn, "__module__", None)
    qualname: Any = getattr(fn, "__qualname__", None)
    if isinstance(fn, (FunctionType, BuiltinFunctionType)):
        module, qualname = _checked_name(module, qualname)
    elif not _stands_for_itself(fn, module, qualname):
        what = "functools.partial objects and other callable instances" if _is_partial(fn) else "callable instances"
        raise TypeError(f"{what} cannot be remote targets: {_a(type(fn).__name__)}; {_ADVICE}")
    if module in _MAIN:
        module = _importable_main(module, qualname)
    name = f"{module}::{qualname}"
    if len(name.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise TypeError(f"the name of a remote target must not be longer than {MAX_BYTES} bytes: {name[:60]}...")
    return name


def _check_kind(fn: Any) -> None:
    if not callable(fn):
        hint = "; pass the function itself, not its name" if isinstance(fn, str) else ""
        raise TypeError(f"a remote target must be a function, not {_a(type(fn).__name__)}{hint}")
    if isinstance(fn, type):
        raise TypeError(f"a class cannot be a remote target: {fn.__module__}.{fn.__qualname__}; wrap it in a function")
    if isinstance(fn, (MethodType, MethodWrapperType)) or _is_bound_builtin(fn):
        name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", "?")
        raise TypeError(f"a bound method cannot be a remote target: {name}; {_ADVICE}")
    if isinstance(fn, (MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType)):
        raise TypeError(f"a method of a C type cannot be a remote target: {fn.__qualname__}; {_ADVICE}")


def _checked_name(module: Any, qualname: Any) -> tuple[str, str]:
    if not isinstance(qualname, str) or not isinstance(module, str) or not module:
        raise TypeError(f"a remote target needs a module to be imported from: {qualname!r} has none; {_ADVICE}")
    if qualname.rpartition(".")[2] == "<lambda>":
        raise TypeError(f"a lambda cannot be a remote target: it has no name in {module}; {_ADVICE}")
    if "<locals>" in qualname:
        raise TypeError(
            f"a function defined inside another one (a closure) cannot be a remote target: {module}::{qualname};"
            f" {_ADVICE}"
        )
    if "::" in module or not all(part.isidentifier() for part in qualname.split(".")):
        raise TypeError(f"a remote target needs an importable name, which {module}::{qualname} is not")
    return module, qualname


def _is_bound_builtin(fn: Any) -> bool:
    return isinstance(fn, BuiltinFunctionType) and not isinstance(fn.__self__, (ModuleType, type(None)))


def _is_partial(fn: Any) -> bool:
    functools = sys.modules.get("functools")
    return functools is not None and isinstance(fn, functools.partial)


def _stands_for_itself(fn: Any, module: Any, qualname: Any) -> bool:
    """Whether a callable that is not a function, such as numpy's or one made by lru_cache, is found by its own name."""
    if _is_partial(fn) or not isinstance(module, str) or not isinstance(qualname, str):
        return False
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found is fn


def _importable_main(main: str, qualname: str) -> str:
    """The name under which the running script can be imported.

    That is its module name if it was started with `python -m`, else its path below an entry of `sys.path`.
    """
    module = sys.modules.get(main)
    spec = getattr(module, "__spec__", None)
    if spec is not None and spec.name not in _MAIN:
        return spec.name
    file = getattr(module, "__file__", None)
    name = _module_name_of(file) if isinstance(file, str) else None
    if name is None:
        where = f"in {file}, which no entry of sys.path makes importable" if file else "in an interactive session"
        raise TypeError(
            f"{qualname} is defined {where}, so the sandbox cannot import it; move it to a module of its own"
        )
    return name


def _module_name_of(file: str) -> str | None:
    """The dotted name of a file, links resolved first, as Python does for the script's own entry of `sys.path`.

    An entry that is itself a package's directory counts only if no other one fits.
    """
    inside: str | None = None
    for path in dict.fromkeys((os.path.realpath(file), os.path.abspath(file))):
        stem, extension = os.path.splitext(path)
        for entry in sys.path if extension in (".py", ".pyc") else ():
            root = os.path.join(os.path.abspath(entry), "")
            parts = stem.removeprefix(root).split(os.sep)
            if not stem.startswith(root) or parts == ["__main__"] or not all(part.isidentifier() for part in parts):
                continue
            if not os.path.exists(os.path.join(root, "__init__.py")):
                return ".".join(parts)
            inside = inside or ".".join(parts)
    return inside


def _a(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
