#!/usr/bin/env python3
"""Check that the rooms of the C tree know each other in one direction only.

Reads the include lines of src/, include/ and python/ext/ and fails with file:line for each one
that a room may not have. The rules are the table below; ARCHITECTURE.md tells the reasons.

    server -> worker -> proto -> wire -> base            in the sandbox
    provider -> client -> proto -> wire -> base          on the host
    io -> base                                           libuv glue
    *_uv.c and *_uv.h                                    their room's rules, and io, and <uv.h>
    main.c                                               its room's rules, and *_uv.h headers
    python/ext                                           host brains and the wire, never libuv
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOMS: dict[str, frozenset[str]] = {
    "base": frozenset({"base"}),
    "wire": frozenset({"wire", "base"}),
    "proto": frozenset({"proto", "wire", "base"}),
    "io": frozenset({"io", "base"}),
    "worker": frozenset({"worker", "proto", "wire", "base"}),
    "server": frozenset({"server", "worker", "proto", "wire", "base"}),
    "client": frozenset({"client", "proto", "wire", "base"}),
    "oci": frozenset({"oci", "wire", "base"}),
    "bundle": frozenset({"bundle", "oci", "wire", "base"}),
    "provider": frozenset({"provider", "client", "bundle", "oci", "proto", "wire", "base"}),
    "cli": frozenset({"cli", "provider", "client", "bundle", "oci", "proto", "wire", "base"}),
    "ext": frozenset({"client", "provider", "proto", "wire", "base"}),
}
# Foreign headers that belong to one place.
FOREIGN: dict[str, frozenset[str]] = {
    "uv.h": frozenset({"io"}),
    "llhttp.h": frozenset({"wire"}),
    "msgpack.h": frozenset({"wire"}),
    "Python.h": frozenset({"ext"}),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path: Path, root: Path) -> str | None:
    """The room a file belongs to, or None for a file no rule covers."""
    parts = path.relative_to(root).parts
    if parts[:2] == ("python", "ext"):
        return "ext"
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    return None


def is_shell(name: str) -> bool:
    """Whether a file name is a libuv shell's."""
    return name.endswith(("_uv.c", "_uv.h"))


def check_foreign(room: str, path: Path, header: str) -> str | None:
    """A complaint about `#include <header>`, or None."""
    name = "uv.h" if header.startswith("uv/") else header
    owners = FOREIGN.get(name)
    if owners is None or room in owners:
        return None
    if name == "uv.h":
        return None if is_shell(path.name) and room != "ext" else f"<{header}> belongs to io and *_uv.c"
    return f"<{header}> belongs to {', '.join(sorted(owners))}"


def check_ours(room: str, path: Path, header: str) -> str | None:
    """A complaint about `#include "header"`, or None."""
    target, _, name = header.partition("/")
    if not name:
        beside = room == "ext" and (path.parent / header).is_file()
        return None if beside else f'"{header}" does not name its room'
    if target == "agentix":
        return None
    if target not in ROOMS:
        return f'"{header}" is in no known room'
    shell = is_shell(path.name) and room != "ext"
    if target == "io" and room != "io":
        return None if shell else f"{room} may not know io, only its *_uv.c may"
    if target not in ROOMS[room]:
        return f"{room} may not know {target}"
    if is_shell(name) and not shell and path.name != "main.c":
        return f'"{header}" is a libuv shell: only *_uv.c and main.c may know it'
    return None


def check_file(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, complaint) for each include the file's room may not have."""
    room = room_of(path, root)
    if room is None:
        return
    if room not in ROOMS:
        yield 1, f"src/{room} is in no rule of tools/check_layers.py"
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := INCLUDE.match(line):
            check = check_ours if match[1] == '"' else check_foreign
            if complaint := check(room, path, match[2]):
                yield number, complaint


def check_tree(root: Path) -> list[str]:
    """All complaints of a tree, as `file:line: what`."""
    complaints: list[str] = []
    for folder in ("src", "python/ext"):
        for path in sorted((root / folder).rglob("*.[ch]")):
            complaints += [f"{path.relative_to(root)}:{line}: {what}" for line, what in check_file(path, root)]
    return complaints


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    complaints = check_tree(root)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if complaints:
        print(f"check_layers: {len(complaints)} include lines cross the layers", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
