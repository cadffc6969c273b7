"""Requests of the Messages API as requests of the Chat Completions API."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

from .._errors import AbridgeError
from ._names import long_names, short_name, short_user

Block = dict[str, Any]

#: Returns the assistant message that was the origin of these `tool_use` blocks, if it is known.
Recall = Callable[[list[Block]], dict[str, Any] | None]

_NEWER = re.compile(r"(^|/)(o[134]|gpt-5)", re.IGNORECASE)  # models that refuse `max_tokens`
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_SERVERS = ("web_search", "web_fetch", "code_execution")  # tools that only Anthropic's servers can run


class Translated:
    """A request for the Chat Completions API, and what is needed to translate its reply back."""

    def __init__(self, body: dict[str, Any], model: str | None, recall: Recall | None = None) -> None:
        self.model = str(body.get("model", ""))
        self.stream = body.get("stream") is True
        self.names = long_names(_names(body))
        self.body = chat_request(body, model, recall)


def chat_request(body: dict[str, Any], model: str | None = None, recall: Recall | None = None) -> dict[str, Any]:
    """Return the Chat Completions request that says what a Messages request says.

    `model` replaces the one asked for. Raises AbridgeError 400 for a request that is not of the Messages API.
    """
    wanted = model or str(body.get("model", ""))
    chat: dict[str, Any] = {"model": wanted, "messages": _messages(body, recall)}
    if body.get("max_tokens") is not None:
        chat["max_completion_tokens" if _NEWER.search(wanted) else "max_tokens"] = body["max_tokens"]
    for name in ("temperature", "top_p", "top_k"):
        if body.get(name) is not None:
            chat[name] = body[name]
    if body.get("stop_sequences"):
        chat["stop"] = body["stop_sequences"]
    tools = _tools(body)
    if tools:
        chat["tools"] = tools
        chat.update(_tool_choice(body.get("tool_choice")))
    user = _mapping(body.get("metadata")).get("user_id")
    if isinstance(user, str) and user:
        chat["user"] = short_user(user)
    chat.update(_effort(body))
    chat.update(_format(body))
    if body.get("stream") is True:
        chat["stream"] = True
        chat["stream_options"] = {"include_usage": True}
    return chat


def text_of(content: Any, separator: str = "\n") -> str:
    """Return the text of what is a text or a list of blocks."""
    if isinstance(content, str):
        return content
    return separator.join(str(block.get("text") or "") for block in blocks_of(content) if block.get("type") == "text")


def blocks_of(content: Any) -> list[Block]:
    """Return content as blocks: a text is one block, nothing is none.

    Raises AbridgeError 400 for what is neither.
    """
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise AbridgeError("content has to be a text or a list of blocks", status_code=400)
    blocks = cast("list[Any]", content)
    if not all(isinstance(block, dict) for block in blocks):
        raise AbridgeError("each block of a content has to be an object", status_code=400)
    return cast("list[Block]", blocks)


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


# ---- messages ----


def _messages(body: dict[str, Any], recall: Recall | None) -> list[dict[str, Any]]:
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise AbridgeError("messages: a list is required", status_code=400)
    chat: list[dict[str, Any]] = []
    system = text_of(body.get("system"))
    if system:
        chat.append({"role": "system", "content": system})
    for message in cast("list[Any]", messages):
        if not isinstance(message, dict) or "role" not in message:
            raise AbridgeError("each message has to be an object with a role", status_code=400)
        chat += _message(cast("dict[str, Any]", message), recall)
    return chat


def _message(message: dict[str, Any], recall: Recall | None) -> list[dict[str, Any]]:
    blocks = blocks_of(message.get("content"))
    if message["role"] == "assistant":
        return [_assistant(blocks, recall)]
    if message["role"] == "system":
        return [{"role": "system", "content": text_of(blocks)}]
    return list(_user(blocks))


def _assistant(blocks: list[Block], recall: Recall | None) -> dict[str, Any]:
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    if uses and recall is not None:
        known = recall(uses)
        if known is not None:
            return known
    text = text_of(blocks, "")
    message: dict[str, Any] = {"role": "assistant", "content": text}
    thoughts = [str(block.get("thinking") or "") for block in blocks if block.get("type") == "thinking"]
    if any(thoughts):
        message["reasoning_content"] = "\n".join(thoughts)
    if uses:
        message["tool_calls"] = [_tool_call(block) for block in uses]
    if not text and len(message) > 2:
        message["content"] = None
    return message


def _tool_call(block: Block) -> dict[str, Any]:
    arguments = json.dumps(block.get("input") if block.get("input") is not None else {}, ensure_ascii=False)
    function = {"name": short_name(str(block.get("name", ""))), "arguments": arguments}
    return {"id": str(block.get("id", "")), "type": "function", "function": function}


def _user(blocks: list[Block]) -> Iterator[dict[str, Any]]:
    """Tool messages first: they have to stand directly after the calls that they answer.

    They hold texts only, so that images in results come with the user's own content.
    """
    parts: list[Block] = []
    for block in blocks:
        if block.get("type") == "tool_result":
            inner = blocks_of(block.get("content"))
            parts += [part for part in _parts(inner) if part["type"] != "text"]
            call_id = str(block.get("tool_use_id", ""))
            yield {"role": "tool", "tool_call_id": call_id, "content": _result_text(inner)}
    parts += _parts([block for block in blocks if block.get("type") != "tool_result"])
    if not parts and any(block.get("type") == "tool_result" for block in blocks):
        return
    if all(part["type"] == "text" for part in parts):
        yield {"role": "user", "content": "\n".join(part["text"] for part in parts)}
    else:
        yield {"role": "user", "content": parts}


def _result_text(blocks: list[Block]) -> str:
    texts = [part["text"] for part in _parts(blocks) if part["type"] == "text"]
    if not texts and any(block.get("type") in ("image", "document") for block in blocks):
        return "(the result is in the next message)"
    return "\n".join(texts)


def _parts(blocks: list[Block]) -> list[Block]:
    return [part for block in blocks if (part := _part(block)) is not None]


def _part(block: Block) -> Block | None:
    """A block as a part of a user's message; None for what has no counterpart."""
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": str(block.get("text") or "")}
    if kind == "image":
        url = _source_url(block, "image/png")
        return None if url is None else {"type": "image_url", "image_url": {"url": url}}
    if kind == "document":
        return _document(block)
    if kind == "search_result":
        text = "\n".join((str(block.get("title") or ""), text_of(block.get("content"))))
        return {"type": "text", "text": text.strip()}
    if kind == "tool_reference":
        return {"type": "text", "text": str(block.get("tool_name") or "")}
    return None


def _document(block: Block) -> Block | None:
    source = _mapping(block.get("source"))
    if source.get("type") == "text":
        return {"type": "text", "text": str(source.get("data") or "")}
    if source.get("type") == "content":
        return {"type": "text", "text": text_of(source.get("content"))}
    url = _source_url(block, "application/pdf")
    if url is None:
        return None
    if not url.startswith("data:"):
        return {"type": "text", "text": url}
    name = str(block.get("title") or "document.pdf")
    return {"type": "file", "file": {"filename": name, "file_data": url}}


def _source_url(block: Block, media_type: str) -> str | None:
    source = _mapping(block.get("source"))
    if source.get("type") == "base64":
        return f"data:{source.get('media_type') or media_type};base64,{source.get('data') or ''}"
    url = source.get("url")
    return url if source.get("type") == "url" and isinstance(url, str) else None


# ---- tools ----


def _names(body: dict[str, Any]) -> Iterator[str]:
    for tool in _listed(body.get("tools")):
        if isinstance(tool.get("name"), str):
            yield tool["name"]


def _listed(value: Any) -> list[dict[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def _tools(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "function", "function": _function(tool)}
        for tool in _listed(body.get("tools"))
        if tool.get("name") and not str(tool.get("type") or "").startswith(_SERVERS)
    ]


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    schema = tool.get("input_schema")
    function: dict[str, Any] = {"name": short_name(str(tool["name"]))}
    if tool.get("description"):
        function["description"] = tool["description"]
    function["parameters"] = schema if isinstance(schema, dict) else {"type": "object", "properties": {}}
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    return function


def _tool_choice(choice: Any) -> dict[str, Any]:
    choice = _mapping(choice)
    kind = choice.get("type")
    chat: dict[str, Any] = {}
    if kind == "tool" and isinstance(choice.get("name"), str):
        chat["tool_choice"] = {"type": "function", "function": {"name": short_name(choice["name"])}}
    elif kind in ("auto", "any", "none"):
        chat["tool_choice"] = {"auto": "auto", "any": "required", "none": "none"}[kind]
    if choice.get("disable_parallel_tool_use") is True:
        chat["parallel_tool_calls"] = False
    return chat


# ---- the rest ----


def _effort(body: dict[str, Any]) -> dict[str, Any]:
    effort = _mapping(body.get("output_config")).get("effort")
    if effort in _EFFORTS:
        return {"reasoning_effort": _EFFORTS[effort]}
    thinking = _mapping(body.get("thinking"))
    budget = thinking.get("budget_tokens")
    if thinking.get("type") == "adaptive":
        return {"reasoning_effort": "medium"}
    if thinking.get("type") != "enabled" or not isinstance(budget, int):
        return {}
    return {"reasoning_effort": "high" if budget >= 4096 else "medium" if budget >= 2048 else "low"}


def _format(body: dict[str, Any]) -> dict[str, Any]:
    wanted = _mapping(_mapping(body.get("output_config")).get("format") or body.get("output_format"))
    if wanted.get("type") != "json_schema":
        return {}
    schema = {"name": "response", "schema": wanted.get("schema"), "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def count_tokens(body: dict[str, Any]) -> int:
    """Return an estimate without a model: a token for every 4 characters of the request's texts, at least 1."""
    characters = len(text_of(body.get("system"), ""))
    for message in _listed(body.get("messages")):
        for block in blocks_of(message.get("content")):
            if block.get("type") == "text":
                characters += len(str(block.get("text") or ""))
            elif block.get("type") == "tool_result":
                characters += len(text_of(block.get("content"), ""))
    return max(1, characters // 4)
