"""Targets for the tests of the uv backend."""

import asyncio
import importlib.util
import os
import sys
import time


def environ() -> dict[str, str]:
    return dict(os.environ)


def environ_bytes() -> dict[bytes, bytes]:
    return dict(os.environb)


def import_path() -> list[str]:
    return sys.path


def can_import(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def origin(name: str) -> str | None:
    spec = importlib.util.find_spec(name)
    return spec.origin if spec else None


def own_maps() -> str:
    with open("/proc/self/maps") as file:
        return file.read()


def where_agentix_is() -> str:
    import agentix

    return agentix.__file__


def ids() -> tuple[int, int]:
    """Of the worker and of the server."""
    return os.getpid(), os.getppid()


def descriptors() -> list[str]:
    found: list[str] = []
    for fd in range(64):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    return found


def noise(lines: int) -> int:
    for i in range(lines):
        print(f"line {i} of a lot of noise that nobody reads")
    return lines


def nap(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


async def doze(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


def make_read_only() -> str:
    os.makedirs("a/b")
    os.chmod("a/b", 0o500)
    os.chmod("a", 0o500)
    return os.getcwd()


def print_and_environ(text: str) -> dict[str, str]:
    print(text)
    return dict(os.environ)
