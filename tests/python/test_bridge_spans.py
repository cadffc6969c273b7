"""Bridge: the spans of the bundled clients, and their rows in a record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from agentix.bridge import AbridgeError, Recorder, Request
from agentix.bridge._routes import routes_of
from agentix.bridge.clients import AnthropicClient, AnthropicFromOpenAIClient, OpenAIClient
from aiohttp import web
from bridge_models import USAGE, ChatModel, chunk, completion
from bridge_peers import collected, events, serving

from agentix import trace

KEY = "sk-real-key-of-the-host"


class Kept(trace.Processor):
    def __init__(self) -> None:
        self.started: list[trace.Span] = []
        self.spans: list[trace.Span] = []

    def on_span_start(self, span: trace.Span) -> None:
        self.started.append(span)

    def on_span_end(self, span: trace.Span) -> None:
        self.spans.append(span)


@pytest.fixture
def kept() -> Iterator[Kept]:
    before, kept = trace.get_processors(), Kept()
    trace.set_processors([kept])
    yield kept
    trace.set_processors(before)


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(200):
            await main

    asyncio.run(bounded())


async def messages_service(request: web.Request) -> web.StreamResponse:
    body = json.loads(await request.read())
    usage = {"input_tokens": 7, "output_tokens": 1}
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "héllo"}],
        "usage": usage,
    }
    if body["model"] == "busy":
        return web.json_response({"type": "error", "error": {"message": "busy"}}, status=529)
    if not body.get("stream"):
        return web.json_response(message)
    stream = [
        {"type": "message_start", "message": {**message, "content": []}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hé"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "llo"}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 4}},
    ]
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n" for event in stream)
    return await events(request, [bytes([byte]) for byte in text.encode()])


ASKED: dict[str, Any] = {
    "model": "m",
    "max_tokens": 5,
    "system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    "messages": [{"role": "user", "content": "hi"}, {"role": "user", "content": [{"type": "image", "source": {}}]}],
}


def test_spans_of_messages(kept: Kept) -> None:
    async def main() -> None:
        async with serving(messages_service) as service:
            client = AnthropicClient(base_url=service.url, api_key=KEY)
            with trace.trace("run"), trace.span("step") as step:
                await client.messages(Request("/v1/messages", ASKED))
                response = await client.messages(Request("/v1/messages", {**ASKED, "stream": True}))
                assert len(kept.spans) == 1  # the other one is open until its last piece
                assert trace.get_current_span() is step
                await asyncio.create_task(collected(response.body))
                with pytest.raises(AbridgeError):
                    await client.messages(Request("/v1/messages", {**ASKED, "model": "busy"}))
                response = await client.messages(Request("/v1/messages", {**ASKED, "stream": True}))
                await anext(response.body)  # type: ignore[arg-type]
                await response.body.aclose()  # type: ignore[union-attr]
                await client.count_tokens(Request("/v1/messages/count_tokens", ASKED))
            whole, streamed, busy, left, outer = kept.spans
            assert outer.name == "step"
            for span in (whole, streamed):
                assert span.name == "anthropic messages m"
                assert (span.parent_id, span.trace_id) == (step.span_id, step.trace_id)
                assert span.attrs["gen_ai.system"] == "anthropic"
                assert span.attrs["gen_ai.request.model"] == "m"
                assert span.attrs["gen_ai.request.max_tokens"] == 5
                assert (span.attrs["gen_ai.prompt.0.role"], span.attrs["gen_ai.prompt.0.content"]) == ("system", "a\nb")
                assert (span.attrs["gen_ai.prompt.1.role"], span.attrs["gen_ai.prompt.1.content"]) == ("user", "hi")
                assert json.loads(span.attrs["gen_ai.prompt.2.content"]) == [{"type": "image", "source": {}}]
                assert span.attrs["gen_ai.completion.0.content"] == "héllo"
                assert span.attrs["gen_ai.usage.input_tokens"] == 7
            assert whole.attrs["gen_ai.usage.output_tokens"] == 1
            assert streamed.attrs["gen_ai.usage.output_tokens"] == 4
            assert busy.status == "error"
            assert busy.error is not None
            assert busy.error.message == "AbridgeError: busy"
            assert left.ended_at is not None
            assert kept.started[0] is step
            await client.aclose()

    run(main())
    assert KEY not in repr([span.export() for span in kept.spans])


def test_spans_of_completions(kept: Kept) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]

    def answer(body: dict[str, Any]) -> Any:
        if body.get("stream"):
            return [chunk({"content": "he"}), chunk({"content": "llo"}), chunk({}, "stop"), chunk(**USAGE)]
        return completion({"content": None, "tool_calls": calls} if body["model"] == "calls" else {"content": "hello"})

    async def main() -> None:
        async with serving(ChatModel(answer)) as service:
            client = OpenAIClient(base_url=service.url + "/v1", api_key=KEY)
            body = {"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]}
            await client.chat_completions(Request("/v1/chat/completions", body))
            response = await client.chat_completions(Request("/v1/chat/completions", {**body, "stream": True}))
            await collected(response.body)
            await client.chat_completions(Request("/v1/chat/completions", {**body, "model": "calls"}))
            await client.aclose()
            translating = AnthropicFromOpenAIClient(base_url=service.url + "/v1", api_key=KEY, model="m")
            asked = {"model": "claude", "system": "s", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
            response = await translating.messages(Request("/v1/messages", {**asked, "stream": True}))
            await collected(response.body)
            await translating.aclose()

    run(main())
    whole, streamed, called, translated = kept.spans
    for span in (whole, streamed, translated):
        assert span.name == "openai chat m"
        assert span.attrs["gen_ai.system"] == "openai"
        assert (span.attrs["gen_ai.prompt.0.role"], span.attrs["gen_ai.prompt.0.content"]) == ("system", "s")
        assert span.attrs["gen_ai.completion.0.content"] == "hello"
        assert (span.attrs["gen_ai.usage.input_tokens"], span.attrs["gen_ai.usage.output_tokens"]) == (20, 5)
    assert translated.attrs["gen_ai.request.max_tokens"] == 9
    assert json.loads(called.attrs["gen_ai.completion.0.content"]) == calls


def test_nobody_listens() -> None:
    async def main() -> None:
        async with serving(messages_service) as service:
            client = AnthropicClient(base_url=service.url, api_key=KEY)
            response = await client.messages(Request("/v1/messages", {**ASKED, "stream": True}))
            assert b"message_start" in await collected(response.body)
            await client.aclose()

    before = trace.get_processors()
    trace.set_processors([])
    try:
        run(main())
    finally:
        trace.set_processors(before)


def test_record_of_a_client(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"

    async def main() -> None:
        async with serving(messages_service) as service:
            recorder = Recorder(AnthropicClient(base_url=service.url, api_key=KEY), path)
            handler = routes_of([recorder])["/v1/messages"]
            response = await handler(Request("/v1/messages", {**ASKED, "stream": True}))
            await collected(response.body)
            with pytest.raises(AbridgeError):
                await handler(Request("/v1/messages", {**ASKED, "model": "busy"}))
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            ids = [value for call in service.requests for key, value in call["headers"] if key == "x-request-id"]
            assert [row["request_id"] for row in rows] == ids
            assert len(set(ids)) == 2
            assert "héllo" not in rows[0]["response"]["body"]  # it came in two pieces
            assert rows[0]["response"]["body"].endswith("\n\n")
            assert (rows[1]["error"], rows[1]["status_code"]) == ("AbridgeError: busy", 529)
            await recorder.aclose()

    run(main())
    assert KEY not in path.read_text()
