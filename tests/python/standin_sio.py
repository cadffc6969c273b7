"""The second road of the stand-in server: WebSocket, Engine.IO and Socket.IO in the plainest way, `/rpc` on top.

Strict like the first: whatever a real server would refuse is noted in `violations`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import secrets
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from standin import Request, StandIn

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
EVENTS = {"call", "cancel", "resume", "ack"}


class Link:
    """One WebSocket, from its 101 on."""

    def __init__(self, server: StandIn, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer
        self.session: str | None = None
        self.event: tuple[str, int] | None = None  # the name of one whose bytes are to come
        self.events: list[str] = []

    # ---- WebSocket ----

    async def read_frame(self) -> tuple[bool, int, bytes]:
        first, second = await self.reader.readexactly(2)
        size = second & 127
        if size == 126:
            (size,) = struct.unpack(">H", await self.reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", await self.reader.readexactly(8))
        if not second & 128 or first & 0x70:
            self.server.violations.append(f"a frame {first:x} {second:x}")
        mask = await self.reader.readexactly(4)
        data = await self.reader.readexactly(size)
        self.server.masks.add(mask)
        wide = (mask * (size // 4 + 1))[:size]
        return bool(first & 128), first & 15, (int.from_bytes(data) ^ int.from_bytes(wide)).to_bytes(size)

    async def read(self) -> str | bytes | None:
        """Return the next message; None: the peer said goodbye."""
        parts: list[bytes] = []
        kind = 0
        while True:
            last, opcode, data = await self.read_frame()
            if opcode == 8:
                return None
            if opcode in (9, 10):
                continue
            if (opcode == 0) != bool(parts):
                self.server.violations.append(f"opcode {opcode} after {len(parts)} fragments")
            kind = kind or opcode
            parts.append(data)
            if last:
                whole = b"".join(parts)
                return whole.decode() if kind == 1 else whole

    def write(self, message: str | bytes) -> None:
        data = message.encode() if isinstance(message, str) else message
        head = bytes([0x81 if isinstance(message, str) else 0x82])
        if len(data) < 126:
            head += bytes([len(data)])
        elif len(data) < 65536:
            head += struct.pack(">BH", 126, len(data))
        else:
            head += struct.pack(">BQ", 127, len(data))
        if not self.writer.transport.is_closing():
            self.writer.write(head + data)

    # ---- Socket.IO ----

    def emit(self, name: str, payload: bytes) -> None:
        self.write(f'451-/rpc,["{name}",{{"_placeholder":true,"num":0}}]')
        self.write(payload)

    async def run(self) -> None:
        sid = secrets.token_hex(8)
        heartbeat = {"pingInterval": self.server.ping_ms, "pingTimeout": 20000}
        self.write("0" + json.dumps({"sid": sid, "upgrades": [], **heartbeat}))
        pinging = asyncio.get_running_loop().create_task(self.ping())
        try:
            while (message := await self.read()) is not None:
                if isinstance(message, bytes):
                    self.on_bytes(message)
                else:
                    self.on_text(message, sid)
        finally:
            pinging.cancel()
            if self.server.links.get(self.session) is self:
                del self.server.links[self.session]

    async def ping(self) -> None:
        while True:
            await asyncio.sleep(self.server.ping_ms / 1000)
            self.write("2")

    def on_text(self, text: str, sid: str) -> None:
        if text == "3":
            self.server.pongs += 1
        elif text.startswith("40/rpc,"):
            auth = json.loads(text.removeprefix("40/rpc,"))
            if set(auth) != {"session"} or not re.fullmatch("[0-9a-f]{32}", auth["session"]):
                self.server.violations.append(f"auth {auth}")
            self.session = auth["session"]
            before = self.server.links.get(self.session)
            self.server.links[self.session] = self
            if before is not None:
                before.writer.transport.abort()
            answer = json.dumps({"sid": sid, "instance": self.server.instance})
            self.write("40/rpc," + answer)
        elif event := re.fullmatch(r'451-/rpc,\["([a-z]+)",\{"_placeholder":true,"num":0\}\]', text):
            self.event = (event[1], 1)
        else:
            self.server.violations.append(f"text {text!r}")

    def on_bytes(self, payload: bytes) -> None:
        if self.event is None or self.session is None or self.event[0] not in EVENTS:
            self.server.violations.append(f"bytes after {self.event}")
            return
        name, self.event = self.event[0], None
        self.events.append(name)
        self.server.sio_events[name] += 1
        if self.server.links.get(self.session) is self:
            self.server.on_rpc(self, name, payload)


async def serve(server: StandIn, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the request for a WebSocket, and speak on it until it ends."""
    key = request.headers.get("sec-websocket-key", "")
    wanted = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": "13"}
    if any(request.headers.get(k, "").lower() != v.lower() for k, v in wanted.items()) or len(key) != 24:
        server.violations.append(f"a request for a WebSocket: {request.headers}")
    accept = base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()
    lines = ["HTTP/1.1 101 Switching", "Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Accept: {accept}"]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    await Link(server, reader, writer).run()


def as_event(call_id: str, reply: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return an outcome as the event that tells it."""
    if reply["ok"]:
        return "call:result", {"call_id": call_id, "value": reply["value"]}
    return "call:error", {"call_id": call_id, "error": reply["error"]}
