"""Bridge: translation of what nobody would send. Nothing but a refusal comes of it, and every stream is well-formed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from agentix.bridge import AbridgeError
from agentix.bridge.clients._reply import message_of
from agentix.bridge.clients._request import Translated, chat_request, count_tokens
from agentix.bridge.clients._sse import Event, SseReader
from agentix.bridge.clients._stream import MessageStream
from agentix.bridge.clients._whole import events_of
from bridge_shapes import message_of_events
from hypothesis import given, settings
from hypothesis import strategies as st

WORDS = st.sampled_from(
    tuple(
        re.findall(
            r"\w+",
            """
    text image tool_use tool_result thinking document base64 url user assistant system auto any tool
    enabled read
""",
        )
    )
)
LEAVES = st.none() | st.booleans() | st.integers(-5, 9) | WORDS | st.text(max_size=5)
KEYS = st.sampled_from(
    tuple(
        re.findall(
            r"\w+",
            """
    type text content role source data media_type url id tool_use_id name input thinking budget_tokens
    function arguments tool_calls index message delta choices finish_reason reasoning_content usage
    refusal
""",
        )
    )
)
ANY = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)
FIELDS = st.sampled_from(
    tuple(
        re.findall(
            r"\w+",
            """
    messages system tools tool_choice metadata thinking stop_sequences output_config max_tokens stream
    top_k
""",
        )
    )
)
MESSAGE = st.fixed_dictionaries({"role": WORDS}, optional={"content": ANY | st.lists(ANY, max_size=3)})
BLOCK = st.fixed_dictionaries({"type": WORDS}, optional={"content": ANY, "source": ANY, "text": ANY, "input": ANY})
TURN = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": st.lists(BLOCK, max_size=4)})
BODY = st.dictionaries(FIELDS, ANY, max_size=5) | st.builds(
    lambda turns, more: {**more, "messages": turns},
    st.lists(MESSAGE | TURN, max_size=4),
    st.dictionaries(FIELDS, ANY, max_size=3),
)


def answered(status: int, function: Callable[..., Any], *args: Any) -> Any:
    """What a function returns, or None if it refuses with this status."""
    refused: AbridgeError | None = None
    try:
        return function(*args)
    except AbridgeError as failure:
        refused = failure
    assert refused.status_code == status
    return None


@settings(max_examples=120, deadline=None)
@given(body=BODY)
def test_any_request(body: dict[str, Any]) -> None:
    if (chat := answered(400, chat_request, body)) is not None:
        json.dumps(chat)
        Translated(body, "m")
    assert answered(400, count_tokens, body) != 0


@settings(max_examples=100, deadline=None)
@given(reply=st.fixed_dictionaries({"choices": st.lists(st.fixed_dictionaries({"message": ANY}), max_size=2)}) | ANY)
def test_any_reply(reply: Any) -> None:
    if not isinstance(reply, dict):
        return
    if (message := answered(502, message_of, reply, "m", {})) is not None:
        again = message_of_events(b"".join(events_of(message)).decode("utf-8", "surrogatepass"))
        assert again["content"] == json.loads(json.dumps(message["content"]))


PIECE = st.text('ab😀"{}[]:,1 ', max_size=6)
CALL = st.fixed_dictionaries(
    {"function": st.fixed_dictionaries({}, optional={"name": st.sampled_from(["f", "g", ""]), "arguments": PIECE})},
    optional={"index": st.integers(0, 2) | st.none(), "id": st.sampled_from(["", "a", "b"]) | st.none()},
)
DELTA = st.fixed_dictionaries(
    {}, optional={"content": PIECE | st.none(), "reasoning_content": PIECE, "tool_calls": st.lists(CALL, max_size=3)}
)
ARGUMENTS = st.dictionaries(st.text(max_size=3), st.text(max_size=4) | st.integers(), max_size=3)
CHOICE = st.fixed_dictionaries({"delta": DELTA}, optional={"finish_reason": st.sampled_from([None, "stop", "length"])})
CHUNK = st.builds(lambda choice: {"choices": [choice]}, CHOICE) | st.builds(lambda value: {"choices": value}, ANY)


def check(stream: list[bytes]) -> None:
    reader = SseReader()
    events = [json.loads(event.data) for part in stream for event in reader.feed(part)]
    kinds = [event["type"] for event in events]
    if kinds[-1] != "error":
        assert kinds[0] == "message_start"
        assert kinds[-2:] == ["message_delta", "message_stop"]
    opened, last = None, -1
    for event in events:
        if event["type"] == "content_block_start":
            assert opened is None
            assert event["index"] == last + 1
            opened = last = event["index"]
        elif event["type"] in ("content_block_delta", "content_block_stop"):
            assert event["index"] == opened
            opened = None if event["type"] == "content_block_stop" else opened
        elif event["type"] == "message_delta":
            assert opened is None


@settings(max_examples=120, deadline=None)
@given(chunks=st.lists(CHUNK, max_size=8), done=st.booleans())
def test_any_chunks(chunks: list[Any], done: bool) -> None:
    stream = MessageStream("m", {})
    said = [part for chunk in chunks for part in stream.take(Event("message", json.dumps(chunk)))]
    if done:
        said += stream.take(Event("message", "[DONE]"))
    said += stream.end()
    check(said)
    json.dumps(stream.assistant())


@settings(max_examples=100, deadline=None)
@given(
    calls=st.lists(ARGUMENTS, min_size=1, max_size=4),
    data=st.data(),
)
def test_calls_mixed_in_any_way_arrive_whole(calls: list[dict[str, Any]], data: st.DataObject) -> None:
    """Each call's pieces in order, the calls in any order: every call has its own block with its own arguments."""
    queues: list[list[dict[str, Any]]] = []
    for index, value in enumerate(calls):
        text, pieces = json.dumps(value, ensure_ascii=False), []
        while text:
            size = data.draw(st.integers(1, len(text)))
            pieces.append({"index": index, "function": {"arguments": text[:size]}})
            text = text[size:]
        opened = {"index": index, "id": f"c{index}", "function": {"name": f"f{index}", "arguments": ""}}
        queues.append([opened, *pieces])
    stream = MessageStream("m", {})
    said: list[bytes] = []
    while any(queues):
        queue = data.draw(st.sampled_from([queue for queue in queues if queue]))
        chunk = {"choices": [{"delta": {"tool_calls": [queue.pop(0)]}}]}
        said += stream.take(Event("message", json.dumps(chunk)))
    said += stream.take(Event("message", "[DONE]"))
    check(said)
    message = message_of_events(b"".join(said).decode("utf-8", "surrogatepass"))
    assert {block["id"]: (block["name"], block["input"]) for block in message["content"]} == {
        f"c{index}": (f"f{index}", value) for index, value in enumerate(calls)
    }
    assert message["stop_reason"] == "tool_use"
