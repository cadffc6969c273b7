"""The fast wire: a peer of another make speaks it to a real runtime; our client without it, and when it is cut.

The peer imports nothing of ours: its WebSocket is aiohttp's, which masks with random keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import call_targets as t
import pytest
import storm_targets as s
from fake_worker import pack, unpack
from processes import Runtime, eventually
from shim import Shim
from test_server_raw import TOKEN, Server, serving

from agentix import RuntimeClient

CALL, REPLY, RESET = 1, 2, 3
FIRST, LAST = 1, 2
SMALL, BULK = 1, 2
PATIENCE = 90.0
numbers = itertools.count(1)


def patiently(coroutine: Coroutine[Any, Any, None]) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE):
            await coroutine

    asyncio.run(main())


# ---- a peer ----


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("fast"), token=TOKEN) as it:
        yield it


def frame(kind: int, flags: int, lane: int, stream: int, word: int = 0, size: int = 0, data: bytes = b"") -> bytes:
    head = struct.pack("<BBHI", kind, flags, lane, stream)
    if flags & FIRST:
        head += struct.pack("<I", word)
        if not flags & LAST:
            head += struct.pack("<Q", size)
    return head + data


class Peer:
    """One connection: what is asked on a stream, and what came of it."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws = ws
        self.order: list[int] = []  # streams, as their replies ended
        self._waiting: dict[int, asyncio.Future[tuple[int, bytes]]] = {}
        self._begun: dict[int, tuple[int, int, bytearray]] = {}

    async def listen(self) -> None:
        async for message in self.ws:
            assert message.type is aiohttp.WSMsgType.BINARY, message
            self._hear(message.data)

    def _hear(self, data: bytes) -> None:
        assert len(data) <= 256 << 10
        kind, flags, lane, stream = struct.unpack_from("<BBHI", data)
        assert (kind, flags & ~3, lane & ~3) == (REPLY, 0, 0)
        at = 8
        if flags & FIRST:
            (status,) = struct.unpack_from("<I", data, at)
            at += 4
            size = -1
            if not flags & LAST:
                (size,) = struct.unpack_from("<Q", data, at)
                at += 8
            assert stream not in self._begun
            self._begun[stream] = (status, size, bytearray())
        status, size, body = self._begun[stream]
        body += data[at:]
        if flags & LAST:
            assert size in (-1, len(body))
            del self._begun[stream]
            self.order.append(stream)
            self._waiting.pop(stream).set_result((status, bytes(body)))

    def expect(self, stream: int) -> asyncio.Future[tuple[int, bytes]]:
        self._waiting[stream] = asyncio.get_running_loop().create_future()
        return self._waiting[stream]

    async def ask(
        self, stream: int, callable: str, arguments: bytes = b"", wait_ms: int = 30000, id: str | None = None
    ) -> asyncio.Future[tuple[int, bytes]]:
        reply = self.expect(stream)
        body = request(callable, arguments, id)
        await self.ws.send_bytes(frame(CALL, FIRST | LAST, SMALL, stream, wait_ms, data=body))
        return reply

    async def call(self, stream: int, callable: str, arguments: bytes = b"", **more: Any) -> bytes:
        return value(*await (await self.ask(stream, callable, arguments, **more)))


def request(callable: str, arguments: bytes = b"", id: str | None = None) -> bytes:
    return pack({"call_id": id or f"fast-{next(numbers)}", "callable": callable, "arguments": arguments})


def value(status: int, body: bytes) -> bytes:
    data, end = unpack(body)
    assert (status, end, data["ok"]) == (200, len(body), True), (status, data)
    return data["value"]


HEADERS = {"Authorization": f"Bearer {TOKEN}", "Agentix-Session": "fast"}


@contextlib.asynccontextmanager
async def speaking(server: Server) -> AsyncGenerator[Peer]:
    async with (
        aiohttp.ClientSession(headers=HEADERS) as session,
        session.ws_connect(server.url + "/agentix", protocols=["agentix.1"], max_msg_size=1 << 20) as ws,
    ):
        assert ws.protocol == "agentix.1"
        peer = Peer(ws)
        listening = asyncio.create_task(peer.listen())
        try:
            yield peer
        finally:
            await ws.close()
            await listening


def test_calls_of_a_peer(server: Server) -> None:
    async def main() -> None:
        async with speaking(server) as peer:
            assert await peer.call(1, "echo", b"hello") == b"hello"
            assert await peer.call(1, "echo", b"the same number again") == b"the same number again"
            assert await peer.call(0xFFFFFFFF, "length", b"x" * 200_000) == b"200000"
            assert await peer.call(5, "big", b"3000000") == b"\xa5" * 3_000_000  # in many frames
            status, body = await (await peer.ask(6, "nothing of that name"))
            assert (status, unpack(body)[0]["error"]["type"]) == (200, "LookupError")
            reply = peer.expect(7)
            await peer.ws.send_bytes(frame(CALL, FIRST | LAST, SMALL, 7, data=b"\xc1"))
            status, body = await reply
            assert (status, unpack(body)[0]["error"]["type"]) == (400, "BadRequest")

    patiently(main())


def test_a_large_argument_between_small_calls(server: Server) -> None:
    async def main() -> None:
        argument = bytes(range(256)) * 4096  # 1 MiB
        body = request("echo", argument)
        pieces = [body[i : i + 100_000] for i in range(0, len(body), 100_000)]
        async with speaking(server) as peer:
            large = peer.expect(1)
            for i, piece in enumerate(pieces):
                flags = FIRST if i == 0 else LAST if i == len(pieces) - 1 else 0
                await peer.ws.send_bytes(frame(CALL, flags, BULK, 1, 30000, len(body), piece))
                if i < len(pieces) - 1:
                    assert await peer.call(2 + i, "echo", b"small") == b"small"
                    assert not large.done()
            assert value(*await large) == argument

    patiently(main())


def test_a_request_that_is_given_up(server: Server) -> None:
    async def main() -> None:
        body = request("echo", b"x" * 1000)
        async with speaking(server) as peer:
            await peer.ws.send_bytes(frame(CALL, FIRST, BULK, 3, 1000, len(body), body[:500]))
            await peer.ws.send_bytes(frame(RESET, FIRST | LAST, 0, 3))
            assert await peer.call(3, "echo", b"another") == b"another"

    patiently(main())


def test_many_at_once_in_any_order(server: Server) -> None:
    async def main() -> None:
        async with speaking(server) as peer:
            slow = [await peer.ask(i, "sleep", b"0.5") for i in range(1, 26)]
            quick = [await peer.ask(i, "echo", str(i).encode()) for i in range(26, 51)]
            assert [value(*await reply) for reply in quick] == [str(i).encode() for i in range(26, 51)]
            assert [value(*await reply) for reply in slow] == [b"0.5"] * 25
            assert sorted(peer.order) == list(range(1, 51))
            assert max(peer.order[:25]) > 25  # a later one was answered before

    patiently(main())


async def ended(ask: Callable[[], Awaitable[tuple[int, bytes]]]) -> tuple[int, bytes]:
    """What is answered at last: 202 is, as long as the call runs."""
    for _ in range(1000):
        status, body = await ask()
        if status != 202:
            return status, body
        await asyncio.sleep(0.05)
    raise AssertionError("it runs on and on")


async def posted(server: Server, body: bytes) -> tuple[int, bytes]:
    headers = HEADERS | {"Content-Type": "application/msgpack", "Prefer": "wait=30"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(server.url + "/call", data=body) as response,
    ):
        return response.status, await response.read()


def test_no_waiting_and_the_result_by_post(server: Server) -> None:
    async def main() -> None:
        async with speaking(server) as peer:
            status, body = await (await peer.ask(1, "sleep", b"0.3", wait_ms=0, id="fast-later"))
            assert (status, unpack(body)[0]) == (202, {"call_id": "fast-later"})
            status, _ = await (await peer.ask(2, "sleep", b"0.3", wait_ms=20, id="fast-later-too"))
            assert status in (200, 202)  # a machine may be slow
            body = request("sleep", b"0.3", "fast-later")
            assert value(*await ended(lambda: posted(server, body))) == b"0.3"
            streams = itertools.count(3)

            async def again() -> tuple[int, bytes]:
                return await (await peer.ask(next(streams), "sleep", b"0.3", id="fast-later-too"))

            assert value(*await ended(again)) == b"0.3"  # or on the same wire

    patiently(main())


@pytest.mark.parametrize(
    ("without", "more", "protocols", "status"),
    [
        ("Authorization", {}, ["agentix.1"], 401),
        ("", {"Authorization": "Bearer no"}, ["agentix.1"], 401),
        ("Agentix-Session", {}, ["agentix.1"], 400),
        ("", {"Agentix-Session": "a b"}, ["agentix.1"], 400),
        ("", {}, ["agentix.2"], 400),
        ("", {}, [], 400),
        ("", {"Origin": "http://evil.example"}, ["agentix.1"], 403),
    ],
    ids=["no-token", "wrong-token", "no-session", "bad-session", "other", "none", "origin"],
)
def test_refusals(server: Server, without: str, more: dict[str, str], protocols: list[str], status: int) -> None:
    async def main() -> None:
        headers = {k: v for k, v in HEADERS.items() if k != without} | more
        async with aiohttp.ClientSession(headers=headers) as session:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
                await session.ws_connect(server.url + "/agentix", protocols=protocols)
            assert refusal.value.status == status

    patiently(main())


def test_no_upgrade_is_asked_for(server: Server) -> None:
    async def main() -> None:
        async with aiohttp.ClientSession(headers=HEADERS) as session:
            async with session.get(server.url + "/agentix") as response:
                assert response.status == 400
            async with session.post(server.url + "/agentix", data=b"x") as response:
                assert (response.status, response.headers["Allow"]) == (405, "GET")

    patiently(main())


@pytest.mark.parametrize(
    "data",
    [
        frame(9, FIRST | LAST, SMALL, 1),
        frame(CALL, 0x80 | FIRST | LAST, SMALL, 1),
        frame(CALL, FIRST | LAST, 4, 1),
        frame(CALL, FIRST | LAST, SMALL, 0),
        frame(RESET, FIRST | LAST, 0, 1, data=b"x"),
        b"\x01\x03",
        b"",
        "text",
    ],
    ids=["kind", "flag", "lane", "stream", "reset", "short", "empty", "text"],
)
def test_what_does_not_keep_to_the_wire(server: Server, data: bytes | str) -> None:
    """It ends its own connection, with 1002, and no other."""

    async def main() -> None:
        async with (
            speaking(server) as other,
            aiohttp.ClientSession(headers=HEADERS) as session,
            session.ws_connect(server.url + "/agentix", protocols=["agentix.1"], autoclose=False) as ws,
        ):
            running = await other.ask(1, "sleep", b"0.2")
            await (ws.send_str(data) if isinstance(data, str) else ws.send_bytes(data))
            message = await ws.receive()
            assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1002)
            assert value(*await running) == b"0.2"
            assert await other.call(2, "echo", b"still there") == b"still there"

    patiently(main())


def test_a_number_that_is_taken(server: Server) -> None:
    async def main() -> None:
        async with (
            aiohttp.ClientSession(headers=HEADERS) as session,
            session.ws_connect(server.url + "/agentix", protocols=["agentix.1"], autoclose=False) as ws,
        ):
            for argument in (b"5", b"0"):
                await ws.send_bytes(frame(CALL, FIRST | LAST, SMALL, 1, 30000, data=request("sleep", argument)))
            message = await ws.receive()
            assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1002)

    patiently(main())


# ---- our client where it is not offered ----


class Proxy:
    """Passes HTTP on and answers GET /agentix itself."""

    def __init__(self, url: str, answer: bytes | None) -> None:
        self.lead_to(url)
        self._answer = answer  # None: never
        self._tasks: set[asyncio.Task[None]] = set()
        self.asked = 0
        self.posts = 0
        self.url = ""

    def lead_to(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = (parts.hostname, parts.port)

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._relay(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection(*self._to)

        async def back() -> None:
            while data := await back_reader.read(65536):
                writer.write(data)

        tasks = [asyncio.create_task(self._forth(reader, writer, back_writer)), asyncio.create_task(back())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            writer.close()
            back_writer.close()

    async def _forth(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET /agentix "):
                    self.asked += 1
                    if self._answer is None:
                        await asyncio.Event().wait()
                    if not self._answer:
                        return
                    writer.write(self._answer or b"")
                    continue
                self.posts += head.startswith(b"POST ")
                to.write(head)
                if b"\r\nupgrade:" in head.lower():
                    break
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
                to.write(await reader.readexactly(int(fields.get(b"content-length", b"0"))))
            while data := await reader.read(65536):
                to.write(data)


def plain(status: str, *fields: str, body: str = "") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *fields, "", body]).encode()


@pytest.mark.parametrize(
    ("answer", "asked"),
    [
        (plain("404 Not Found"), 1),
        (plain("426 Upgrade Required", "Upgrade: websocket", "Connection: Upgrade", body="no"), 1),
        (plain("502 Bad Gateway", "Connection: close", body="<html>no</html>"), 1),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", 2),
        (b"", 2),  # it might have been a mishap
        (None, 1),
    ],
    ids=["404", "426", "502", "switched-to-nothing", "closes", "hangs"],
)
def test_a_server_without_it(worker_python: str, tmp_path: Path, answer: bytes | None, asked: int) -> None:
    """Calls go by POST, and it is not asked for again."""

    async def main(url: str) -> None:
        options: Any = {"timeout": 1.0} if answer is None else {}
        async with (
            Proxy(url, answer) as proxy,
            RuntimeClient(proxy.url, reconnection_delay=0.02, http_sync_ms=30000, **options) as client,
        ):
            assert await client.remote(t.add, 1, 2) == 3
            values = await asyncio.gather(*(client.remote(t.echo, i) for i in range(40)))
            assert values == list(range(40))
            assert await client.remote(t.echo, b"x" * 500_000) == b"x" * 500_000
            assert proxy.asked == asked
            assert proxy.posts >= 42

    with Runtime(worker_python, tmp_path) as runtime:
        patiently(main(runtime.url))


def test_another_instance_is_asked_again(worker_python: str, tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        async with (
            Proxy(runtime.url, plain("404 Not Found")) as proxy,
            RuntimeClient(proxy.url, reconnection_delay=0.02) as client,
        ):
            assert await client.remote(t.add, 1, 2) == 3
            runtime.end()
            runtime.start()
            proxy.lead_to(runtime.url)
            assert (await client.health()).instance == runtime.instance  # a call might go on what is lost
            assert await client.remote(t.add, 3, 4) == 7
            assert await client.remote(t.add, 5, 6) == 11
            assert proxy.asked == 2

    with Runtime(worker_python, tmp_path) as runtime:
        patiently(main(runtime))


# ---- our client where it is ----


@pytest.mark.parametrize("size", [64, 300_000], ids=["small", "large"])
def test_a_cut_under_many_calls(worker_python: str, tmp_path: Path, size: int) -> None:
    """Each of a hundred calls runs once and gives its own value, though the connection of them all ends, and again."""
    journal = tmp_path / "journal"

    async def main(shim: Shim) -> None:
        async with RuntimeClient(shim.url, reconnection_delay=0.02, http_sync_ms=30000) as client:
            calls = {
                f"call-{i}": asyncio.create_task(client.remote(s.work_async, str(journal), f"call-{i}", 0.5, size))
                for i in range(100)
            }
            ran = journal.exists
            await eventually(lambda: ran() and journal.read_text().count("start") > 20, "calls are under way")
            assert shim.cut() > 0
            await eventually(lambda: sum(call.done() for call in calls.values()) > 10, "some calls are done")
            shim.cut()
            for key, call in calls.items():
                assert await call == s.value_of(key, size)

    with Runtime(worker_python, tmp_path) as runtime, Shim(runtime.url) as shim:
        patiently(main(shim))
        assert shim.count < 30  # not one for each call
    lines = Counter(journal.read_text().split("\n"))
    assert set(lines.values()) == {1}
    assert sum(line.startswith("start ") for line in lines) == 100
