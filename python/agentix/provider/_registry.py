"""Named things that other distributions contribute through an entry-point group.

A registry reads the metadata of what is installed, imports one entry only when it is asked for, and keeps one broken
or doubly defined entry from hiding the others. The metadata is read again when `sys.path` changes or after `reset`;
what an entry gave, an object or an exception, is kept until then.
"""

import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from .base import SandboxProvider

T = TypeVar("T")

PROVIDERS = "agentix.provider"


class RegistryConflict(RuntimeError):
    """Two distributions claim one name in a group; uninstall one of them."""


@dataclass(frozen=True)
class Source:
    """Where an entry comes from; `value` is its `module:attribute`, None for one registered in this process."""

    dist: str | None = None
    version: str | None = None
    value: str | None = None

    def label(self) -> str:
        """Return `dist@version`, or `(in-process)`."""
        return f"{self.dist}@{self.version}" if self.dist is not None else "(in-process)"


@dataclass(frozen=True)
class SourceConflict:
    """The sources of a name that several distributions claim."""

    sources: tuple[Source, ...]

    def label(self) -> str:
        """Return every `dist@version`."""
        return " and ".join(source.label() for source in self.sources)


_Entries = dict[str, list[tuple[Source, importlib.metadata.EntryPoint]]]


class Registry(Generic[T]):
    """The entries of one group, by name. Entries registered in this process go before installed ones."""

    def __init__(self, group: str, check: Callable[[str, Any], T]) -> None:
        self._group = group
        self._check = check
        self._factories: dict[str, Callable[[], T]] = {}
        self._loaded: dict[str, T] = {}
        self._failed: dict[str, tuple[Exception, TracebackType | None]] = {}
        self._installed: _Entries = {}
        self._scanned: tuple[str, ...] | None = None

    def get(self, name: str) -> T:
        """Return the entry, importing it if need be.

        Raises KeyError, naming the group and what there is, if there is no such entry, RegistryConflict if several
        distributions claim it, and whatever its import raises.
        """
        installed = self._scan()
        if name in self._loaded:
            return self._loaded[name]
        if name in self._failed:
            failure, traceback = self._failed[name]
            raise failure.with_traceback(traceback)
        if name not in self._factories and name not in installed:
            available = ", ".join(sorted({*self._factories, *installed})) or "none is installed"
            raise KeyError(f"no {name!r} in entry-point group {self._group!r}; available: {available}")
        try:
            value = self._load(name)
        except Exception as exc:
            self._failed[name] = exc, exc.__traceback__
            raise
        except SystemExit as exc:
            failure = ImportError(f"{self._label(name)} tried to exit the process (code {exc.code}) when it was loaded")
            failure.__cause__ = exc
            self._failed[name] = failure, exc.__traceback__
            raise failure from exc
        self._loaded[name] = value
        return value

    def all(self) -> dict[str, T]:
        """Return every entry that can be imported, sorted by name; `errors` has the others."""
        found: dict[str, T] = {}
        for name in self._names():
            try:
                found[name] = self.get(name)
            except Exception:
                continue
        return found

    def errors(self) -> dict[str, Exception]:
        """Return what `get` raises for each entry that cannot be had."""
        found: dict[str, Exception] = {}
        for name in self._names():
            try:
                self.get(name)
            except Exception as exc:
                found[name] = exc
        return found

    def sources(self) -> dict[str, Source | SourceConflict]:
        """Return where each entry comes from, without importing any; `label()` is for people."""
        return {name: self._source(name) for name in self._names()}

    def register(self, name: str, factory: Callable[[], T]) -> None:
        """Add an entry for this process: `factory` is called once, when the entry is first asked for.

        It takes the place of an installed entry, and of an earlier one, of the same name.
        """
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a name in group {self._group!r} must be a non-empty str, not {name!r}")
        if not callable(factory):
            raise TypeError(f"the factory of {name!r} must be callable, not {type(factory).__name__}")
        self._factories[name] = factory
        self._forget(name)

    def reset(self) -> None:
        """Drop the entries of this process and read the metadata again when next asked."""
        self._factories.clear()
        self._scanned = None

    def _names(self) -> list[str]:
        return sorted({*self._factories, *self._scan()})

    def _label(self, name: str) -> str:
        return f"{name!r} of {self._source(name).label()}"

    def _source(self, name: str) -> Source | SourceConflict:
        if name in self._factories:
            return Source()
        sources = tuple(source for source, _ in self._installed[name])
        return sources[0] if len(sources) == 1 else SourceConflict(sources)

    def _load(self, name: str) -> T:
        factory = self._factories.get(name)
        if factory is not None:
            return factory()
        entries = self._installed[name]
        if len(entries) > 1:
            label = SourceConflict(tuple(source for source, _ in entries)).label()
            raise RegistryConflict(
                f"{name!r} in entry-point group {self._group!r} is claimed by {label}; uninstall all but one"
            )
        source, entry = entries[0]
        if entry.pattern.match(entry.value) is None:
            raise ImportError(f"{name!r} of {source.label()} does not have the form module:attribute: {entry.value!r}")
        return self._check(f"{name!r} of {source.label()}", entry.load())

    def _forget(self, name: str) -> None:
        self._loaded.pop(name, None)
        self._failed.pop(name, None)

    def _scan(self) -> _Entries:
        path = tuple(sys.path)
        if path != self._scanned:
            self._installed = _entries_of(self._group)
            self._scanned = path
            self._loaded.clear()
            self._failed.clear()
        return self._installed


def _entries_of(group: str) -> _Entries:
    found: _Entries = {}
    for dist in _distributions():
        entries = _entry_points_of(dist, group)
        if not entries:
            continue
        name, version = _name_and_version(dist)
        for entry in entries:
            claims = found.setdefault(entry.name, [])
            source = Source(name, version, entry.value)
            if source not in (claim for claim, _ in claims):
                claims.append((source, entry))
    return found


def _distributions() -> Iterator[importlib.metadata.Distribution]:
    """The installed distributions; of two of one name the first on `sys.path`, which is the one that is imported."""
    importlib.invalidate_caches()
    seen: set[str] = set()
    for dist in importlib.metadata.distributions():
        key = _key(dist)
        if key is None or key not in seen:
            if key is not None:
                seen.add(key)
            yield dist


def _key(dist: importlib.metadata.Distribution) -> str | None:
    # The standard library's own key comes from the directory's name, without parsing METADATA.
    try:
        key: object = getattr(dist, "_normalized_name", None) or dist.metadata["Name"]
    except Exception:
        return None
    return key if isinstance(key, str) else None


def _entry_points_of(dist: importlib.metadata.Distribution, group: str) -> list[importlib.metadata.EntryPoint]:
    # A distribution with unreadable metadata offers nothing and must not take the others with it.
    try:
        return [entry for entry in dist.entry_points if entry.group == group]
    except Exception:
        return []


def _name_and_version(dist: importlib.metadata.Distribution) -> tuple[str, str]:
    try:
        metadata = dist.metadata
        name, version = metadata["Name"], metadata["Version"]
    except Exception:
        name = version = None
    return str(name or _key(dist) or "unknown"), str(version or "unknown")


def _provider_class(label: str, value: Any) -> "type[SandboxProvider]":
    if not isinstance(value, type):
        raise TypeError(f"{label} is not a provider class but of type {type(value).__name__}")
    return value


_providers: "Registry[type[SandboxProvider]]" = Registry(PROVIDERS, _provider_class)


def providers() -> "Registry[type[SandboxProvider]]":
    """Return the registry of provider classes: the entry-point group `agentix.provider` and `register_provider`."""
    return _providers


def register_provider(name: str, cls: "type[SandboxProvider]") -> None:
    """Make `cls` available as `providers().get(name)` in this process, before an installed backend of that name."""
    _provider_class(f"provider {name!r}", cls)
    _providers.register(name, lambda: cls)


Registry.__module__ = "agentix.provider"
providers.__module__ = register_provider.__module__ = "agentix"
