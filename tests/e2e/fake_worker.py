"""A worker made of nothing but the standard library: frames on descriptor 3, with a msgpack coder of its own.

The server under test starts it through a wrapper that stands for the interpreter. What a call does is its `callable`;
how the worker boots is FAKE_BOOT in the environment. `test_server_raw.py` uses the coder too.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


def pack(x: Any) -> bytes:
    if x is None:
        return b"\xc0"
    if x is True:
        return b"\xc3"
    if x is False:
        return b"\xc2"
    if isinstance(x, int):
        return struct.pack(">Bq", 0xD3, x)
    if isinstance(x, str):
        raw = x.encode()
        return struct.pack(">BI", 0xDB, len(raw)) + raw
    if isinstance(x, bytes):
        return struct.pack(">BI", 0xC6, len(x)) + x
    if isinstance(x, dict):
        return struct.pack(">BI", 0xDF, len(x)) + b"".join(pack(k) + pack(v) for k, v in x.items())
    if isinstance(x, list):
        return struct.pack(">BI", 0xDD, len(x)) + b"".join(pack(v) for v in x)
    raise TypeError(type(x))


def unpack(b: bytes, i: int = 0) -> tuple[Any, int]:
    c = b[i]
    i += 1
    if c < 0x80:
        return c, i
    if c < 0x90:
        return _map(b, i, c & 15)
    if c < 0xA0:
        return _list(b, i, c & 15)
    if c < 0xC0:
        return b[i : i + (c & 31)].decode(), i + (c & 31)
    if c in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[c], i
    if 0xC4 <= c <= 0xC6 or 0xD9 <= c <= 0xDB:
        size = 1 << (c - 0xC4 if c < 0xC7 else c - 0xD9)
        n = int.from_bytes(b[i : i + size], "big")
        i += size
        raw = bytes(b[i : i + n])
        return (raw if c < 0xC7 else raw.decode()), i + n
    if 0xCC <= c <= 0xCF:
        size = 1 << (c - 0xCC)
        return int.from_bytes(b[i : i + size], "big"), i + size
    if 0xD0 <= c <= 0xD3:
        size = 1 << (c - 0xD0)
        return int.from_bytes(b[i : i + size], "big", signed=True), i + size
    if c in (0xDC, 0xDD):
        size = 2 if c == 0xDC else 4
        return _list(b, i + size, int.from_bytes(b[i : i + size], "big"))
    if c in (0xDE, 0xDF):
        size = 2 if c == 0xDE else 4
        return _map(b, i + size, int.from_bytes(b[i : i + size], "big"))
    if c >= 0xE0:
        return c - 256, i
    raise ValueError(c)


def _list(b: bytes, i: int, n: int) -> tuple[list[Any], int]:
    out: list[Any] = []
    for _ in range(n):
        v, i = unpack(b, i)
        out.append(v)
    return out, i


def _map(b: bytes, i: int, n: int) -> tuple[dict[Any, Any], int]:
    out: dict[Any, Any] = {}
    for _ in range(n):
        k, i = unpack(b, i)
        v, i = unpack(b, i)
        out[k] = v
    return out, i


FD = 3
lock = threading.Lock()
waiting_lock = threading.Lock()
waiting: list[str] = []
ANSWERED = b"answered"
counts: list[int] = []


def write_all(data: bytes) -> None:
    with lock:
        view = memoryview(data)
        while view:
            view = view[os.write(FD, view) :]


def send(frame: dict[str, Any]) -> None:
    body = pack(frame)
    write_all(struct.pack("<I", len(body)) + body)


def send_piece(stream: int, data: bytes, flags: int, total: int | None = None) -> None:
    head = struct.pack("<BBHI", 4, flags, 2, stream) + (b"" if total is None else struct.pack("<IQ", 0, total))
    write_all(struct.pack("<I", 0x80000000 | len(head + data)) + head + data)


def send_in_pieces(frame: dict[str, Any], *between: dict[str, Any], size: int = 100_000, until: int = 1 << 30) -> None:
    """A frame in pieces, of which no more than `until` bytes are sent; after the first one, other frames."""
    body, done = pack(frame), 0
    while done < min(len(body), until):
        part = body[done : done + size]
        flags = (done == 0) | (done + len(part) == len(body)) << 1
        send_piece(7, part, flags, len(body) if flags == 1 else None)
        for other in between if not done else ():
            send(other)
        done += len(part)


unfinished = bytearray()


def take_piece(data: bytes) -> bytes | None:
    """The payload that came in pieces, when it has."""
    kind, flags, lane, stream = struct.unpack_from("<BBHI", data)
    if (kind, lane) != (4, 2) or not stream or bool(flags & 1) == bool(unfinished) or len(data) > 256 << 10:
        os._exit(33)
    unfinished.extend(data[20 if flags == 1 else 8 :])
    if not flags & 2:
        return None
    whole = bytes(unfinished)
    unfinished.clear()
    return whole


def read_exact(n: int) -> bytes:
    out = bytearray()
    while len(out) < n:
        part = os.read(FD, min(n - len(out), 1 << 20))
        if not part:
            os._exit(0)
        out += part
    return bytes(out)


def error(kind: str, message: str) -> dict[str, Any]:
    return {
        "type": kind,
        "message": message,
        "traceback": None,
        "cancelled": False,
        "returncode": None,
    }


def run(call: dict[str, Any]) -> bytes:
    name, args = call["callable"], call["arguments"]
    if name == "echo":
        return args
    if name == "sleep":
        time.sleep(float(args))
        return args
    if name == "length":
        return str(len(args)).encode()
    if name == "count":
        time.sleep(0.2)
        counts.append(1)
        return str(len(counts)).encode()
    if name == "ppid":
        return str(os.getppid()).encode()
    if name == "pid":
        return str(os.getpid()).encode()
    if name == "env":
        return "\n".join(f"{k}={v}" for k, v in sorted(os.environ.items())).encode()
    if name == "facts":
        fds = sorted(os.listdir("/proc/self/fd"), key=int)
        status = Path("/proc/self/status").read_text()
        oom = Path("/proc/self/oom_score_adj").read_text().strip()
        wanted = [line for line in status.splitlines() if line.startswith(("Sig", "PPid"))]
        return repr((os.readlink("/proc/self/fd/0"), len(fds), os.getsid(0) == os.getpid(), oom, wanted)).encode()
    if name == "context":
        return repr(call.get("context")).encode()
    if name == "exit":
        os._exit(int(args))
    if name == "print_exit":
        sys.stdout.write("last words before the end\n")
        sys.stdout.flush()
        os._exit(7)
    if name == "signal":
        os.kill(os.getpid(), int(args))
        time.sleep(10)
    if name == "stdin":
        return subprocess.run(["cat"], capture_output=True, check=True).stdout + b"eof"
    if name == "raw_out":
        os.write(1, b"partial")
        os.write(1, b"\x05\x00\x00\x00hello")
        subprocess.run(["echo", "kid"], check=True)
        return b"42"
    if name == "flood":
        chunk = b"x" * 65536
        for _ in range(int(args) * 16):
            os.write(2, chunk)
        return b"done"
    if name == "flood_lines":
        chunk = (b"a line of output that nobody reads in time\n" * 1500)[:65536]
        for _ in range(int(args) * 16):
            os.write(1, chunk)
        return b"done"
    if name == "big":
        return b"\xa5" * int(args)
    if name == "in_pieces":  # and the answers to those that wait, between them
        with waiting_lock:
            others = [{"type": "result", "call_id": other, "value": b"between"} for other in waiting]
        result = {"type": "result", "call_id": call["call_id"], "value": b"\xa5" * int(args)}
        send_in_pieces(result, *others)
        return ANSWERED
    if name == "wait":
        with waiting_lock:
            waiting.append(call["call_id"])
        return ANSWERED
    if name == "half_in_pieces":
        result = {"type": "result", "call_id": call["call_id"], "value": bytes(1 << 20)}
        send_in_pieces(result, until=500_000)
        os._exit(int(args))
    if name == "odd_piece":
        send_piece(9, b"x", 0)
        time.sleep(10)
    if name == "long_piece":
        write_all(struct.pack("<I", 0x80000000 | (256 << 10) + 1))
        time.sleep(10)
    if name == "order":  # how many calls had been answered when this one came
        return str(call["seen"]).encode()
    if name == "oversized":
        write_all(struct.pack("<I", (256 << 20) + 1))
        time.sleep(10)
    if name == "malformed":
        write_all(struct.pack("<I", 3) + b"\xc1\xc1\xc1")
        time.sleep(10)
    if name == "result_then_kill":
        send({"type": "result", "call_id": call["call_id"], "value": b"made it"})
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "unknown_frame":
        send({"type": "novel", "x": 1})
        write_all(struct.pack("<I", 0))
        send({"type": "result", "call_id": "nobody's", "value": b"?"})
        return b"fine"
    if name == "close_channel":
        socket.socket(fileno=os.dup(FD)).shutdown(socket.SHUT_WR)
        time.sleep(10)
    if name == "orphan":
        # a grandchild that outlives its parent, in a session of its own, holding the output pipes
        out = subprocess.run(
            ["sh", "-c", "setsid sh -c 'while :; do echo orphan; sleep 0.05; done' >&2 & echo $!"],
            stdout=subprocess.PIPE,
            check=False,
        )
        return out.stdout.strip()
    if name == "short_orphan":
        subprocess.Popen(["sh", "-c", "(sleep 0.2; true) & exit 0"]).wait()
        return b"ok"
    if name == "children":
        return Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_bytes()
    raise LookupError(name)


def handle(call: dict[str, Any]) -> None:
    try:
        value = run(call)
        if value is ANSWERED:
            return
    except Exception as exc:  # noqa: BLE001
        send({"type": "error", "call_id": call["call_id"], "error": error(type(exc).__name__, str(exc))})
    else:
        send({"type": "result", "call_id": call["call_id"], "value": value})


def main() -> None:
    boot = os.environ.get("FAKE_BOOT", "")
    if boot == "silent":
        time.sleep(60)
    if boot == "die":
        print("no luck today", flush=True)
        os._exit(9)
    if boot == "error":
        print("said before the boot error", flush=True)
        send({"type": "boot_error", "error": error("ImportError", "no module named nowhere")})
        time.sleep(10)
    if boot.startswith("error_unless:") and not os.path.exists(boot[13:]):
        send({"type": "boot_error", "error": error("ImportError", "not yet")})
        time.sleep(10)
    if boot.startswith("die_once:") and not os.path.exists(boot[9:]):
        Path(boot[9:]).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if boot.startswith("slow:"):
        time.sleep(float(boot[5:]))
    if boot == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    send({"type": "ready"} | ({"features": ["another/1", "frames/1"]} if boot == "pieces" else {}))
    seen = 0
    while True:
        (n,) = struct.unpack("<I", read_exact(4))
        payload: bytes | None = read_exact(n & 0x7FFFFFFF)
        if n & 0x80000000:
            payload = take_piece(payload) if boot == "pieces" and payload else os._exit(34)
        if payload is None:
            continue
        frame = unpack(payload)[0] if payload else {}
        frame["seen"] = seen
        seen += frame.get("type") == "call"
        if frame.get("type") == "call":
            threading.Thread(target=handle, args=(frame,), daemon=True).start()
        elif frame.get("type") == "shutdown" and boot != "stubborn":
            os._exit(0)


if __name__ == "__main__":
    main()
