"""Large values that come by the fast wire: from a server that means well, and from ones that do not."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import pickle
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
from clienttools import BODIES, core, echo, run
from standin import Connection, Request, StandIn

from agentix import RestrictedUnpickleError, RuntimeClient
from agentix.runtime.shared.safepickle import restricted_loads

__all__ = ["run"]

KIB = 1 << 10
MIB = 1 << 20
LANDS = 256 * KIB  # bytes from which on they land
FRAME = 256 * KIB
CALL, REPLY, FIRST, LAST = 1, 2, 1, 2


@dataclass
class Said:
    """What is said to a call: the pickle of its value, of which `come` bytes come before the connection ends."""

    value: bytes
    come: int | None = None
    announced: int | None = None  # bytes of the value, by the reply
    stay: asyncio.Event | None = None  # the connection ends when this is set


class Server(StandIn):
    """A stand-in that speaks as much of the fast wire as there is to say one reply after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.functions["echo"] = BODIES["echo"]
        self.says: list[Said] = []
        self.said = 0
        self.heard = asyncio.Event()  # something was said

    async def _answer(self, writer: asyncio.StreamWriter, status: int, body: bytes, *fields: str) -> bool:
        return await super()._answer(writer, status, body, *fields, "Agentix-Wires: agentix.1")

    async def _serve_one(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if connection.requests:
            request = await self._read(connection, reader)
            if request is None:
                return False
            if request.target == "/agentix" and self.says:
                await self._switch(request, reader, writer)
                return False
            if request.target == "/agentix":
                return await self._answer(writer, 404, b"")
            connection.requests.append(request)
            if request.target == "/call":
                return await self._call(connection, request, writer)
            if request.target == "/health":
                return await self._health(connection, request, writer)
            return await self._answer(writer, 404, b"")
        return await super()._serve_one(connection, reader, writer)

    async def _switch(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key = request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Accept: {accept}", "Sec-WebSocket-Protocol: agentix.1", "", ""]
        writer.write("\r\n".join(lines).encode())
        while self.says:
            stream = await _next_call(reader)
            says = self.says.pop(0)
            self.said += 1
            data = b"".join(_frames(stream, _reply(says)))
            writer.write(data[: says.come])
            await writer.drain()
            self.heard.set()
            if says.stay is not None:
                await says.stay.wait()
            if says.come is not None and says.come < len(data):
                return
        await reader.read()


async def _next_call(reader: asyncio.StreamReader) -> int:
    while True:
        first, size = await reader.readexactly(2)
        assert first == 0x82
        size &= 127
        if size > 125:
            width = 2 if size == 126 else 8
            size = int.from_bytes(await reader.readexactly(width), "big")
        mask = await reader.readexactly(4)
        data = bytes(byte ^ mask[i % 4] for i, byte in enumerate(await reader.readexactly(size)))
        kind, flags, _, stream = struct.unpack_from("<BBHI", data)
        if kind == CALL and flags & LAST:
            return stream


def _reply(says: Said) -> bytes:
    announced = len(says.value) if says.announced is None else says.announced
    return b"\x82\xa2ok\xc3\xa5value\xc6" + struct.pack(">I", announced) + says.value


def _message_head(n: int) -> bytes:
    if n < 126:
        return bytes([0x82, n])
    return b"\x82\x7e" + struct.pack(">H", n) if n < 1 << 16 else b"\x82\x7f" + struct.pack(">Q", n)


def _frames(stream: int, body: bytes) -> list[bytes]:
    frames: list[bytes] = []
    at = 0
    while not frames or at < len(body):
        room = FRAME - 20
        flags = (0 if at else FIRST) | (LAST if at + room >= len(body) else 0)
        head = struct.pack("<BBHI", REPLY, flags, 2, stream)
        if flags & FIRST:
            head += struct.pack("<I", 200)
            if not flags & LAST:
                head += struct.pack("<Q", len(body))
        data = head + body[at : at + room]
        at += room
        frames.append(_message_head(len(data)) + data)
    return frames


@contextlib.asynccontextmanager
async def serving(*says: Said) -> AsyncIterator[tuple[Server, RuntimeClient]]:
    server = Server()
    server.says += says
    async with server:
        client = RuntimeClient(server.url)
        try:
            yield server, client
        finally:
            await client.close()
        assert core(client).counts()["connections"] == 0
    assert server.violations == []


def pattern(n: int) -> bytes:
    return (bytes(range(251)) * (n // 251 + 1))[:n]


def resident() -> int:
    """Bytes of memory this process holds."""
    with open("/proc/self/status") as status:
        return sum(int(line.split()[1]) * KIB for line in status if line.startswith(("VmRSS:", "VmSwap:")))


def reserved() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * KIB for line in status if line.startswith("VmSize:"))


# ---- what comes ----

SIZES = [0, 1, 4096, FRAME - 60, FRAME - 1, LANDS - 1, LANDS, LANDS + 1, 2 * FRAME - 40, 2 * FRAME, 3 * MIB + 1]
VALUES = [pattern(n) for n in SIZES] + [
    bytearray(pattern(LANDS - 1)),
    bytearray(pattern(LANDS)),
    bytearray(pattern(MIB + 5)),
    (1, pattern(MIB), "x"),
    {"one": pattern(MIB), "two": pattern(MIB + 1), "three": bytearray(pattern(MIB))},
    [pattern(LANDS)] * 3,
    ["x" * MIB, pattern(MIB)],
    "y" * MIB,
]


def test_values(run: Any) -> None:
    async def main() -> None:
        for protocol in (3, 4, 5):
            async with serving(*(Said(pickle.dumps(value, protocol)) for value in VALUES)) as (server, client):
                for value in VALUES:
                    back = await client.remote(echo, "again")
                    assert type(back) is type(value)
                    assert back == value
                assert server.said == len(VALUES)
                assert not server.executions

    run(main())


def test_one_object_stays_one(run: Any) -> None:
    shared = pattern(MIB)

    async def main() -> None:
        async with serving(Said(pickle.dumps([shared, shared], 5))) as (_, client):
            back = await client.remote(echo, "again")
            assert back == [shared, shared]
            assert back[0] is back[1]
            assert {back[0]: 1}[shared] == 1  # its hash is that of its bytes

    run(main())


def test_arrays(run: Any) -> None:
    array = numpy.arange(MIB, dtype="<u4")

    async def main() -> None:
        async with serving(Said(pickle.dumps(array, 5)), Said(pickle.dumps((array, array), 4))) as (_, client):
            assert (await client.remote(echo, "again") == array).all()
            one, two = await client.remote(echo, "again")
            assert (one == array).all()
            assert (two == array).all()

    run(main())


def test_with_trust(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTIX_PICKLE_TRUST", "1")
    value = (pattern(MIB), RuntimeError("any type"))

    async def main() -> None:
        async with serving(Said(pickle.dumps(value, 5))) as (_, client):
            back = await client.remote(echo, "again")
            assert back[0] == value[0]
            assert repr(back[1]) == repr(value[1])

    run(main())


BINBYTES = b"B" + struct.pack("<I", MIB) + pattern(MIB)
REFUSED = [
    b"\x80\x05" + BINBYTES + b"..",
    b"\x80\x05" + BINBYTES,
    b"\x80\x05" + BINBYTES + b"0.",
    b"\x80\x05(" + BINBYTES + b".",
    b"\x80\x05" + BINBYTES + b"\x97.",
    b"\x80\x05\x97" + BINBYTES + b".",
    b"\x80\x05" + BINBYTES + BINBYTES + b".",
    b"\x80\x05" + BINBYTES + b"\x95\x01\x00\x00\x00\x00\x00\x00\x00",
    b"\x80\x05" + BINBYTES + b"\xff.",
    b"\x80\x05" + BINBYTES + b"cos\nsystem\n.",
    b"\x80\x05cos\nsystem\n" + BINBYTES + b"\x85R.",
    b"\x80\x05" + BINBYTES + b"K\x01R.",
    b"\x80\x05" + BINBYTES + b"j\xff\xff\xff\x7f.",
    b"\x80\x05" + BINBYTES + b"r\xff\xff\xff\x7f.",
    b"\x80\x05" + BINBYTES + b"}b.",
    b"\x80\x05K\x01" + BINBYTES + b"s.",
]


def test_what_is_refused_is_told_as_ever(run: Any) -> None:
    """To the byte: what lies apart does not show in a word."""

    async def main() -> None:
        async with serving(*(Said(value) for value in REFUSED)) as (server, client):
            for value in REFUSED:
                with pytest.raises(RestrictedUnpickleError) as want:
                    restricted_loads(value)
                with pytest.raises(RestrictedUnpickleError) as got:
                    await client.remote(echo, "again")
                assert str(got.value) == str(want.value)
            assert not server.executions

    run(main())


# ---- what does not come ----


def test_what_is_cut_is_asked_again(run: Any) -> None:
    value = pickle.dumps(pattern(LANDS + 5000), 5)
    all_of_it = len(b"".join(_frames(1, _reply(Said(value)))))
    heads = [*range(1, 60, 7), 4 * KIB, 64 * KIB, *range(FRAME - 4, FRAME + 40, 5)]
    ends = [all_of_it - n for n in (5000, 2, 1)]

    async def main() -> None:
        for come in heads + ends:
            async with serving(Said(value, come=come)) as (server, client):
                assert await client.remote(echo, "again") == "again"
                assert server.said == 1

    run(main())


def test_what_is_announced_is_not_held(run: Any) -> None:
    """200 MiB are announced and a little comes: neither memory nor addresses are taken for the rest, nor is it kept."""
    lie = b"\x80\x05B" + struct.pack("<I", 200 * MIB) + pattern(4 * MIB)

    async def main() -> None:
        for come in (1000, 100 * KIB, 4 * MIB):
            stay = asyncio.Event()
            says = Said(lie, come=come, announced=200 * MIB + 8, stay=stay)
            async with serving(says) as (server, client):
                held, had = resident(), reserved()
                task = asyncio.create_task(client.remote(echo, "again"))
                await server.heard.wait()
                await asyncio.sleep(0.1)
                assert not task.done()
                assert resident() - held < 3 * come + 24 * MIB  # the server is in this process, too
                assert reserved() - had < 100 * MIB
                stay.set()
                assert await task == "again"

    run(main())


def test_an_end_too_early_is_no_value(run: Any) -> None:
    """Less comes than the pickle says: malformed, as it always was, and asked again."""
    short = b"\x80\x05B" + struct.pack("<I", MIB) + pattern(MIB - 10)

    async def main() -> None:
        async with serving(Said(short, announced=MIB + 8), Said(pickle.dumps("again"))) as (server, client):
            assert await client.remote(echo, "again") == "again"
            assert server.said == 2
            assert not server.executions

    run(main())
