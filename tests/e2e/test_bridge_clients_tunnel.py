"""The bundled clients through a real tunnel: the vendors' SDKs in front, model services behind, and then neither."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from agentix.bridge import Forward, Proxy, Recorder, Replay
from agentix.bridge.clients import AnthropicFromOpenAIClient, OpenAIClient
from aiohttp import web
from bridge_models import USAGE, ChatModel, call, chunk, completion
from bridge_peers import serving
from processes import eventually

from agentix import SandboxId
from agentix.provider import Sandbox
from agentix.testing import serve

pytestmark = pytest.mark.timeout(180)
KEY = "sk-real-key-of-the-host"
HI: Any = [{"role": "user", "content": "hi"}]


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(90):
            await main()

    asyncio.run(bounded())


@asynccontextmanager
async def tunnel(*clients: Any) -> AsyncIterator[Any]:
    async with serve() as url:
        sandbox: Any = Sandbox(SandboxId("box"), url)
        try:
            async with Proxy(*clients).session(sandbox) as handle:
                yield handle
        finally:
            await sandbox.aclose()


def answer(body: dict[str, Any]) -> Any:
    if body["model"] == "limited":
        error = {"message": f"slow down {KEY}", "code": "rate_limit_exceeded"}
        return web.json_response({"error": error}, status=429, headers={"retry-after": "2"})
    if not body.get("stream"):
        return completion({"content": "日本語"})
    pieces = [chunk({"content": "日本"}), chunk(call(0, '{"path":', "read")), chunk(call(0, ' "/😀"}'))]
    return [*pieces, chunk({}, "tool_calls"), chunk(**USAGE)]


async def conversation(url: str) -> list[Any]:
    """What an agent of either vendor gets to hear."""
    heard: list[Any] = []
    async with anthropic.AsyncAnthropic(base_url=url, api_key="placeholder", max_retries=0) as agent:
        how: Any = {"max_tokens": 50, "messages": HI}
        heard.append((await agent.messages.create(model="m", **how)).content[0].text)  # type: ignore[union-attr]
        async with agent.messages.stream(model="m", **how) as stream:
            said = await stream.get_final_message()
            heard.append([said.stop_reason, said.content[1].input])  # type: ignore[union-attr]
        with pytest.raises(anthropic.RateLimitError) as caught:
            await agent.messages.create(model="limited", **how)
        assert KEY not in caught.value.response.text
        heard.append(caught.value.status_code)
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="placeholder", max_retries=0) as agent:
        heard.append((await agent.chat.completions.create(model="m", messages=HI)).choices[0].message.content)
        pieces = await agent.chat.completions.create(model="m", messages=HI, stream=True)
        heard.append("".join([part.choices[0].delta.content or "" async for part in pieces if part.choices]))
    return heard


def test_agents_of_both_vendors_and_again_from_the_record(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    expected = ["日本語", ["tool_use", {"path": "/😀"}], 429, "日本語", "日本"]

    async def main() -> None:
        async with serving(ChatModel(answer)) as service:
            clients: list[Any] = [
                AnthropicFromOpenAIClient(base_url=service.url + "/v1", api_key=KEY),
                OpenAIClient(base_url=service.url + "/v1", api_key=KEY),
            ]
            async with tunnel(*(Recorder(client, path) for client in clients)) as handle:
                assert await conversation(handle.url) == expected
            assert len(service.requests) == 5
            ids = [value for asked in service.requests for name, value in asked["headers"] if name == "x-request-id"]
        assert KEY not in path.read_text()
        assert [json.loads(line)["request_id"] for line in path.read_text().splitlines()] == ids
        async with tunnel(Replay(path)) as handle:  # the service is gone
            assert await conversation(handle.url) == expected

    run(main)


def sockets() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that lists them
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


def test_agents_that_come_and_go_leave_no_sockets() -> None:
    """Of those that leave in the middle of a stream too; the pools of clients end with the proxy."""

    async def main() -> None:
        async with serving(ChatModel(answer)) as service:
            clients: list[Any] = [
                AnthropicFromOpenAIClient(base_url=service.url + "/v1", api_key=KEY),
                Forward(service.url, paths=["/v1/chat/completions"]),
            ]
            before = sockets()
            async with tunnel(*clients) as handle:
                open_then = sockets()

                async def ask(http: aiohttp.ClientSession, n: int) -> None:
                    path = "/v1/messages" if n % 3 else "/v1/chat/completions"
                    body = {"model": "m", "max_tokens": 5, "messages": HI, "stream": n % 2 == 0}
                    reply = await http.post(handle.url + path, json=body)
                    if n % 5:
                        await reply.read()
                    else:
                        reply.close()

                for turn in range(8):
                    connector = aiohttp.TCPConnector(limit=0, force_close=turn % 2 == 0)
                    async with aiohttp.ClientSession(connector=connector) as http:
                        await asyncio.gather(*(ask(http, n) for n in range(25)))
                for client in clients:
                    await client.aclose()  # what is left then belongs to nobody
                await eventually(lambda: sockets() <= open_then, "what went has closed its sockets")
            await eventually(lambda: sockets() <= before, "the proxy has closed its own")

    run(main)


def test_agent_through_a_forward() -> None:
    """Compressed replies and any method go through; the placeholder stays below and the key above."""

    async def main() -> None:
        async def service_of(request: web.Request) -> web.StreamResponse:
            if request.method == "GET":
                return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})
            reply = web.json_response(completion({"content": "日本語" * 1000}))
            reply.enable_compression(web.ContentCoding.gzip)
            return reply

        async with serving(service_of) as service:
            forward = Forward(
                service.url, paths=["/v1/chat/completions", "/v1/models"], headers={"authorization": f"Bearer {KEY}"}
            )
            async with (
                tunnel(forward) as handle,
                openai.AsyncOpenAI(base_url=handle.url + "/v1", api_key="placeholder", max_retries=0) as agent,
            ):
                raw = await agent.chat.completions.with_raw_response.create(model="m", messages=HI)
                assert raw.headers["content-encoding"] == "gzip"
                assert raw.parse().choices[0].message.content == "日本語" * 1000
                assert [model.id async for model in agent.models.list()] == ["m"]
                with pytest.raises(openai.NotFoundError):
                    await agent.embeddings.create(model="m", input="x")
            for index in range(len(service.requests)):
                assert service.header("authorization", index) == f"Bearer {KEY}"
            assert "placeholder" not in repr(service.requests)

    run(main)
