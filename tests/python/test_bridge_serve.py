"""Bridge: clients on a port of the host, a client per caller."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import signal
import stat
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from agentix.bridge import AbridgeError, ClientResponse, Forward, Request, on
from agentix.bridge.serve import build_app, build_session_app, main, session_id_for
from aiohttp import web
from bridge_models import ChatModel, chunk, completion
from bridge_peers import free_port, serving
from yarl import URL


def run(body: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(200):
            await body

    asyncio.run(bounded())


@asynccontextmanager
async def running(app: web.Application) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        async with aiohttp.ClientSession() as session:
            yield session, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Model:
    def __init__(self, session_id: str = "") -> None:
        self.session_id = session_id
        self.go = asyncio.Event()
        self.asked = asyncio.Event()
        self.left = asyncio.Event()
        self.closed = 0

    @on("/v1/messages")
    async def messages(self, request: Request) -> ClientResponse:
        self.asked.set()
        match request.body.get("do"):
            case "wait":
                await self.go.wait()
            case "refuse":
                raise AbridgeError("too many", status_code=429)
            case "fail":
                raise KeyError("x")
            case "stream":
                return ClientResponse.sse(self.stream())
        return ClientResponse.json({"session": self.session_id, "body": request.body, "query": request.query})

    async def stream(self) -> AsyncIterator[bytes]:
        try:
            yield b"data: 1\n\n"
            await self.go.wait()
            raise AbridgeError("broke")
        finally:
            self.left.set()

    async def aclose(self) -> None:
        assert not self.closed
        self.closed += 1


def test_session_ids() -> None:
    digest = hashlib.sha256(b"my-key").hexdigest()[:24]
    assert session_id_for({"x-api-key": "my-key"}) == digest
    assert session_id_for({"Authorization": "Bearer my-key"}) == digest
    assert session_id_for({"authorization": "bearer  my-key "}) == digest
    assert session_id_for({}) == session_id_for({"authorization": "Basic eA=="}) == "anonymous"


def test_app_of_one_client() -> None:
    async def body() -> None:
        model = Model()
        async with running(build_app(model)) as (session, url):
            async with session.get(url + "/_health") as reply:
                assert await reply.json() == {"status": "ok"}
            for path in ("/nothing", "/v1/messages/", "//v1/messages"):
                async with session.post(url + path, json={}) as reply:
                    assert reply.status == 404
                    assert (await reply.json())["error"]["type"] == "not_found_error"
            async with session.post(URL(url + "/v1/messages?beta=true&x=%2f", encoded=True), json={"a": 1}) as reply:
                assert await reply.json() == {"session": "", "body": {"a": 1}, "query": "beta=true&x=%2f"}
            for data in (b"", b"[1]", b"no json", b"\xff"):
                async with session.post(url + "/v1/messages", data=data) as reply:
                    assert (await reply.json())["body"] == {}
            async with session.post(url + "/v1/messages", json={"do": "refuse"}) as reply:
                assert (reply.status, (await reply.json())["error"]["message"]) == (429, "too many")
            async with session.post(url + "/v1/messages", json={"do": "fail"}) as reply:
                assert (reply.status, (await reply.json())["error"]["message"]) == (502, "KeyError: 'x'")
            async with session.post(url + "/v1/messages", json={"do": "stream"}) as reply:
                assert await reply.content.readany() == b"data: 1\n\n"
            await model.left.wait()  # the agent's leaving reached the client
            model.go.set()
            async with session.post(url + "/v1/messages", json={"do": "stream"}) as reply:
                with pytest.raises(aiohttp.ClientPayloadError):  # no good end for what broke off
                    await reply.read()
            assert model.closed == 0
        assert model.closed == 1

    run(body())


def test_raw_handlers_get_what_was_sent() -> None:
    async def body() -> None:
        async def echo(request: web.Request) -> web.StreamResponse:
            return web.Response(body=await request.read(), headers={"x-method": request.method})

        async def zeros() -> AsyncIterator[bytes]:
            for _ in range(30):
                yield b"\x00" * 100_000

        async with serving(echo) as service:
            app = build_app(Forward(service.url, paths=["/any"]))
            async with running(app) as (session, url):
                async with session.put(url + "/any?a=1", data=zeros()) as reply:
                    assert await reply.read() == b"\x00" * 3_000_000
                    assert reply.headers["x-method"] == "PUT"
                async with session.head(url + "/any") as reply:
                    assert reply.status == 200
                assert service.requests[0]["path"] == "/any?a=1"

    run(body())


def test_a_client_per_key_closed_when_idle() -> None:
    async def body() -> None:
        made: list[Model] = []

        async def factory(session_id: str) -> Model:
            await asyncio.sleep(0.01)
            made.append(Model(session_id))
            return made[-1]

        async with running(build_session_app(factory, max_sessions=2)) as (session, url):

            async def ask(key: str, **said: Any) -> Any:
                async with session.post(url + "/v1/messages", json=said, headers={"x-api-key": key}) as reply:
                    return (await reply.json())["session"]

            assert len({*await asyncio.gather(*(ask("a") for _ in range(5)))}) == 1
            assert len(made) == 1
            assert made[0].session_id == session_id_for({"x-api-key": "a"})
            busy = asyncio.ensure_future(ask("a", do="wait"))
            made[0].asked.clear()
            await made[0].asked.wait()
            await ask("b")
            await ask("c")  # a is the oldest, but it answers
            await ask("d")
            assert [model.closed for model in made] == [0, 1, 0, 0]
            made[0].go.set()
            assert await busy == made[0].session_id
            await asyncio.sleep(0.05)
            assert [model.closed for model in made] == [1, 1, 0, 0]
            await ask("a")
            assert len(made) == 5
        assert [model.closed for model in made] == [1] * 5

    run(body())


def test_keys_that_are_not_accepted() -> None:
    async def body() -> None:
        made: list[Model] = []

        def factory(session_id: str) -> Model:
            made.append(Model(session_id))
            return made[-1]

        app = build_session_app(factory, verify_key=lambda key: key.startswith("good-"))
        async with running(app) as (session, url):
            for headers in ({}, {"x-api-key": "bad"}, {"authorization": "Bearer bad"}):
                async with session.post(url + "/v1/messages", json={}, headers=headers) as reply:
                    assert reply.status == 401
            assert not made
            async with session.post(url + "/v1/messages", json={}, headers={"authorization": "Bearer good-1"}) as reply:
                assert reply.status == 200
            async with session.get(url + "/_health") as reply:
                assert reply.status == 200

    run(body())


def test_factory_that_fails() -> None:
    async def body() -> None:
        def factory(session_id: str) -> Model:
            raise OSError("no room")

        async with running(build_session_app(factory)) as (session, url):
            for _ in range(2):
                async with session.post(url + "/v1/messages", json={}) as reply:
                    assert reply.status == 502
                    assert (await reply.json())["error"]["message"] == "OSError: no room"

    run(body())


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--upstream-base-url", "http://x/v1", "--tito-url", "http://y"],
        ["--tito-url", "http://y", "--max-sessions", "0"],
    ],
)
def test_wrong_arguments(argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("OPENAI_BASE_URL", "TITO_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert "agentix-bridge-serve: error:" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["upstream", "tito"])
def test_command(kind: str, tmp_path: Path) -> None:
    async def body() -> None:
        def answer(asked: dict[str, Any]) -> Any:
            return [chunk({"content": "hello"}, "stop")] if asked.get("stream") else completion({"content": "hello"})

        model = ChatModel(answer)

        async def gateway(request: web.Request) -> web.StreamResponse:
            if request.path == "/sessions":
                return web.json_response({"session_id": "s1"})
            assert request.path == "/sessions/s1/v1/chat/completions"
            model.asked.append(json.loads(await request.read()))
            return web.json_response(answer({}))

        async with serving(model if kind == "upstream" else gateway) as service:
            port = free_port()
            environ = {name: value for name, value in os.environ.items() if name not in ("OPENAI_BASE_URL", "TITO_URL")}
            environ |= {"OPENAI_API_KEY": "sk-real-key-of-the-host", "ABRIDGE_RECORD_DIR": str(tmp_path / "records")}
            environ |= {"UPSTREAM_MODEL": "up", "ABRIDGE_KEY_PREFIX": "agent-"}
            where = ["--upstream-base-url", service.url + "/v1"] if kind == "upstream" else ["--tito-url", service.url]
            command = [sys.executable, "-m", "agentix.bridge.serve", "--port", str(port), *where]
            server = await asyncio.create_subprocess_exec(*command, env=environ, stderr=asyncio.subprocess.PIPE)
            try:
                url = f"http://127.0.0.1:{port}"
                async with aiohttp.ClientSession(headers={"x-api-key": "agent-7"}) as session:
                    await healthy(session, url)
                    asked = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
                    async with session.post(url + "/v1/messages", json=asked) as reply:
                        assert (await reply.json())["content"] == [{"type": "text", "text": "hello"}]
                    async with session.post(url + "/v1/messages", json={**asked, "stream": True}) as reply:
                        assert b"message_stop" in await reply.read()
                    async with session.post(url + "/v1/chat/completions", json=asked) as reply:
                        assert (await reply.json())["choices"][0]["message"]["content"] == "hello"
                    async with session.post(url + "/v1/messages", json={}, headers={"x-api-key": "other"}) as reply:
                        assert reply.status == 401
                if kind == "upstream":
                    assert {body["model"] for body in model.asked} == {"up"}
                    assert service.header("authorization") == "Bearer sk-real-key-of-the-host"
                    assert service.header("x-session-id") == session_id_for({"x-api-key": "agent-7"})
            finally:
                server.send_signal(signal.SIGTERM)
                async with asyncio.timeout(60):
                    _, said = await server.communicate()
            assert server.returncode == 0
            assert "sk-real" not in said.decode()

    run(body())
    record = tmp_path / "records" / f"{session_id_for({'x-api-key': 'agent-7'})}.jsonl"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    rows = [json.loads(line) for line in record.read_text().splitlines()]
    assert [row["path"] for row in rows] == ["/v1/messages", "/v1/messages", "/v1/chat/completions"]
    assert not re.search("sk-real|agent-7", record.read_text())
    if kind == "tito":
        assert {row["gateway_session_id"] for row in rows} == {"s1"}


async def healthy(session: aiohttp.ClientSession, url: str) -> None:
    deadline = time.monotonic() + 120  # an SDK is imported before it listens
    while True:
        try:
            async with session.get(url + "/_health") as reply:
                assert reply.status == 200
                return
        except aiohttp.ClientConnectorError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
