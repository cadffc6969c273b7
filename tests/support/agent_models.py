"""Models for coding agents, with a service in front that speaks a vendor's API: plain aiohttp, none of our code.

A `Coder` decides by what it is told: it reads the file that the task names, runs a command, edits the file, and says
what came of it. It looks at each result before it goes on, so an agent that loses or mixes up one gets no further.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from bridge_peers import Service, serving

BEFORE = "the answer is 41\n"
AFTER = "the answer is 42\n"
COMMAND_SAYS = "lines: 1 ü"
DONE = "The answer is right now: 42."


def task(path: str) -> str:
    """What to ask an agent for. The file must hold BEFORE; afterwards it holds AFTER."""
    return f"Put the answer right in FILE={path} and tell me."


@dataclass
class Turn:
    """One answer of the model: words, then perhaps tools to be used."""

    text: str
    tools: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


class Coder:
    """The model: from the task and the results so far to its next turn."""

    def next(self, asked: str, results: list[str]) -> Turn:
        found = re.search(r"FILE=(\S+)", asked)
        if found is None:
            return Turn("Coding")  # what agents ask besides: a title, a topic
        path = found[1]
        # Builtins only: the image need not have a program.
        count = f'n=0; while read -r line; do n=$((n + 1)); echo "$line"; done < {path} > {path}.before'
        command = f'{count}; echo "lines: $n ü"'
        steps = [
            (None, Turn("First the file.", [("Read", {"file_path": path})])),
            (BEFORE.strip(), Turn("", [("Bash", {"command": command, "description": "Count the lines"})])),
            (COMMAND_SAYS, Turn("Now the change.", [("Edit", self._edit(path))])),
            (path, Turn(DONE)),
        ]
        expected, turn = steps[min(len(results), len(steps) - 1)]
        if expected is not None and expected not in results[-1]:
            return Turn(f"I give up: {expected!r} is not in {results[-1]!r}")
        return turn

    def _edit(self, path: str) -> dict[str, Any]:
        return {"file_path": path, "old_string": BEFORE.strip(), "new_string": AFTER.strip()}


def _plain(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(_plain(part) for part in content)
    if isinstance(content, dict):
        return _plain(content.get("text", content.get("content", "")))
    return str(content or "")


# ---- Messages ----


def _told(body: dict[str, Any]) -> tuple[str, list[str]]:
    asked, results = "", []
    for message in body["messages"]:
        blocks = message["content"]
        if message["role"] != "user" or isinstance(blocks, str):
            asked += _plain(blocks) if message["role"] == "user" else ""
            continue
        for block in blocks:
            if block["type"] == "tool_result":
                results.append(_plain(block.get("content")))
            else:
                asked += _plain(block) + "\n"
    return asked, results


def _event(kind: str, **more: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()


def _cut(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _message_events(turn: Turn, model: str, number: int) -> list[bytes]:
    usage = {"input_tokens": 10, "output_tokens": 1}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": []}
    events = [_event("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": usage})]
    blocks: list[tuple[dict[str, Any], str, list[str]]] = []
    if turn.text:
        blocks.append(({"type": "text", "text": ""}, "text", _cut(turn.text)))
    for name, given in turn.tools:
        use = {"type": "tool_use", "id": f"toolu_{number}_{len(blocks)}", "name": name, "input": {}}
        blocks.append((use, "input_json", _cut(json.dumps(given))))
    for index, (start, kind, pieces) in enumerate(blocks):
        events.append(_event("content_block_start", index=index, content_block=start))
        name = "text" if kind == "text" else "partial_json"
        for piece in pieces:
            events.append(_event("content_block_delta", index=index, delta={"type": f"{kind}_delta", name: piece}))
        events.append(_event("content_block_stop", index=index))
    reason = {"stop_reason": "tool_use" if turn.tools else "end_turn", "stop_sequence": None}
    return [*events, _event("message_delta", delta=reason, usage={"output_tokens": 9}), _event("message_stop")]


# ---- Chat Completions ----


def _told_chat(body: dict[str, Any]) -> tuple[str, list[str]]:
    asked = "\n".join(_plain(said["content"]) for said in body["messages"] if said["role"] == "user")
    return asked, [_plain(said["content"]) for said in body["messages"] if said["role"] == "tool"]


def _chat_events(turn: Turn, model: str, number: int) -> list[bytes]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in _cut(turn.text)]
    for index, (name, given) in enumerate(turn.tools):
        call = {"index": index, "id": f"call_{number}_{index}", "type": "function"}
        deltas.append({"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]})
        for piece in _cut(json.dumps(given)):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    chunk = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": model}
    choices: list[list[dict[str, Any]]] = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices.append([{"index": 0, "delta": {}, "finish_reason": "tool_calls" if turn.tools else "stop"}])
    said = [{**chunk, "choices": choice} for choice in choices]
    said.append({**chunk, "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19}})
    return [*(f"data: {json.dumps(one)}\n\n".encode() for one in said), b"data: [DONE]\n\n"]


def _chat_whole(turn: Turn, model: str, number: int) -> dict[str, Any]:
    calls = [
        {"id": f"call_{number}_{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for i, (name, given) in enumerate(turn.tools)
    ]
    message = {"role": "assistant", "content": turn.text, **({"tool_calls": calls} if calls else {})}
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19},
    }


# ---- the services ----


async def _stream(request: web.Request, events: list[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        await response.write(event)
    return response


class Models:
    """Answers for both APIs; whoever does not send `key` is refused."""

    def __init__(self, key: str, brain: Any = None) -> None:
        self.key = key
        self.brain = brain or Coder()
        self.turns: list[Turn] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "HEAD":
            return web.Response()
        given = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if given != self.key:
            return web.json_response({"type": "error", "error": {"type": "authentication_error"}}, status=401)
        body = json.loads(await request.read())
        if request.path == "/v1/messages/count_tokens":
            return web.json_response({"input_tokens": 10})
        if request.path not in ("/v1/messages", "/v1/chat/completions"):
            return web.json_response({"type": "error", "error": {"type": "not_found_error"}}, status=404)
        chat = request.path.endswith("completions")
        turn = self.brain.next(*(_told_chat if chat else _told)(body))
        self.turns.append(turn)
        make = _chat_events if chat else _message_events
        events = make(turn, body["model"], len(self.turns))
        if body.get("stream"):
            return await _stream(request, events)
        if chat:
            return web.json_response(_chat_whole(turn, body["model"], len(self.turns)))
        return web.json_response(_message_whole(events))


def _message_whole(events: list[bytes]) -> dict[str, Any]:
    """The same message in one piece, put together from its events."""
    message: dict[str, Any] = {}
    for event in events:
        data = json.loads(event.split(b"data: ", 1)[1])
        if data["type"] == "message_start":
            message = data["message"]
        elif data["type"] == "content_block_start":
            message["content"].append({**data["content_block"], "said": ""})
        elif data["type"] == "content_block_delta":
            delta = data["delta"]
            message["content"][data["index"]]["said"] += delta.get("text", delta.get("partial_json", ""))
        elif data["type"] == "message_delta":
            message.update(data["delta"])
    for block in message["content"]:
        said = block.pop("said")
        block.update({"text": said} if block["type"] == "text" else {"input": json.loads(said)})
    return message


@asynccontextmanager
async def models(key: str, brain: Any = None) -> AsyncIterator[tuple[Service, Models]]:
    """A service on loopback with such a model behind it."""
    behind = Models(key, brain)
    async with serving(behind.answer) as service:
        yield service, behind
