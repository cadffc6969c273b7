"""Model services as strict as the real ones: what their API does not know is refused with 400."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from aiohttp import web
from bridge_peers import events

_CHAT = {
    "messages",
    "model",
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "metadata",
    "modalities",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
} | {"top_k"}  # an addition of most services other than OpenAI's own
_ROLES = {
    "system": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "refusal", "tool_calls", "reasoning_content"},
    "tool": {"role", "content", "tool_call_id"},
}
_MESSAGES = {
    "model",
    "messages",
    "max_tokens",
    "metadata",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
    "service_tier",
    "container",
    "mcp_servers",
    "context_management",
    "output_config",
}


class Refused(Exception):
    """What the request is told."""


def need(right: object, message: str) -> None:
    if not right:
        raise Refused(message)


def check_chat(body: dict[str, Any]) -> None:
    """Raise Refused for what OpenAI's service would refuse."""
    need(not body.keys() - _CHAT, f"Unknown parameters: {sorted(body.keys() - _CHAT)}")
    need(isinstance(body.get("model"), str) and body["model"], "you must provide a model parameter")
    need(body.get("messages"), "messages: too short")
    need("tools" not in body or body["tools"], "tools: too short")
    need("tool_choice" not in body or "tools" in body, "tool_choice is only allowed when tools are specified")
    need("stream_options" not in body or body.get("stream"), "stream_options is only allowed when stream is enabled")
    need(len(body.get("user", "")) <= 64, "user: string too long")
    for tool in body.get("tools", []):
        need(tool.keys() == {"type", "function"} and tool["type"] == "function", "tools: unknown type")
        need(not tool["function"].keys() - {"name", "description", "parameters", "strict"}, "tools: unknown field")
        need(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool["function"]["name"]), "tools: bad name")
    waiting: set[str] = set()
    for message in body["messages"]:
        need(message.get("role") in _ROLES, "unknown role")
        need(not message.keys() - _ROLES[message["role"]], f"unknown field in {message}")
        if message["role"] == "tool":
            need(message["tool_call_id"] in waiting, "tool message without its call")
            waiting.discard(message["tool_call_id"])
            need(isinstance(message["content"], str), "tool content")
            continue
        need(not waiting, "tool_calls must be followed by tool messages")
        _check_content(message)
        for call in message.get("tool_calls", []):
            need(call.keys() == {"id", "type", "function"} and call["function"].keys() == {"name", "arguments"}, "call")
            need(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call["function"]["name"]), "bad name in call")
            json.loads(call["function"]["arguments"])
            waiting.add(call["id"])
    need(not waiting, "tool_calls must be followed by tool messages")


def _check_content(message: dict[str, Any]) -> None:
    content = message.get("content")
    if content is None:
        need(message["role"] == "assistant" and message.keys() & {"tool_calls", "reasoning_content"}, "content missing")
    elif isinstance(content, list):
        for part in content:
            known = {"text": {"type", "text"}, "image_url": {"type", "image_url"}, "file": {"type", "file"}}
            need(part.keys() == known.get(part.get("type")), f"unknown part {part}")
    else:
        need(isinstance(content, str), "content")


def check_messages(body: dict[str, Any]) -> None:
    """Raise Refused for what Anthropic's service would refuse."""
    need(not body.keys() - _MESSAGES, f"{sorted(body.keys() - _MESSAGES)}: Extra inputs are not permitted")
    for name in ("model", "messages", "max_tokens"):
        need(name in body, f"{name}: Field required")


class ChatModel:
    """Answers Chat Completions requests with `answer(body)`: a completion, a list of chunks, or a response."""

    def __init__(self, answer: Callable[[dict[str, Any]], Any]) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        self.cut = False  # no [DONE]

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.asked.append(body)
        try:
            need(request.path == "/v1/chat/completions", f"no such path: {request.path}")
            check_chat(body)
        except Refused as refused:
            error = {"message": str(refused), "type": "invalid_request_error", "code": "refused", "param": None}
            return web.json_response({"error": error}, status=400)
        said = self.answer(body)
        if isinstance(said, web.StreamResponse):
            return said
        if isinstance(said, dict):
            return web.json_response(said)
        pieces = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in said]
        return await events(request, pieces + ([] if self.cut else [b"data: [DONE]\n\n"]))


def completion(message: dict[str, Any], finish: str = "stop", **more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "upstream",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **more}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}},
    }


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "upstream", "choices": choices, **more}


def call(index: int, arguments: str, name: str | None = None) -> dict[str, Any]:
    """A piece of a tool call; the first one has its name."""
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    opened = {} if name is None else {"id": f"call_{index}", "type": "function"}
    return {"tool_calls": [{"index": index, **opened, "function": function}]}


USAGE = {"usage": {"prompt_tokens": 20, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}}
