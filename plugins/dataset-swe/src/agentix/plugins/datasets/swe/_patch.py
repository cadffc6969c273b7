"""Which files a patch touches, in git's extended format and in the plain unified one.

Only headers are read; lines of hunks are counted, so that a removed line `-- a/x` is not taken for a header.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["FileChange", "changes_of", "without_deletions"]

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_LETTERS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_RENAMES = {"rename from ": "old", "rename to ": "new", "copy from ": "old", "copy to ": "new"}


@dataclass
class FileChange:
    """One file of a patch: its name before and after, None where it does not exist, and the lines about it."""

    old: str | None
    new: str | None
    text: str


def changes_of(patch: str) -> list[FileChange]:
    """Return what `patch` does to each file, in order.

    Raises `ValueError` for a name that is absolute or leaves the tree.
    """
    changes = [_change(lines) for lines in _sections(patch)]
    return [change for change in changes if change.old or change.new]


def without_deletions(patch: str) -> str:
    """Return `patch` without the files that it deletes."""
    return "".join(change.text for change in changes_of(patch) if change.new is not None)


def _sections(patch: str) -> Iterator[list[str]]:
    """The lines about each file; those before the first file are a section too."""
    section: list[str] = []
    old = new = 0  # lines of the current hunk that are still to come
    names_to_come = False
    for line in io.StringIO(patch):  # ends lines at line feeds only
        if old > 0 or new > 0:
            old -= line[0] in "- \r\n"
            new -= line[0] in "+ \r\n"
        else:
            if section and (line.startswith("diff --git ") or (line.startswith("--- ") and not names_to_come)):
                yield section
                section = []
            if line.startswith(("diff --git ", "--- ")):
                names_to_come = line.startswith("diff")
            elif found := _HUNK.match(line):
                old, new = (1 if count is None else int(count) for count in found.groups())
        section.append(line)
    if section:
        yield section


def _change(lines: list[str]) -> FileChange:
    names: dict[str, str | None] = {}
    for line in _headers(lines):
        for start, which in _RENAMES.items():
            if line.startswith(start):
                names[which] = _unquote(line[len(start) :])
        if line.startswith("diff --git "):
            names["old"] = names["new"] = _common_name(line.removeprefix("diff --git "))
        elif line.startswith("new file mode "):
            names["old"] = None
        elif line.startswith("deleted file mode "):
            names["new"] = None
        elif line.startswith("--- "):
            names["old"] = _stripped(line[4:])
        elif line.startswith("+++ "):
            names["new"] = _stripped(line[4:])
    return FileChange(_checked(names.get("old")), _checked(names.get("new")), "".join(lines))


def _headers(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if line.startswith(("@@ ", "GIT binary patch")):
            return
        yield line.rstrip("\r\n")


def _common_name(words: str) -> str | None:
    """The name in `a/NAME b/NAME`, which is all that is said of a file whose contents stay, or are not text."""
    if words.startswith('"'):
        return _stripped(words)
    middle = len(words) // 2
    first, second = words[:middle], words[middle + 1 :]
    return _stripped(first) if first.partition("/")[2] == second.partition("/")[2] else None


def _stripped(name: str) -> str | None:
    """A name of `---` and `+++` without what stands before and after it."""
    quoted = _QUOTED.match(name)
    name = _unquote(quoted[0]) if quoted else name.partition("\t")[0]
    if name == "/dev/null":
        return None
    return name.partition("/")[2] if name.startswith(("a/", "b/", "i/", "w/", "c/", "o/")) else name


def _unquote(name: str) -> str:
    if not (len(name) > 1 and name[0] == name[-1] == '"'):
        return name

    def one(found: re.Match[bytes]) -> bytes:
        letter = found[1]
        return bytes([int(letter, 8) & 255]) if len(letter) == 3 else _LETTERS.get(letter, letter)

    return os.fsdecode(_ESCAPE.sub(one, name[1:-1].encode("utf-8", "surrogateescape")))


def _checked(name: str | None) -> str | None:
    if name is not None and (name.startswith("/") or not name or ".." in name.split("/")):
        raise ValueError(f"a patch may only name files below the repository, not {name!r}")
    return name
