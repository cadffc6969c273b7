"""How many tokens a reply says it took, read while it passes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

_KEPT = 4 * 1024 * 1024  # of a JSON reply: a longer one is not counted


@dataclass
class Usage:
    """Tokens of one call as the model service counts them; None is not said."""

    input_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def total(self) -> int:
        """Both together; what was not said is 0."""
        return (self.input_tokens or 0) + (self.output_tokens or 0)

    def take(self, usage: object) -> None:
        """Take what a `usage` object of either vendor says; later figures replace earlier ones."""
        if not isinstance(usage, Mapping):
            return
        said = cast("Mapping[str, Any]", usage)
        read = (said.get("input_tokens"), said.get("cache_creation_input_tokens"), said.get("cache_read_input_tokens"))
        if any(isinstance(part, int) and part for part in read):
            self.input_tokens = sum(part for part in read if isinstance(part, int))
        for name in ("prompt_tokens", "completion_tokens", "output_tokens"):
            value = said.get(name)
            if isinstance(value, int):
                setattr(self, "input_tokens" if name == "prompt_tokens" else "output_tokens", value)
        if self.input_tokens is None and isinstance(read[0], int):
            self.input_tokens = read[0]


class UsageReader:
    """Reads a reply of the Messages, Chat Completions or Responses API, whole or as events, piece by piece."""

    def __init__(self, media_type: str) -> None:
        self.usage = Usage()
        self._events = media_type.partition(";")[0].strip().lower() == "text/event-stream"
        self._rest = bytearray()
        self._skip = False

    def feed(self, piece: bytes) -> None:
        """Take the next piece of the body."""
        if self._skip:
            return
        self._rest += piece
        if self._events and (b"\n" in piece or b"\r" in piece):
            *lines, last = bytes(self._rest).replace(b"\r", b"\n").split(b"\n")
            self._rest = bytearray(last)
            for line in lines:
                self._line(line)
        if len(self._rest) > _KEPT:
            self._skip, self._rest = not self._events, bytearray()

    def end(self) -> Usage:
        """Return what was said, after the last piece."""
        if self._events:
            self._line(bytes(self._rest))
        else:
            self._object(bytes(self._rest))
        self._rest = bytearray()
        return self.usage

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:") and b"usage" in line:
            self._object(line[5:])

    def _object(self, text: bytes) -> None:
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            return
        if not isinstance(parsed, dict):
            return
        reply = cast("dict[str, Any]", parsed)
        for holder in (reply, reply.get("message"), reply.get("response")):
            if isinstance(holder, dict):
                self.usage.take(cast("dict[str, Any]", holder).get("usage"))
