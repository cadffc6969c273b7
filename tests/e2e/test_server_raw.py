"""The real `agentix-runtime` over raw sockets, with a fake worker: every route, every status, every way to die.

Nothing of the package is imported: what is said here is what any client may say, and the worker speaks for itself.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import pwd
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from fake_worker import pack, unpack

HERE = Path(__file__).parent
MAX_MESSAGE = 256 << 20
TOKEN = "t0k-" * 16


def runtime() -> str:
    beside = Path(sys.executable).with_name("agentix-runtime")
    found = os.environ.get("AGENTIX_TEST_RUNTIME") or (str(beside) if beside.exists() else shutil.which(beside.name))
    assert found, "no agentix-runtime: build it, or say where it is in AGENTIX_TEST_RUNTIME"
    return found


servers: list[Server] = []


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    """Stop what a failed test has left running."""
    yield
    while servers:
        servers.pop().stop()


class Server:
    """One server process and what it said."""

    def __init__(
        self,
        tmp: Path,
        *,
        env: dict[str, str] | None = None,
        args: list[str] | None = None,
        token: str | None = None,
        unix: bool = False,
        prefix: list[str] | None = None,
        stderr: Any = None,
        lifeline: bool = False,
        **popen: Any,
    ) -> None:
        python = tmp / "python"
        if not python.exists():
            python.write_text(f"#!/bin/sh\nexec {sys.executable} -S -E {HERE / 'fake_worker.py'}\n")
            python.chmod(0o755)
        full = {k: v for k, v in os.environ.items() if not k.startswith("AGENTIX_")} | {"AGENTIX_BIND_PORT": "0"}
        if token:
            (tmp / "token").write_text(token + "\n")
            full["AGENTIX_TOKEN_FILE"] = str(tmp / "token")
        if unix:
            full["AGENTIX_BIND_SOCKET"] = str(tmp / "socket")
        self.connections: list[Connection] = []
        ready, ready_w = os.pipe()
        fds = [ready_w]
        self.lifeline = -1
        if lifeline:
            lifeline_r, self.lifeline = os.pipe()
            fds.append(lifeline_r)
            full["AGENTIX_LIFELINE_FD"] = str(lifeline_r)
        full["AGENTIX_READY_FD"] = str(ready_w)
        self.log = tmp / "stderr"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*(prefix or []), runtime(), *(args if args is not None else ["--python", str(python)])],
                env=full | (env or {}),
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stderr=stderr or log,
                **popen,
            )
        servers.append(self)
        for fd in fds:
            os.close(fd)
        with os.fdopen(ready) as lines:
            self.line = lines.readline()
        self.token = token
        self.url, self.instance = "", ""
        if self.line.startswith("ready "):
            _, self.url, self.instance = self.line.split()

    @property
    def pid(self) -> int:
        return self.process.pid

    def connect(self, timeout: float = 20) -> Connection:
        if self.url.startswith("http+unix://"):
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(timeout)
            sock.connect(unquote(self.url.removeprefix("http+unix://")))
        else:
            host, port = self.url.removeprefix("http://").rsplit(":", 1)
            sock = socket.create_connection((host.strip("[]"), int(port)), timeout)
        self.connections.append(Connection(sock, self.token))
        return self.connections[-1]

    def call(self, callable: str, arguments: bytes = b"", **more: Any) -> Reply:
        with contextlib.closing(self.connect()) as c:
            return c.call(callable, arguments, **more)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def rss_mb(self, field: str = "VmRSS") -> float:
        match = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert match
        return int(match[1]) / 1024

    def stop(self) -> None:
        for connection in self.connections:
            connection.close()
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise


class Reply:
    def __init__(self, head: bytes, body: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        self.fields = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}
        self.body = body

    @property
    def data(self) -> Any:
        value, end = unpack(self.body)
        assert end == len(self.body)
        return value

    @property
    def value(self) -> bytes:
        assert self.status == 200, (self.status, self.body)
        assert self.data["ok"] is True, self.data
        return self.data["value"]

    @property
    def error(self) -> dict[str, Any]:
        assert self.status == 200, (self.status, self.body)
        assert self.data["ok"] is False, self.data
        return self.data["error"]


counter = iter(range(1, 1 << 30))


class Connection:
    def __init__(self, sock: socket.socket, token: str | None = None) -> None:
        self.sock = sock
        self.token = token
        self.rest = b""

    def close(self) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def request(self, method: str, target: str, body: bytes | None = None, **fields: str) -> None:
        named = {"Host": "localhost"} | {k.replace("_", "-"): v for k, v in fields.items()}
        if self.token:
            named.setdefault("Authorization", f"Bearer {self.token}")
        if body is not None:
            named["Content-Length"] = str(len(body))
        head = "".join(f"{k}: {v}\r\n" for k, v in named.items() if v)
        self.send(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + (body or b""))

    def reply(self, *, bodiless: bool = False) -> Reply:
        data = bytearray(self.rest)
        while (end := data.find(b"\r\n\r\n")) < 0:
            part = self.sock.recv(1 << 16)
            assert part, f"closed after {bytes(data)!r}"
            data += part
        reply = Reply(bytes(data[:end]), b"")
        length = 0 if bodiless else int(reply.fields.get("content-length", "0"))
        while len(data) < end + 4 + length:
            part = self.sock.recv(1 << 20)
            assert part, "closed inside a body"
            data += part
        reply.body = bytes(data[end + 4 : end + 4 + length])
        self.rest = bytes(data[end + 4 + length :])
        return reply

    def post(self, body: dict[str, Any] | bytes, **fields: str) -> None:
        data = body if isinstance(body, bytes) else pack(body)
        self.request("POST", "/call", data, **({"Content_Type": "application/msgpack"} | fields))

    def start(
        self, callable: str, arguments: bytes = b"", *, id: str | None = None, more: Any = None, **fields: str
    ) -> str:
        call_id = id or f"raw-{next(counter)}"
        fields.setdefault("Prefer", "wait=20")  # longer than any machine is busy; the default is a second
        self.post({"call_id": call_id, "callable": callable, "arguments": arguments} | (more or {}), **fields)
        return call_id

    def call(self, callable: str, arguments: bytes = b"", **more: Any) -> Reply:
        self.start(callable, arguments, **more)
        return self.reply()

    def at_end(self, timeout: float = 10) -> bool:
        """The server closes: no more bytes, in time."""
        self.sock.settimeout(timeout)
        try:
            return self.rest == b"" and self.sock.recv(1) == b""
        except ConnectionResetError:
            return True


@contextlib.contextmanager
def serving(tmp: Path, **options: Any) -> Iterator[Server]:
    server = Server(tmp, **options)
    try:
        assert server.url, server.line + server.output()
        yield server
    finally:
        server.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as s:
        yield s


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    with contextlib.closing(server.connect()) as c:
        yield c


def gone(pid: int, timeout: float = 20) -> bool:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


# ---- routes and statuses


def test_health(server: Server, connection: Connection) -> None:
    connection.request("GET", "/health")
    reply = connection.reply()
    assert reply.status == 200
    assert reply.fields["content-type"] == "application/json"
    assert set(json.loads(reply.body)) == {"status", "version", "instance"}
    assert json.loads(reply.body)["status"] == "ok"
    assert json.loads(reply.body)["instance"] == server.instance
    connection.request("HEAD", "/health")
    assert connection.reply(bodiless=True).fields["content-length"] == str(len(reply.body))


def test_a_call(connection: Connection) -> None:
    reply = connection.call("echo", b"\x00\xffbytes", Prefer="respond-async, wait=5")
    assert reply.value == b"\x00\xffbytes"
    assert reply.fields["content-type"] == "application/msgpack"
    assert reply.fields["preference-applied"] == "wait=5"


def test_the_default_wait_is_a_second(connection: Connection) -> None:
    assert connection.call("echo", Prefer="").fields["preference-applied"] == "wait=1"


def test_an_error_has_its_fields(connection: Connection) -> None:
    error = connection.call("nonsense", b"").error
    assert error == {
        "type": "LookupError",
        "message": "nonsense",
        "traceback": None,
        "cancelled": False,
        "returncode": None,
    }


def test_context_travels(connection: Connection) -> None:
    assert connection.call("context", more={"context": b"ctx"}).value == b"b'ctx'"
    assert connection.call("context").value == b"None"


@pytest.mark.parametrize(
    ("method", "target", "status", "allow"),
    [
        ("GET", "/", 404, None),
        ("POST", "/_remote", 404, None),
        ("GET", "/call/raw-1", 404, None),
        ("GET", "/call", 405, "POST"),
        ("PUT", "/call", 405, "POST"),
        ("POST", "/health", 405, "GET, HEAD"),
        ("DELETE", "/health", 405, "GET, HEAD"),
    ],
)
def test_routes(connection: Connection, method: str, target: str, status: int, allow: str | None) -> None:
    connection.request(method, target)
    reply = connection.reply()
    assert (reply.status, reply.fields.get("allow")) == (status, allow)
    assert connection.call("echo", b"on").value == b"on"  # the connection lives


BAD_BODIES = {
    "empty": b"",
    "nil": b"\xc0",
    "array": pack([1]),
    "no id": pack({"callable": "echo", "arguments": b""}),
    "id is bin": pack({"call_id": b"x", "callable": "echo", "arguments": b""}),
    "id is int": pack({"call_id": -1, "callable": "echo", "arguments": b""}),
    "id is float": b"\x81\xa7call_id\xcb" + struct.pack(">d", 1.5),
    "id is ext": b"\x81\xa7call_id\xd4\x01x",
    "id is 2**64-1": b"\x81\xa7call_id\xcf" + b"\xff" * 8,
    "id is empty": pack({"call_id": "", "callable": "echo", "arguments": b""}),
    "id is 1 MB": pack({"call_id": "x" * (1 << 20), "callable": "echo", "arguments": b""}),
    "id is no UTF-8": b"\x81\xa7call_id\xa2\xff\xfe",
    "id twice": b"\x82\xa7call_id\xa1a\xa7call_id\xa1b",
    "trailing byte": pack({"call_id": "x-1", "callable": "echo", "arguments": b""}) + b"\xc0",
    "cut short": pack({"call_id": "x-1", "callable": "echo", "arguments": b"abc"})[:-1],
    "announces 4 GB": b"\x81\xa7call_id\xdb\xff\xff\xff\xff",
    "reserved byte": b"\x81\xa7call_id\xc1",
    "deep": b"\x91" * 100_000,
    "acks of text": pack({"call_id": "x-1", "callable": "echo", "arguments": b"", "acks": "x"}),
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_bad_bodies(connection: Connection, body: bytes) -> None:
    connection.post(body)
    reply = connection.reply()
    assert reply.status == 400
    assert reply.data["ok"] is False
    assert reply.data["error"]["type"] == "BadRequest"
    assert reply.data["error"]["message"]
    assert connection.call("echo", b"on").value == b"on"


@pytest.mark.parametrize("missing", ["callable", "arguments"])
def test_a_missing_field_is_the_calls_error(connection: Connection, missing: str) -> None:
    body: dict[str, Any] = {"call_id": f"raw-{next(counter)}", "callable": "echo", "arguments": b""}
    del body[missing]
    connection.post(body)
    error = connection.reply().error
    assert error["type"] == "KeyError"
    assert missing in error["message"]


@pytest.mark.parametrize("kind", ["", "text/plain", "application/json", "application/x-msgpack", "multipart/form-data"])
def test_other_content_types(connection: Connection, kind: str) -> None:
    connection.start("echo", Content_Type=kind)
    assert connection.reply().status == 415
    assert connection.call("echo", b"on").value == b"on"


SMUGGLED = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /call HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/msgpack\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
PATIENT = POST + b"Prefer: wait=20\r\n"
CHUNKED_PATIENTLY = PATIENT + b"Transfer-Encoding: chunked\r\n\r\n"
BAD_FRAMING = {
    "length and chunked": POST
    + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n2c\r\n"
    + SMUGGLED
    + b"\r\n0\r\n\r\n",
    "chunked, identity": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "xchunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two lengths": POST + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
    "length list": POST + b"Content-Length: 0, 0\r\n\r\n" + SMUGGLED,
    "signed length": POST + b"Content-Length: +0\r\n\r\n" + SMUGGLED,
    "space before colon": POST + b"Content-Length : 0\r\n\r\n" + SMUGGLED,
    "obs-fold": POST + b"X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
    "bare CR": POST + b"X-A: b\rc\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
    "NUL": POST + b"X-A: b\0c\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
    "no host": b"GET /health HTTP/1.1\r\n\r\n" + SMUGGLED,
    "two hosts": b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n" + SMUGGLED,
    "size 0x5": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n" + SMUGGLED,
    "size -1": CHUNKED + b"-1\r\nhello\r\n0\r\n\r\n" + SMUGGLED,
    "size +5": CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n" + SMUGGLED,
    "size '5 '": CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n" + SMUGGLED,
    "size 5_0": CHUNKED + b"5_0\r\nhello\r\n0\r\n\r\n" + SMUGGLED,
    "empty size": CHUNKED + b"\r\nhello\r\n0\r\n\r\n" + SMUGGLED,
    "17 f": CHUNKED + b"f" * 17 + b"\r\nhello\r\n0\r\n\r\n" + SMUGGLED,
    "bare LF in extension": CHUNKED + b"5;a\nb\r\nhello\r\n0\r\n\r\n" + SMUGGLED,
    "1 MB extension": CHUNKED + b"5;" + b"a" * (1 << 20) + b"\r\nhello\r\n0\r\n\r\n" + SMUGGLED,
    "no CRLF after data": CHUNKED + b"5\r\nhelloX0\r\n\r\n" + SMUGGLED,
    "rubbish": b"\x16\x03\x01\x02\x00" + SMUGGLED,
}


@pytest.mark.parametrize("data", BAD_FRAMING.values(), ids=BAD_FRAMING.keys())
def test_bad_framing_is_400_and_the_end(server: Server, data: bytes) -> None:
    with contextlib.closing(server.connect()) as c:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            c.send(data)
        reply = c.reply()
        assert reply.status == 400
        assert reply.fields["connection"] == "close"
        assert c.at_end()


def test_too_large_heads_and_bodies(server: Server) -> None:
    for data, status in [
        (b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 101 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"b" * 40_000 + b"\r\n\r\n", 431),
        (POST + b"Content-Length: %d\r\n\r\n" % (MAX_MESSAGE + 1), 413),
        (POST + b"Content-Length: 99999999999999999999\r\n\r\n", 400),
        (CHUNKED + b"10000001\r\n", 413),
        (CHUNKED + b"ffffffffffffffff\r\n", 413),
        (b"GET / HTTP/3.0\r\nHost: localhost\r\n\r\n", 505),
    ]:
        with contextlib.closing(server.connect()) as c:
            c.send(data)
            reply = c.reply()
            assert reply.status == status, data[:60]
            assert reply.fields["connection"] == "close"
            assert c.at_end()
    with contextlib.closing(server.connect()) as c:
        c.send(CHUNKED + b"1\r\n\xc0\r\n0\r\n" + b"X-T: t\r\n" * 10_000 + b"\r\n")
        assert c.reply().status in (400, 431)
        assert c.at_end()
    assert server.call("echo", b"on").value == b"on"


def test_chunks_with_extensions_and_trailers(connection: Connection) -> None:
    body = pack({"call_id": f"raw-{next(counter)}", "callable": "echo", "arguments": b"chunked"})
    chunks = b"".join(b"%x;a=b\r\n%s\r\n" % (len(body[i : i + 7]), body[i : i + 7]) for i in range(0, len(body), 7))
    connection.send(CHUNKED_PATIENTLY + chunks + b"0\r\nX-Trailer: t\r\n\r\n")
    assert connection.reply().value == b"chunked"


def test_expect_100_continue(connection: Connection) -> None:
    body = pack({"call_id": f"raw-{next(counter)}", "callable": "echo", "arguments": b"patient"})
    connection.send(PATIENT + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
    assert connection.reply(bodiless=True).status == 100
    connection.send(body)
    assert connection.reply().value == b"patient"
    connection.request("POST", "/call", b"", Content_Type="application/msgpack", Expect="another-thing")
    assert connection.reply().status == 417


def test_pipelining(connection: Connection) -> None:
    for i in range(40):
        connection.start("echo", str(i).encode())
        connection.request("GET", "/health")
    for i in range(40):
        assert connection.reply().value == str(i).encode()
        assert connection.reply().status == 200


def test_pipelining_without_reading_is_bounded(server: Server) -> None:
    with contextlib.closing(server.connect()) as c:
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000
        c.sock.setblocking(False)
        sent, end = 0, time.monotonic() + 2
        while time.monotonic() < end:
            if not select.select([], [c.sock], [], 0.3)[1]:
                break
            with contextlib.suppress(BlockingIOError):
                sent += c.sock.send(request)
        assert server.rss_mb() < 16
        c.sock.setblocking(True)
        c.sock.settimeout(20)
        for _ in range(min(sent // 41, 500)):  # and nothing is lost
            assert c.reply().status == 200


def test_http_1_0_and_close(server: Server) -> None:
    with contextlib.closing(server.connect()) as c:
        c.send(b"GET /health HTTP/1.0\r\n\r\n")
        assert c.reply().fields["connection"] == "close"
        assert c.at_end(5)
    with contextlib.closing(server.connect()) as c:
        c.start("echo", b"last", Connection="close")
        assert c.reply().value == b"last"
        assert c.at_end(5)
    with contextlib.closing(server.connect()) as c:  # one that ends its side and still reads
        c.request("GET", "/health")
        c.sock.shutdown(socket.SHUT_WR)
        assert c.reply().status == 200
        assert c.at_end(5)


# ---- calls, repeats, kept results


def test_202_and_the_result_later(server: Server) -> None:
    with contextlib.closing(server.connect()) as c:
        call_id = c.start("sleep", b"4", Prefer="respond-async, wait=0.1", Agentix_Session="raw")
        begin = time.monotonic()
        reply = c.reply()
        assert 0.08 < time.monotonic() - begin < 3.9
        assert (reply.status, reply.data) == (202, {"call_id": call_id})
        assert reply.fields["location"] == f"/call/{call_id}"
        assert reply.fields["preference-applied"] == "wait=0.1"
        c.start("sleep", b"4", id=call_id, Prefer="wait=0.1", Agentix_Session="raw")
        reply = c.reply()
        assert reply.status == 202  # it still runs
        while reply.status == 202 and time.monotonic() - begin < 20:
            time.sleep(0.1)
            c.start("sleep", b"4", id=call_id, Agentix_Session="raw")
            reply = c.reply()
        assert reply.value == b"4"


def test_wait_0_is_202_at_once(connection: Connection) -> None:
    begin = time.monotonic()
    reply = connection.call("sleep", b"2", Prefer="wait=0")
    assert reply.status == 202
    assert reply.fields["preference-applied"] == "wait=0"
    assert time.monotonic() - begin < 1.9


def test_a_location_is_encoded(connection: Connection) -> None:
    reply = connection.call("sleep", b"0.01", id="a b/\u20ac?", Prefer="wait=0")
    assert reply.fields["location"] == "/call/" + quote("a b/\u20ac?", safe="")


def test_a_lost_reply_loses_nothing_and_runs_nothing_twice(server: Server) -> None:
    c = server.connect()
    call_id = c.start("count", Prefer="wait=20", Agentix_Session="raw")
    time.sleep(0.05)
    c.close()
    with contextlib.closing(server.connect()) as c:
        for _ in range(50):
            c.start("count", id=call_id, Agentix_Session="raw")
            if (reply := c.reply()).status == 200:
                break
            time.sleep(0.05)
        assert reply.value == b"1"
        for _ in range(3):
            c.start("count", id=call_id, Agentix_Session="raw")
            assert c.reply().value == b"1"
        assert c.call("count", Agentix_Session="raw").value == b"2"


def test_an_acknowledged_result_is_gone(connection: Connection) -> None:
    call_id = connection.start("echo", b"x", Agentix_Session="raw")
    assert connection.reply().value == b"x"
    assert connection.call("echo", b"y", Agentix_Session="raw", more={"acks": [call_id, "unknown"]}).value == b"y"
    connection.start("echo", b"x", id=call_id, Agentix_Session="raw")
    error = connection.reply().error
    assert (error["type"], error["reason"]) == ("ResultUnavailable", "dropped")


def test_a_result_that_makes_room_is_named(server: Server) -> None:
    """4,096 results are kept for an ack; the log names the first that had to go, printable, and is quiet then."""
    connection = server.connect()
    ids = ["b\x1b[2J\nad", *(f"kept-{n}" for n in range(4100))]
    for call_id in ids:  # without a target: ended on the spot
        connection.post({"call_id": call_id}, Agentix_Session="raw")
        assert connection.reply().status == 200
    notes = [line for line in server.output().splitlines() if "nobody acknowledged" in line]
    assert len(notes) == 1
    assert notes[0].endswith("results that nobody acknowledged are dropped, the oldest first: b?[2J?ad (1 so far)")
    connection.post({"call_id": ids[4]}, Agentix_Session="raw")
    assert connection.reply().error["type"] == "ResultUnavailable"
    connection.post({"call_id": ids[5]}, Agentix_Session="raw")
    assert connection.reply().error["type"] == "KeyError"


def test_sessions_do_not_see_each_other(server: Server) -> None:
    with contextlib.closing(server.connect()) as c:
        call_id = c.start("echo", b"mine", Agentix_Session="one")
        assert c.reply().value == b"mine"
        c.start("echo", b"mine", id=call_id, Agentix_Session="two")
        assert c.reply().error["type"] == "ResultUnavailable"
        c.start("echo", b"mine", id=call_id)
        assert c.reply().error["type"] == "ResultUnavailable"
        c.start("echo", id=call_id, Agentix_Session="x" * 65)
        assert c.reply().status == 400


def test_many_at_once(server: Server) -> None:
    connections = [server.connect() for _ in range(64)]
    for i, c in enumerate(connections):
        c.start("sleep", b"0.2", Prefer="wait=20", id=f"many-{i + 1}")
    begin = time.monotonic()
    for c in connections:
        assert c.reply().value == b"0.2"
        c.close()
    assert time.monotonic() - begin < 10


def test_large_values_both_ways(server: Server) -> None:
    payload = os.urandom(1 << 20) * 24
    with contextlib.closing(server.connect(60)) as c:
        assert c.call("echo", payload).value == payload
        assert len(c.call("big", str(100 << 20).encode()).value) == 100 << 20
        small = server.call("echo", b"beside")
        assert small.value == b"beside"


def test_an_answer_is_read_slowly(server: Server) -> None:
    with contextlib.closing(server.connect(60)) as c:
        c.start("big", str(30 << 20).encode(), Prefer="wait=20", Agentix_Session="slow")
        time.sleep(1)
        assert server.call("echo", b"beside").value == b"beside"
        assert len(c.reply().value) == 30 << 20


def test_the_largest_message(server: Server) -> None:
    front = pack({"call_id": "largest-1", "callable": "length", "arguments": b""})[:-5]
    size = MAX_MESSAGE - len(front) - 5 - 200  # the frame's own map is a little larger than the body's
    body = front + struct.pack(">BI", 0xC6, size)
    with contextlib.closing(server.connect(120)) as c:
        c.send(POST + b"Prefer: wait=60\r\nContent-Length: %d\r\n\r\n" % (len(body) + size) + body)
        block = bytes(1 << 20)
        for i in range(0, size, len(block)):
            c.send(block[: min(len(block), size - i)])
        assert c.reply().value == str(size).encode()
    assert server.rss_mb("VmHWM") < 4 * 256 + 16
    for _ in range(50):
        if server.rss_mb() < 40:
            break
        time.sleep(0.1)
    assert server.rss_mb() < 40  # and it is given back


# ---- the worker's death


@pytest.mark.parametrize(
    ("callable", "arguments", "returncode", "words"),
    [
        ("signal", b"9", -9, "signal 9"),
        ("signal", b"11", -11, "signal 11"),
        ("exit", b"7", 7, "exit code 7"),
        ("exit", b"0", 0, "exit code 0"),
        ("print_exit", b"", 7, "last words before the end"),
        ("malformed", b"", -9, "malformed frame"),
        ("oversized", b"", -9, "frame above the limit"),
        ("close_channel", b"", -9, "closed its frame channel"),
    ],
)
def test_a_death_ends_its_calls(server: Server, callable: str, arguments: bytes, returncode: int, words: str) -> None:
    others = [server.connect() for _ in range(2)]
    for c in others:
        c.start("sleep", b"15", Prefer="wait=20")
    old = server.call("pid").value
    begin = time.monotonic()
    error = server.call(callable, arguments).error
    for e in [error, *(c.reply().error for c in others)]:
        assert (e["type"], e["returncode"], e["cancelled"]) == ("WorkerDied", returncode, False)
        assert words in e["message"]
        assert "OOM" not in e["message"]
    assert time.monotonic() - begin < 10
    new = server.call("pid").value
    assert new != old
    assert gone(int(old))


def test_killed_from_outside(server: Server) -> None:
    with contextlib.closing(server.connect()) as c:
        pid = int(c.call("pid").value)
        c.start("sleep", b"15", Prefer="wait=20")
        time.sleep(0.1)
        os.kill(pid, signal.SIGKILL)
        error = c.reply().error
        assert error["returncode"] == -9
        assert "signal 9" in error["message"]
        assert c.call("echo", b"on").value == b"on"


def test_a_result_sent_before_the_death_counts(server: Server) -> None:
    with contextlib.closing(server.connect()) as c:
        for _ in range(20):
            assert c.call("result_then_kill").value == b"made it"
            time.sleep(0.05)  # the next call must not meet the dying one


def test_odd_frames_are_skipped(server: Server, connection: Connection) -> None:
    assert connection.call("unknown_frame").value == b"fine"
    assert connection.call("echo", b"on").value == b"on"
    assert 'unknown type "novel"' in server.output()


def test_silent_boot(tmp_path: Path) -> None:
    with serving(tmp_path, env={"FAKE_BOOT": "silent"}) as server:
        begin = time.monotonic()
        error = server.call("echo", Prefer="wait=60").error
        assert 14 < time.monotonic() - begin < 40
        assert error["type"] == "WorkerBootError"
        assert "not ready within 15 seconds" in error["message"]
        assert server.call("echo").error["type"] == "WorkerBootError"  # at once, for a while


def test_deaths_at_boot(tmp_path: Path) -> None:
    with serving(tmp_path, env={"FAKE_BOOT": "die"}) as server:
        begin = time.monotonic()
        error = server.call("echo").error
        assert time.monotonic() - begin < 14
        assert error["type"] == "WorkerBootError"
        assert "exit code 9" in error["message"]
        assert "no luck today" in error["message"]
        assert server.output().count("no luck today") == 5
        with contextlib.closing(server.connect()) as c:
            c.request("GET", "/health")
            assert c.reply().status == 200


def test_boot_error(tmp_path: Path) -> None:
    with serving(tmp_path, env={"FAKE_BOOT": "error"}) as server:
        error = server.call("echo").error
        assert error["type"] == "WorkerBootError"
        assert "ImportError: no module named nowhere" in error["message"]
        assert "said before the boot error" in error["message"]


def test_no_interpreter(tmp_path: Path) -> None:
    with serving(tmp_path, args=["--python", str(tmp_path / "nowhere")]) as server:
        error = server.call("echo").error
        assert error["type"] == "WorkerBootError"
        assert "No such file or directory" in error["message"]


def test_a_boot_that_fails_once_is_no_error(tmp_path: Path) -> None:
    with serving(tmp_path, env={"FAKE_BOOT": f"die_once:{tmp_path / 'mark'}"}) as server:
        assert server.call("echo", b"ok").value == b"ok"


def test_a_broken_worker_is_tried_again(tmp_path: Path) -> None:
    switch = tmp_path / "switch"
    with serving(tmp_path, env={"FAKE_BOOT": f"error_unless:{switch}"}) as server:
        assert server.call("echo").error["type"] == "WorkerBootError"
        switch.touch()
        time.sleep(2.1)
        assert server.call("echo", b"ok").value == b"ok"


def test_calls_wait_for_a_slow_boot(tmp_path: Path) -> None:
    with serving(tmp_path, env={"FAKE_BOOT": "slow:0.7"}) as server, contextlib.closing(server.connect()) as c:
        c.request("GET", "/health")
        assert c.reply().status == 200
        for i in range(5):
            c.start("echo", str(i).encode(), Prefer="wait=0" if i == 2 else "wait=20")
        for i in range(5):
            assert c.reply().status == (202 if i == 2 else 200)


# ---- output


def test_output_is_passed_on_and_never_mixes_with_frames(server: Server, connection: Connection) -> None:
    assert connection.call("raw_out").value == b"42"
    assert connection.call("stdin").value == b"eof"
    end = time.monotonic() + 20
    while "kid" not in server.output() and time.monotonic() < end:
        time.sleep(0.01)
    assert "partial\x05\0\0\0hello" in server.output()
    assert "kid" in server.output()


@pytest.mark.parametrize("kind", ["flood", "flood_lines"])
def test_a_flood_of_output_blocks_nobody(tmp_path: Path, kind: str) -> None:
    ends = os.pipe()  # nobody reads it
    try:
        with serving(tmp_path, stderr=ends[1]) as server, contextlib.closing(server.connect(60)) as c:
            before = server.rss_mb()
            c.start(kind, b"200", Prefer="wait=60")
            for _ in range(10):
                assert server.call("echo", b"beside").value == b"beside"
            assert c.reply().value == b"done"
            assert server.rss_mb("VmHWM") < before + 16
    finally:
        os.close(ends[0])
        os.close(ends[1])


def test_dropped_lines_are_counted(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with serving(tmp_path, stderr=writer) as server:
        os.close(writer)
        assert server.call("flood_lines", b"20").value == b"done"
        got = bytearray()
        os.set_blocking(reader, False)
        end = time.monotonic() + 20
        while b" lines of output dropped" not in got and time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                got += os.read(reader, 1 << 16)
    os.close(reader)
    match = re.search(rb"agentix-runtime: (\d+) lines of output dropped", bytes(got))
    assert match
    whole = got.count(b"a line of output that nobody reads in time\n")
    assert whole > 1000
    assert int(match[1]) > 10_000


def test_a_background_process_outlives_the_worker(server: Server) -> None:
    pid = int(server.call("orphan").value)
    assert server.call("exit", b"7").error["returncode"] == 7
    time.sleep(0.3)
    assert not gone(pid, 0.1)
    seen = server.output().count("orphan")
    time.sleep(0.3)
    assert server.output().count("orphan") > seen  # its output still goes somewhere
    server.stop()
    assert gone(pid)


# ---- what the worker gets


def test_the_workers_surroundings(tmp_path: Path) -> None:
    env = {"PYTHONPATH": "/x", "AGENTIX_ALLOWED_HOSTS": "h", "AGENTIX_LEASE": "600", "KEEP": "1"}
    with serving(tmp_path, env=env, token=TOKEN) as server:
        seen = dict(line.split("=", 1) for line in server.call("env").value.decode().split("\n"))
        assert seen["KEEP"] == "1"
        assert seen["AGENTIX_SAVED_PYTHONPATH"] == "/x"
        assert seen["PATH"].split(":")[:2] == [str(tmp_path), "/nix/runtime/bin"]
        assert seen["AGENTIX_ADDED_PATH"] == f"{tmp_path}:/nix/runtime/bin"
        assert re.fullmatch("[0-9a-f]{8}", seen["AGENTIX_WORKER_ID"])
        assert seen["AGENTIX_LOG_CONTEXT"].startswith("sandbox-")
        assert seen["AGENTIX_LOG_CONTEXT"].endswith(f"-worker-{seen['AGENTIX_WORKER_ID']}")
        assert not [k for k in seen if re.match("AGENTIX_(BIND|TOKEN|ALLOWED|LEASE|READY|LIFELINE)", k)]
        assert TOKEN not in "".join(seen.values())
        server.call("exit", b"1")
        again = dict(line.split("=", 1) for line in server.call("env").value.decode().split("\n"))
        assert again["AGENTIX_WORKER_ID"] != seen["AGENTIX_WORKER_ID"]
        stdin, fds, leader, oom, signals = eval(server.call("facts").value)
        assert (stdin, fds, leader) == ("/dev/null", 6, True)  # 0 to 4 and the listing's own
        assert int(oom) > int(Path("/proc/self/oom_score_adj").read_text())
        assert "SigBlk:\t0000000000000000" in signals


def test_the_server_is_small_and_sealed(server: Server) -> None:
    server.call("echo")
    assert server.rss_mb() < 4
    status = Path(f"/proc/{server.pid}/limits").read_text()
    assert re.search(r"Max core file size +0 ", status)
    nobody = pwd.getpwnam("nobody").pw_uid
    if os.geteuid() == 0:
        assert os.stat(f"/proc/{server.pid}").st_uid == 0  # not dumpable: root's
    assert nobody != os.stat(f"/proc/{server.pid}/environ").st_uid


# ---- who may come in


def test_token_and_proof(tmp_path: Path) -> None:
    with serving(tmp_path, token=TOKEN) as server, contextlib.closing(server.connect()) as c:
        nonce = os.urandom(32)
        challenge = base64.urlsafe_b64encode(nonce).rstrip(b"=").decode()
        c.request("GET", "/health", Authorization="", Agentix_Challenge=challenge)
        proof = c.reply().fields["agentix-proof"]
        mac = hmac.new(TOKEN.encode(), b"agentix/1 server" + nonce + server.instance.encode(), hashlib.sha256)
        assert proof == base64.urlsafe_b64encode(mac.digest()).rstrip(b"=").decode()
        assert c.call("echo", b"in").value == b"in"
        for authorization in ("", "Bearer wrong", "Basic " + TOKEN, "Bearer " + TOKEN[:-1]):
            with contextlib.closing(server.connect()) as other:
                other.token = None
                # the head alone: the answer must come before the body
                other.send(POST + (f"Authorization: {authorization}\r\n" if authorization else "").encode())
                other.send(b"Content-Length: 1000000\r\n\r\n")
                reply = other.reply()
                assert reply.status == 401
                assert reply.fields["www-authenticate"] == "Bearer"
                assert other.at_end(5)
        with contextlib.closing(server.connect()) as other:
            other.request("GET", "/unknown", Authorization="")
            assert other.reply().status == 401
    assert TOKEN not in server.output()


def test_hosts_and_origins(tmp_path: Path) -> None:
    env = {"AGENTIX_ALLOWED_HOSTS": "box.example", "AGENTIX_ALLOWED_ORIGINS": "http://app.example"}
    with serving(tmp_path, env=env) as server, contextlib.closing(server.connect()) as c:
        for fields, status in [
            ({"Host": "evil.example"}, 403),
            ({"Host": "box.example:1234"}, 200),
            ({"Host": "127.0.0.1:8000"}, 200),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": "http://app.example"}, 200),
        ]:
            assert c.call("echo", **fields).status == status, fields
            c.request("GET", "/health", **fields)
            assert c.reply().status == status, fields


def as_nobody(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a little Python as another user, who cannot read this tree."""
    user = pwd.getpwnam("nobody")
    drop = (
        f"import os, socket, sys; os.setgroups([]); os.setgid({user.pw_gid}); os.setuid({user.pw_uid}); os.chdir('/')\n"
    )
    return subprocess.run([sys.executable, "-S", "-c", drop + code, *args], capture_output=True, text=True, check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_another_user_gets_nowhere(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    over_unix = "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print('in')"
    with serving(private, unix=True) as server:
        assert server.call("echo", b"ours").value == b"ours"
        result = as_nobody(over_unix, str(private / "socket"))
        assert "PermissionError" in result.stderr
        assert result.stdout == ""
    over_tcp = (
        "s = socket.socket(); s.connect(('127.0.0.1', int(sys.argv[1])));"
        "s.sendall(b'POST /call HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/msgpack\\r\\n'"
        "b'Content-Length: 1\\r\\n\\r\\n'); print(s.recv(100))"
    )
    with serving(private, token=TOKEN) as server:
        assert "401" in as_nobody(over_tcp, server.url.rsplit(":", 1)[1]).stdout
        for name in ("environ", "mem", "fd", "maps"):
            look = "os.listdir(p)" if name == "fd" else "open(p).read()"
            assert "PermissionError" in as_nobody(f"p = '/proc/{server.pid}/{name}'; print({look})").stderr


def test_unix_sockets(tmp_path: Path) -> None:
    with serving(tmp_path, unix=True) as server:
        assert server.url == "http+unix://" + quote(str(tmp_path / "socket"), safe="")
        assert (tmp_path / "socket").stat().st_mode & 0o777 == 0o600
        assert server.call("echo", b"unix").value == b"unix"
        second = Server(tmp_path, unix=True)
        assert second.line.startswith("failed cannot listen on")
        assert second.process.wait(5) == 1
        assert server.call("echo", b"still").value == b"still"
        server.process.kill()
        server.process.wait()
    assert (tmp_path / "socket").exists()  # left behind
    with serving(tmp_path, unix=True) as server:
        assert server.call("echo", b"again").value == b"again"
    assert not (tmp_path / "socket").exists()


# ---- slow and silent peers


def test_500_slow_and_500_silent_connections(server: Server) -> None:
    def descriptors() -> int:
        return len(os.listdir(f"/proc/{server.pid}/fd"))

    begin, before = time.monotonic(), descriptors()
    silent = [server.connect() for _ in range(500)]
    slow = [server.connect() for _ in range(250)]
    bodies = [server.connect() for _ in range(250)]
    for c in bodies:
        c.send(POST + b"Content-Length: 100000\r\n\r\n")
    everybody = silent + slow + bodies
    ended: set[int] = set()
    answers: dict[int, bytes] = {}
    poll = select.poll()
    by_fd = {c.sock.fileno(): c for c in everybody}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    worst, tick = 0.0, 0.0
    while len(ended) < 1000 and time.monotonic() - begin < 60:
        if time.monotonic() - tick > 1:
            tick = time.monotonic()
            for c in slow:
                with contextlib.suppress(OSError):
                    c.send(b"GET /health HTTP/1.1\r\n" if not c.rest else b"X-Slow: slow\r\n")
                c.rest = b"begun"
            for c in bodies:
                with contextlib.suppress(OSError):
                    c.send(b"x")
            at = time.monotonic()
            with contextlib.closing(server.connect(5)) as c:
                c.request("GET", "/health")
                assert c.reply().status == 200
            worst = max(worst, time.monotonic() - at)
        for fd, _ in poll.poll(100):
            try:
                data = by_fd[fd].sock.recv(4096)
            except OSError:
                data = b""
            answers[fd] = answers.get(fd, b"") + data
            if not data:
                ended.add(fd)
                poll.unregister(fd)
    assert len(ended) == 1000
    assert worst < 5
    for c in slow + bodies:
        assert answers[c.sock.fileno()].startswith(b"HTTP/1.1 408 ") or answers[c.sock.fileno()] == b""
    assert sum(answers[c.sock.fileno()].startswith(b"HTTP/1.1 408 ") for c in slow + bodies) > 450
    for c in everybody:
        c.close()
    end = time.monotonic() + 20
    while descriptors() > before and time.monotonic() < end:
        time.sleep(0.05)
    assert descriptors() <= before


def test_idle_connections_are_cheap(server: Server) -> None:
    server.call("echo")
    before = server.rss_mb()
    idle = [server.connect() for _ in range(1000)]
    for c in idle:
        c.request("GET", "/health")
    for c in idle:
        assert c.reply().status == 200
    assert (server.rss_mb() - before) * 1024 / 1000 <= 16  # KB each
    for c in idle:
        c.close()


# ---- the server's own end


def test_sigterm_is_quick_and_leaves_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        pid = int(server.call("pid").value)
        orphan = int(server.call("orphan").value)
        waiting = server.connect()
        waiting.start("sleep", b"15", Prefer="wait=20")
        time.sleep(0.1)
        begin = time.monotonic()
        server.process.terminate()
        error = waiting.reply().error
        assert error["type"] == "WorkerDied"
        assert server.process.wait(8) == 0
        assert time.monotonic() - begin < 3.4
        assert gone(pid)
        assert gone(orphan)


def test_sigterm_bounds_a_stubborn_worker(tmp_path: Path) -> None:
    with serving(tmp_path, env={"FAKE_BOOT": "stubborn"}) as server:
        pid = int(server.call("pid").value)
        begin = time.monotonic()
        server.process.terminate()
        assert server.process.wait(15) == 0
        assert time.monotonic() - begin > 3.5
        assert gone(pid)


def test_sigint_too_and_at_boot(tmp_path: Path) -> None:
    with serving(tmp_path, env={"FAKE_BOOT": "silent"}) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(8) == 0


def test_the_workers_die_with_the_server(server: Server) -> None:
    pid = int(server.call("pid").value)
    server.process.kill()
    server.process.wait()
    assert gone(pid)


def test_lifeline(tmp_path: Path) -> None:
    with serving(tmp_path, lifeline=True) as server:
        server.call("echo")
        os.close(server.lifeline)
        server.lifeline = -1
        assert server.process.wait(5) == 0
        assert "the host is gone" in server.output()


def test_lease(tmp_path: Path) -> None:
    with serving(tmp_path, token=TOKEN, env={"AGENTIX_LEASE": "0.7"}) as server:
        held = server.connect()
        held.call("echo")
        time.sleep(1.2)
        assert server.process.poll() is None  # an authenticated connection exists
        stranger = server.connect()
        stranger.request("GET", "/health", Authorization="")
        assert stranger.reply().status == 200
        held.close()
        begin = time.monotonic()
        assert server.process.wait(15) == 0
        assert time.monotonic() - begin > 0.5
        assert "lease" in server.output()


def test_lease_without_anybody(tmp_path: Path) -> None:
    with serving(tmp_path, env={"AGENTIX_LEASE": "0.3"}) as server:
        assert server.process.wait(5) == 0


def test_state_dir(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "token").write_text(TOKEN)
    args = ["--python", str(tmp_path / "python"), "--state-dir", str(state)]
    env = {"AGENTIX_TOKEN_FILE": str(state / "token"), "AGENTIX_BIND_SOCKET": str(state / "socket")}
    with serving(tmp_path, args=args, env=env) as server:
        server.token = TOKEN
        assert server.call("echo", b"x").value == b"x"
        with (state / "lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        second = Server(tmp_path, args=args, env=env)
        assert second.line == "failed the state directory is in use by another server\n"
        assert second.process.wait(5) == 1
        assert (state / "token").exists()
        server.stop()
    assert not state.exists()


def test_whose_state_dir(tmp_path: Path) -> None:
    state = tmp_path / "state"
    args = ["--python", str(tmp_path / "python"), "--state-dir", str(state)]
    with serving(tmp_path, args=args):
        assert state.stat().st_mode & 0o777 == 0o700  # made by the server
        (state / "left behind").touch()
    assert not state.exists()
    state.mkdir(mode=0o700)
    (state / "mine").touch()
    for mode, words in (0o700, "not a sandbox's"), (0o755, "mode 0700"):
        state.chmod(mode)
        second = Server(tmp_path, args=args)
        assert words in second.line
        assert second.process.wait(5) == 1
    assert (state / "mine").exists()


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"AGENTIX_BIND_HOST": "0.0.0.0"}, "needs a token"),
        ({"AGENTIX_BIND_HOST": "localhost"}, "literal address"),
        ({"AGENTIX_BIND_PORT": "http"}, "AGENTIX_BIND_PORT"),
        ({"AGENTIX_LEASE": "soon"}, "AGENTIX_LEASE"),
        ({"AGENTIX_TOKEN_FILE": "/nonexistent"}, "the token file: No such file"),
        ({"AGENTIX_TOKEN_FILE": "/dev/null"}, "the token file: unusable"),
        ({"AGENTIX_BIND_SOCKET": "/nonexistent/socket"}, "cannot listen on /nonexistent/socket"),
        ({"AGENTIX_BIND_SOCKET": "/tmp/" + "x" * 200}, "File name too long"),
        ({"AGENTIX_LIFELINE_FD": "999"}, "AGENTIX_LIFELINE_FD"),
    ],
)
def test_failed_starts_say_why(tmp_path: Path, env: dict[str, str], words: str) -> None:
    server = Server(tmp_path, env=env)
    assert server.line.startswith("failed ")
    assert server.line.count("\n") == 1
    assert words in server.line
    assert server.process.wait(5) == 1
    assert words in server.output()


def test_a_taken_port(server: Server, tmp_path: Path) -> None:
    second = Server(tmp_path, env={"AGENTIX_BIND_PORT": server.url.rsplit(":", 1)[1]})
    assert "address already in use" in second.line.lower()
    assert second.process.wait(5) == 1


def test_version_and_help() -> None:
    version = subprocess.run([runtime(), "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"agentix-runtime \d+\.\d+\.\d+\n", version.stdout)
    help_text = subprocess.run([runtime(), "--help"], capture_output=True, text=True, check=True).stdout
    assert "--python" in help_text
    assert "AGENTIX_TOKEN_FILE" in help_text
    wrong = subprocess.run([runtime(), "--nonsense"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "--nonsense" in wrong.stderr


# ---- as process 1


@pytest.mark.skipif(os.geteuid() != 0, reason="a process namespace takes root")
def test_as_process_1(tmp_path: Path) -> None:
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with serving(tmp_path, prefix=unshare) as server:
        assert server.call("ppid").value == b"1"
        for _ in range(5):
            assert server.call("short_orphan").value == b"ok"
        assert server.call("signal", b"9").error["returncode"] == -9
        time.sleep(0.6)
        children = server.call("children").value.split()
        assert len(children) == 1  # the worker alone: no orphan is left, dead or alive
        begin = time.monotonic()
        inner = int(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()[0])
        os.kill(inner, signal.SIGTERM)
        assert server.process.wait(8) == 0
        assert time.monotonic() - begin < 7


def test_orphans_are_reaped_as_subreaper(server: Server) -> None:
    for _ in range(5):
        assert server.call("short_orphan").value == b"ok"
    time.sleep(0.6)
    assert len(server.call("children").value.split()) == 1


# ---- under trouble


def refuse_new_system_calls() -> None:
    """What an old kernel or a strict container does: no clone3, no pidfd_open, no close_range."""
    import ctypes

    class Program(ctypes.Structure):
        _fields_ = (("n", ctypes.c_ushort), ("code", ctypes.c_void_p))

    numbers, enosys = (434, 435, 436), 0x00050000 | 38  # the same on every architecture
    code = [(0x20, 0, 0, 0)]  # load the number
    for i, number in enumerate(numbers):
        code.append((0x15, len(numbers) - i, 0, number))
    code += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, enosys)]
    raw = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *c) for c in code))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
    program = Program(len(code), ctypes.addressof(raw))
    assert libc.prctl(22, 2, ctypes.byref(program)) == 0


def test_without_pidfd(tmp_path: Path) -> None:
    with serving(tmp_path, preexec_fn=refuse_new_system_calls) as server:
        old = server.call("pid").value
        assert eval(server.call("facts").value)[1] == 6  # descriptors
        begin = time.monotonic()
        assert server.call("signal", b"9").error["returncode"] == -9
        assert server.call("print_exit").error["returncode"] == 7
        assert time.monotonic() - begin < 10
        assert server.call("pid").value != old
        for _ in range(3):
            assert server.call("short_orphan").value == b"ok"
        time.sleep(0.6)
        assert len(server.call("children").value.split()) == 1
    assert server.process.returncode == 0


def test_a_second_result_while_the_first_is_on_its_way(server: Server) -> None:
    """Pipelined, with the first result read slowly: both arrive, and both can be asked for again."""
    with contextlib.closing(server.connect(30)) as c:
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        for _ in range(20):
            ids = [c.start("big", b"3000000", Agentix_Session="two"), c.start("echo", b"small", Agentix_Session="two")]
            time.sleep(0.02)
            assert len(c.reply().value) == 3_000_000
            assert c.reply().value == b"small"
            c.start("echo", id=ids[0], Agentix_Session="two")
            c.start("echo", id=ids[1], Agentix_Session="two")
            assert len(c.reply().value) == 3_000_000
            assert c.reply().value == b"small"
            c.call("echo", more={"acks": ids}, Agentix_Session="two")


def test_out_of_descriptors(tmp_path: Path) -> None:
    limit = ["sh", "-c", 'ulimit -n 40; exec "$@"', "sh"]
    with serving(tmp_path, prefix=limit) as server:
        with contextlib.closing(server.connect()) as first:
            assert first.call("echo", b"1").value == b"1"
            crowd: list[Connection] = []
            with contextlib.suppress(OSError):
                crowd.extend(server.connect(1) for _ in range(60))
            time.sleep(0.3)
            assert first.call("echo", b"2").value == b"2"  # those who are in are served
            before = Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
            time.sleep(0.5)
            after = Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
            assert sum(map(int, after)) - sum(map(int, before)) < 25  # clock ticks: no busy loop
            for c in crowd:
                c.close()
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with contextlib.suppress(AssertionError, OSError):
                if server.call("echo", b"3").value == b"3":
                    return
        pytest.fail("it did not recover")


def test_random_bytes_hurt_nobody_else(server: Server) -> None:
    with contextlib.closing(server.connect()) as good:
        for i in range(200):
            with contextlib.closing(server.connect()) as bad, contextlib.suppress(OSError):
                bad.send(os.urandom(i % 100 + 1))
                bad.sock.shutdown(socket.SHUT_WR)
            if i % 20 == 0:
                assert good.call("echo", b"on").value == b"on"


def test_connections_cut_at_every_byte(server: Server) -> None:
    body = pack({"call_id": "cut-1", "callable": "echo", "arguments": b"x"})
    data = POST + b"Agentix-Session: cut\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for cut in range(len(data)):
        with contextlib.closing(server.connect()) as c:
            c.send(data[:cut])
    assert server.call("count").value == b"1"
    threads = threading.active_count()
    assert threads >= 1
    with contextlib.closing(server.connect()) as c:
        c.send(data)
        assert c.reply().value == b"x"
