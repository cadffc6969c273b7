"""Begins to forward log records when user code imports `logging`, and not before: most workers need not pay for it."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def watch() -> None:
    """From now on the worker's log records go to the host."""
    if "logging" in sys.modules:
        _install()
    else:
        sys.meta_path.insert(0, _Finder())


def _install() -> None:
    from . import _log_forward

    _log_forward.install()


class _Finder:
    """Finds `logging` as everybody else would, once."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "logging":
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec: Any = finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader:
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _install()
