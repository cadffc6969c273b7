"""Stock Socket.IO clients against a real `agentix-runtime`: any client that speaks the protocol may call a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import random
import secrets
import struct
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgpack
import pytest
import socketio

from agentix.testing import serve

TRANSPORTS = {"polling": ["polling"], "upgrade": ["polling", "websocket"], "websocket": ["websocket"]}
EVERY_TRANSPORT = pytest.mark.parametrize("transport", TRANSPORTS)


def pack(value: Any) -> bytes:
    data: bytes = msgpack.packb(value)
    return data


def arguments(*args: Any, **kwargs: Any) -> bytes:
    return pickle.dumps((args, kwargs))


class Host:
    """One stock client on /rpc, which notes what it is told."""

    def __init__(self, url: str, transport: str = "websocket", session: str | None = None, **more: Any) -> None:
        self.url = url
        self.transport = transport
        self.session = session
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.news = asyncio.Event()
        # Without these, aiohttp takes no message above 4 MiB, and python-engineio no poll that takes 5 seconds.
        self.sio = socketio.AsyncClient(
            reconnection=False, request_timeout=60, websocket_extra_options={"max_msg_size": 0}, **more
        )
        self.sio.on("call:result", lambda data: self._note("result", data), namespace="/rpc")
        self.sio.on("call:error", lambda data: self._note("error", data), namespace="/rpc")

    def _note(self, kind: str, data: bytes) -> None:
        self.told.append((kind, msgpack.unpackb(data)))
        self.news.set()

    async def connect(self, **more: Any) -> None:
        await self.sio.connect(
            self.url,
            namespaces=["/rpc"],
            transports=TRANSPORTS[self.transport],
            auth={"session": self.session} if self.session else None,
            wait_timeout=10,
            **more,
        )

    async def emit(self, event: str, **keys: Any) -> None:
        await self.sio.emit(event, pack(keys), namespace="/rpc")

    async def call(self, call_id: str, target: str, *args: Any, **kwargs: Any) -> None:
        name = target if "::" in target else f"call_targets::{target}"
        await self.emit("call", call_id=call_id, callable=name, arguments=arguments(*args, **kwargs))

    async def end_of(self, call_id: str) -> tuple[str, dict[str, Any]]:
        while True:
            for kind, data in self.told:
                if data["call_id"] == call_id:
                    return kind, data
            assert self.sio.connected, f"the connection ended; told: {[data['call_id'] for _, data in self.told]}"
            self.news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.news.wait(), 1)

    async def is_told(self, n: int) -> None:
        while len(self.told) < n:
            self.news.clear()
            await self.news.wait()

    async def value_of(self, call_id: str) -> Any:
        kind, data = await self.end_of(call_id)
        assert kind == "result", data
        return pickle.loads(data["value"])

    async def error_of(self, call_id: str) -> dict[str, Any]:
        kind, data = await self.end_of(call_id)
        assert kind == "error", data
        error: dict[str, Any] = data["error"]
        return error

    async def close(self) -> None:
        await self.sio.disconnect()

    async def cut(self) -> None:
        """Take the connection away under it, without a goodbye."""
        if self.sio.transport() == "websocket":
            self.sio.eio.ws._response.connection.transport.abort()
            await self.sio.wait()
        else:
            await self.sio.eio.http.close()
            self.sio.eio.state = "disconnected"


@contextlib.asynccontextmanager
async def hosts(python: str, **options: Any) -> AsyncGenerator[Callable[..., Any]]:
    """Gives a maker of connected hosts."""
    async with serve(python=python, **options) as url, contextlib.AsyncExitStack() as stack:

        async def connect(*args: Any, **kwargs: Any) -> Host:
            host = Host(url, *args, **kwargs)
            await host.connect()
            stack.push_async_callback(host.close)
            return host

        yield connect


@EVERY_TRANSPORT
def test_calls(run: Any, worker_python: str, transport: str) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect:
            host = await connect(transport)
            await host.call("a", "add", 1, b=2)
            await host.call("b", "add_async", 3, 4)
            await host.call("c", "raise_quota", "ann", 5)
            assert await host.value_of("a") == 3
            assert await host.value_of("b") == 7
            error = await host.error_of("c")
            assert error["type"] == "QuotaError"
            assert "over the limit" in error["message"]
            assert "raise_quota" in error["traceback"]
            assert host.sio.transport() == ("polling" if transport == "polling" else "websocket")

    run(main())


@EVERY_TRANSPORT
def test_many_calls_at_once(run: Any, worker_python: str, transport: str) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect:
            host = await connect(transport)
            for n in range(200):
                await host.call(f"n{n}", "add", n, n)
            for n in range(200):
                assert await host.value_of(f"n{n}") == 2 * n
            assert len(host.told) == 200

    run(main())


def test_what_joining_answers(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with serve(python=worker_python) as url, aiohttp.ClientSession() as http:
            async with http.get(f"{url}/health") as reply:
                instance = (await reply.json())["instance"]
            async with http.ws_connect(f"{url}/socket.io/?EIO=4&transport=websocket") as ws:
                opening = await ws.receive_str()
                assert opening.startswith("0")
                assert '"pingInterval":25000' in opening
                assert '"pingTimeout":300000' in opening
                assert f'"maxPayload":{256 << 20}' in opening
                await ws.send_str('40/rpc,{"session":"s1"}')
                joined = await ws.receive_str()
                assert joined.startswith("40/rpc,{")
                assert f'"instance":"{instance}"' in joined
                for name in ("/log", "/trace", "/agx-demo"):
                    await ws.send_str(f"40{name},")
                    assert (await ws.receive_str()).startswith(f"40{name},{{")
                await ws.send_str('42/log,["hello",1]')  # nobody listens, nobody minds
                await ws.send_str('42/agx-demo,["hello"]')
                await ws.send_str('451-/rpc,["resume",{"_placeholder":true,"num":0}]')
                await ws.send_bytes(pack({"call_ids": ["unknown"]}))
                assert (await ws.receive_str()) == '451-/rpc,["call:error",{"_placeholder":true,"num":0}]'
                answer = msgpack.unpackb(await ws.receive_bytes())
                assert answer["call_id"] == "unknown"
                assert answer["error"]["type"] == "ResultUnavailable"
                assert answer["error"]["reason"] == "never_seen"

    run(main())


@EVERY_TRANSPORT
def test_resume_after_a_cut(run: Any, worker_python: str, transport: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect:
            session = secrets.token_hex(16)
            first = await connect(transport, session)
            await first.call(f"{session}-1", "append_line", str(tmp_path / "ran"), "once", seconds=0.5)
            await asyncio.sleep(0.1)
            await first.cut()
            second = await connect(transport, session)
            await second.emit("resume", call_ids=[f"{session}-1", f"{session}-2", 7])
            assert (await second.error_of(f"{session}-2"))["reason"] == "never_seen"
            assert await second.value_of(f"{session}-1") == "once"
            await second.call(f"{session}-1", "append_line", str(tmp_path / "ran"), "once")  # acts as resume
            await second.is_told(3)
            assert (tmp_path / "ran").read_text() == "once\n"
            # Acknowledged, it is gone.
            await second.emit("ack", call_id=f"{session}-1")
            second.told.clear()
            await second.emit("resume", call_ids=[f"{session}-1"])
            error = await second.error_of(f"{session}-1")
            assert (error["type"], error["reason"]) == ("ResultUnavailable", "dropped")

    run(main())


def test_a_result_that_ended_while_nobody_was_there(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect:
            first = await connect("websocket", "s")
            await first.call("warm", "add", 1, 2)
            await first.value_of("warm")
            await first.call("late", "sleep", 0.3, "v")
            await asyncio.sleep(0.1)
            await first.close()
            await asyncio.sleep(1)
            second = await connect("polling", "s")
            await asyncio.sleep(0.1)
            assert second.told == []
            await second.emit("resume", call_ids=["late"])
            assert await second.value_of("late") == "v"

    run(main())


def test_the_newest_link_takes_over(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect:
            first = await connect("websocket", "s")
            await first.call("x", "sleep", 0.3, "v")
            await asyncio.sleep(0.1)
            second = await connect("websocket", "s")
            await asyncio.wait_for(first.sio.wait(), 5)
            assert await second.value_of("x") == "v"
            assert first.told == []

    run(main())


@EVERY_TRANSPORT
def test_cancel(run: Any, worker_python: str, transport: str) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect:
            host = await connect(transport)
            await host.call("warm", "add", 1, 1)
            await host.value_of("warm")
            await host.call("async", "sleep_async", 60)
            await host.call("other", "sleep_async", 1, "fine")
            await asyncio.sleep(0.2)
            await host.emit("cancel", call_id="async")
            error = await host.error_of("async")
            assert (error["type"], error["cancelled"]) == ("Cancelled", True)
            assert await host.value_of("other") == "fine"

    run(main())


def test_a_cancel_that_is_not_heeded(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect:
            host = await connect()
            await host.call("warm", "pid")
            before = await host.value_of("warm")
            await host.call("deaf", "sleep", 60)  # one long wait in C
            await asyncio.sleep(0.2)
            await host.emit("cancel", call_id="deaf", grace=0.2)
            started = time.monotonic()
            error = await host.error_of("deaf")
            assert (error["type"], error["cancelled"]) == ("Cancelled", True)
            assert time.monotonic() - started < 50
            await host.call("next", "pid")
            assert await host.value_of("next") != before

    run(main())


def test_another_session_sees_nothing(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect:
            ours, theirs = await connect("websocket", "ours"), await connect("websocket", "theirs")
            await ours.call("secret", "sleep", 0.5, "v")
            await asyncio.sleep(0.1)
            await theirs.emit("cancel", call_id="secret")
            await theirs.emit("ack", call_id="secret")
            await theirs.emit("resume", call_ids=["secret"])
            error = await theirs.error_of("secret")
            assert (error["type"], error["reason"]) == ("ResultUnavailable", "dropped")
            assert await ours.value_of("secret") == "v"
            assert len(theirs.told) == 1

    run(main())


def test_a_post_answered_by_202_ends_on_the_link(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect, aiohttp.ClientSession() as http:
            host = await connect("websocket", "s")
            body = pack({"call_id": "p", "callable": "call_targets::sleep", "arguments": arguments(0.4, "v")})
            fields = {"Content-Type": "application/msgpack", "Agentix-Session": "s", "Prefer": "wait=0.1"}
            async with http.post(f"{host.url}/call", data=body, headers=fields) as reply:
                assert reply.status == 202
            assert await host.value_of("p") == "v"
            # One that waits long enough is told there, and not here.
            body = pack({"call_id": "q", "callable": "call_targets::sleep", "arguments": arguments(0.2, "w")})
            async with http.post(f"{host.url}/call", data=body, headers=fields | {"Prefer": "wait=5"}) as reply:
                assert reply.status == 200
            await asyncio.sleep(0.1)
            assert [data["call_id"] for _, data in host.told] == ["p"]

    run(main())


@pytest.mark.filterwarnings("ignore:Sending a large body")  # aiohttp's advice to who posts more than 1 MiB
@EVERY_TRANSPORT
@pytest.mark.parametrize("size", [999_999, 1_000_001, 1_268_096, 16 << 20])
def test_large_values(run: Any, worker_python: str, transport: str, size: int) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect:
            host = await connect(transport)
            await host.call("small", "sleep", 0.5, "here")
            blob = os.urandom(1 << 10) * (size >> 10) + bytes(size & 1023)
            await host.call("large", "echo", blob)
            assert await host.value_of("large") == blob
            assert await host.value_of("small") == "here"

    run(main())


def test_a_hundred_megabytes(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect:
            host = await connect("websocket")
            blob = bytes(100_000_000)
            await host.call("large", "echo", blob)
            await host.call("small", "add", 1, 2)
            assert await host.value_of("small") == 3
            assert await host.value_of("large") == blob

    run(main())


def test_token(run: Any, worker_python: str) -> None:
    async def main() -> None:
        token = "0123456789abcdef" * 4
        async with serve(python=worker_python, token=token) as url:
            for transport in ("polling", "websocket"):
                async with aiohttp.ClientSession() as http:
                    with pytest.raises(socketio.exceptions.ConnectionError):
                        await Host(url, transport, http_session=http).connect()
                # python-engineio leaves its own headers out of all polls but the first.
                async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http:
                    host = Host(url, transport, http_session=http)
                    await host.connect()
                    await host.call(transport, "add", 1, 2)
                    assert await host.value_of(transport) == 3
                    await host.close()

    run(main())


def test_foreign_pages_are_refused(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with serve(python=worker_python) as url, aiohttp.ClientSession() as http:
            for fields in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
                for path in ("transport=polling", "transport=websocket"):
                    async with http.get(f"{url}/socket.io/?EIO=4&{path}", headers=fields) as reply:
                        assert reply.status == 403

    run(main())


def test_requests_that_fit_nothing(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with serve(python=worker_python) as url, aiohttp.ClientSession() as http:

            async def status(method: str, query: str, **more: Any) -> int:
                async with http.request(method, f"{url}/socket.io/?{query}", **more) as reply:
                    return reply.status

            assert await status("GET", "EIO=3&transport=polling") == 400
            assert await status("GET", "transport=polling") == 400
            assert await status("GET", "EIO=4&transport=pigeon") == 400
            assert await status("GET", "EIO=4&transport=websocket") == 400
            assert await status("GET", "EIO=4&transport=polling&sid=unknown") == 400
            assert await status("POST", "EIO=4&transport=polling&sid=unknown", data=b"40") == 400
            assert await status("POST", "EIO=4&transport=polling", data=b"40") == 400
            assert await status("PUT", "EIO=4&transport=polling") == 405

    run(main())


GARBAGE = {
    "a packet of no type": ("text", "9"),
    "a letter": ("text", "x"),
    "an empty text": ("text", ""),
    "an opening from a client": ("text", "0{}"),
    "a packet of Socket.IO of no type": ("text", "47"),
    "JSON cut short": ("text", '42/rpc,["call"'),
    "a packet of type 7": ("text", "7"),
    "a packet of type 8": ("text", "8"),
    "no attachments, in so many words": ("text", '450-/rpc,["call"]'),
    "a count with zeros before it": ("text", '45007-/rpc,["call",{"_placeholder":true,"num":0}]'),
    "a count with an exponent": ("text", '451e3-/rpc,["call",{"_placeholder":true,"num":0}]'),
    "a count of 30 digits": ("text", "45" + "1" * 30 + '-/rpc,["call",{"_placeholder":true,"num":0}]'),
    "a million attachments": ("text", '451000000-/rpc,["call",{"_placeholder":true,"num":0}]'),
    "attachments that are not there": ("text", '452-/rpc,["call",{"_placeholder":true,"num":0}]'),
    "bytes that were not announced": ("bytes", b"\x00\x01\x02"),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_closes_only_who_sends_it(run: Any, worker_python: str, name: str) -> None:
    async def main() -> None:
        kind, data = GARBAGE[name]
        async with hosts(worker_python) as connect, aiohttp.ClientSession() as http:
            host = await connect("websocket")
            async with http.ws_connect(f"{host.url}/socket.io/?EIO=4&transport=websocket") as ws:
                await ws.receive_str()
                await ws.send_str("40/rpc,")
                await ws.receive_str()
                await (ws.send_str(data) if kind == "text" else ws.send_bytes(data))
                message = await asyncio.wait_for(ws.receive(), 5)
                assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED), message
            await host.call("a", "add", 1, 2)
            assert await host.value_of("a") == 3

    run(main())


def frame(opcode: int, payload: bytes, *, masked: bool = True, first: int = 0x80, length: int | None = None) -> bytes:
    n = len(payload) if length is None else length
    mask = 0x80 if masked else 0
    head = (
        struct.pack(">BB", first | opcode, mask | n) if n < 126 else struct.pack(">BBQ", first | opcode, mask | 127, n)
    )
    return head + (bytes(4) if masked else b"") + payload


FRAMES = {
    "unmasked": frame(1, b"40", masked=False),
    "a reserved bit": frame(1, b"40", first=0xC0),
    "opcode 3": frame(3, b""),
    "opcode 11": frame(11, b""),
    "a ping of 126 bytes": struct.pack(">BBH", 0x89, 0xFE, 126) + bytes(4 + 126),
    "a ping without an end": frame(9, b"", first=0),
    "a length with its top bit set": frame(2, b"", length=(1 << 63) | 5),
    "a short length in the long form": struct.pack(">BBQ", 0x82, 0xFF, 2) + bytes(4) + b"ab",
    "a length above the limit": frame(2, b"", length=1 << 40),
    "text that is not UTF-8": frame(1, b"4\xff"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_that_must_not_be(run: Any, worker_python: str, name: str) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect:
            host = await connect("websocket")
            where = urlsplit(host.url)
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            writer.write(
                b"GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" + frame(1, b"40/rpc,") + FRAMES[name]
                # What follows at once is read as frames.
            )
            got = await asyncio.wait_for(reader.read(), 5)
            assert got.startswith(b"HTTP/1.1 101 ")
            code = int.from_bytes(got[got.rindex(b"\x88") + 2 :][:2], "big")
            assert code == {"a length above the limit": 1009, "text that is not UTF-8": 1007}.get(name, 1002)
            writer.close()
            await host.call("a", "add", 1, 2)
            assert await host.value_of("a") == 3

    run(main())


def test_random_frames(run: Any, worker_python: str) -> None:
    async def main() -> None:
        noise = random.Random(1)
        async with hosts(worker_python) as connect, aiohttp.ClientSession() as http:
            host = await connect("websocket")
            for n in range(200):
                async with http.ws_connect(f"{host.url}/socket.io/?EIO=4&transport=websocket") as ws:
                    await ws.receive_str()
                    await ws.send_str("40/rpc,")
                    await ws.receive_str()
                    data = noise.randbytes(noise.randrange(100))
                    await (ws.send_bytes(data) if n % 2 else ws.send_str(data.decode("latin-1")))
            await host.call("a", "add", 1, 2)
            assert await host.value_of("a") == 3

    run(main())


def test_who_joins_nothing_is_closed(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with serve(python=worker_python) as url, aiohttp.ClientSession() as http:
            started = time.monotonic()
            async with http.ws_connect(f"{url}/socket.io/?EIO=4&transport=websocket") as ws:
                await ws.receive_str()
                message = await asyncio.wait_for(ws.receive(), 15)
                assert message.type == aiohttp.WSMsgType.CLOSE
            assert 9 < time.monotonic() - started < 40

    run(main())


def test_namespaces_are_bounded(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with (
            serve(python=worker_python) as url,
            aiohttp.ClientSession() as http,
            http.ws_connect(f"{url}/socket.io/?EIO=4&transport=websocket") as ws,
        ):
            await ws.receive_str()
            for n in range(256):
                await ws.send_str(f"40/n{n},")
                assert (await ws.receive_str()).startswith(f"40/n{n},")
            await ws.send_str("40/more,")
            assert (await ws.receive_str()).startswith("44/more,")
            await ws.send_str("41/n7,")
            await ws.send_str("40/rpc,")
            assert (await ws.receive_str()).startswith("40/rpc,")

    run(main())


def test_the_blocking_client(run: Any, worker_python: str) -> None:
    """python-socketio's other client: requests and websocket-client."""

    def blocking(url: str, transport: str) -> None:
        told: list[Any] = []
        with socketio.SimpleClient(websocket_extra_options={"suppress_origin": True}) as client:
            client.connect(url, namespace="/rpc", transports=TRANSPORTS[transport])
            client.emit(
                "call", pack({"call_id": transport, "callable": "call_targets::add", "arguments": arguments(1, 2)})
            )
            told = client.receive(timeout=10)
        assert told[0] == "call:result"
        assert pickle.loads(msgpack.unpackb(told[1])["value"]) == 3

    async def main() -> None:
        async with serve(python=worker_python) as url:
            for transport in TRANSPORTS:
                await asyncio.to_thread(blocking, url, transport)

    run(main())


# What is said on /rpc and cannot be read: the bytes of a `call`, and whether its id can be made out all the same.
GOOD = pack({"call_id": "c", "callable": "call_targets::add", "arguments": arguments(1, 2)})
UNREADABLE = {
    "empty": (b"", ""),
    "nil": (b"\xc0", ""),
    "an array": (pack([1]), ""),
    "no id": (pack({"callable": "call_targets::add"}), ""),
    "id is bin": (pack({"call_id": b"c"}), ""),
    "id is int": (pack({"call_id": -1}), ""),
    "id is float": (b"\x81\xa7call_id\xcb" + struct.pack(">d", 1.5), ""),
    "id is not a number": (b"\x81\xa7call_id\xcb\x7f\xf8" + bytes(6), ""),
    "id is ext": (b"\x81\xa7call_id\xd4\x01c", ""),
    "id is 2**64-1": (b"\x81\xa7call_id\xcf" + b"\xff" * 8, ""),
    "id is empty": (pack({"call_id": ""}), ""),
    "id is 1 MB": (pack({"call_id": "x" * (1 << 20)}), ""),
    "id is no UTF-8": (b"\x81\xa7call_id\xa2\xff\xfe", ""),
    "id twice": (b"\x82\xa7call_id\xa1c\xa7call_id\xa1d", ""),
    "one byte more": (GOOD + b"\xc0", "c"),
    "cut short": (GOOD[:-1], ""),
    "announces 4 GB": (b"\x81\xa7call_id\xdb\xff\xff\xff\xff", ""),
    "a reserved byte": (b"\x81\xa7call_id\xc1", ""),
    "deep": (b"\x91" * 100_000, ""),
    "deep below a key": (b"\x82\xa7call_id\xa1c\xa1k" + b"\x91" * 100_000, ""),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_calls_that_cannot_be_read(run: Any, worker_python: str, name: str) -> None:
    async def main() -> None:
        data, call_id = UNREADABLE[name]
        async with hosts(worker_python) as connect:
            host = await connect("websocket")
            await host.sio.emit("call", data, namespace="/rpc")
            error = await host.error_of(call_id)
            assert error["type"] == "BadRequest"
            assert error["message"]
            await host.call("next", "add", 1, 2)
            assert await host.value_of("next") == 3
            assert len(host.told) == 2

    run(main())


def test_plain_json(run: Any, worker_python: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with hosts(worker_python) as connect:
            host = await connect("websocket")

            async def say(event: str, body: Any) -> None:
                await host.sio.emit(event, body, namespace="/rpc")

            await say("call", {"call_id": "a", "callable": "call_targets::add", "arguments": arguments(1, b=2)})
            assert await host.value_of("a") == 3
            await host.call("slow", "sleep_async", 60)
            await say("cancel", {"call_id": "slow", "grace": 0.5})
            assert (await host.error_of("slow"))["type"] == "Cancelled"
            host.told.clear()
            await say("resume", {"call_ids": ["a", "b", 7]})
            assert await host.value_of("a") == 3
            assert (await host.error_of("b"))["reason"] == "never_seen"
            await say("ack", {"call_ids": ["a"]})
            host.told.clear()
            await say("resume", {"call_ids": ["a"]})
            assert (await host.error_of("a"))["reason"] == "dropped"
            for body in (None, 7, "text", ["a"], {}, {"call_id": 7}, {"call_id": None}):
                host.told.clear()
                await say("call", body)
                assert (await host.error_of(""))["type"] == "BadRequest", body
            host.told.clear()
            await say("resume", {"call_ids": "a"})
            assert (await host.error_of(""))["type"] == "BadRequest"

    run(main())


def test_the_first_words_of_a_session(run: Any, worker_python: str) -> None:
    """A call in the same segment as the request to join is not lost."""

    async def main() -> None:
        async with serve(python=worker_python) as url, aiohttp.ClientSession() as http:

            async def one(n: int) -> None:
                async with http.ws_connect(f"{url}/socket.io/?EIO=4&transport=websocket") as ws:
                    body = {"call_id": f"c{n}", "callable": "call_targets::add", "arguments": arguments(n, n)}
                    await ws.send_str(f'40/rpc,{{"session":"s{n}"}}')
                    await ws.send_str('451-/rpc,["call",{"_placeholder":true,"num":0}]')
                    await ws.send_bytes(pack(body))
                    assert (await ws.receive_str()).startswith("0{")
                    assert (await ws.receive_str()).startswith("40/rpc,{")
                    assert (await ws.receive_str()).startswith('451-/rpc,["call:result"')
                    assert pickle.loads(msgpack.unpackb(await ws.receive_bytes())["value"]) == 2 * n

            await asyncio.gather(*(one(n) for n in range(50)))

    run(main())


def memory_of(url: str) -> int:
    """Bytes of memory that the server on this port holds."""
    port = f"{urlsplit(url).port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inode = next(row[9] for row in rows if row[1].endswith(f":{port}") and row[3] == "0A")
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(os.readlink(fd) == f"socket:[{inode}]" for fd in (process / "fd").iterdir()):
                status = (process / "status").read_text()
                return int(status.partition("VmRSS:")[2].split()[0]) << 10
    raise AssertionError("nobody listens there")


UPGRADE = (
    b"GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def test_what_is_announced_costs_nothing(run: Any, worker_python: str) -> None:
    """Heads of 200 MB messages and silence; messages of fragments without end; attachments that are never all there."""

    async def main() -> None:
        async with hosts(worker_python) as connect:
            host = await connect("websocket")
            where = urlsplit(host.url)
            before = memory_of(host.url)
            writers = []
            for _ in range(50):
                _, writer = await asyncio.open_connection(where.hostname, where.port)
                writer.write(UPGRADE + frame(1, b"40/rpc,") + frame(2, b"abc", length=200_000_000))
                writers.append(writer)
            await asyncio.sleep(0.5)
            assert memory_of(host.url) - before < 20 << 20
            for fragment in (b"x", b""):
                reader, writer = await asyncio.open_connection(where.hostname, where.port)
                writer.write(UPGRADE + frame(1, b"40/rpc,") + frame(2, fragment, first=0))
                with contextlib.suppress(ConnectionError):
                    for _ in range(100):
                        writer.write(frame(0, fragment, first=0) * 10_000)
                        await writer.drain()
                with contextlib.suppress(ConnectionError):
                    await asyncio.wait_for(reader.read(), 20)  # it closes
                writer.close()
            assert memory_of(host.url) - before < 20 << 20
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            writers.append(writer)
            places = ",".join(f'{{"_placeholder":true,"num":{n}}}' for n in range(64))
            writer.write(UPGRADE + frame(1, b"40/rpc,") + frame(1, f'4564-/rpc,["call",{places}]'.encode()))
            with contextlib.suppress(ConnectionError):
                for _ in range(20):
                    writer.write(frame(2, bytes(20 << 20)))
                    await writer.drain()
            await asyncio.sleep(0.5)
            assert memory_of(host.url) - before < 400 << 20  # one message's worth and its copy, at most
            for writer in writers:
                writer.transport.abort()  # what was not sent must not keep it open
            await host.call("a", "add", 1, 2)
            assert await host.value_of("a") == 3

    run(main())


@pytest.mark.long
def test_a_host_that_is_busy_for_a_while(worker_python: str) -> None:
    """Neither its own sleep nor a worker that burns its processor ends the link, though pings go by."""

    async def main() -> None:
        async with hosts(worker_python) as connect:
            host = await connect("websocket")
            await host.call("burn", "burn", 60)
            await host.call("late", "sleep", 20, "v")
            await asyncio.sleep(0.5)
            time.sleep(40)  # noqa: ASYNC251
            assert await host.value_of("late") == "v"
            assert await host.value_of("burn") is None

    asyncio.run(asyncio.wait_for(main(), 150))
