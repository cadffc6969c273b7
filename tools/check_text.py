#!/usr/bin/env python3
"""Check what the compiler cannot: banned C functions and words that do not belong in the tree.

- C: functions that cannot be used safely, and calls that end the process from library code.
- Everywhere: leftover work markers, addresses of outside hosts (specifications excepted), paths
  that leave the project.
- uv.lock: only the default index, never the one a machine happens to be configured for.

Fails with file:line. A line that must break a rule carries `check-text: allow` and a reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

BANNED = {
    "strcpy": "copy with a length",
    "strcat": "append to an agx_buf",
    "stpcpy": "copy with a length",
    "sprintf": "use snprintf or an agx_buf",
    "vsprintf": "use vsnprintf or an agx_buf",
    "gets": "read with a length",
    "system": "spawn through io",
    "popen": "spawn through io",
    "alloca": "the stack has no ceiling",
    "strtok": "use views",
    "atoi": "use a parser that reports errors",
    "atol": "use a parser that reports errors",
    "setjmp": "return errors",
}
# In a library these end somebody else's program; a child between fork and exec uses _exit.
FATAL = {"exit", "abort"}
MARKERS = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
# Hosts a file may name: bare words, loopback, documentation names, and where specifications and manuals live.
HOSTS = re.compile(
    r"^([\w-]+|127\.\d+\.\d+\.\d+|\[::1\]|([\w-]+\.)*(example|test|invalid)(\.(com|org|net))?"
    r"|www\.rfc-editor\.org|www\.w3\.org|docs\.astral\.sh|peps\.python\.org|docs\.python\.org|opensource\.org)$"
)
URL = re.compile(r"\b(?:https?|wss?)://(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+)")
OUTSIDE = re.compile(r"\.\./sha[r]ed\b|(?<![\w./}])/wo[r]k/|\b[Ii]ssue #?\d+")
ALLOW = "check-text: allow"
LOCK_HOSTS = {"pypi.org", "files.pythonhosted.org"}
SKIPPED = ("fuzz/corpus/", "LICENSE")

COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
CALL = re.compile(r"(?<![\w.>])(" + "|".join(sorted(BANNED.keys() | FATAL)) + r")\s*\(")


def blank(match: re.Match[str]) -> str:
    """Spaces in place of a comment or string, so that line numbers stay."""
    return re.sub(r"[^\n]", " ", match[0])


def check_c(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Banned calls in a C file."""
    in_library = path.startswith(("src/", "python/ext/")) and not path.endswith("/main.c")
    for number, line in enumerate(COMMENT_OR_STRING.sub(blank, text).split("\n"), 1):
        for match in CALL.finditer(line):
            name = match[1]
            if name in BANNED:
                yield number, f"{name} is banned: {BANNED[name]}"
            elif in_library:
                yield number, f"{name} in a library: return an error"


def check_words(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Markers, outside hosts and outside paths in any text file."""
    for number, line in enumerate(text.split("\n"), 1):
        for marker in MARKERS:
            if re.search(rf"\b{marker}\b", line):
                yield number, f"leftover {marker}"
        for match in URL.finditer(line):
            if not HOSTS.match(match[1]):
                yield number, f"names an outside host: {match[1]}"
        if OUTSIDE.search(line):
            yield number, "names a path outside the project"


def check_lock(text: str) -> Iterator[tuple[int, str]]:
    """Indexes in uv.lock other than the default one."""
    for number, line in enumerate(text.split("\n"), 1):
        for match in URL.finditer(line):
            if match[1] not in LOCK_HOSTS:
                yield number, f"locked to this machine's index: {match[1]}"


def check_file(path: str, text: str) -> list[str]:
    """All complaints about one file, as `file:line: what`."""
    if path == "uv.lock":
        found = list(check_lock(text))
    else:
        found = list(check_words(path, text))
        if path.endswith((".c", ".h")):
            found += check_c(path, text)
    lines = text.split("\n")
    return [f"{path}:{number}: {what}" for number, what in found if ALLOW not in lines[number - 1]]


def tracked_files(root: Path) -> list[str]:
    """Files git knows, and new ones it does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode()
    return sorted(name for name in set(listing.split("\0")) if name and (root / name).is_file())


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    complaints: list[str] = []
    for path in tracked_files(root):
        if path.startswith(SKIPPED):
            continue
        try:
            complaints += check_file(path, (root / path).read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if complaints:
        print(f"check_text: {len(complaints)} complaints", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
