#!/usr/bin/env python3
"""Render docs/reference/limits.md from src/proto/limits.h.

    tools/limits.py            write the page
    tools/limits.py --check    fail if the page is not what would be written

The header is a list of sections, `/* Title. */` on a line of its own, with lines
`#define NAME value /* unit and reason */`. A define without a comment is an error: a bound that
nobody can explain is not a promise.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "src/proto/limits.h"
PAGE = ROOT / "docs/reference/limits.md"

INTRO = """\
# Limits

Every bound of Agentix, in one table. They are compiled in; no switch lifts one. What meets a bound is told so, or
waits, or makes the oldest go, as the line says; other calls and connections do not suffer.

This page is rendered from `src/proto/limits.h` by `tools/limits.py`.
"""

SECTION = re.compile(r"^/\* (?P<title>.+?)\.? \*/$")
DEFINE = re.compile(r"^#define AGX_(?P<name>\w+) (?P<value>\(?\d+u?(?: << \d+)?\)?)\s*(?:/\* (?P<text>.+?) \*/)?$")
SHIFT = re.compile(r"^\(?(\d+)u?(?: << (\d+))?\)?$")


class LimitsError(Exception):
    """A line of the header that does not say what it should."""


@dataclass(frozen=True)
class Section:
    title: str
    notes: str


@dataclass(frozen=True)
class Limit:
    name: str
    value: int
    text: str


def number(expression: str) -> int:
    """The value of `N`, `Nu`, `(N << M)` or `(Nu << M)`."""
    match = SHIFT.match(expression)
    if match is None:
        raise LimitsError(f"cannot read the value {expression!r}")
    return int(match[1]) << int(match[2] or 0)


def parse(header: str) -> Iterator[Section | Limit]:
    """The sections and limits of the header, in order."""
    for at, line in enumerate(header.splitlines(), 1):
        if match := SECTION.match(line):
            title, _, notes = match["title"].partition(": ")
            yield Section(title, notes)
        elif line.startswith("#define AGX_PROTO_LIMITS_H"):
            continue
        elif line.startswith("#define"):
            match = DEFINE.match(line)
            if match is None:
                raise LimitsError(f"limits.h:{at}: not `#define AGX_NAME value /* text */`")
            if match["text"] is None:
                raise LimitsError(f"limits.h:{at}: AGX_{match['name']} does not say what it bounds")
            yield Limit(match["name"], number(match["value"]), match["text"])


def shown(limit: Limit) -> str:
    """The value as people read it."""
    value = limit.value
    if limit.name.endswith("_NS") and value % 1_000_000_000 == 0:
        return f"{value // 1_000_000_000} s"
    if limit.name.endswith("_NS"):
        return f"{value:,} ns"
    if limit.name.endswith("_MS"):
        return f"{value / 1000:g} s" if value >= 1000 else f"{value} ms"
    if limit.name.endswith("_S"):
        return f"{value:,} s"
    if limit.text.startswith("bytes") and value >= 1024 and value % 1024 == 0:
        return f"{value >> 20:,} MiB" if value % (1 << 20) == 0 else f"{value >> 10:,} KiB"
    return f"{value:,}"


def render(header: str) -> str:
    """The whole page."""
    lines = [INTRO]
    for item in parse(header):
        if isinstance(item, Section):
            lines += [f"## {item.title}\n"]
            if item.notes:
                lines += [f"{item.notes[0].upper()}{item.notes[1:]}.\n"]
            lines += ["| limit | value | what it bounds |", "|---|---|---|"]
        else:
            text = item.text.replace("|", "\\|")
            lines += [f"| `{item.name}` | {shown(item)} | {text} |"]
    page = "\n".join(lines) + "\n"
    return re.sub(r"\|\n## ", "|\n\n## ", page)


def main(arguments: list[str]) -> int:
    try:
        page = render(HEADER.read_text(encoding="utf-8"))
    except LimitsError as error:
        print(error, file=sys.stderr)
        return 1
    if arguments == ["--check"]:
        if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page:
            return 0
        print(f"{PAGE.relative_to(ROOT)} is out of date: run tools/limits.py", file=sys.stderr)
        return 1
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
