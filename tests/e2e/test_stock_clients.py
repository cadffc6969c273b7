"""npm `socket.io-client` and `curl` against a real `agentix-runtime`; PyPI python-socketio is in test_socketio.py."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import pickle
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

from agentix.testing import serve

sys.path.insert(0, str(Path(__file__).parents[1] / "interop"))
from stock_peers import NODE, environment, node

TRANSPORTS = {"polling": ["polling"], "upgrade": ["polling", "websocket"], "websocket": ["websocket"]}
EVERY_TRANSPORT = pytest.mark.parametrize("transport", TRANSPORTS)
BOTH_FORMS = pytest.mark.parametrize("plain", [False, True], ids=["msgpack", "json"])


def arguments(*args: Any, **kwargs: Any) -> bytes:
    return pickle.dumps((args, kwargs))


def to_text(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {key: to_text(item) for key, item in value.items()}
    return [to_text(item) for item in value] if isinstance(value, list) else value


def to_bytes(value: Any) -> Any:
    if isinstance(value, dict):
        if "base64" in value:
            return base64.b64decode(value["base64"])
        return {key: to_bytes(item) for key, item in value.items()}
    return [to_bytes(item) for item in value] if isinstance(value, list) else value


class NodeHost:
    """One `socket.io-client` in a process of its own."""

    def __init__(self, url: str, transport: str, session: str | None, plain: bool, headers: dict[str, str]) -> None:
        self.url = url
        self.order = {"transports": TRANSPORTS[transport], "session": session, "headers": headers}
        self.plain = plain
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.states: list[dict[str, str]] = []
        self.news = asyncio.Event()

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            node(),
            NODE / "client.cjs",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 28,
            env=environment(),
        )
        self.reading = asyncio.create_task(self._read())
        self.say(do="connect", url=self.url, **self.order)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            words = json.loads(line)
            if "told" in words:
                self.told.append((words["told"], to_bytes(words["body"])))
            else:
                self.states.append(words)
            self.news.set()

    def say(self, **words: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words).encode() + b"\n")

    def emit(self, event: str, **body: Any) -> None:
        self.say(do="emit", event=event, body=to_text(body), plain=self.plain)

    def call(self, call_id: str, target: str, *args: Any) -> None:
        self.emit("call", call_id=call_id, callable=f"call_targets::{target}", arguments=arguments(*args))

    async def until(self, find: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 30
        while (found := find()) is None:
            assert time.monotonic() < deadline, (self.states, [data["call_id"] for _, data in self.told])
            self.news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.news.wait(), 1)
        return found

    async def is_now(self, state: str) -> dict[str, str]:
        words: dict[str, str] = await self.until(lambda: next((s for s in self.states if s["is"] == state), None))
        return words

    async def end_of(self, call_id: str) -> tuple[str, dict[str, Any]]:
        found: tuple[str, dict[str, Any]] = await self.until(
            lambda: next(((kind, data) for kind, data in self.told if data["call_id"] == call_id), None)
        )
        return found

    async def value_of(self, call_id: str) -> Any:
        kind, data = await self.end_of(call_id)
        assert kind == "call:result", data
        return pickle.loads(data["value"])

    async def error_of(self, call_id: str) -> dict[str, Any]:
        kind, data = await self.end_of(call_id)
        assert kind == "call:error", data
        error: dict[str, Any] = data["error"]
        return error

    async def close(self) -> None:
        if self.process.returncode is None:
            self.say(do="close")
            await asyncio.wait_for(self.process.wait(), 10)
        await self.reading


@contextlib.asynccontextmanager
async def hosts(python: str, **options: Any) -> AsyncGenerator[Callable[..., Any]]:
    """Gives a maker of hosts that are connected, or, if they are to be `refused`, were not let in."""
    async with serve(python=python, **options) as url, contextlib.AsyncExitStack() as stack:

        async def connect(
            transport: str = "websocket",
            session: str | None = None,
            plain: bool = False,
            refused: bool = False,
            **headers: str,
        ) -> NodeHost:
            host = NodeHost(url, transport, session, plain, headers)
            await host.start()
            stack.push_async_callback(host.close)
            by = await host.is_now("refused" if refused else "moved")
            assert refused or by["by"] == TRANSPORTS[transport][-1]
            return host

        yield connect


@EVERY_TRANSPORT
@BOTH_FORMS
def test_calls(run: Any, worker_python: str, transport: str, plain: bool) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect:
            host = await connect(transport, plain=plain)
            for n in range(50):
                host.call(f"n{n}", "add", n, n)
            host.call("e", "raise_quota", "ann", 5)
            for n in range(50):
                assert await host.value_of(f"n{n}") == 2 * n
            error = await host.error_of("e")
            assert (error["type"], error["cancelled"], error["returncode"]) == ("QuotaError", False, None)
            assert len(host.told) == 51

    run(main())


@EVERY_TRANSPORT
@BOTH_FORMS
def test_resume_ack_cancel(run: Any, worker_python: str, transport: str, plain: bool, tmp_path: Path) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect:
            session = secrets.token_hex(16)
            once, long, never = (f"{session}-{n}" for n in (1, 2, 3))
            first = await connect(transport, session, plain)
            first.call(once, "append_line", str(tmp_path / "ran"), "once", 0.5)
            first.call(long, "sleep_async", 60)
            await asyncio.sleep(0.3)
            first.say(do="cut")
            await first.is_now("disconnected")
            second = await connect(transport, session, plain)
            second.emit("resume", call_ids=[once, long, never, 7])
            assert (await second.error_of(never))["reason"] == "never_seen"
            assert await second.value_of(once) == "once"
            second.emit("cancel", call_id=long, grace=1.5)
            error = await second.error_of(long)
            assert (error["type"], error["cancelled"]) == ("Cancelled", True)
            second.told.clear()
            second.call(once, "append_line", str(tmp_path / "ran"), "twice")  # acts as resume
            assert await second.value_of(once) == "once"
            second.told.clear()
            second.emit("ack", call_ids=[once, long])
            second.emit("resume", call_ids=[once])
            error = await second.error_of(once)
            assert (error["type"], error["reason"]) == ("ResultUnavailable", "dropped")
            assert (tmp_path / "ran").read_text() == "once\n"

    run(main())


@BOTH_FORMS
def test_what_cannot_be_read(run: Any, worker_python: str, plain: bool) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect:
            host = await connect("websocket", plain=plain)
            host.emit("call", callable="call_targets::add")
            error = await host.error_of("")
            assert (error["type"], error["message"]) == ("BadRequest", "missing call_id")
            host.emit("call", call_id="a", callable="call_targets::add")
            assert (await host.error_of("a"))["type"] == "KeyError"
            text = base64.b64encode(arguments(1, 2)).decode()
            host.emit("call", call_id="b", callable="call_targets::add", arguments=text)
            assert (await host.error_of("b"))["type"] == "KeyError"
            host.emit("call", call_id="c", callable="call_targets::add", arguments=arguments(1, 2), context="text")
            assert (await host.error_of("c"))["type"] == "BadRequest"
            host.emit("cancel", call_id="unknown")
            host.emit("ack", call_id="unknown")
            host.call("d", "add", 1, 2)
            assert await host.value_of("d") == 3
            assert len(host.told) == 5

    run(main())


@pytest.mark.parametrize("transport", ["polling", "websocket"])
def test_large_values(run: Any, worker_python: str, transport: str) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect:
            host = await connect(transport)
            blob = os.urandom(8 << 20)
            host.call("small", "sleep", 0.5, "here")
            host.call("large", "echo", blob)
            assert await host.value_of("large") == blob
            assert await host.value_of("small") == "here"

    run(main())


def test_token(run: Any, worker_python: str) -> None:
    async def main() -> None:
        token = "0123456789abcdef" * 4
        async with hosts(worker_python, token=token) as connect:
            for transport in TRANSPORTS:
                await connect(transport, refused=True)
                host = await connect(transport, Authorization=f"Bearer {token}")
                host.call(transport, "add", 1, 2)
                assert await host.value_of(transport) == 3

    run(main())


# ---- curl ----


async def curl(*words: str, data: bytes | None = None) -> tuple[str, bytes]:
    """What curl says: the head of the answer, and its body."""
    process = await asyncio.create_subprocess_exec(
        "curl",
        "-sS",
        "--noproxy",
        "*",
        "--max-time",
        "20",
        "-i",
        *words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    out, _ = await process.communicate(data or b"")
    assert process.returncode == 0
    *_, head, body = out.split(b"\r\n\r\n", 2) if out.startswith(b"HTTP/1.1 100") else out.split(b"\r\n\r\n", 1)
    return head.decode().lower(), body


def test_curl(run: Any, worker_python: str) -> None:
    async def main() -> None:
        token = "0123456789abcdef" * 4
        bearer = ("-H", f"Authorization: Bearer {token}")
        typed = ("-H", "Content-Type: application/msgpack", "--data-binary", "@-")
        async with serve(python=worker_python, token=token) as url:
            head, body = await curl(f"{url}/health")
            assert head.startswith("http/1.1 200")
            assert json.loads(body).keys() == {"status", "version", "instance"}

            def request(call_id: str, target: str, *args: Any) -> bytes:
                words = {"call_id": call_id, "callable": f"call_targets::{target}", "arguments": arguments(*args)}
                packed: bytes = msgpack.packb(words)
                return packed

            head, body = await curl(*typed, f"{url}/call", data=request("a", "add", 1, 2))
            assert head.startswith("http/1.1 401")
            head, body = await curl(*bearer, *typed, f"{url}/call", data=request("a", "add", 1, 2))
            assert head.startswith("http/1.1 200")
            assert "preference-applied: wait=1" in head
            assert pickle.loads(msgpack.unpackb(body)["value"]) == 3
            # With a length of a megabyte curl expects a 100 first; and it can send chunks.
            large = bytes(3_000_000)
            for more in ((), ("-H", "Transfer-Encoding: chunked")):
                call = request(f"large{len(more)}", "echo", large)
                head, body = await curl(*bearer, *typed, *more, f"{url}/call", data=call)
                assert head.startswith("http/1.1 200"), (head, body[:200])
                assert pickle.loads(msgpack.unpackb(body)["value"]) == large
            slow = request("slow", "sleep", 0.6, "late")
            head, body = await curl(*bearer, *typed, "-H", "Prefer: respond-async, wait=0.1", f"{url}/call", data=slow)
            assert head.startswith("http/1.1 202")
            assert "location: /call/slow" in head
            assert msgpack.unpackb(body) == {"call_id": "slow"}
            for _ in range(50):
                head, body = await curl(*bearer, *typed, f"{url}/call", data=slow)
                if not head.startswith("http/1.1 202"):  # said at once while it runs
                    break
                await asyncio.sleep(0.1)
            assert pickle.loads(msgpack.unpackb(body)["value"]) == "late"
            head, _ = await curl(*bearer, f"{url}/call")
            assert head.startswith("http/1.1 405")
            assert "allow: post" in head
            head, _ = await curl(*bearer, f"{url}/call/slow")
            assert head.startswith("http/1.1 404")

    run(main())
