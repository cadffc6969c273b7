"""An agent that talks to its model by the vendors' SDKs, and a search for what should not be in its sandbox."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

_OVERLAP = 256
_STEP = 1 << 20
_running: list[subprocess.Popen[bytes]] = []


def converse(environ: dict[str, str]) -> list[Any]:
    """Start the agent with these variables and return what it heard; it stays there until `end`."""
    agent = subprocess.Popen(
        [sys.executable, "-m", "agent_targets.agent"],
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    _running.append(agent)
    assert agent.stdout is not None
    line = agent.stdout.readline()
    return json.loads(line) if line else [f"the agent has ended: {agent.wait(10)}"]


def end() -> list[int]:
    """End what `converse` has started."""
    codes: list[int] = []
    while _running:
        agent = _running.pop()
        assert agent.stdin is not None
        agent.stdin.close()
        codes.append(agent.wait(20))
    return codes


def interfaces() -> list[str]:
    return sorted(os.listdir("/sys/class/net"))


# ---- the search ----


def search(pattern: str) -> dict[str, list[str]]:
    """Where a pattern that does not match itself is found: in files, and in /proc of every process, memory included.

    `looked` names what was read there of which processes.
    """
    found, looked = search_processes(pattern, [name for name in os.listdir("/proc") if name.isdigit()])
    for root in dict.fromkeys(["/", os.environ.get("AGENTIX_LOG_DIR", "/tmp")]):
        found += search_files(pattern, root)
    return {"found": found, "looked": looked}


def search_files(pattern: str, root: str) -> list[str]:
    """In which files below `root` it is found."""
    found: list[str] = []
    wanted = re.compile(pattern.encode())
    for path in _paths(root):
        try:
            if any(wanted.search(piece) for piece in _file(path)):
                found.append(path)
        except OSError:
            continue
    return found


def search_processes(pattern: str, pids: list[str]) -> tuple[list[str], list[str]]:
    """Where it is found in /proc, and what could be read there."""
    found: list[str] = []
    looked: list[str] = []
    wanted = re.compile(pattern.encode())
    for pid in pids:
        for what, pieces in (("environ", _file), ("cmdline", _file), ("maps", _file), ("mem", _memory)):
            path = f"/proc/{pid}/{what}"
            try:
                if any(wanted.search(piece) for piece in pieces(path)):
                    found.append(path)
            except OSError:
                continue
            looked.append(path)
    return found, looked


def _paths(root: str) -> Iterator[str]:
    """All files but the bundle's own, which are older than the sandbox, and the kernel's."""
    for directory, below, names in os.walk(root):
        if directory == "/":
            below[:] = [name for name in below if name not in ("proc", "sys", "dev", "nix")]
        for name in names:
            path = os.path.join(directory, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield path


def _file(path: str) -> Iterator[bytes]:
    rest = b""
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(_STEP):
            yield rest + piece
            rest = piece[-_OVERLAP:]


def _memory(path: str) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as memory, open(path.replace("mem", "maps")) as maps:
        for line in maps:
            place, rights, *_ = line.split()
            if not rights.startswith("rw"):  # what a program has read or made lies in what it can write
                continue
            start, stop = (int(part, 16) for part in place.split("-"))
            for at in range(start, stop, _STEP):
                try:
                    memory.seek(at)
                    yield memory.read(min(_STEP + _OVERLAP, stop - at))
                except (OSError, ValueError, OverflowError):
                    break
