"""Streams of the Chat Completions API as event streams of the Messages API.

Both say the same in different order: chunks may mix pieces of several tool calls, where the Messages API has one
content block after the other. So one block is open at a time; pieces of calls that are not its turn wait. A call has
ended when another one goes on and its own arguments are complete JSON, or with the stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from .._errors import error_object
from ._reply import call_id, first_choice, message_id, reasoning_of, refusal_in, stop_of, text_in, usage_of
from ._sse import Event, event_bytes, object_of


class _Call:
    """A tool call whose pieces come."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.said: list[str] = []  # all pieces of its arguments
        self.sent = 0  # how many of them have been passed on
        self.ended = False

    @property
    def arguments(self) -> str:
        return "".join(self.said)

    def complete(self) -> bool:
        """Whether its arguments are a whole JSON object."""
        last = next((piece.rstrip() for piece in reversed(self.said) if piece.strip()), "")
        if not last.endswith("}"):
            return False
        try:
            return isinstance(json.loads(self.arguments), dict)
        except (ValueError, RecursionError):
            return False


class MessageStream:
    """Takes the chunks of one reply, gives the bytes of the events that say the same.

    `model` is the name that the agent asked for; `names` are the long names of tools by their short ones. `assistant`
    is the whole message after the end.
    """

    def __init__(self, model: str, names: dict[str, str]) -> None:
        self._model = model
        self._names = names
        self._begun = False
        self._ended = False
        self._done = False
        self._index = -1
        self._open: str | None = None
        self._calls: dict[int, _Call] = {}
        self._refusal = False
        self._late: list[str] = []  # text that came after the first call
        self._choice: dict[str, Any] = {}
        self._usage: Any = None
        self._text: list[str] = []
        self._thoughts: list[str] = []

    @property
    def ended(self) -> bool:
        """Whether the last event has been given."""
        return self._ended

    def take(self, event: Event) -> list[bytes]:
        """Take one event of the model service."""
        if self._ended or not event.data.strip():
            return []
        if event.data.strip() == "[DONE]":
            self._done = True
            return list(self._finish())
        chunk = object_of(event.data)
        if chunk is None:
            return [self.broken(502, "the model service sent an event that is no JSON object")]
        if chunk.get("error"):
            return [self._refused(chunk["error"])]
        return list(self._chunk(chunk))

    def end(self) -> list[bytes]:
        """The stream has ended, finished or not."""
        return [] if self._ended else list(self._finish())

    def broken(self, status: int, message: str) -> bytes:
        """End with an error."""
        self._ended = True
        return event_bytes("error", error_object(status, message))

    def assistant(self) -> dict[str, Any]:
        """Return the assistant message of the Chat Completions API that was streamed."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text) or None}
        if self._thoughts:
            message["reasoning_content"] = "".join(self._thoughts)
        if self._calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self._calls.values()
            ]
        return message

    # ---- chunks ----

    def _chunk(self, chunk: dict[str, Any]) -> Iterator[bytes]:
        if not self._begun:
            self._begun = True
            yield self._start()
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        choice = first_choice(chunk)
        if choice is None:
            return
        delta = choice.get("delta")
        if isinstance(delta, dict):
            yield from self._delta(cast("dict[str, Any]", delta))
        if choice.get("finish_reason"):
            self._choice = choice

    def _delta(self, delta: dict[str, Any]) -> Iterator[bytes]:
        thought = reasoning_of(delta)
        if thought:
            self._thoughts.append(thought)
            if not self._calls:
                yield from self._piece("thinking", thought)
        text = text_in(delta.get("content"))
        if not text and (refusal := refusal_in(delta)):
            text, self._refusal = refusal, True
        if text:
            self._text.append(text)
            if self._calls:
                self._late.append(text)
            else:
                yield from self._piece("text", text)
        calls = delta.get("tool_calls")
        for piece in cast("list[Any]", calls) if isinstance(calls, list) else []:
            if isinstance(piece, dict):
                yield from self._call_piece(cast("dict[str, Any]", piece))

    def _call_piece(self, piece: dict[str, Any]) -> Iterator[bytes]:
        call = self._call_of(piece)
        given = piece.get("function")
        function = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        call.id = call.id or str(piece.get("id") or "")
        call.name = call.name or str(function.get("name") or "")
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if isinstance(arguments, str) and arguments:
            call.said.append(arguments)
        yield from self._advance(call)

    def _call_of(self, piece: dict[str, Any]) -> _Call:
        """Whose piece this is. Some services leave the index out, or give every call the same."""
        given = str(piece.get("id") or "")
        index = piece.get("index")
        if not isinstance(index, int):
            last = max(self._calls, default=-1)
            index = next((key for key, call in self._calls.items() if given and call.id == given), None)
            if index is None:
                index = last if last >= 0 and not given else last + 1
        known = self._calls.get(index)
        if known is not None and given and known.id and known.id != given:
            index = next((key for key, call in self._calls.items() if call.id == given), max(self._calls) + 1)
        return self._calls.setdefault(index, _Call())

    def _advance(self, now: _Call) -> Iterator[bytes]:
        """Pass on the pieces of the first call that has not ended, and of those after it that may begin."""
        for call in self._calls.values():
            if call.ended:
                continue
            if call is not now and not call.complete():
                return
            yield from self._say(call)
            if call is now:
                return
            call.ended = True

    def _say(self, call: _Call) -> Iterator[bytes]:
        if not call.name:
            return
        if self._open != f"call {id(call)}":
            call.id = call.id or call_id()
            name = self._names.get(call.name, call.name)
            yield from self._begin(f"call {id(call)}", {"type": "tool_use", "id": call.id, "name": name, "input": {}})
        while call.sent < len(call.said):
            yield self._block_delta({"type": "input_json_delta", "partial_json": call.said[call.sent]})
            call.sent += 1

    # ---- events ----

    def _start(self) -> bytes:
        message: dict[str, Any] = {
            "id": message_id(),
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_of(self._usage),
        }
        return event_bytes("message_start", {"type": "message_start", "message": message})

    def _piece(self, kind: str, text: str) -> Iterator[bytes]:
        if self._open != kind:
            block = {"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {})
            yield from self._begin(kind, block)
        yield self._block_delta({"type": f"{kind}_delta", kind: text})

    def _begin(self, kind: str, block: dict[str, Any]) -> Iterator[bytes]:
        yield from self._close()
        self._open = kind
        self._index += 1
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        yield event_bytes("content_block_start", start)

    def _block_delta(self, delta: dict[str, Any]) -> bytes:
        return event_bytes("content_block_delta", {"type": "content_block_delta", "index": self._index, "delta": delta})

    def _close(self) -> Iterator[bytes]:
        if self._open is not None:
            self._open = None
            yield event_bytes("content_block_stop", {"type": "content_block_stop", "index": self._index})

    def _finish(self) -> Iterator[bytes]:
        if not self._begun:
            yield self.broken(502, "the model service's stream ended before it said anything")
            return
        for call in self._calls.values():
            if not call.ended:
                yield from self._say(call)
        yield from self._piece("text", "".join(self._late)) if self._late else ()
        yield from self._close()
        self._ended = True
        reason, sequence = self._stop()
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        yield event_bytes("message_delta", {"type": "message_delta", "delta": delta, "usage": usage_of(self._usage)})
        yield event_bytes("message_stop", {"type": "message_stop"})

    def _stop(self) -> tuple[str, str | None]:
        """Why it ended. A stream that was cut before it gave a reason is told as cut, unless its calls are complete."""
        calls = self._calls.values()
        if not self._choice and not self._done and not (calls and all(call.complete() for call in calls)):
            return "max_tokens", None
        reason, sequence = stop_of(self._choice, bool(self._calls))
        return ("refusal" if self._refusal and reason == "end_turn" else reason), sequence

    def _refused(self, error: Any) -> bytes:
        said = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": str(error)}
        status = said.get("code") if isinstance(said.get("code"), int) else said.get("status")
        known = status if isinstance(status, int) and 400 <= status < 600 else 502
        return self.broken(known, str(said.get("message") or "the model service broke off"))
