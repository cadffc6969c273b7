"""npm packages in bundles: what projects and plugins declare, and taking one apart.

A declaration is a table, in the project's pyproject.toml or in the npm.toml of a plugin's module:

    name = "left-pad"
    version = "1.3.0"                 # exact
    integrity = "sha512-..."          # of the package's archive, as the registry tells it
    platform = "linux/amd64"          # only in bundles for that platform; may be left out
    bin = { pad = "bin/pad.js" }      # programs by name; left out: as the package says

Part of `agentix._project`; the fetching itself is the build's.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import tarfile
import tomllib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path, PurePosixPath
from typing import Any

GROUP = "agentix.npm"
FILE = "npm.toml"

_PART = r"[A-Za-z0-9~_-][A-Za-z0-9._~-]*"
_NAME = re.compile(rf"(?=.{{1,214}}\Z)(?!-)(?:@{_PART}/)?{_PART}")
_NUMBER = r"(?:0|[1-9][0-9]*)"
_WORD = r"[0-9A-Za-z-]+"
_BEFORE = rf"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"(?=.{{1,256}}\Z){_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_BEFORE}(?:\.{_BEFORE})*)?(?:\+{_WORD}(?:\.{_WORD})*)?"
)
"""As Semantic Versioning 2.0.0 has it."""
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,254}")
_KEYS = {"name", "version", "integrity", "platform", "bin"}
_PLATFORMS = ("linux/amd64", "linux/arm64")
_SHA512_BYTES = 64
_ABOUT_MAX = 4 << 20
"""Bytes of a package.json."""


class NpmError(Exception):
    """A declaration, or a package, that its owner must change."""


@dataclass(frozen=True)
class Package:
    """One declaration."""

    name: str
    version: str
    integrity: str
    platform: str
    bin: tuple[tuple[str, str], ...]
    who: str

    def records(self) -> Iterator[tuple[str, str]]:
        yield "npm", "\t".join((self.name, self.version, self.integrity, self.platform))
        for program, path in self.bin:
            yield "npm-bin", f"{program}\t{path}"


# --- declarations ---


def declared(value: object, who: str) -> Iterator[Package]:
    """Check a list of declarations; `who` says where it stands. Raises NpmError."""
    if not isinstance(value, list):
        raise NpmError(f"{who}: npm must be a list of tables")
    items: list[object] = value  # pyright: ignore[reportUnknownVariableType]
    for item in items:
        if not isinstance(item, dict):
            raise NpmError(f"{who}: npm must be a list of tables, and {item!r} is none; {_how_to('NAME', 'VERSION')}")
        yield _package(item, who)  # pyright: ignore[reportUnknownArgumentType]


def _package(item: dict[str, Any], who: str) -> Package:
    unknown = sorted(set(item) - _KEYS)
    if unknown:
        raise NpmError(f"{who}: npm: unknown key {unknown[0]!r}; there are {', '.join(sorted(_KEYS))}")
    name, version, integrity = (item.get(key, "") for key in ("name", "version", "integrity"))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise NpmError(f"{who}: npm: {name!r} is no name of a package")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise NpmError(
            f"{who}: npm: {name} needs an exact version, not {version!r}: `npm view {name} versions` lists them"
        )
    if not _is_integrity(integrity):
        raise NpmError(f"{who}: npm: {name}@{version} needs its integrity; {_how_to(name, version)}")
    platform = item.get("platform", "")
    if platform not in ("", *_PLATFORMS):
        raise NpmError(f"{who}: npm: {name}: unknown platform {platform!r}; there are {', '.join(_PLATFORMS)}")
    programs = _programs(item["bin"], f"{who}: npm: {name}") if "bin" in item else ()
    return Package(name, version, integrity, platform, programs, who)


def _how_to(name: str, version: str) -> str:
    return f"`npm view {name}@{version} dist.integrity` prints it"


def _is_integrity(value: object) -> bool:
    if not isinstance(value, str) or not value.startswith("sha512-"):
        return False
    text = value.removeprefix("sha512-")
    try:
        digest = base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error, or it is not ASCII
        return False
    return len(digest) == _SHA512_BYTES and base64.b64encode(digest).decode() == text


def _programs(value: object, what: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        raise NpmError(f"{what}: bin must be a table of programs and their files")
    found: list[tuple[str, str]] = []
    table: dict[str, object] = value  # pyright: ignore[reportUnknownVariableType]
    for program, file in table.items():
        path = _inner(file) if isinstance(file, str) and file.isprintable() else None
        if not _PROGRAM.fullmatch(program) or path is None:
            raise NpmError(f"{what}: bin: {_short(program)} = {_short(file)} is no program of the package")
        found.append((program, path))
    return tuple(sorted(found))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 100 else f"{text[:100]}..."


def _inner(file: str) -> str | None:
    """The path below a package, in its plain form; None if it leads elsewhere."""
    path = PurePosixPath(os.path.normpath(file))
    inner = file and "\0" not in file and "\t" not in file and not path.is_absolute() and ".." not in path.parts
    return str(path) if inner and path.parts else None


def of_plugins(dists: Iterable[Distribution]) -> Iterator[Package]:
    """Return what the plugins among these distributions declare."""
    for dist in dists:
        for point in dist.entry_points:
            if point.group != GROUP:
                continue
            module = str(dist.locate_file(point.value.partition(":")[0].replace(".", "/")))
            who = f"plugin {point.name!r} of {dist.name} {dist.version}"
            try:
                content = tomllib.loads((Path(module) / FILE).read_text(encoding="utf-8"))
            except FileNotFoundError:
                raise NpmError(f"{who} has no {FILE}") from None
            except (ValueError, RecursionError) as error:
                raise NpmError(f"{who}: {FILE} is not valid TOML: {error}") from None
            yield from declared(content.get("npm"), who)


def settled(project: Iterable[Package], plugins: Iterable[Package]) -> list[Package]:
    """Return each package once, by name: the project's word is the last. Raises NpmError if two disagree."""
    result: dict[tuple[str, str], Package] = {}
    for package in project:
        _settle(result, package)
    own = {package.name for package in result.values()}
    for package in plugins:
        if package.name not in own:
            _settle(result, package)
    return [result[key] for key in sorted(result)]


def _settle(result: dict[tuple[str, str], Package], package: Package) -> None:
    for platform in (package.platform, "") if package.platform else ("", *_PLATFORMS):
        other = result.get((package.name, platform))
        if other is None:
            continue
        if (other.version, other.integrity) != (package.version, package.integrity):
            raise NpmError(
                f"{package.name} is wanted as {other.version} by {other.who} and as {package.version} by "
                f"{package.who}; declare in [tool.agentix] npm which it shall be"
            )
        return
    result[package.name, package.platform] = package


# --- archives ---


def unpack(archive: str, integrity: str, to: str) -> Iterator[tuple[str, str]]:
    """Check a package's archive and unpack it to the directory `to`, which must not be there.

    Only regular files are taken, as npm does, with mode 0755 or 0644. An archive that is not what was declared is told
    as the record `other`, with the integrity that it has, and not unpacked.
    """
    target = Path(to)
    with open(archive, "rb") as file:
        has = "sha512-" + base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode()
        if has != integrity:
            yield "other", has
            return
        file.seek(0)
        try:
            with tarfile.open(fileobj=file, mode="r:gz") as tar:
                for member in tar:
                    if member.isreg():
                        _take(tar, member, target)
        except (tarfile.TarError, EOFError, OSError, ValueError, ArithmeticError, RecursionError, zlib.error) as error:
            raise NpmError(f"the package's archive could not be unpacked: {error}") from None
    yield "unpacked", str(target)
    for program, path in _own_programs(target):
        yield "npm-bin", f"{program}\t{path}"


def _take(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    name = member.name.removeprefix("./").partition("/")[2]  # without "package/", whatever it is called
    path = _inner(name)
    if path is None:
        raise NpmError(f"the package's archive has a file {member.name!r}, which would be outside of it")
    to = target / path
    to.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member)
    assert content is not None
    to.unlink(missing_ok=True)  # the later one counts
    with to.open("xb") as file:
        shutil.copyfileobj(content, file, 1 << 20)
    to.chmod(0o755 if member.mode & 0o100 else 0o644)


def _own_programs(package: Path) -> Iterator[tuple[str, str]]:
    try:
        if (package / "package.json").stat().st_size > _ABOUT_MAX:
            raise NpmError(f"the package's package.json is larger than {_ABOUT_MAX >> 20} MiB")
        about: Any = json.loads((package / "package.json").read_text(encoding="utf-8"))
        value, name = about.get("bin"), str(about.get("name", ""))
    except (OSError, ValueError, AttributeError, RecursionError):
        raise NpmError("the package has no package.json that can be read") from None
    if isinstance(value, str):
        value = {name.rpartition("/")[2]: value}
    if value:
        yield from _programs(value, "package.json")
