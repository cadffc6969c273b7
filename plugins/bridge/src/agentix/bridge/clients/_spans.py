"""What a call to a model service was about, as a span with the `gen_ai.*` attributes of OpenTelemetry."""

from __future__ import annotations

import contextvars
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

from agentix import trace
from agentix.utils.trace import Span

from .._usage import Usage
from ._reply import first_choice, said_in, text_in, tool_calls_of
from ._sse import EventTooLong, SseReader, object_of


class CallSpan:
    """A span from the request until the last piece of the reply.

    It is opened in a context of its own, because a reply may be read by another task than the one that asked; nothing
    is opened if nobody listens. All of it is safe to call again.
    """

    def __init__(self, system: str, operation: str, body: Mapping[str, Any]) -> None:
        self._span: Span | None = None
        if not system or not trace.get_processors():
            return
        model = str(body.get("model", ""))
        attributes: dict[str, Any] = {"gen_ai.system": system, "gen_ai.request.model": model}
        most = body.get("max_tokens", body.get("max_completion_tokens"))
        if most is not None:
            attributes["gen_ai.request.max_tokens"] = most
        attributes.update(_prompt(body))
        self._context = contextvars.copy_context()
        self._manager = trace.span(f"{system} {operation} {model}", **attributes)
        self._span = self._context.run(self._manager.__enter__)

    @classmethod
    def none(cls) -> CallSpan:
        """Return one that is never opened."""
        return cls("", "", {})

    def replied(self, body: bytes) -> None:
        """Take a whole reply, and end."""
        if self._span is not None:
            reply = object_of(body)
            if reply is not None:
                self._take(_completion_text(reply), reply.get("usage"))
        self.end()

    def _take(self, text: str, *usages: Any) -> None:
        if self._span is None:
            return
        usage = Usage()
        for said in usages:
            usage.take(said)
        self._span.set_attribute("gen_ai.completion.0.content", text)
        if usage.input_tokens is not None:
            self._span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
        if usage.output_tokens is not None:
            self._span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)

    def watch(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Return a stream of events that is read for the span while it passes."""
        return _Watched(body, self)

    def streamed(self, text: str, usages: list[Any], failure: BaseException | None) -> None:
        """A stream has ended."""
        self._take(text, *usages)
        self.end(failure)

    def end(self, failure: BaseException | None = None) -> None:
        """End, well or with a failure."""
        span, self._span = self._span, None
        if span is None:
            return
        how = (None, None, None) if failure is None else (type(failure), failure, failure.__traceback__)
        try:
            self._context.run(self._manager.__exit__, *how)
        except BaseException as raised:
            if raised is not failure:
                raise

    @property
    def open(self) -> bool:
        """Whether there is a span that has not ended."""
        return self._span is not None


class _Watched:
    """A stream of events, with its text and usage picked out."""

    def __init__(self, body: AsyncIterator[bytes], span: CallSpan) -> None:
        self._body = body
        self._span = span
        self._reader = SseReader() if span.open else None
        self._text: list[str] = []
        self._usages: list[Any] = []

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> bytes:
        try:
            piece = await anext(self._body)
        except StopAsyncIteration:
            self._read(self._reader.end() if self._reader is not None else [])
            self._span.streamed("".join(self._text), self._usages, None)
            raise
        except BaseException as failure:
            self._span.streamed("".join(self._text), self._usages, failure)
            raise
        if self._reader is not None:
            try:
                self._read(self._reader.feed(piece))
            except EventTooLong:
                self._reader = None
        return piece

    async def aclose(self) -> None:
        """Leave the rest unread."""
        self._span.streamed("".join(self._text), self._usages, None)
        close = getattr(self._body, "aclose", None)
        if close is not None:
            await close()

    def _read(self, events: list[Any]) -> None:
        for event in events:
            said = object_of(event.data)
            if said is None:
                continue
            for holder in (said, said.get("message")):
                if isinstance(holder, dict) and isinstance(cast("dict[str, Any]", holder).get("usage"), dict):
                    self._usages.append(cast("dict[str, Any]", holder)["usage"])
            self._text.append(_delta_text(said))


def _delta_text(said: dict[str, Any]) -> str:
    choice = first_choice(said)
    delta = said.get("delta") if choice is None else choice.get("delta")
    if not isinstance(delta, dict):
        return ""
    delta = cast("dict[str, Any]", delta)
    return str(delta.get("text") or "") if choice is None else text_in(delta.get("content"))


def _prompt(body: Mapping[str, Any]) -> dict[str, Any]:
    messages = body.get("messages")
    turns = [cast("dict[str, Any]", turn) for turn in cast("list[Any]", messages or []) if isinstance(turn, dict)]
    if body.get("system"):
        turns.insert(0, {"role": "system", "content": body["system"]})
    found: dict[str, Any] = {}
    for number, turn in enumerate(turns):
        found[f"gen_ai.prompt.{number}.role"] = str(turn.get("role", ""))
        found[f"gen_ai.prompt.{number}.content"] = _content_text(turn.get("content"))
    return found


def _content_text(content: Any) -> str:
    """The text of a content; JSON if there is anything else in it."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        blocks = [cast("dict[str, Any]", block) for block in cast("list[Any]", content) if isinstance(block, dict)]
        if blocks and all(block.get("type") == "text" for block in blocks):
            return "\n".join(str(block.get("text") or "") for block in blocks)
    return json.dumps(content, ensure_ascii=False)


def _completion_text(reply: dict[str, Any]) -> str:
    choice = first_choice(reply)
    if choice is None:
        return _content_text(reply.get("content"))
    said = said_in(choice)
    text = text_in(said.get("content"))
    calls = tool_calls_of(said)
    return text if text or not calls else json.dumps(calls, ensure_ascii=False)
