"""A runtime server that is not ours: POST /call and GET /health over asyncio streams, with pickles run in-process.

It imports nothing of the project, so that what the client sends is judged by the documents alone. It is strict:
whatever a real server would refuse is noted in `violations`. And it can play the villain: `Behaviour` says how.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import pickle
import re
import secrets
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import standin_sio

HEAD_MAX = 32 << 10
FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\x00]*?)[ \t]*")


# ---- msgpack, the part that travels ----


def pack(value: Any) -> bytes:
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, float):
        return struct.pack(">Bd", 0xCB, value)
    if isinstance(value, int):
        return struct.pack(">Bq", 0xD3, value)
    if isinstance(value, str):
        raw = value.encode()
        return struct.pack(">BI", 0xDB, len(raw)) + raw
    if isinstance(value, bytes):
        return struct.pack(">BI", 0xC6, len(value)) + value
    if isinstance(value, dict):
        return struct.pack(">BI", 0xDF, len(value)) + b"".join(pack(k) + pack(v) for k, v in value.items())
    raise TypeError(type(value).__name__)


def unpack(data: bytes) -> Any:
    value, rest = _unpack(memoryview(data))
    if rest:
        raise ValueError("bytes after the value")
    return value


def _unpack(data: memoryview) -> tuple[Any, memoryview]:
    head, data = data[0], data[1:]
    simple = {0xC0: None, 0xC2: False, 0xC3: True}
    if head in simple:
        return simple[head], data
    if head < 0x80:
        return head, data
    if head < 0x90:
        return _unpack_map(head & 15, data)
    if head < 0xA0:
        return _unpack_array(head & 15, data)
    if head < 0xC0:
        return str(data[: head & 31], "utf-8"), data[head & 31 :]
    if head == 0xCB:
        return struct.unpack(">d", data[:8])[0], data[8:]
    if 0xCC <= head <= 0xCF:
        size = 1 << (head - 0xCC)
        return int.from_bytes(data[:size]), data[size:]
    sizes = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
    size = sizes[head]
    n, data = int.from_bytes(data[:size]), data[size:]
    if head in (0xDC, 0xDD):
        return _unpack_array(n, data)
    if head in (0xDE, 0xDF):
        return _unpack_map(n, data)
    if n > len(data):
        raise ValueError("short")
    return (bytes(data[:n]) if head < 0xD0 else str(data[:n], "utf-8")), data[n:]


def _unpack_array(n: int, data: memoryview) -> tuple[list[Any], memoryview]:
    items: list[Any] = []
    for _ in range(n):
        item, data = _unpack(data)
        items.append(item)
    return items, data


def _unpack_map(n: int, data: memoryview) -> tuple[dict[str, Any], memoryview]:
    pairs: dict[str, Any] = {}
    for _ in range(n):
        key, data = _unpack(data)
        value, data = _unpack(data)
        if key in pairs:
            raise ValueError("duplicate key")
        pairs[key] = value
    return pairs, data


# ---- the server ----


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Connection:
    """What came on one connection."""

    number: int
    received: bytearray = field(default_factory=bytearray)
    requests: list[Request] = field(default_factory=list)
    proved: bool = False


@dataclass
class Behaviour:
    """How it departs from good conduct."""

    prove: bool = True  # answer the challenge
    proof_token: str | None = None  # prove with this token instead
    drop_replies: int = 0  # run so many calls, then close instead of answering
    close_after_reply: bool = False  # like a server that closes idle connections early
    wait_cap: float | None = None  # wait no longer than this before 202
    repeats_wait: bool = False
    raw_reply: bytes | None = None  # say this to POST /call, then close
    raw_health: bytes | None = None
    status: int | None = None  # answer POST /call with this and no body
    silent: bool = False  # never answer POST /call
    lose_kept: bool = False  # forget finished results: ResultUnavailable, dropped


Handler = Callable[..., Awaitable[Any]]


class StandIn:
    def __init__(
        self,
        *,
        token: str | None = None,
        behaviour: Behaviour | None = None,
        ssl: Any = None,
        socketio: bool = False,
    ) -> None:
        self.token = token
        self.behave = behaviour or Behaviour()
        self.instance = secrets.token_hex(8)
        self.functions: dict[str, Handler] = {}
        self.executions: Counter[str] = Counter()
        self.calls: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self.acked: set[str] = set()
        self.connections: list[Connection] = []
        self.violations: list[str] = []
        self.open = 0
        self.socketio = socketio
        self.links: dict[str | None, standin_sio.Link] = {}
        self.waiting: dict[str, asyncio.Future[None]] = {}  # POSTs that wait; set: answered by 202 at once
        self.cancelled: list[str] = []
        self.sio_events: Counter[str] = Counter()
        self.masks: set[bytes] = set()
        self.ping_ms = 25000
        self.pongs = 0
        self._ssl = ssl
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    def function(self, handler: Handler) -> Handler:
        """Register a coroutine function under the names a client may give it."""
        self.functions[handler.__name__] = handler
        return handler

    @property
    def url(self) -> str:
        return f"{'https' if self._ssl else 'http'}://127.0.0.1:{self.port}"

    async def start(self, port: int = 0, unix: str | None = None) -> StandIn:
        if unix is not None:
            self._server = await asyncio.start_unix_server(self._accept, unix, backlog=1024)
        else:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", port, backlog=1024, ssl=self._ssl)
            self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for _ in range(5):  # what was accepted at the last moment gets its task a little later
            self.drop_connections()
            tasks = [*self._tasks, *self.calls.values()]
            self.calls = {}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0.01)

    def drop_connections(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def restart(self) -> None:
        """A new instance: everything the old one knew is gone."""
        self.instance = secrets.token_hex(8)
        for task in self.calls.values():
            task.cancel()
        self.calls = {}
        self.drop_connections()

    async def __aenter__(self) -> StandIn:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        self._writers.add(writer)
        task.add_done_callback(lambda task: self._ended(task, writer))

    def _ended(self, task: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
        """Also for a task that was cancelled before its first step."""
        self._tasks.discard(task)
        self._writers.discard(writer)
        writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(len(self.connections))
        self.connections.append(connection)
        self.open += 1
        try:
            while await self._serve_one(connection, reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()
            with contextlib.suppress(ConnectionError, TimeoutError, OSError):
                await writer.wait_closed()

    async def _serve_one(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        request = await self._read(connection, reader)
        if request is None:
            return False
        connection.requests.append(request)
        if (request.method, request.target) == ("GET", "/health"):
            return await self._health(connection, request, writer)
        if (request.method, request.target) == ("POST", "/call"):
            return await self._call(connection, request, writer)
        if (request.method, request.target) == ("GET", "/socket.io/?EIO=4&transport=websocket"):
            return await self._link(connection, request, reader, writer)
        self.violations.append(f"{request.method} {request.target}")
        return await self._answer(writer, 404, b"")

    async def _link(
        self, connection: Connection, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if connection.requests[0].target != "/health":
            self.violations.append("a link before /health")
        if self.token is not None and request.headers.get("authorization") != f"Bearer {self.token}":
            return await self._answer(writer, 401, b"")
        if not self.socketio:
            return await self._answer(writer, 404, b"")
        await standin_sio.serve(self, request, reader, writer)
        return False

    async def _read(self, connection: Connection, reader: asyncio.StreamReader) -> Request | None:
        head = bytearray()
        while not head.endswith(b"\r\n\r\n"):
            line = await reader.readline()
            if not line:
                return None
            head += line
            connection.received += line
            if not line.endswith(b"\r\n") or len(head) > HEAD_MAX:
                return self._violation(f"a bad line: {line!r}")
        lines = bytes(head[:-4]).split(b"\r\n")
        first = re.fullmatch(rb"(GET|POST) (/[!-~]*) HTTP/1\.1", lines[0])
        fields = [FIELD.fullmatch(line) for line in lines[1:]]
        if not first or not all(fields):
            return self._violation(f"a bad head: {head!r}")
        headers = {m[1].decode().lower(): m[2].decode("latin-1") for m in fields if m}
        if len(headers) != len(fields) or not headers.get("host"):
            return self._violation(f"a repeated header or no host: {headers}")
        length = headers.get("content-length", "0")
        if not re.fullmatch("[0-9]+", length) or "transfer-encoding" in headers:
            return self._violation(f"a bad framing: {headers}")
        body = await reader.readexactly(int(length))
        connection.received += body[:4096]
        return Request(first[1].decode(), first[2].decode(), headers, body)

    def _violation(self, what: str) -> None:
        self.violations.append(what)

    async def _answer(self, writer: asyncio.StreamWriter, status: int, body: bytes, *fields: str) -> bool:
        if writer.transport.is_closing():
            raise ConnectionResetError("dropped meanwhile")
        lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body)}", *fields, "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()
        return True

    # ---- GET /health ----

    async def _health(self, connection: Connection, request: Request, writer: asyncio.StreamWriter) -> bool:
        if len(connection.requests) == 1 and "authorization" in request.headers:
            self.violations.append("the token came before the proof")
        if self.behave.raw_health is not None:
            writer.write(self.behave.raw_health)
            await writer.drain()
            return False
        fields = ["Content-Type: application/json"]
        token = self.behave.proof_token or self.token
        challenge = request.headers.get("agentix-challenge")
        if challenge is not None:
            nonce = base64.urlsafe_b64decode(challenge + "=")
            if len(challenge) != 43 or len(nonce) != 32:
                self.violations.append(f"a bad challenge: {challenge}")
            if self.behave.prove and token:
                text = b"agentix/1 server" + nonce + self.instance.encode()
                digest = hmac.new(token.encode(), text, hashlib.sha256).digest()
                fields.append(f"Agentix-Proof: {base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}")
                connection.proved = True
        body = f'{{"status": "ok", "version": "9.9.9", "instance": "{self.instance}"}}'.encode()
        return await self._answer(writer, 200, body, *fields)

    # ---- POST /call ----

    async def _call(self, connection: Connection, request: Request, writer: asyncio.StreamWriter) -> bool:
        behave = self.behave
        headers = request.headers
        if connection.requests[0].target != "/health":
            self.violations.append("a call before /health")
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            return await self._answer(writer, 401, b"")
        prefer = re.fullmatch(r"respond-async, wait=([0-9]+(?:\.[0-9]{1,3})?)", headers.get("prefer", ""))
        if not prefer or headers.get("content-type") != "application/msgpack":
            self.violations.append(f"headers of a call: {headers}")
            return await self._answer(writer, 415, b"")
        if not re.fullmatch("[0-9a-f]{32}", headers.get("agentix-session", "")):
            self.violations.append(f"session: {headers.get('agentix-session')}")
        if behave.status is not None:
            return await self._answer(writer, behave.status, b"")
        if behave.raw_reply is not None:
            writer.write(behave.raw_reply)
            await writer.drain()
            return False
        if behave.silent:
            await asyncio.sleep(3600)
        return await self._run(request, float(prefer[1]), writer)

    async def _run(self, request: Request, wait: float, writer: asyncio.StreamWriter) -> bool:
        try:
            message = unpack(request.body)
            call_id, name, arguments = message["call_id"], message["callable"], message["arguments"]
        except (ValueError, KeyError, IndexError, TypeError) as exc:
            self.violations.append(f"a bad body: {exc!r}")
            return await self._answer(writer, 400, b"")
        if not re.fullmatch(f"{request.headers['agentix-session']}-[1-9][0-9]*", call_id):
            self.violations.append(f"call id {call_id}")
        unknown = set(message) - {"call_id", "callable", "arguments", "context", "stream", "acks"}
        if unknown:
            self.violations.append(f"keys {unknown}")
        self.acked |= set(message.get("acks", []))
        repeated = call_id in self.calls
        if not repeated:
            self._begin(call_id, name, arguments)
        task = self.calls[call_id]
        if self.behave.wait_cap is not None:
            wait = min(wait, self.behave.wait_cap)
        release = self.waiting[call_id] = asyncio.get_running_loop().create_future()
        timeout = 0 if repeated and not self.behave.repeats_wait else wait
        await asyncio.wait([task, release], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if self.waiting.get(call_id) is release:
            del self.waiting[call_id]
        if not task.done():
            return await self._answer(writer, 202, pack({"call_id": call_id}), f"Location: /call/{call_id}")
        if self.behave.drop_replies > 0:
            self.behave.drop_replies -= 1
            writer.transport.abort()
            return False
        reply = task.result()
        if repeated and self.behave.lose_kept:
            reply = failure("ResultUnavailable", "gone", reason="dropped")
        await self._answer(writer, 200, pack(reply), "Content-Type: application/msgpack")
        return not self.behave.close_after_reply

    def _begin(self, call_id: str, name: str, arguments: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self._execute(call_id, name, arguments))
        self.calls[call_id] = task
        task.add_done_callback(lambda _: None if call_id in self.waiting else self._tell(call_id))

    # ---- /rpc ----

    def _tell(self, call_id: str) -> None:
        link = self.links.get(call_id.partition("-")[0])
        task = self.calls.get(call_id)
        if link is not None and task is not None and not task.cancelled():
            name, payload = standin_sio.as_event(call_id, task.result())
            link.emit(name, pack(payload))

    def _resume(self, link: standin_sio.Link, call_id: str) -> None:
        task = self.calls.get(call_id)
        if task is not None and not task.done():
            if call_id in self.waiting:
                self.waiting.pop(call_id).set_result(None)
        elif task is not None and call_id not in self.acked and not self.behave.lose_kept:
            self._tell(call_id)
        else:
            reply = failure("ResultUnavailable", "gone", reason="dropped" if task else "never_seen")
            link.emit("call:error", pack(standin_sio.as_event(call_id, reply)[1]))

    def on_rpc(self, link: standin_sio.Link, event: str, payload: bytes) -> None:
        message = unpack(payload)
        if event == "call":
            if set(message) - {"context", "stream"} != {"call_id", "callable", "arguments"}:
                self.violations.append(f"keys {set(message)}")
            if message["call_id"] in self.calls:
                self._resume(link, message["call_id"])
            else:
                self._begin(message["call_id"], message["callable"], message["arguments"])
        elif event == "resume":
            for call_id in message["call_ids"]:
                self._resume(link, call_id)
        elif event == "ack":
            self.acked |= set(message["call_ids"])
        elif message["call_id"] in self.calls:
            self.cancelled.append(message["call_id"])
            if message["call_id"] in self.waiting:
                self.waiting.pop(message["call_id"]).set_result(None)
            self.calls[message["call_id"]].cancel()

    async def _execute(self, call_id: str, name: str, arguments: bytes) -> dict[str, Any]:
        self.executions[call_id] += 1
        function = self.functions.get(name.rpartition("::")[2])
        if function is None:
            return failure("AttributeError", f"no {name}")
        try:
            args, kwargs = pickle.loads(arguments)
            return {"ok": True, "value": pickle.dumps(await function(*args, **kwargs), 5)}
        except asyncio.CancelledError:
            return failure("Cancelled", "the remote call was cancelled", cancelled=True)
        except Exception as exc:
            return failure(type(exc).__name__, str(exc), traceback=f'File "sandbox.py", line 1\n{exc!r}')


def failure(kind: str, message: str, **more: Any) -> dict[str, Any]:
    error = {"type": kind, "message": message, "traceback": None, "cancelled": False, "returncode": None, **more}
    return {"ok": False, "error": error}
