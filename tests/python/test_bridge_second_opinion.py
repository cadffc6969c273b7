"""Bridge: our translation beside litellm's, shape by shape. What differs is explained here, and nothing else does.

The other opinion is in `bridge_second_opinion.json`; `tests/interop/bridge_second_opinion.py` says where it is from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bridge_shapes as shapes
import pytest
from agentix.bridge.clients._reply import message_of
from agentix.bridge.clients._request import chat_request
from agentix.bridge.clients._sse import Event
from agentix.bridge.clients._stream import MessageStream

OPINION = json.loads((Path(__file__).parent / "bridge_second_opinion.json").read_text())

# An assistant message that only calls tools has `content: null` here, which the API has always taken; litellm leaves
# `content` out.
NULL = ["messages.1.content"]


def _texts(message: int, count: int) -> list[str]:
    """Several texts in a row are one text here, joined by line ends, as servers with plain chat templates want it;
    litellm sends them as parts."""
    parts = [f"messages.{message}.content.{index}.{key}" for index in range(count) for key in ("text", "type")]
    return [f"messages.{message}.content", *parts]


# litellm announces the image of a tool's result with texts of its own, in the tool message and before the image; here
# the tool message says in its place where the image is, and the image comes alone.
_ANNOUNCED = [
    "messages.3.content.0.image_url.url",
    "messages.3.content.0.text",
    "messages.3.content.0.type",
    "messages.3.content.1.image_url.url",
    "messages.3.content.1.type",
]

REQUESTS: dict[str, list[str]] = {
    "user blocks, one": _texts(0, 1),
    "user blocks, two": _texts(0, 2),
    "system blocks": _texts(0, 2),
    "system cached": _texts(0, 1),
    # litellm loses documents that are texts, and with this one the whole turn.
    "document text": ["messages", "messages.0.content", "messages.0.role"],
    "one call": NULL,
    "one call, blocks": NULL,
    "one call, two blocks": [*NULL, *_texts(2, 2)],
    "one call, error": NULL,
    "one call, empty": NULL,
    "one call, nothing": NULL,
    "one call, image": [*NULL, "messages.2.content", *_ANNOUNCED],
    "one call, text and image": [*NULL, *_texts(2, 1), *_ANNOUNCED],
    "one call, then text": [*NULL, *_texts(3, 1)],
    "text, then its result": [*NULL, *_texts(3, 1)],
    "two calls": NULL,
    "two calls, turned round": NULL,
    "call, no arguments": NULL,
    # The same JSON; litellm escapes what is not ASCII, which costs the model tokens.
    "call, nested arguments": [*NULL, "messages.1.tool_calls.0.function.arguments"],
    "thinking only": NULL,
    "thinking and call": NULL,
    # Both keep the beginning and add a hash; ours is longer.
    "tool, long name": ["tools.0.function.name"],
    # litellm drops these two.
    "choice, one at a time": ["parallel_tool_calls"],
    "user": ["user"],
    # `none` is known to the newest models only; what is left out does no harm to the others.
    "thinking off": ["reasoning_effort"],
}

REPLIES: dict[str, list[str]] = {
    # litellm gives one text block, which is empty, and the API refuses empty ones when the agent sends them back.
    "empty": ["content", "content.0.text", "content.0.type"],
}

STREAMS: dict[str, list[str]] = {
    # litellm writes the pieces of both calls into one block: its arguments are no JSON.
    "two calls, mixed": [
        "",
        *(f"content.{index}.{key}" for index in (0, 1) for key in ("id", "input.path", "name", "type")),
        "stop_reason",
        "usage.input_tokens",
        "usage.output_tokens",
    ],
    # litellm counts the tokens itself if the service does not; here they are unknown, 0.
    "no usage": ["usage", "usage.input_tokens", "usage.output_tokens"],
}


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from flat(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from flat(inner, f"{path}.{index}" if path else str(index))
    else:
        yield path, value


def differences(ours: Any, theirs: Any) -> list[str]:
    one, other = dict(flat(ours)), dict(flat(theirs))
    return sorted(path for path in {*one, *other} if path not in one or path not in other or one[path] != other[path])


def test_there_are_enough() -> None:
    assert len(shapes.REQUESTS) + len(shapes.REPLIES) + len(shapes.STREAMS) >= 80
    for part, known in (("requests", REQUESTS), ("replies", REPLIES), ("streams", STREAMS)):
        assert known.keys() <= OPINION[part].keys()


@pytest.mark.parametrize("name", shapes.REQUESTS)
def test_request(name: str) -> None:
    ours = chat_request(shapes.asked(shapes.REQUESTS[name]))
    assert differences(ours, OPINION["requests"][name]) == sorted(REQUESTS.get(name, []))


@pytest.mark.parametrize("name", shapes.REPLIES)
def test_reply(name: str) -> None:
    ours = shapes.gist_of_message(message_of(shapes.REPLIES[name], "m", {}))
    assert differences(ours, OPINION["replies"][name]) == sorted(REPLIES.get(name, []))


@pytest.mark.parametrize("name", shapes.STREAMS)
def test_stream(name: str) -> None:
    stream = MessageStream("m", {})
    said = [part for chunk in shapes.STREAMS[name] for part in stream.take(Event("message", json.dumps(chunk)))]
    said += stream.take(Event("message", "[DONE]"))
    ours = shapes.gist_of_message(shapes.message_of_events(b"".join(said).decode()))
    assert differences(ours, OPINION["streams"][name]) == sorted(STREAMS.get(name, []))
