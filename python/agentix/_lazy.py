"""Packages that cost nothing until a name of theirs is used.

Every worker starts by importing `agentix`, so the package's `__init__` files import nothing but this module: the
public names are loaded from a table on first use (PEP 562), and the search path is extended without `pkgutil`, whose
import alone takes longer than ours may.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def exporter(
    package: str, modules: "Mapping[str, Iterable[str]]"
) -> "tuple[Callable[[str], object], Callable[[], list[str]]]":
    """Return the `__getattr__` and `__dir__` of `package`, whose names live in other modules.

    `modules` maps a module's full name to the names taken from it. A name is stored in the package when it is first
    read, so `__getattr__` is called once per name.
    """
    home = {name: module for module, names in modules.items() for name in names}
    namespace = sys.modules[package].__dict__

    def load(name: str) -> object:
        module = home.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        __import__(module)
        value = namespace[name] = getattr(sys.modules[module], name)
        return value

    def names() -> list[str]:
        return sorted({*namespace, *home})

    return load, names


def extend_path(path: "Iterable[str]", package: str) -> list[str]:
    """Return `path` and every other directory of `package` on the search path, so that other wheels can add siblings.

    Does what `pkgutil.extend_path` does, zip files included, without `.pkg` files. The search path is `sys.path`, or
    the parent package's `__path__`.
    """
    parent, _, leaf = package.rpartition(".")
    extended = list(path)
    for entry in sys.modules[parent].__path__ if parent else sys.path:
        for portion in _portions(entry, leaf):
            if portion not in extended:
                extended.append(portion)
    return extended


def _portions(entry: str, leaf: str) -> "Iterable[str]":
    directory = os.path.join(entry or os.getcwd(), leaf)
    if os.path.isdir(directory):  # what the import system would find, without its listing of all of `entry`
        return (directory,)
    return _portions_of_archive(entry, leaf) if os.path.isfile(entry) else ()


def _portions_of_archive(entry: str, leaf: str) -> "Iterable[str]":
    for hook in sys.path_hooks:
        try:
            spec = hook(entry).find_spec(leaf)
        except ImportError:
            continue
        return (spec.submodule_search_locations if spec else None) or ()
    return ()
