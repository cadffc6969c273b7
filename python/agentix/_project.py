"""What `agentix build` asks Python for: TOML and the metadata of installed distributions.

`python -I -m agentix._project VERB ...` prints records `KEY NUL VALUE NUL` and nothing else; what is wrong with the
project comes as the record `error`. The build itself is the executable `agentix`, which reads these records.
"""

from __future__ import annotations

import datetime
import glob
import hashlib
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath
from typing import Any

from . import _npm_packages as npm

_OF_THE_INSTALLATION = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json"}
_NIX_GROUP = "agentix.nix"
_OURS = frozenset(
    f"agentix-{name}"
    for name in (
        "agent-claude-code",
        "bridge",
        "dataset-swe",
        "provider-apptainer",
        "provider-cape",
        "provider-daytona",
        "provider-docker",
        "provider-e2b",
        "provider-uv",
        "pytest",
        "runtime-basic",
        "trace-otel",
    )
)
"""Our distributions beside `agentix`: on an index these names may be anybody's."""

Record = tuple[str, str]
Table = dict[str, Any]


class ProjectError(Exception):
    """Something in the project, or in this installation, that its owner must change."""


def canonical(name: str) -> str:
    """Return a distribution's name in its normalised form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_name(requirement: str) -> str:
    """Return the normalised name at the beginning of a requirement."""
    match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", requirement)
    return canonical(match[1]) if match else ""


def _read_toml(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProjectError(f"{path.name} is not valid TOML: {error}") from None


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ProjectError(f"pyproject.toml: {what} must be a string")
    return value


def _table(value: object) -> Table:
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


# --- describe ---


def describe(project: Path, context: Path) -> Iterator[Record]:
    """Say what pyproject.toml says, which lock holds, and which distributions of ours are installed.

    Of npm packages: those of the project, and of what is ours and it asks for. Others are known when it is installed.
    """
    content = _read_toml(project / "pyproject.toml")
    about = _table(content.get("project"))
    if "name" not in about:
        raise ProjectError("pyproject.toml has no [project] table with a name")
    yield "name", _text(about["name"], "[project] name")
    for key in ("version", "requires-python"):
        if key in about:
            yield key, _text(about[key], f"[project] {key}")
    nix = _nix_of(project, content)
    if nix:
        yield "nix", nix
    own = own_distributions()
    asked = sorted(own.keys() & set(_asked(content)))
    for package in npm.settled(_npm_of(content), npm.of_plugins(own[name] for name in asked)):
        yield from package.records()
    lock = _lock_of(project, context)
    if lock is None:
        _refuse_absent(_asked(content), _sources(content))
    else:
        _refuse_absent(_locked_from_index(lock / "uv.lock"), ())
        yield "lock", str(lock.relative_to(context))
    stamp = hashlib.sha256()
    for name, dist in sorted(own.items()):
        yield "own", name
        stamp.update(f"{name} {dist.version} {dist.locate_file('')}\n{dist.read_text('RECORD')}".encode())
    yield "stamp", stamp.hexdigest()


def _nix_of(project: Path, content: Table) -> str | None:
    agentix = _table(_table(content.get("tool")).get("agentix"))
    if "nix" not in agentix:
        return "default.nix" if (project / "default.nix").is_file() else None
    value = _text(agentix["nix"], "[tool.agentix] nix")
    path = PurePosixPath(os.path.normpath(value))
    if not value or path.is_absolute() or ".." in path.parts:
        raise ProjectError(f"[tool.agentix] nix = {value!r} leaves the project")
    if (project / path).is_dir():
        path /= "default.nix"
    if not (project / path).is_file():
        raise ProjectError(f"[tool.agentix] nix = {value!r}: there is no such file")
    if not (project / path).resolve().is_relative_to(project.resolve()):
        raise ProjectError(f"[tool.agentix] nix = {value!r} leaves the project")
    return str(path)


def _npm_of(content: Table) -> Iterator[npm.Package]:
    """Return the npm packages that the project itself declares."""
    agentix = _table(_table(content.get("tool")).get("agentix"))
    if "npm" in agentix:
        yield from npm.declared(agentix["npm"], "[tool.agentix]")


def _lock_of(project: Path, context: Path) -> Path | None:
    """Return the directory of the project's uv.lock: its own, or that of the workspace it is a member of."""
    root = _workspace_root(project, context)
    return root if (root / "uv.lock").is_file() else None


def _workspace_root(project: Path, context: Path) -> Path:
    if "workspace" in _table(_table(_read_toml(project / "pyproject.toml").get("tool")).get("uv")):
        return project
    for directory in project.parents:
        if directory.is_relative_to(context) and _has_member(directory, project):
            return directory
    return project


def _has_member(root: Path, project: Path) -> bool:
    file = root / "pyproject.toml"
    if not file.is_file():
        return False
    workspace = _table(_table(_table(_read_toml(file).get("tool")).get("uv")).get("workspace"))
    return _matches(root, project, workspace.get("members")) and not _matches(root, project, workspace.get("exclude"))


def _matches(root: Path, project: Path, patterns: object) -> bool:
    if not isinstance(patterns, list):
        return False
    texts: list[object] = patterns  # pyright: ignore[reportUnknownVariableType]
    return any(
        Path(found).resolve() == project.resolve()
        for pattern in texts
        for found in glob.glob(os.path.join(glob.escape(str(root)), str(pattern)))
    )


# --- own distributions ---


def own_distributions() -> dict[str, Distribution]:
    """Return the distributions of ours that are installed here, by name."""
    found: dict[str, Distribution] = {}
    for dist in distributions():
        name = canonical(dist.name)
        if name == "agentix" or name.startswith("agentix-"):
            found.setdefault(name, dist)
    return found


def _asked(content: Table) -> list[str]:
    """Return the names that a project depends on, directly or by what of ours it depends on."""
    own = own_distributions()
    names = [requirement_name(str(text)) for text in _table(content.get("project")).get("dependencies", [])]
    for name in names:  # grows meanwhile
        if name in own:
            names += [more for more in map(requirement_name, _requires(own[name])) if more not in names]
    return names


def _sources(content: Table) -> set[str]:
    """Return the names for which the project says where they come from."""
    return {canonical(name) for name in _table(_table(_table(content.get("tool")).get("uv")).get("sources"))}


def _locked_from_index(lock: Path) -> Iterator[str]:
    packages = _read_toml(lock).get("package", [])
    for package in map(_table, packages if isinstance(packages, list) else ()):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        if "registry" in _table(package.get("source")):
            yield canonical(str(package.get("name")))


def _refuse_absent(names: Iterable[str], sources: Iterable[str]) -> None:
    """Refuse what is ours, is wanted, and is not installed here: an index would be asked for it."""
    absent = sorted((_OURS & set(names)) - own_distributions().keys() - set(sources))
    if absent:
        raise ProjectError(
            f"the project needs {', '.join(absent)}, which is one of agentix's own distributions and is not installed "
            "beside agentix; install it there: on a package index the name may be somebody else's"
        )


def _requires(dist: Distribution) -> list[str]:
    return [text for text in dist.requires or () if "extra" not in text.partition(";")[2]]


def own_needed(site: Path, project: Path) -> Iterator[Record]:
    """Say which of ours belong beside what is in `site`, file by file, and what of Nix and npm all of them ask for."""
    own = own_distributions()
    if "agentix" not in own:
        raise ProjectError("the distribution 'agentix' is not installed here; install it, do not only import it")
    there = list(distributions(path=[str(site)]))
    content = _read_toml(project / "pyproject.toml")
    asked = [str(text) for text in _table(content.get("project")).get("dependencies", [])]
    for dist in there:
        asked += _requires(dist)
    _refuse_absent(map(requirement_name, asked), (canonical(dist.name) for dist in there))
    needed: dict[str, Distribution] = {}
    waiting = ["agentix", *(requirement_name(text) for text in asked)]
    while waiting:
        name = waiting.pop()
        if name in own and name not in needed:
            needed[name] = own[name]
            waiting += [requirement_name(text) for text in _requires(own[name])]
    names = {canonical(dist.name) for dist in there}
    for name, dist in sorted(needed.items()):
        if name in names:
            raise ProjectError(f"{name} came from an index or a path, but must come from this installation")
        yield from _files(dist)
        for text in _requires(dist):
            if requirement_name(text) not in names | needed.keys() and ";" not in text:
                yield "lacking", f"{name} needs {text}"
    yield from _closures([*there, *needed.values()])
    for package in npm.settled(_npm_of(content), npm.of_plugins([*there, *needed.values()])):
        yield from package.records()


def _files(dist: Distribution) -> Iterator[Record]:
    if _is_editable(dist):
        raise ProjectError(
            f"{dist.name} {dist.version} is installed in editable mode, so its files cannot be taken along; "
            "install it properly (`uv sync --no-editable`, `pip install .`)"
        )
    yield "dist", f"{canonical(dist.name)} {dist.version}"
    metadata = False
    for file in sorted(dist.files or (), key=str):
        path = PurePosixPath(file)
        if path.is_absolute() or not {"..", "__pycache__"}.isdisjoint(path.parts):
            continue
        if path.parts[0].endswith(".dist-info"):
            if path.name in _OF_THE_INSTALLATION:
                continue
            metadata = True
        yield "file", str(path)
        yield "from", str(file.locate())
    if not metadata:
        raise ProjectError(f"{dist.name} {dist.version} has no list of its files; reinstall it")
    yield "info", f"{dist.name.replace('-', '_')}-{dist.version}.dist-info"


def _is_editable(dist: Distribution) -> bool:
    try:
        return bool(json.loads(dist.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"))
    except (ValueError, AttributeError):
        return False


def _closures(dists: Iterable[Distribution]) -> Iterator[Record]:
    for dist in dists:
        for point in dist.entry_points:
            if point.group != _NIX_GROUP:
                continue
            directory = str(dist.locate_file(point.value.partition(":")[0].replace(".", "/")))
            file = Path(directory) / "default.nix"
            if not file.is_file():
                raise ProjectError(f"plugin closure {point.name!r} of {dist.name} {dist.version} has no default.nix")
            yield "closure", f"{point.name}\t{file}"


# --- a project without a lock ---


def keep_from_index(pyproject: Path) -> Iterator[Record]:
    """Rewrite a copied pyproject.toml so that resolving it asks no index for a distribution of ours.

    Overrides with a marker that never holds take them out of the resolution, at whatever depth; what those that the
    project asks for need themselves is added in their place.
    """
    content = _read_toml(pyproject)
    about = content["project"]
    own = own_distributions()
    extra: list[str] = []
    waiting = [requirement_name(str(text)) for text in about.get("dependencies", [])]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in own and name not in seen:
            seen.add(name)
            waiting += [requirement_name(text) for text in _requires(own[name])]
            extra += [text for text in _requires(own[name]) if requirement_name(text) not in own]
    about["dependencies"] = [
        *(text for text in about.get("dependencies", []) if requirement_name(str(text)) not in own),
        *sorted(set(extra)),
    ]
    uv = content.setdefault("tool", {}).setdefault("uv", {})
    never = [f"{name} ; sys_platform == 'never'" for name in sorted(own.keys() | (_OURS - _sources(content)))]
    uv["override-dependencies"] = [*uv.get("override-dependencies", []), *never]
    uv["sources"] = {name: source for name, source in uv.get("sources", {}).items() if canonical(name) not in own}
    pyproject.write_text("".join(_toml(content, ())), encoding="utf-8")
    yield "rewritten", str(pyproject)


def _toml(table: Table, path: tuple[str, ...]) -> Iterator[str]:
    """Write a table as TOML: its plain values, then its tables."""
    if path:
        yield f"[{'.'.join(json.dumps(part) for part in path)}]\n"
    for key, value in table.items():
        if not isinstance(value, dict):
            yield f"{json.dumps(key)} = {_toml_value(value)}\n"
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _toml(value, (*path, key))  # pyright: ignore[reportUnknownArgumentType]


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(item) for item in value)}]"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        items: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml_value(item)}" for key, item in items.items()) + " }"
    if isinstance(value, datetime.date | datetime.time | datetime.datetime):
        return value.isoformat()
    return repr(value)


# --- the command ---


def main(arguments: list[str]) -> int:
    """Run one verb; what is wrong with the project is a record, not a status."""
    verbs = {"describe": describe, "own": own_needed, "keep-from-index": keep_from_index}
    name, *given = arguments
    out: list[str] = []
    try:
        # An integrity is no path.
        records = npm.unpack(*given) if name == "unpack-npm" else verbs[name](*map(Path, given))
        for key, value in records:
            out += [key, value]
    except (ProjectError, npm.NpmError) as error:
        out = ["error", str(error)]
    except OSError as error:
        out = ["error", str(error)]
    sys.stdout.buffer.write("".join(f"{item}\0" for item in out).encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
