"""The server's side of a worker's pair, for tests: frames by hand with the msgpack package, nothing of ours."""

import contextlib
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack

TARGETS = Path(__file__).parent / "targets"
PATH = os.pathsep.join([*filter(None, [os.environ.get("AGENTIX_TEST_WORKER_PATH")]), str(TARGETS)])
PRELOAD = (
    {"LD_PRELOAD": os.environ["AGENTIX_TEST_WORKER_PRELOAD"]} if "AGENTIX_TEST_WORKER_PRELOAD" in os.environ else {}
)
"""Set by tools/sanitized_ext.sh: another build of the extension, with a sanitizer."""
PROGRAM = "from agentix._worker import main; main(3)"
PATIENCE = 300.0 if PRELOAD else 60.0
"""Seconds after which a test gives up; nothing depends on how long things take otherwise."""


def pack(message: object) -> bytes:
    payload = msgpack.packb(message)
    return struct.pack("<I", len(payload)) + payload


def piece(stream: int, data: bytes, *, total: int | None = None, last: bool = False) -> bytes:
    """Part of a frame in pieces. The first of several has the `total` of the payload; an only one is its own total."""
    first_of_several = total is not None and not last
    head = struct.pack("<BBHI", 4, (total is not None) | last << 1, 2, stream)
    head += struct.pack("<IQ", 0, total) if first_of_several and total is not None else b""
    return struct.pack("<I", 0x80000000 | len(head + data)) + head + data


def pieces(frame: bytes, sizes: Iterator[int], stream: int = 1) -> Iterator[bytes]:
    """A whole frame, cut."""
    payload, done = frame[4:], 0
    while done < len(payload):
        part = payload[done : done + next(sizes)]
        done += len(part)
        first = done == len(part)
        yield piece(stream, part, total=len(payload) if first else None, last=done == len(payload))


class Peer:
    """A worker process and the other end of its descriptor 3."""

    def __init__(
        self,
        *,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        send_buffer: int | None = None,
        reads_pieces: bool = False,
    ) -> None:
        if reads_pieces:
            env = {**(env or {}), "AGENTIX_WORKER_FEATURES": "frames/1"}
        self.reads_pieces = reads_pieces
        self.order: list[tuple[str, Any]] = []
        """What came: ("frame", id), ("piece", stream), or ("pieces", id) for one that is complete."""
        self._unfinished: tuple[int, bytearray, int] | None = None
        self.socket, theirs = socket.socketpair()
        if send_buffer is not None:  # so that what the worker sends soon finds no room
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        self.socket.settimeout(PATIENCE)
        self._count = 0
        self._pending: dict[str, dict[str, Any]] = {}
        self._output: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self.status: int | None = None
        ends = {name: os.pipe() for name in self._output}
        null = os.open(os.devnull, os.O_RDONLY)
        before = os.getcwd()
        if cwd is not None:
            os.chdir(cwd)
        try:
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-sP", "-c", PROGRAM],
                {**os.environ, "PYTHONPATH": PATH, "PYTHONDONTWRITEBYTECODE": "1", **PRELOAD, **(env or {})},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, null, 0),
                    (os.POSIX_SPAWN_DUP2, ends["stdout"][1], 1),
                    (os.POSIX_SPAWN_DUP2, ends["stderr"][1], 2),
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3),
                ],
            )
        finally:
            os.chdir(before)
            os.close(null)
            theirs.close()
            for _, writer in ends.values():
                os.close(writer)
        self._pidfd = os.pidfd_open(self.pid)
        self._readers = [
            threading.Thread(target=self._drain, args=(reader, self._output[name]))
            for name, (reader, _) in ends.items()
        ]
        for thread in self._readers:
            thread.start()

    @staticmethod
    def _drain(fd: int, into: bytearray) -> None:
        with open(fd, "rb", buffering=0) as file:
            while data := file.read(65536):
                into += data

    # ---- frames ----

    def send(self, **message: object) -> None:
        self.socket.sendall(pack(message))

    def send_raw(self, data: bytes | bytearray) -> None:
        self.socket.sendall(data)

    def _read(self, n: int) -> bytes:
        data = bytearray()
        while len(data) < n:
            part = self.socket.recv(min(n - len(data), 1 << 20))
            if not part:
                raise EOFError(f"the worker's end closed; it said {self.stderr!r}")
            data += part
        return bytes(data)

    def receive(self) -> dict[str, Any]:
        while True:
            (n,) = struct.unpack("<I", self._read(4))
            payload = self._read(n & 0x7FFFFFFF)
            if not n & 0x80000000:
                frame = msgpack.unpackb(payload, raw=False)
                self.order.append(("frame", frame.get("call_id")))
                return frame
            assert self.reads_pieces
            frame = self._piece(payload)
            if frame is not None:
                return frame

    def _piece(self, data: bytes) -> dict[str, Any] | None:
        kind, flags, lane, stream = struct.unpack_from("<BBHI", data)
        assert (kind, lane) == (4, 2)
        assert len(data) <= 256 << 10
        self.order.append(("piece", stream))
        first, last = flags & 1, flags >> 1
        body = data[8:]
        if first:
            assert self._unfinished is None
            assert not last, "a frame of one piece should come whole"
            zero, total = struct.unpack_from("<IQ", body)
            assert zero == 0
            body = body[12:]
            self._unfinished = (stream, bytearray(), total)
        assert self._unfinished is not None
        assert self._unfinished[0] == stream
        self._unfinished[1].extend(body)
        assert last == (len(self._unfinished[1]) == self._unfinished[2])
        if not last:
            return None
        frame = msgpack.unpackb(self._unfinished[1], raw=False)
        self._unfinished = None
        self.order.append(("pieces", frame["call_id"]))
        return frame

    def request(
        self, target: str, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None, **more: object
    ) -> bytes:
        """The frame of a call, whose id is then in `last`."""
        self._count += 1
        self.last = f"c{self._count}"
        return pack(
            {
                "type": "call",
                "call_id": self.last,
                "callable": target if "::" in target else f"worker_targets::{target}",
                "arguments": pickle.dumps((args, kwargs or {})),
                **more,
            }
        )

    def start(self, target: str, *args: object, **kwargs: object) -> str:
        self.send_raw(self.request(target, args, kwargs))
        return self.last

    def cancel(self, call_id: str) -> None:
        self.send(type="cancel", call_id=call_id)

    def answer(self, call_id: str) -> dict[str, Any]:
        """The one frame that ends this call; frames of others are kept for them."""
        while call_id not in self._pending:
            frame = self.receive()
            assert frame["type"] in ("result", "error"), frame
            assert frame["call_id"] not in self._pending, f"answered twice: {frame}"
            self._pending[frame["call_id"]] = frame
        return self._pending.pop(call_id)

    def nothing_else(self) -> None:
        """No frame is left: a last call's answer is the next thing that comes."""
        assert self.value("echo", "end") == "end"
        assert not self._pending

    @staticmethod
    def decode(frame: dict[str, Any]) -> Any:
        assert frame["type"] == "result", frame
        return pickle.loads(frame["value"])

    def value(self, target: str, *args: object, **kwargs: object) -> Any:
        return self.decode(self.answer(self.start(target, *args, **kwargs)))

    def error(self, target: str, *args: object, **kwargs: object) -> dict[str, Any]:
        frame = self.answer(self.start(target, *args, **kwargs))
        assert frame["type"] == "error", frame
        return frame["error"]

    def value_later(self, target: str, *args: object, expected: object) -> None:
        """Ask again until the value is the expected one."""
        while (value := self.value(target, *args)) != expected:
            assert value is not None

    # ---- the process ----

    def wait(self) -> int:
        """Its exit code, or the negated signal."""
        if self.status is None:
            assert select.select([self._pidfd], [], [], PATIENCE)[0], "the worker does not end"
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._pidfd)
        return self.status

    def end(self) -> int:
        self.send(type="shutdown")
        return self.wait()

    def _text(self, name: str) -> str:
        if self.status is not None:
            for thread in self._readers:
                thread.join(PATIENCE)
        return self._output[name].decode(errors="replace")

    @property
    def stdout(self) -> str:
        return self._text("stdout")

    @property
    def stderr(self) -> str:
        return self._text("stderr")

    def close(self) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        self.socket.close()
        for thread in self._readers:
            thread.join(PATIENCE)


@contextlib.contextmanager
def worker(**settings: Any) -> Iterator[Peer]:
    """A worker that is ready; it must end by itself with code 0 unless the test ended it."""
    peer = Peer(**settings)
    try:
        assert peer.receive() == {"type": "ready", "features": ["frames/1"]}
        yield peer
        if peer.status is None:
            peer.socket.shutdown(socket.SHUT_WR)
            assert peer.wait() == 0, peer.stderr
    except BaseException:
        print(peer.stderr, file=sys.stderr)
        raise
    finally:
        peer.close()
