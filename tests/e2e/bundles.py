"""Bundles made and measured without Agentix: tars by the standard library, the digest by its description."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MANIFEST = {
    "schema_version": 1,
    "format": "agentix-bundle",
    "name": "demo",
    "tag": "1.0",
    "platform": "linux/amd64",
    "nix_system": "x86_64-linux",
    "digest": "sha256:" + "0" * 64,
    "entrypoint": "/nix/runtime/bootstrap.sh",
    "runtime_env": {"PATH": "/nix/runtime/venv/bin:/nix/runtime/bin"},
    "agentix_added_env": {"AGENTIX_ADDED_PATH": "/nix/runtime/venv/bin:/nix/runtime/bin"},
}


@dataclass
class Member:
    """One member of a tar."""

    name: str
    data: bytes = b""
    type: bytes = tarfile.REGTYPE
    link: str = ""
    mode: int = 0o644


def directory(name: str, mode: int = 0o755) -> Member:
    return Member(name, type=tarfile.DIRTYPE, mode=mode)


def symlink(name: str, target: str) -> Member:
    return Member(name, type=tarfile.SYMTYPE, link=target, mode=0o777)


def hardlink(name: str, target: str) -> Member:
    return Member(name, type=tarfile.LNKTYPE, link=target)


HONEST = [directory("nix"), directory("nix/runtime"), Member("nix/runtime/bootstrap.sh", b"#!/bin/sh\n", mode=0o755)]


def manifest(**changes: object) -> Member:
    return Member("manifest.json", json.dumps({**MANIFEST, **changes}).encode())


def write_tar(path: Path, members: Iterable[Member], *, format: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=format) as tar:
        for member in members:
            info = tarfile.TarInfo(member.name)
            info.type, info.linkname, info.mode, info.size = member.type, member.link, member.mode, len(member.data)
            tar.addfile(info, io.BytesIO(member.data))
    return path


def write_bundle(path: Path, *extra: Member, **changes: object) -> Path:
    """A bundle with an entry point and the members given."""
    return write_tar(path, [manifest(**changes), *HONEST, *extra])


def bundle_digest(top: Path) -> str:
    """The digest of the bundle in a directory, computed from what lies there."""
    lines = hashlib.sha256()

    def text(path: str) -> bytes:
        raw = os.fsencode(path)
        return b"%d:%s" % (len(raw), raw)

    def visit(path: str) -> None:
        info = os.lstat(top / path)
        mode = b"%04o" % (info.st_mode & 0o7777)
        if stat.S_ISLNK(info.st_mode):
            lines.update(b"l %s %s\n" % (text(path), text(os.readlink(top / path))))
        elif stat.S_ISDIR(info.st_mode):
            lines.update(b"d %s %s\n" % (mode, text(path)))
            for child in sorted(os.listdir(os.fsencode(top / path))):
                visit(path + "/" + os.fsdecode(child))
        else:
            content = hashlib.sha256((top / path).read_bytes()).hexdigest().encode()
            lines.update(b"f %s %s %s\n" % (mode, text(path), content))

    visit("nix")
    said = json.loads((top / "manifest.json").read_bytes())
    for key in ("name", "tag", "platform", "nix_system", "entrypoint"):
        if key in said:
            lines.update(b"m %s %s\n" % (key.encode(), text(said[key])))
    for key in ("runtime_env", "agentix_added_env", "npm"):
        for item in sorted(f"{name}={value}" for name, value in said.get(key, {}).items()):
            lines.update(b"m %s %s\n" % (key.encode(), text(item)))
    return "sha256:" + lines.hexdigest()
