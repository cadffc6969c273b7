"""Targets of the tests of logs and output."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import struct
import subprocess
import sys
import threading
import time
from typing import Any


def _logger() -> logging.Logger:
    """Not made at import: the host imports this module as well, and must not know the logger."""
    return logging.getLogger("log_targets.mine")


def log(n: int, text: str = "record") -> int:
    for i in range(n):
        _logger().info("%s %d", text, i, extra={"index": i, "nested": {"a": [1, object()]}})
    return n


def log_oddly() -> None:
    """Case T29."""
    lock = threading.Lock()
    logging.addLevelName(25, "NOTICE")
    try:
        raise LookupError("inner")
    except LookupError:
        _logger().exception("x %s", lock)
    _logger().info("with extra", extra={"obj": lock, "plain": 1})
    _logger().log(25, "noticed")
    _logger().info("%d", "not a number")  # noqa: PLE1205
    _logger().log(99, "beyond")


def log_under(name: str, text: str) -> None:
    logging.getLogger(name).warning("%s", text)


def print_text(text: str, end: str = "\n", err: bool = False) -> None:
    print(text, end=end, file=sys.stderr if err else sys.stdout)


def print_and_exit(text: str) -> None:
    print(text, end="", flush=True)
    os._exit(0)


def write_everywhere() -> int:
    """Case T21."""
    os.write(1, b"partial")
    os.write(1, struct.pack("<I", 12) + b"\x81\xa4type\xa5ready")
    libc = ctypes.CDLL(None)
    libc.puts(b"from C")
    libc.fflush(None)
    subprocess.run(["echo", "kid"], check=True)
    subprocess.run(["sh", "-c", "echo kid-err >&2"], check=True)
    return 42


def write_raw(pieces: list[bytes], pause: float = 0.0) -> None:
    for piece in pieces:
        os.write(1, piece)
        time.sleep(pause)


def flood(lines: int, length: int = 80) -> float:
    block = (b"x" * length + b"\n") * 1000
    begun = time.perf_counter()
    for _ in range(lines // 1000):
        os.write(1, block)
    return time.perf_counter() - begun


def flood_without_newline(megabytes: int) -> int:
    block = b"y" * (1 << 20)
    for _ in range(megabytes):
        os.write(2, block)
    return megabytes


async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "waited"


def facts() -> dict[str, Any]:
    return {
        "id": os.environ["AGENTIX_WORKER_ID"],
        "context": os.environ["AGENTIX_LOG_CONTEXT"],
        "parent": os.getppid(),
        "pid": os.getpid(),
        "root": logging.getLogger().level,
    }


def background(text: str, seconds: float) -> None:
    subprocess.Popen(["sh", "-c", f"sleep {seconds}; echo {text}"])
