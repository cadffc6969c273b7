"""Bridge: the bundled clients between the vendors' own SDKs and model services that are as strict as the real ones."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest
from agentix.bridge import AbridgeError, ClientResponse, Forward, Request, TunnelHandle, on
from agentix.bridge.clients import AnthropicClient, AnthropicFromOpenAIClient, AnthropicToOpenAI, OpenAIClient
from agentix.bridge.serve import build_app
from aiohttp import web
from bridge_models import USAGE, ChatModel, Refused, call, check_messages, chunk, completion
from bridge_peers import Service, collected, events, serving, zipped

KEY = "sk-real-key-of-the-host"
HI: Any = [{"role": "user", "content": "hi"}]


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await main

    asyncio.run(bounded())


@asynccontextmanager
async def behind(client: Any) -> AsyncIterator[str]:
    """The client on a port, where an agent's SDK reaches it."""
    runner = web.AppRunner(build_app(client), access_log=None, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def translated(service_of: ChatModel, over: str = "sdk", /, **how: Any) -> AsyncIterator[tuple[Any, Service]]:
    """Anthropic's SDK, as an agent has it, in front of a Chat Completions service."""
    async with serving(service_of) as service:
        client: Any
        if over == "sdk":
            client = AnthropicFromOpenAIClient(base_url=service.url + "/v1", api_key=KEY, **how)
        else:
            client = AnthropicToOpenAI(Forward(service.url, paths=["/v1/chat/completions"]).handler(), **how)
        async with (
            behind(client) as url,
            anthropic.AsyncAnthropic(base_url=url, api_key="placeholder", max_retries=0) as agent,
        ):
            yield agent, service


def test_environ_and_close() -> None:
    handle = TunnelHandle("http://127.0.0.1:4000", 4000)
    for client in (AnthropicClient(api_key=KEY), AnthropicFromOpenAIClient(api_key=KEY)):
        environ = client.environ(handle)
        assert environ["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:4000"
        assert environ["ANTHROPIC_API_KEY"].startswith("sk-ant-api03-")
    environ = OpenAIClient(api_key=KEY).environ(handle)
    assert environ["OPENAI_BASE_URL"] == "http://127.0.0.1:4000/v1"
    assert environ["OPENAI_API_KEY"].startswith("sk-")

    async def main() -> None:
        client = AnthropicFromOpenAIClient(api_key=KEY)
        sdk = client._sdk
        assert sdk.max_retries == 0
        await client.aclose()
        await client.aclose()
        assert sdk.is_closed()
        assert AnthropicClient(api_key=KEY, max_retries=3)._sdk.max_retries == 3

    run(main())


# ---- as the services speak ----


async def messages_service(request: web.Request) -> web.StreamResponse:
    body = json.loads(await request.read())
    if request.path.endswith("/count_tokens"):
        return web.json_response({"input_tokens": 42})
    try:
        check_messages(body)
    except Refused as refused:
        error = {"type": "invalid_request_error", "message": str(refused)}
        return web.json_response({"type": "error", "error": error}, status=400)
    if body["model"] == "busy":
        said = {"type": "error", "error": {"type": "overloaded_error", "message": f"busy {request.headers}"}}
        headers = {"retry-after": "7", "anthropic-ratelimit-tokens-remaining": "3", "request-id": "req_1", "x-key": KEY}
        return web.json_response(said, status=529, headers=headers)
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [{"type": "text", "text": "日本語"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }
    if not body.get("stream"):
        return web.json_response(message)
    opened = {**message, "content": [], "stop_reason": None}
    stream = [
        {"type": "message_start", "message": opened},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "日本語"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 9},
        },
        {"type": "message_stop"},
    ]
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n" for event in stream)
    return await events(request, [bytes([byte]) for byte in text.encode()])


def test_anthropic_client() -> None:
    async def main() -> None:
        async with serving(messages_service) as service:
            client = AnthropicClient(base_url=service.url, api_key=KEY, session_id="s-1")
            async with (
                behind(client) as url,
                anthropic.AsyncAnthropic(base_url=url, api_key="placeholder", max_retries=0) as agent,
            ):
                said: Any = await agent.beta.messages.create(
                    extra_query={"beta": "true"},
                    model="m",
                    max_tokens=5,
                    messages=HI,
                    betas=["a-1", "b-2"],
                    extra_headers={"anthropic-version": "v"},
                )
                assert said.content[0].text == "日本語"
                assert service.header("anthropic-beta") == "a-1,b-2"
                assert service.header("anthropic-version") == "v"
                assert service.header("x-session-id") == "s-1"
                assert service.requests[-1]["path"] == "/v1/messages?beta=true"
                assert KEY in repr(service.requests[-1]["headers"])
                assert "placeholder" not in repr(service.requests[-1])
                async with agent.messages.stream(model="m", max_tokens=5, messages=HI) as stream:
                    assert await stream.get_final_text() == "日本語"
                    assert (await stream.get_final_message()).usage.output_tokens == 9
                assert (await agent.messages.count_tokens(model="m", messages=HI)).input_tokens == 42
                with pytest.raises(anthropic.BadRequestError, match="Extra inputs"):
                    await agent.messages.create(model="m", max_tokens=5, messages=HI, extra_body={"new": 1})
                with pytest.raises(anthropic.APIStatusError) as caught:
                    await agent.messages.create(model="busy", max_tokens=5, messages=HI)
                assert caught.value.status_code == 529
                assert caught.value.response.headers["retry-after"] == "7"
                assert caught.value.response.headers["anthropic-ratelimit-tokens-remaining"] == "3"
                assert caught.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]
                assert KEY not in caught.value.response.text
                assert KEY not in repr(caught.value.response.headers)
                count = len(service.requests)
                for path in ("/v1/nothing", "//v1/messages", "/v1/messages/", "/"):
                    with pytest.raises(anthropic.NotFoundError):
                        await agent.post(path, cast_to=object, body={})
                assert len(service.requests) == count

    run(main())


def test_model_override_and_no_answer() -> None:
    async def main() -> None:
        async with serving(messages_service) as service:
            client = AnthropicClient(base_url=service.url, api_key=KEY, model="other")
            request = Request("/v1/messages", {"model": "m", "max_tokens": 1, "messages": HI})
            await client.messages(request)
            assert service.body()["model"] == "other"
        with pytest.raises(AbridgeError) as caught:
            await client.messages(request)
        assert caught.value.status_code == 503
        assert KEY not in str(caught.value)
        await client.aclose()

        async def never(request: web.Request) -> web.StreamResponse:
            await asyncio.sleep(30)
            return web.Response()

        async with serving(never) as service:
            client = AnthropicClient(base_url=service.url, api_key=KEY, timeout=0.2)
            with pytest.raises(AbridgeError) as caught:
                await client.messages(request)
            assert caught.value.status_code == 504
            assert len(service.requests) == 1
            await client.aclose()

    run(main())


def test_openai_client() -> None:
    def answer(body: dict[str, Any]) -> Any:
        if body["model"] == "limited":
            error = {"message": f"slow down {KEY}", "type": "tokens", "code": "rate_limit_exceeded"}
            return web.json_response(
                {"error": error}, status=429, headers={"retry-after": "2", "x-ratelimit-reset": "1"}
            )
        if body.get("stream"):
            return [
                chunk({"role": "assistant", "content": "日本"}),
                chunk({"content": "語"}),
                chunk({}, "stop"),
                chunk(**USAGE),
            ]
        return completion({"content": "日本語"})

    async def main() -> None:
        model = ChatModel(answer)
        async with serving(model) as service:
            client = OpenAIClient(base_url=service.url + "/v1", api_key=KEY, extra_body={"seed": 7}, session_id="s")
            async with (
                behind(client) as url,
                openai.AsyncOpenAI(base_url=url + "/v1", api_key="placeholder", max_retries=0) as agent,
            ):
                said = await agent.chat.completions.create(model="m", messages=HI)
                assert said.choices[0].message.content == "日本語"
                assert model.asked[-1] == {"model": "m", "messages": HI, "seed": 7}
                assert service.header("x-session-id") == "s"
                assert service.header("authorization") == f"Bearer {KEY}"
                stream = await agent.chat.completions.create(model="m", messages=HI, stream=True)
                assert (
                    "".join([part.choices[0].delta.content or "" async for part in stream if part.choices]) == "日本語"
                )
                with pytest.raises(openai.RateLimitError) as caught:
                    await agent.chat.completions.create(model="limited", messages=HI)
                assert caught.value.code == "rate_limit_exceeded"
                assert caught.value.response.headers["retry-after"] == "2"
                assert KEY not in caught.value.response.text
                with pytest.raises(openai.BadRequestError, match="Unknown parameters"):
                    await agent.chat.completions.create(model="m", messages=HI, extra_body={"new": 1})

    run(main())


@pytest.mark.parametrize("said", ["gzip", "plain", "gzip that is none"])
def test_content_coding(said: str) -> None:
    """The agent gets what the service meant, on good and on bad ways; a coding that is broken is told as that."""

    async def answer(request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        status = 404 if body["model"] == "none" else 200
        plain = json.dumps(
            {"error": {"message": "no such model"}} if status == 404 else completion({"content": "日本"})
        )
        packed = zipped(plain.encode()) if said == "gzip" else plain.encode()
        coding = {} if said == "plain" else {"Content-Encoding": "gzip"}
        return web.Response(status=status, body=packed, headers={"Content-Type": "application/json", **coding})

    async def main() -> None:
        async with serving(answer) as service:
            client = OpenAIClient(base_url=service.url + "/v1", api_key=KEY)
            request = Request("/v1/chat/completions", {"model": "m", "messages": HI}, headers={"accept-encoding": "br"})
            if said == "gzip that is none":
                with pytest.raises(AbridgeError) as caught:
                    await client.chat_completions(request)
                assert caught.value.status_code == 502
            else:
                response = await client.chat_completions(request)
                assert json.loads(await collected(response.body))["choices"][0]["message"]["content"] == "日本"
                assert "content-encoding" not in response.headers
                with pytest.raises(AbridgeError, match="no such model") as caught:
                    await client.chat_completions(Request("/v1/chat/completions", {"model": "none", "messages": HI}))
                assert caught.value.status_code == 404
            await client.aclose()

    run(main())


def test_coded_events_are_plain_for_the_agent() -> None:
    """The vendors' SDKs ask for gzip: a stream that comes so is read, passed on and translated as what it means."""
    said = [chunk({"content": "日本"}), chunk({"content": "語"}), chunk({}, "stop"), chunk(**USAGE)]
    plain = b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in said) + b"data: [DONE]\n\n"

    async def answer(request: web.Request) -> web.StreamResponse:
        assert "gzip" in request.headers["accept-encoding"]
        headers = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}
        return web.Response(body=zipped(plain), headers=headers)

    async def main() -> None:
        async with serving(answer) as service:
            body = {"model": "m", "messages": HI, "max_tokens": 5, "stream": True}
            client = OpenAIClient(base_url=service.url + "/v1", api_key=KEY)
            response = await client.chat_completions(Request("/v1/chat/completions", body))
            assert await collected(response.body) == plain
            assert "content-encoding" not in response.headers
            translating = AnthropicFromOpenAIClient(base_url=service.url + "/v1", api_key=KEY)
            response = await translating.messages(Request("/v1/messages", body))
            text = (await collected(response.body)).decode()
            assert re.findall(r'"text_delta","text":"([^"]+)"', text) == ["日本", "語"]
            assert "content-encoding" not in response.headers
            await client.aclose()
            await translating.aclose()

    run(main())


# ---- translated ----

TOOLS: Any = [
    {"name": "read", "description": "Read a file", "input_schema": {"type": "object", "properties": {"path": {}}}},
    {"name": "x" * 128, "input_schema": {"type": "object"}},
]


@pytest.mark.parametrize("over", ["sdk", "forward"])
def test_whole_reply(over: str) -> None:
    def answer(body: dict[str, Any]) -> Any:
        name = body["tools"][1]["function"]["name"]
        calls = [
            {"id": "call_a", "type": "function", "function": {"name": "read", "arguments": '{"path": "/日本"}'}},
            {"id": "call_b", "type": "function", "function": {"name": name, "arguments": ""}},
        ]
        return completion({"content": "so", "reasoning_content": "hm", "tool_calls": calls}, "tool_calls")

    async def main() -> None:
        model = ChatModel(answer)
        async with translated(model, over, model="upstream") as (agent, _):
            said = await agent.messages.create(
                model="claude",
                max_tokens=50,
                messages=HI,
                system=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                tools=TOOLS,
                tool_choice={"type": "any", "disable_parallel_tool_use": True},
                stop_sequences=["X"],
                metadata={"user_id": "u" * 140},
                extra_body={"top_k": 5, "temperature": 0.5, "thinking": {"type": "enabled", "budget_tokens": 16000}},
            )
            assert [block.type for block in said.content] == ["thinking", "text", "tool_use", "tool_use"]
            assert (said.content[2].name, said.content[2].input) == ("read", {"path": "/日本"})
            assert (said.content[3].name, said.content[3].input) == ("x" * 128, {})
            assert (said.model, said.stop_reason, said.id[:4]) == ("claude", "tool_use", "msg_")
            usage = said.usage
            assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (12, 8, 5)
        asked = model.asked[0]
        assert asked["model"] == "upstream"
        assert asked["messages"] == [{"role": "system", "content": "a\nb"}, *HI]
        assert asked["tool_choice"] == "required"
        assert asked["parallel_tool_calls"] is False
        assert (asked["stop"], asked["top_k"], asked["reasoning_effort"]) == (["X"], 5, "high")
        assert len(asked["user"]) == 64
        assert "stream" not in asked

    run(main())


INTERLEAVED = [
    chunk({"role": "assistant", "content": "", "reasoning_content": "think"}),
    chunk({"content": "I read."}),
    chunk({"tool_calls": [*call(0, "", "read")["tool_calls"], *call(1, "", "x" * 47 + "_PLACE")["tool_calls"]]}),
    chunk(call(0, '{"pa')),
    chunk(call(1, '{"b":')),
    chunk(call(0, 'th": "日')),
    chunk(call(1, ' [1, "')),
    chunk(call(0, '😀"}')),
    chunk(call(1, '}"]}')),
    chunk({}, "tool_calls"),
    chunk(**USAGE),
]


def well_formed(raw: list[Any]) -> None:
    """Order, one start and one stop per block, no delta outside, one open at a time."""
    kinds = [event.type for event in raw if event.type != "ping"]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    opened: int | None = None
    last = -1
    for event in raw:
        if event.type == "content_block_start":
            assert opened is None
            assert event.index == last + 1
            opened = last = event.index
        elif event.type == "content_block_delta":
            assert event.index == opened
        elif event.type == "content_block_stop":
            assert event.index == opened
            opened = None
        elif event.type == "message_delta":
            assert opened is None


@pytest.mark.parametrize("over", ["sdk", "forward"])
def test_stream_with_interleaved_calls(over: str) -> None:
    def answer(body: dict[str, Any]) -> Any:
        name = body["tools"][1]["function"]["name"]
        return [json.loads(json.dumps(piece).replace("x" * 47 + "_PLACE", name)) for piece in INTERLEAVED]

    async def main() -> None:
        model = ChatModel(answer)
        async with translated(model, over) as (agent, _):
            how: Any = {"model": "claude", "max_tokens": 50, "messages": HI, "tools": TOOLS}
            well_formed([event async for event in await agent.messages.create(stream=True, **how)])
            async with agent.messages.stream(**how) as stream:
                said = await stream.get_final_message()
            assert [block.type for block in said.content] == ["thinking", "text", "tool_use", "tool_use"]
            assert (said.content[2].name, said.content[2].input) == ("read", {"path": "日😀"})
            assert (said.content[3].name, said.content[3].input) == ("x" * 128, {"b": [1, "}"]})
            assert said.content[2].id != said.content[3].id
            assert said.stop_reason == "tool_use"
            assert (said.usage.input_tokens, said.usage.output_tokens, said.model) == (12, 5, "claude")
        assert model.asked[0]["stream"] is True

    run(main())


CUT = {
    "text": ([chunk({"content": "half"})], "max_tokens"),
    "call": ([chunk(call(0, '{"path": "/et', "read"))], "max_tokens"),
    "whole call": ([chunk(call(0, '{"path": "/etc"}', "read"))], "tool_use"),
}


@pytest.mark.parametrize("case", CUT)
def test_stream_cut_before_its_reason(case: str) -> None:
    chunks, reason = CUT[case]

    async def main() -> None:
        model = ChatModel(lambda _: chunks)
        model.cut = True
        async with translated(model) as (agent, _):
            raw = [
                event async for event in await agent.messages.create(stream=True, model="m", max_tokens=5, messages=HI)
            ]
            well_formed(raw)
            assert raw[-2].delta.stop_reason == reason

    run(main())


def test_stream_that_breaks_or_is_empty_is_an_error() -> None:
    async def main() -> None:
        for said in (
            [],
            [chunk({"content": "x"}), {"error": {"message": "out of memory", "code": 500}}],
            ["no object"],
        ):
            async with translated(ChatModel(lambda _, said=said: said)) as (agent, _):
                with pytest.raises(anthropic.APIStatusError):
                    _ = [
                        e async for e in await agent.messages.create(stream=True, model="m", max_tokens=5, messages=HI)
                    ]

        async def breaks(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write(b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n')
            assert request.transport is not None
            request.transport.abort()
            return response

        async with serving(breaks) as service:
            client = AnthropicFromOpenAIClient(base_url=service.url + "/v1", api_key=KEY)
            body = {"stream": True, "model": "m", "max_tokens": 5, "messages": HI}
            response = await client.messages(Request("/v1/messages", body))
            said = (await collected(response.body)).decode()
            assert "event: error\n" in said
            assert "message_stop" not in said
            await client.aclose()

    run(main())


def test_whole_reply_to_who_asked_for_a_stream() -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"a": 1}'}}]
    said = completion({"content": "t", "reasoning_content": "r", "tool_calls": calls}, "tool_calls")

    async def main() -> None:
        async with translated(ChatModel(lambda _: said)) as (agent, _):
            how: Any = {"model": "m", "max_tokens": 5, "messages": HI}
            well_formed([event async for event in await agent.messages.create(stream=True, **how)])
            async with agent.messages.stream(**how) as stream:
                message = await stream.get_final_message()
            assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
            assert message.content[2].input == {"a": 1}

    run(main())


PNG = base64.b64encode(b"\x89PNG").decode()
HISTORY: Any = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "look"},
            {"type": "image", "source": {"type": "url", "url": "http://x/i"}},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "/a"}},
            {"type": "tool_use", "id": "t2", "name": "x" * 128, "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "and"},
            {"type": "tool_result", "tool_use_id": "t1", "content": "text"},
            {
                "type": "tool_result",
                "tool_use_id": "t2",
                "content": [
                    {"type": "text", "text": "seen"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                ],
            },
        ],
    },
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "only", "signature": ""}]},
    {"role": "user", "content": ""},
]


def test_history() -> None:
    async def main() -> None:
        model = ChatModel(lambda _: completion({"content": None, "refusal": "no"}, "content_filter"))
        params = {"max_completion_tokens": 9, "temperature": None, "seed": 1}
        async with translated(model, upstream_params=params) as (agent, _):
            said = await agent.messages.create(model="m", max_tokens=5, messages=HISTORY, extra_body={"temperature": 1})
            assert (said.stop_reason, said.content[0].text) == ("refusal", "no")
        asked = model.asked[0]
        assert {key: value for key, value in asked.items() if key != "messages"} == {
            "model": "m",
            "max_completion_tokens": 9,
            "seed": 1,
        }
        look, assistant, first, second, user, thought, empty = asked["messages"]
        assert look["content"][1] == {"type": "image_url", "image_url": {"url": "http://x/i"}}
        assert (assistant["content"], assistant["reasoning_content"]) == (None, "hm")
        assert assistant["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path": "/a"}'}
        assert (first["tool_call_id"], first["content"]) == ("t1", "text")
        assert (second["tool_call_id"], second["content"]) == ("t2", "seen")
        assert user["content"] == [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            {"type": "text", "text": "and"},
        ]
        assert thought == {"role": "assistant", "content": None, "reasoning_content": "only"}
        assert empty == {"role": "user", "content": ""}

    run(main())


@pytest.mark.parametrize(
    ("status", "error"), [(429, "rate_limit_error"), (500, "api_error"), (400, "invalid_request_error")]
)
def test_errors_of_the_service(status: int, error: str) -> None:
    async def main() -> None:
        def answer(_: Any) -> web.Response:
            said = {"error": {"message": f"no: {KEY}", "code": "c"}}
            return web.json_response(
                said, status=status, headers={"retry-after": "4", "x-ratelimit-remaining-tokens": "0"}
            )

        for over in ("sdk", "forward"):
            async with translated(ChatModel(answer), over) as (agent, service):
                for stream in (False, True):
                    with pytest.raises(anthropic.APIStatusError) as caught:
                        await agent.messages.create(model="m", max_tokens=5, messages=HI, stream=stream)
                    assert caught.value.status_code == status
                    assert caught.value.response.headers["retry-after"] == "4"
                    body: Any = caught.value.response.json()
                    if over == "sdk":
                        assert body["error"]["message"] == "no: ***"
                        assert body["error"]["type"] == error
                assert len(service.requests) == 2  # none was tried again

    run(main())


def test_odd_requests_and_replies() -> None:
    async def main() -> None:
        model = ChatModel(lambda body: {"choices": []} if body["model"] == "none" else web.Response(text="hello"))
        async with translated(model) as (agent, _):
            for body in ({}, {"messages": 1}, {"messages": [1]}, {"messages": [{"role": "user", "content": 7}]}):
                with pytest.raises(anthropic.BadRequestError):
                    await agent.post("/v1/messages", cast_to=object, body=body)
            assert not model.asked
            for name in ("none", "text"):
                with pytest.raises(anthropic.InternalServerError) as caught:
                    await agent.messages.create(model=name, max_tokens=5, messages=HI)
                assert caught.value.status_code == 502
            assert (
                await agent.messages.count_tokens(model="m", messages=[{"role": "user", "content": ""}])
            ).input_tokens == 1
            counted = await agent.messages.count_tokens(
                model="m",
                system="1234",
                messages=[
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "12345678"}]}
                ],
            )
            assert counted.input_tokens == 3
            assert len(model.asked) == 2

    run(main())


def test_turns_with_calls_are_said_again_verbatim() -> None:
    """Ids are used again, as some services do; what tells turns apart is id, name and arguments together."""
    one = {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{ "n":1 }'}}
    two = {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"n":2}'}}
    turns: list[Any] = [
        {"content": " one ", "odd": [1], "tool_calls": [one]},
        {"content": None, "odd": [2], "tool_calls": [two]},
    ]

    class Downstream:
        def __init__(self) -> None:
            self.asked: list[Request] = []
            self.closed = 0

        @on("/v1/chat/completions")
        async def chat(self, request: Request) -> ClientResponse:
            self.asked.append(request)
            turn = turns[(len(self.asked) - 1) % 2]
            if request.body.get("stream"):
                pieces = [chunk({"role": "assistant", **turn, "content": "s"}), chunk({}, "tool_calls")]
                return ClientResponse.sse(b"".join(f"data: {json.dumps(piece)}\n\n".encode() for piece in pieces))
            return ClientResponse.json(completion(turn, "tool_calls"))

        async def aclose(self) -> None:
            self.closed += 1

    async def main() -> None:
        downstream = Downstream()
        client = AnthropicToOpenAI(downstream.chat, model="up")
        messages: list[Any] = list(HI)
        for stream in (False, False, True):
            headers = {"anthropic-beta": "b", "user-agent": "agent", "content-length": "9"}
            body = {"model": "m", "max_tokens": 9, "messages": messages, "stream": stream}
            response = await client.messages(Request("/v1/messages", body, headers=headers, query="beta=true"))
            assert downstream.asked[-1].headers == {"user-agent": "agent", "accept-encoding": "identity"}
            if stream:
                content = [{"type": "tool_use", "id": "call_0", "name": "f", "input": {"n": 1}}]
                assert b"message_stop" in await collected(response.body)
            else:
                content = json.loads(await collected(response.body))["content"]
            result = {"type": "tool_result", "tool_use_id": "call_0", "content": "r"}
            messages += [{"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
        await client.messages(Request("/v1/messages", {"model": "m", "max_tokens": 9, "messages": messages}))
        said = [turn for turn in downstream.asked[-1].body["messages"] if turn["role"] == "assistant"]
        assert said[1] == {"role": "assistant", **turns[1]}
        # The third turn has the first one's call, and was said later, as a stream.
        assert said[0] == said[2]
        assert said[2]["content"] == "s"
        assert said[2]["tool_calls"] == turns[0]["tool_calls"]
        said = [turn for turn in downstream.asked[1].body["messages"] if turn["role"] == "assistant"]
        assert said[0] == {"role": "assistant", **turns[0]}
        changed = json.loads(json.dumps(messages).replace('"n": 2', '"n": 3'))
        await client.messages(Request("/v1/messages", {"model": "m", "max_tokens": 9, "messages": changed}))
        assert "odd" not in downstream.asked[-1].body["messages"][3]
        await client.aclose()
        assert downstream.closed == 1

    run(main())
