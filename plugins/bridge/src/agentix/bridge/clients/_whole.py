"""A whole message as the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from ._sse import event_bytes


def events_of(message: dict[str, Any]) -> Iterator[bytes]:
    """Yield the events that say what a message says."""
    usage = cast("dict[str, Any]", message["usage"])
    opened: dict[str, Any] = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    opened["usage"] = {**usage, "output_tokens": 0}
    yield event_bytes("message_start", {"type": "message_start", "message": opened})
    for index, block in enumerate(cast("list[dict[str, Any]]", message["content"])):
        empty, delta = _opened(block)
        start = {"type": "content_block_start", "index": index, "content_block": empty}
        yield event_bytes("content_block_start", start)
        yield event_bytes("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})
        yield event_bytes("content_block_stop", {"type": "content_block_stop", "index": index})
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    yield event_bytes("message_delta", {"type": "message_delta", "delta": delta, "usage": usage})
    yield event_bytes("message_stop", {"type": "message_stop"})


def _opened(block: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A block as it begins, and the delta that fills it."""
    kind = block["type"]
    if kind == "tool_use":
        text = json.dumps(block["input"], ensure_ascii=False)
        return {**block, "input": {}}, {"type": "input_json_delta", "partial_json": text}
    return {**block, kind: ""}, {"type": f"{kind}_delta", kind: block[kind]}
