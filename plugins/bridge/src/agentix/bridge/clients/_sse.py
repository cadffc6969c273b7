"""Server-sent events, read from pieces of any size.

As the HTML standard has it (9.2.6): lines end with CR LF, LF or CR; a leading byte order mark is skipped; `data:`
lines of one event are joined. Unlike a browser, the reader also gives the event that the end of the stream cuts its
empty line off from: services leave it out.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, cast

MOST = 16 * 1024 * 1024

_END = re.compile(rb"[\r\n]")
_OTHER_ENDS = re.compile("[\x85\u2028\u2029]")  # where readers that split text into lines would see one end


class EventTooLong(ValueError):
    """An event of more bytes than the reader's bound."""


@dataclass(frozen=True)
class Event:
    """One event: its name, `message` if it has none, and its data."""

    event: str
    data: str


class SseReader:
    """Takes bytes, gives events. Raises EventTooLong for one of more than `most` bytes."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._line = bytearray()
        self._first = True
        self._after_cr = False
        self._size = 0
        self._event = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> list[Event]:
        """Return the events that this piece completes."""
        found: list[Event] = []
        start = 0
        if self._after_cr and piece:
            self._after_cr = False
            start = piece[:1] == b"\n"
        while (match := _END.search(piece, start)) is not None:
            self._take(piece[start : match.start()])
            start = match.end()
            if match[0] == b"\r":
                if start == len(piece):
                    self._after_cr = True
                elif piece[start] == 10:
                    start += 1
            self._ended(found)
        self._take(piece[start:])
        return found

    def end(self) -> list[Event]:
        """Return the event that the end of the stream completes, if there is one."""
        found: list[Event] = []
        if self._line:
            self._ended(found)
        self._ended(found)
        return found

    def _take(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._most:
            raise EventTooLong(f"a server-sent event of more than {self._most} bytes")
        self._line += part

    def _ended(self, found: list[Event]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if self._data:
                found.append(Event(self._event or "message", "\n".join(self._data)))
            self._event, self._data, self._size = "", [], 0
            return
        if line.startswith(b":"):
            self._size -= len(line)  # comments are no part of an event
            return
        name, _, value = line.decode(errors="replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._size += 1  # so that empty lines count
        elif name == "event":
            self._event = value


def event_bytes(name: str, data: dict[str, Any]) -> bytes:
    """Return an event in its text form."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), packed(data))


def packed(value: Any) -> bytes:
    """Return JSON on one line; what UTF-8 has no form for, or some readers take for the end of a line, is escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        if not _OTHER_ENDS.search(text):
            return text.encode()
    except UnicodeEncodeError:
        pass
    return json.dumps(value, separators=(",", ":")).encode()


def object_of(text: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object that a text is, or None."""
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
