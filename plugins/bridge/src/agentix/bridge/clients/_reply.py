"""Replies of the Chat Completions API as messages of the Messages API."""

from __future__ import annotations

import uuid
from typing import Any, cast

from .._errors import AbridgeError
from ._sse import object_of

_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


def message_id() -> str:
    """Return a fresh id of a message."""
    return f"msg_{uuid.uuid4().hex[:24]}"


def call_id() -> str:
    """Return a fresh id of a tool call, for services that give none."""
    return f"call_{uuid.uuid4().hex[:24]}"


def message_of(completion: dict[str, Any], model: str, names: dict[str, str]) -> dict[str, Any]:
    """Return the message that says what a completion says.

    `model` is the name that the agent asked for; `names` are the long names of tools by their short ones. Raises
    AbridgeError 502 for a completion without a choice.
    """
    choice = first_choice(completion)
    if choice is None:
        raise AbridgeError("the model service's reply has no choices")
    said = said_in(choice)
    content: list[dict[str, Any]] = []
    thought = reasoning_of(said)
    if thought:
        content.append({"type": "thinking", "thinking": thought, "signature": ""})
    refusal = refusal_in(said)
    text = text_in(said.get("content")) or refusal
    if text:
        content.append({"type": "text", "text": text})
    calls = tool_calls_of(said)
    content += [tool_use(call, names) for call in calls]
    reason, sequence = stop_of(choice, bool(calls))
    if refusal and reason == "end_turn":
        reason = "refusal"
    return {
        "id": message_id(),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": usage_of(completion.get("usage")),
    }


def said_in(choice: dict[str, Any]) -> dict[str, Any]:
    """Return a choice's message."""
    message = choice.get("message")
    return cast("dict[str, Any]", message) if isinstance(message, dict) else {}


def first_choice(completion: dict[str, Any]) -> dict[str, Any] | None:
    """Return the first choice of a completion or of a chunk."""
    choices = completion.get("choices")
    if not isinstance(choices, list) or not choices:
        return None
    first = cast("list[Any]", choices)[0]
    return cast("dict[str, Any]", first) if isinstance(first, dict) else None


def reasoning_of(said: dict[str, Any]) -> str:
    """Return what a model thought, by either of the names that services give it."""
    for name in ("reasoning_content", "reasoning"):
        value = said.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def text_in(content: Any) -> str:
    """Return the text of a message's content."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [cast("dict[str, Any]", part) for part in cast("list[Any]", content) if isinstance(part, dict)]
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def refusal_in(said: dict[str, Any]) -> str:
    """Return what a model said in place of an answer."""
    refusal = said.get("refusal")
    return refusal if isinstance(refusal, str) else ""


def tool_calls_of(said: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the calls of functions in a message; the older single `function_call` is one too."""
    calls: list[dict[str, Any]] = []
    listed = said.get("tool_calls")
    for call in cast("list[Any]", listed) if isinstance(listed, list) else []:
        if isinstance(call, dict) and isinstance(cast("dict[str, Any]", call).get("function"), dict):
            calls.append(cast("dict[str, Any]", call))
    if not calls and isinstance(said.get("function_call"), dict):
        calls.append({"id": None, "type": "function", "function": said["function_call"]})
    return calls


def tool_use(call: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Return the `tool_use` block of a call."""
    function = cast("dict[str, Any]", call["function"])
    name = str(function.get("name") or "")
    block = {"type": "tool_use", "id": str(call.get("id") or call_id()), "name": names.get(name, name)}
    return {**block, "input": arguments_of(function.get("arguments"))}


def arguments_of(arguments: Any) -> dict[str, Any]:
    """Return the arguments of a call, which services give as JSON text.

    What is no JSON object is kept under `arguments`, so that the tool's own check tells the model.
    """
    if isinstance(arguments, dict):
        return cast("dict[str, Any]", arguments)
    if not isinstance(arguments, str) or not arguments.strip():
        return {}
    found = object_of(arguments)
    return {"arguments": arguments} if found is None else found


def stop_of(choice: dict[str, Any], called: bool) -> tuple[str, str | None]:
    """Return why a reply ended, and the stop sequence if the service says which."""
    finish = choice.get("finish_reason")
    matched = choice.get("stop_reason")  # an addition of some services
    if finish == "stop" and isinstance(matched, str) and matched:
        return "stop_sequence", matched
    if called and finish in (None, "stop", "tool_calls", "function_call"):
        return "tool_use", None
    if finish in ("tool_calls", "function_call"):
        return "end_turn", None
    return _REASONS.get(str(finish), "end_turn"), None


def usage_of(usage: Any) -> dict[str, Any]:
    """Return the tokens under the names of the Messages API, where cached ones are counted apart."""
    said = cast("dict[str, Any]", usage) if isinstance(usage, dict) else {}
    details = said.get("prompt_tokens_details")
    cached = cast("dict[str, Any]", details).get("cached_tokens") if isinstance(details, dict) else None
    cached = _number(cached) or _number(said.get("prompt_cache_hit_tokens"))
    return {
        "input_tokens": max(0, _number(said.get("prompt_tokens")) - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": _number(said.get("completion_tokens")),
    }


def _number(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
