"""Bridge: what `Recorder` writes and what it hides, and that `Replay` says the same again."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest
from agentix.bridge import (
    AbridgeError,
    ClientResponse,
    Forward,
    Recorder,
    Replay,
    Request,
    SessionForward,
    TunnelHandle,
    on,
)
from agentix.bridge._routes import routes_of, takes_raw
from aiohttp import web
from bridge_peers import collected, events, free_port, serving, zipped

KEY = "sk-real-key-of-the-host"


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await main

    asyncio.run(bounded())


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Model:
    """A client that answers by what it is asked."""

    def __init__(self) -> None:
        self.closed = 0

    @on("/v1/messages")
    async def messages(self, request: Request) -> ClientResponse:
        await asyncio.sleep(request.body.get("wait", 0))
        if request.body.get("stream"):
            return ClientResponse.sse(self.events(request.body))
        if status := request.body.get("status"):
            raise AbridgeError(f"no: authorization: Bearer {KEY} https://u:secret@host/?key={KEY}", status_code=status)
        return ClientResponse.json({"answer": request.body, "seen": request.headers.get("x-api-key")})

    async def events(self, body: dict[str, Any]) -> AsyncIterator[bytes]:
        for number in range(3):
            yield f"data: {number}\n\n".encode()
        if body.get("cut"):
            raise AbridgeError("cut off")

    def environ(self, handle: TunnelHandle) -> dict[str, str]:
        return {"MODEL_URL": handle.url}

    async def aclose(self) -> None:
        self.closed += 1


def test_rows_and_delegation(tmp_path: Path) -> None:
    path = tmp_path / "new" / "calls.jsonl"

    async def main() -> None:
        model = Model()
        recorder = Recorder(model, path, session_id="run-1")
        assert recorder.environ(TunnelHandle("http://127.0.0.1:9", 9)) == {"MODEL_URL": "http://127.0.0.1:9"}
        routes = routes_of([recorder])
        assert list(routes) == ["/v1/messages"]
        assert not path.parent.exists()
        handler = routes["/v1/messages"]
        assert not takes_raw(handler)
        await handler(Request("/v1/messages", {"n": 1}))
        response = await handler(Request("/v1/messages", {"stream": True}))
        assert len(rows(path)) == 1  # the other is still being said
        assert await collected(response.body) == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
        with pytest.raises(AbridgeError):
            await handler(Request("/v1/messages", {"status": 429}))
        response = await handler(Request("/v1/messages", {"stream": True, "cut": True}))
        with pytest.raises(AbridgeError):
            await collected(response.body)
        response = await handler(Request("/v1/messages", {"stream": True, "left": True}))
        await anext(response.body)  # type: ignore[arg-type]
        await response.body.aclose()  # type: ignore[union-attr]
        task = asyncio.ensure_future(handler(Request("/v1/messages", {"wait": 30})))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await recorder.aclose()
        assert model.closed == 1

    run(main())
    whole, streamed, refused, cut, left, cancelled = rows(path)
    assert list(whole) == ["ts", "path", "request_id", "session_id", "request", "response"]
    assert whole["request"] == {"n": 1}
    assert whole["response"] == {
        "status_code": 200,
        "media_type": "application/json",
        "body": {"answer": {"n": 1}, "seen": None},
    }
    assert whole["session_id"] == "run-1"
    assert streamed["response"]["body"] == "data: 0\n\ndata: 1\n\ndata: 2\n\n"
    assert "response" not in refused
    assert refused["error"].startswith("AbridgeError: no")
    assert refused["status_code"] == 429
    assert cut["error"] == "AbridgeError: cut off"
    assert "left" in left["error"]
    assert cancelled["error"].startswith("CancelledError")
    assert len({row["request_id"] for row in rows(path)}) == 6
    assert KEY not in path.read_text()
    assert "secret" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_ids_are_those_of_the_service_and_keys_are_hidden(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "calls.jsonl"
    caplog.set_level(logging.DEBUG)
    agents = {
        "host": "x",
        "authorization": "Bearer agents-bearer-token",
        "x-api-key": "agents-api-key",
        "cookie": "a=agents-cookie; b=2",
        "accept-encoding": "gzip",
        "content-type": "application/json",
    }

    async def main() -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            if request.path.endswith("/sessions"):
                return web.json_response({"session_id": "gw-7"})
            said = {"headers": dict(request.headers), "query": request.query_string, "text": "agents-api-key"}
            body = json.dumps(said).encode()
            headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
            return web.Response(body=zipped(body), headers=headers)

        async with serving(answer) as service:
            url = service.url.replace("http://", "http://user:pass-word@") + f"/?api_key={KEY}"
            recorder = Recorder(SessionForward(url, paths=["/v1"], headers={"x-api-key": KEY}), path)
            handler = routes_of([recorder])["/v1"]
            assert takes_raw(handler)
            raw = b'{"say": "agents-bearer-token"}'
            response = await handler(Request("/v1", {}, "POST", "token=agents-query-token&n=1", agents, raw))
            assert response.headers["content-encoding"] == "gzip"
            seen = service.header("x-request-id")
            assert rows(path)[0]["request_id"] == seen
            assert rows(path)[0]["gateway_session_id"] == "gw-7"
            assert rows(path)[0]["request"] == {"say": "***"}
            assert rows(path)[0]["response"]["body"]["text"] == "***"
            await recorder.aclose()
        recorder = Recorder(Forward(f"http://user:pass-word@127.0.0.1:{free_port()}/?key={KEY}", paths=["/v1"]), path)
        with pytest.raises(AbridgeError):
            await routes_of([recorder])["/v1"](Request("/v1", {}, "POST", "token=agents-query-token", agents, b"x"))
        await recorder.aclose()

    run(main())
    for text in (path.read_text(), caplog.text):
        for secret in (KEY, "pass-word", "agents-"):
            assert secret not in text
    assert rows(path)[1]["request"] == "x"


def test_failed_write_is_logged_and_the_call_succeeds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")

    async def main() -> None:
        recorder = Recorder(Model(), tmp_path / "file" / "calls.jsonl")
        handler = routes_of([recorder])["/v1/messages"]
        assert (await handler(Request("/v1/messages", {}))).status_code == 200
        assert "row NOT persisted" in caplog.text
        deep: Any = "x-secret"
        for _ in range(5000):
            deep = [deep]
        caplog.clear()
        request = Request("/v1/messages", {"stream": True, "deep": deep}, headers={"x-api-key": "x-secret"})
        assert await collected((await handler(request)).body)
        assert "row NOT persisted" in caplog.text
        await recorder.aclose()
        assert (await handler(Request("/v1/messages", {}))).status_code == 200
        assert "recorder is closed" in caplog.text

    run(main())


WRITER = """
import asyncio, sys
from agentix.bridge import ClientResponse, Recorder, on
from agentix.bridge import Request
from agentix.bridge._routes import routes_of

class Model:
    @on("/v1")
    async def answer(self, request):
        await asyncio.sleep(0)
        return ClientResponse.json({"n": request.body["n"], "text": "x" * 100000})

async def main():
    handler = routes_of([Recorder(Model(), sys.argv[1])])["/v1"]
    async def worker(k):
        n = 0
        while True:
            await handler(Request("/v1", {"n": [k, n]}))
            n += 1
    print("ready", flush=True)
    await asyncio.gather(*(worker(k) for k in range(10)))

asyncio.run(main())
"""


def test_a_line_per_row_through_concurrency_and_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path)]
    for _ in range(2):
        writers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
        try:
            for writer in writers:
                assert writer.stdout is not None
                assert writer.stdout.readline() == b"ready\n"
            deadline = 200
            while not (path.exists() and path.stat().st_size > 2_000_000) and deadline:
                deadline -= 1
                time.sleep(0.05)
            assert deadline, "nothing was written"
        finally:
            for writer in writers:
                writer.send_signal(signal.SIGKILL)
                writer.wait(timeout=20)
                assert writer.stdout is not None
                writer.stdout.close()
        with path.open("ab") as file:
            file.write(b'{"ts": "cut in the mid')  # what a crash may leave
    lines = path.read_bytes().split(b"\n")
    broken = 0
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            broken += 1
        else:
            assert row["request"]["n"] == row["response"]["body"]["n"]
    assert 2 <= broken <= 6  # each crash, and what was planted; none of them took a whole row along
    assert len(list(Replay(path)._entries["/v1"])) == len(lines) - broken


def test_replay_says_the_same_again(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    asked = [
        Request("/v1/messages", {"n": 1}),
        Request("/v1/messages", {"n": 2, "stream": True}),
        Request("/v1/messages", {"status": 429}),
        Request("/v1/messages", {"n": 1}),
    ]

    async def said(handler: Any, request: Request) -> tuple[Any, ...]:
        try:
            response = await handler(request)
        except AbridgeError as failure:
            return ("failed", failure.status_code)
        return response.status_code, response.media_type, await collected(response.body)

    async def main() -> None:
        recorder = Recorder(Model(), path)
        handler = routes_of([recorder])["/v1/messages"]
        first = [await said(handler, request) for request in asked]
        slow = asyncio.ensure_future(said(handler, Request("/v1/messages", {"wait": 0.3, "n": 3})))
        await asyncio.sleep(0.05)
        await said(handler, Request("/v1/messages", {"n": 4}))
        await slow
        await recorder.aclose()

        replay = Replay(path)
        handler = routes_of([replay])["/v1/messages"]
        assert [await said(handler, request) for request in asked] == first
        # Others get what is next by the time it was asked, not by the time it was answered.
        assert json.loads((await said(handler, Request("/v1/messages", {"other": 1})))[2])["answer"]["n"] == 3
        assert json.loads((await said(handler, Request("/v1/messages", {"other": 2})))[2])["answer"]["n"] == 4
        with pytest.raises(AbridgeError, match="all 6 recorded answers") as caught:
            await handler(Request("/v1/messages", {"n": 1}))
        assert caught.value.status_code == 410
        environ = replay.environ(TunnelHandle("http://127.0.0.1:9", 9))
        assert environ["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:9"

    run(main())


def test_replay_of_any_body_and_method(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"

    async def main() -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            if request.method == "HEAD":
                return web.Response()
            if request.path == "/raw":
                return web.Response(body=b"\xff\x00\xfe", headers={"Content-Encoding": "br"})
            return await events(request, [b"data: \xe6\x97", b"\xa5\n\n"])

        async with serving(answer) as service:
            recorder = Recorder(Forward(service.url, paths=["/raw", "/v1"]), path)
            handlers = routes_of([recorder])
            headers = {"host": "x"}
            for request in (Request("/v1", {}, "GET", headers=headers), Request("/v1", {}, "HEAD", headers=headers)):
                await collected((await handlers["/v1"](request)).body)
            await handlers["/raw"](Request("/raw", {}, "PUT", headers=headers, raw=b"\xff"))
            await recorder.aclose()
        handlers = routes_of([Replay(path)])
        response = await handlers["/v1"](Request("/v1", {}, "HEAD", headers=headers))
        assert response.body == b""
        response = await handlers["/v1"](Request("/v1", {}, "GET", headers=headers))
        assert (response.media_type, response.body) == ("text/event-stream", "data: 日\n\n".encode())
        response = await handlers["/raw"](Request("/raw", {}, "PUT", headers=headers, raw=b"\xff"))
        assert (response.body, response.headers) == (b"\xff\x00\xfe", {"content-encoding": "br"})

    run(main())


def test_replay_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Replay(tmp_path / "none")
    (tmp_path / "empty").write_text("not a row\n[]\n")
    with pytest.raises(ValueError, match="no recorded calls"):
        Replay(tmp_path / "empty")
