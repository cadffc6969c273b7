"""Functions that tests call in containers: what a worker sees there, and what it can do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any


def run(seed: int) -> dict[str, Any]:
    """Something small that could only have happened over there."""
    return {"seed": seed, "pid": os.getpid(), "python": sys.executable, "host": os.uname().nodename}


def environ() -> dict[str, str]:
    """The variables that are valid text."""
    return {name.decode(): value.decode() for name, value in os.environb.items() if _is_text(value)}


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def variable(name: str) -> bytes | None:
    return os.environb.get(name.encode())


def paths() -> list[str]:
    return sys.path


def whoami() -> tuple[int, int]:
    return os.getuid(), os.getgid()


def status() -> dict[str, str]:
    """/proc/self/status."""
    with open("/proc/self/status") as file:
        return {key: value.strip() for key, _, value in (line.partition(":") for line in file)}


def command(argv: list[str], env: dict[str, str] | None = None) -> tuple[int, str, str]:
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
    return done.returncode, done.stdout, done.stderr


def mapped(argv: list[str]) -> list[str]:
    """The files that a program has mapped, by a debugger's way: stopped before it can end."""
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        while True:
            with open(f"/proc/{process.pid}/maps") as file:
                found = sorted({line.split()[-1] for line in file if " /" in line})
            if any("/libc" in path for path in found):
                return found
            if process.poll() is not None:
                return [f"it ended with {process.returncode}"]
    finally:
        process.kill()
        process.communicate()


def own_maps() -> list[str]:
    with open("/proc/self/maps") as file:
        return sorted({line.split()[-1] for line in file if " /" in line})


def solve() -> tuple[list[float], str]:
    """A linear system by LAPACK."""
    import numpy as np

    solution = np.linalg.solve(np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([3.0, 5.0]))
    return [round(float(x), 9) for x in solution], np.__version__


def handshake(certificate: bytes, key: bytes) -> tuple[str, str]:
    """TLS with itself, in memory: protocol and what the server got."""
    import ssl
    import tempfile

    with tempfile.NamedTemporaryFile() as chain:
        chain.write(certificate + key)
        chain.flush()
        server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server_context.load_cert_chain(chain.name)
    client_context = ssl.create_default_context(cadata=certificate.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname="box.test")
    for _ in range(4):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    client.write(b"over TLS")
    return str(client.version()), server.read().decode()


def summer_time() -> str:
    from datetime import datetime
    from zoneinfo import ZoneInfo

    return datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin")).isoformat()


def importable(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


def origin(name: str) -> str | None:
    """Where a module would be imported from."""
    import importlib.util

    spec = importlib.util.find_spec(name)
    return spec.origin if spec else None


def interfaces() -> list[str]:
    return sorted(os.listdir("/sys/class/net"))


def memory_limit() -> int:
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        if os.path.exists(path):
            with open(path) as file:
                return int(file.read())
    return -1


def write(path: str) -> str:
    """What comes of writing a file."""
    try:
        with open(path, "w") as file:
            file.write("x")
        return "written"
    except OSError as error:
        return type(error).__name__ + ": " + str(error.strerror)


async def nap(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds
