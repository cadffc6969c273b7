"""Shapes of requests, replies and streams, for the translation and for a second opinion on it."""

from __future__ import annotations

import json
from typing import Any

PNG = "iVBORw0KGgo="
USER: dict[str, Any] = {"role": "user", "content": "hi"}
TOOL: dict[str, Any] = {
    "name": "read",
    "description": "Read a file",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
IMAGE: dict[str, Any] = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
LINK: dict[str, Any] = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def use(call_id: str, name: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": value}


def result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def turns(*contents: Any) -> dict[str, Any]:
    """User and assistant in turn."""
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]}


def called(*answers: dict[str, Any], calls: int = 1) -> dict[str, Any]:
    uses = [use(f"t{number}", "read", {"path": f"/{number}"}) for number in range(calls)]
    return {**turns("go", uses, list(answers)), "tools": [TOOL]}


REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "user blocks, one": turns([text("a")]),
    "user blocks, two": turns([text("a"), text("b")]),
    "system text": {"system": "be brief"},
    "system blocks": {"system": [text("a"), text("b")]},
    "system cached": {"system": [{**text("a"), "cache_control": {"type": "ephemeral"}}]},
    "system empty": {"system": ""},
    "three turns": turns("a", "b", "c"),
    "assistant blocks": turns("a", [text("b"), text("c")], "d"),
    "assistant last": turns("a", "b"),
    "image base64": turns([IMAGE]),
    "image link": turns([LINK]),
    "image and text": turns([text("see"), IMAGE]),
    "text after image": turns([IMAGE, text("see")]),
    "two images": turns([IMAGE, LINK]),
    "pdf": turns(
        [{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}]
    ),
    "document text": turns(
        [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "abc"}}]
    ),
    "one call": called(result("t0", "done")),
    "one call, blocks": called(result("t0", [text("a")])),
    "one call, two blocks": called(result("t0", [text("a"), text("b")])),
    "one call, error": called(result("t0", "no such file", is_error=True)),
    "one call, empty": called(result("t0", "")),
    "one call, nothing": called({"type": "tool_result", "tool_use_id": "t0"}),
    "one call, image": called(result("t0", [IMAGE])),
    "one call, text and image": called(result("t0", [text("a"), IMAGE])),
    "one call, then text": called(result("t0", "done"), text("go on")),
    "text, then its result": called(text("go on"), result("t0", "done")),
    "two calls": called(result("t0", "a"), result("t1", "b"), calls=2),
    "two calls, turned round": called(result("t1", "b"), result("t0", "a"), calls=2),
    "call with text": {**turns("go", [text("I read"), use("t0", "read", {})], [result("t0", "x")]), "tools": [TOOL]},
    "call, no arguments": {**turns("go", [use("t0", "read", {})], [result("t0", "x")]), "tools": [TOOL]},
    "call, nested arguments": {
        **turns("go", [use("t0", "read", {"a": [1, {"b": None}], "c": "日本"})], [result("t0", "x")]),
        "tools": [TOOL],
    },
    "thinking in history": turns("a", [{"type": "thinking", "thinking": "hm", "signature": "s"}, text("b")], "c"),
    "thinking only": turns("a", [{"type": "thinking", "thinking": "hm", "signature": "s"}], "c"),
    "redacted thinking": turns("a", [{"type": "redacted_thinking", "data": "x"}, text("b")], "c"),
    "thinking and call": {
        **turns(
            "a", [{"type": "thinking", "thinking": "hm", "signature": "s"}, use("t0", "read", {})], [result("t0", "x")]
        ),
        "tools": [TOOL],
    },
    "tools": {"tools": [TOOL]},
    "two tools": {"tools": [TOOL, {**TOOL, "name": "write"}]},
    "tool without description": {"tools": [{"name": "f", "input_schema": {"type": "object", "properties": {}}}]},
    "tool, cached": {"tools": [{**TOOL, "cache_control": {"type": "ephemeral"}}]},
    "tool, typed custom": {"tools": [{**TOOL, "type": "custom"}]},
    "tool, long name": {"tools": [{**TOOL, "name": "n" * 90}]},
    "choice auto": {"tools": [TOOL], "tool_choice": {"type": "auto"}},
    "choice any": {"tools": [TOOL], "tool_choice": {"type": "any"}},
    "choice none": {"tools": [TOOL], "tool_choice": {"type": "none"}},
    "choice tool": {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "read"}},
    "choice, one at a time": {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    "temperature": {"temperature": 0.3},
    "top_p": {"top_p": 0.9},
    "top_k": {"top_k": 40},
    "stop": {"stop_sequences": ["END", "STOP"]},
    "user": {"metadata": {"user_id": "u-1"}},
    "thinking, small": {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    "thinking, low": {"thinking": {"type": "enabled", "budget_tokens": 2500}},
    "thinking, medium": {"thinking": {"type": "enabled", "budget_tokens": 6000}},
    "thinking, high": {"thinking": {"type": "enabled", "budget_tokens": 20000}},
    "thinking off": {"thinking": {"type": "disabled"}},
    "stream": {"stream": True},
}


def function(number: int, arguments: str, name: str = "read") -> dict[str, Any]:
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def reply(message: dict[str, Any], finish: str = "stop", **usage: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "up",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25, **usage},
    }


REPLIES: dict[str, dict[str, Any]] = {
    "text": reply({"content": "hello"}),
    "length": reply({"content": "hel"}, "length"),
    "filtered": reply({"content": "x"}, "content_filter"),
    "refused": reply({"content": None, "refusal": "no"}),
    "empty": reply({"content": ""}),
    "call": reply({"content": None, "tool_calls": [function(0, '{"path": "/a"}')]}, "tool_calls"),
    "text and call": reply({"content": "so", "tool_calls": [function(0, '{"path": "/a"}')]}, "tool_calls"),
    "two calls": reply(
        {"content": None, "tool_calls": [function(0, '{"path": "/a"}'), function(1, '{"path": "/b"}')]}, "tool_calls"
    ),
    "call, no arguments": reply({"content": None, "tool_calls": [function(0, "")]}, "tool_calls"),
    "call, empty arguments": reply({"content": None, "tool_calls": [function(0, "{}")]}, "tool_calls"),
    "call that stops": reply({"content": None, "tool_calls": [function(0, "{}")]}, "stop"),
    "call cut by length": reply({"content": None, "tool_calls": [function(0, "{}")]}, "length"),
    "reasoning": reply({"content": "so", "reasoning_content": "hm"}),
    "reasoning and call": reply(
        {"content": None, "reasoning_content": "hm", "tool_calls": [function(0, "{}")]}, "tool_calls"
    ),
    "cached": reply({"content": "x"}, prompt_tokens_details={"cached_tokens": 8}),
}


def piece(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": [choice]}


def part(number: int, arguments: str, name: str | None = None) -> dict[str, Any]:
    if name is None:
        return piece({"tool_calls": [{"index": number, "function": {"arguments": arguments}}]})
    opened = {"index": number, "id": f"call_{number}", "type": "function"}
    return piece({"tool_calls": [{**opened, "function": {"name": name, "arguments": arguments}}]})


LAST = {
    **piece({}),
    "choices": [],
    "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25},
}
ROLE = piece({"role": "assistant", "content": ""})

STREAMS: dict[str, list[dict[str, Any]]] = {
    "text": [ROLE, piece({"content": "hel"}), piece({"content": "lo"}), piece({}, "stop"), LAST],
    "length": [ROLE, piece({"content": "hel"}), piece({}, "length"), LAST],
    "call": [ROLE, part(0, "", "read"), part(0, '{"path":'), part(0, ' "/a"}'), piece({}, "tool_calls"), LAST],
    "call, whole": [ROLE, part(0, '{"path": "/a"}', "read"), piece({}, "tool_calls"), LAST],
    "text and call": [ROLE, piece({"content": "so"}), part(0, '{"path": "/a"}', "read"), piece({}, "tool_calls"), LAST],
    "two calls": [
        ROLE,
        part(0, '{"path": "/a"}', "read"),
        part(1, '{"path": "/b"}', "read"),
        piece({}, "tool_calls"),
        LAST,
    ],
    "two calls, mixed": [
        ROLE,
        part(0, "", "read"),
        part(1, "", "read"),
        part(0, '{"path":'),
        part(1, '{"path":'),
        part(0, ' "/a"}'),
        part(1, ' "/b"}'),
        piece({}, "tool_calls"),
        LAST,
    ],
    "reasoning": [ROLE, piece({"reasoning_content": "hm"}), piece({"content": "so"}), piece({}, "stop"), LAST],
    "finish with text": [ROLE, piece({"content": "hello"}, "stop"), LAST],
    "no usage": [ROLE, piece({"content": "hello"}), piece({}, "stop")],
}


def asked(shape: dict[str, Any]) -> dict[str, Any]:
    """The whole Messages request of a shape."""
    return {"model": "m", "max_tokens": 64, "messages": [USER], **shape}


def message_of_events(stream: str) -> dict[str, Any]:
    """The message that a stream of events says, put together from its text; none of our code."""
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for line in stream.splitlines():
        if not line.startswith("data:"):
            continue
        event = json.loads(line[5:])
        if event["type"] == "message_start":
            message = {"usage": event["message"]["usage"]}
        elif event["type"] == "content_block_start":
            blocks[event["index"]] = {**event["content_block"], "json": ""}
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            key = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "json"}.get(delta["type"])
            if key:
                block[key] = block.get(key, "") + delta.get(key if key != "json" else "partial_json", "")
        elif event["type"] == "message_delta":
            message["stop_reason"] = event["delta"]["stop_reason"]
            message["usage"] = {**message["usage"], **event["usage"]}
    for block in blocks.values():
        written = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(written) if written else block.get("input", {})
    message["content"] = [blocks[index] for index in sorted(blocks)]
    return message


def gist_of_message(message: dict[str, Any]) -> dict[str, Any]:
    """What matters of a message."""
    kept = {"text": ("text",), "thinking": ("thinking",), "tool_use": ("id", "name", "input")}
    content = [
        {"type": block["type"], **{key: block.get(key) for key in kept.get(block["type"], ())}}
        for block in message["content"]
    ]
    usage = message["usage"]
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens")
    return {
        "content": content,
        "stop_reason": message["stop_reason"],
        "usage": {name: usage[name] for name in names if usage.get(name)},
    }
