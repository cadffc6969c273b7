"""What a worker is, as far as a call can see it: a successor must not be told from a fresh start."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from pathlib import Path

LIMITS = [number for name, number in sorted(vars(resource).items()) if name.startswith("RLIMIT_")]


def facts() -> dict[str, object]:
    status = Path("/proc/self/status").read_text().splitlines()
    fds = {fd: os.readlink(f"/proc/self/fd/{fd}").partition(":")[0] for fd in os.listdir("/proc/self/fd") if fd < "5"}
    umask = os.umask(0o22)
    os.umask(umask)
    variables = dict(os.environ)
    return {
        "argv": sys.argv,
        "cgroup": Path("/proc/self/cgroup").read_text(),
        "cwd": os.getcwd(),
        "environ": {name: text for name, text in variables.items() if text.count(worker_id()) == 0},
        "executable": sys.executable,
        "fds": dict(sorted(fds.items())),
        "flags": tuple(sys.flags),
        "leads": os.getsid(0) == os.getpgid(0) == os.getpid(),
        "limits": [resource.getrlimit(i) for i in LIMITS],
        "modules": sorted(sys.modules),
        "nice": os.nice(0),
        "oom": Path("/proc/self/oom_score_adj").read_text(),
        "open": len(os.listdir("/proc/self/fd")),
        "parent": os.getppid(),
        "path": sys.path,
        "signals": [str(signal.getsignal(n)).partition(" at ")[0] for n in sorted(signal.valid_signals())],
        "status": [
            line
            for line in status
            if line.startswith(("SigB", "SigI", "SigC", "Shd", "Cap", "Uid", "Gid", "NoNewPrivs", "Seccomp"))
        ],
        "switch": sys.getswitchinterval(),
        "threads": sorted({thread.name.rstrip("0123456789") for thread in threading.enumerate()}),
        "umask": umask,
    }


def worker_id() -> str:
    return os.environ["AGENTIX_WORKER_ID"]


def random_bits() -> tuple[int, int]:
    """Of a generator that seeds itself, and of the hashes of strings."""
    import random

    return random.getrandbits(64), hash("a string")


def fill_memory(limit: int) -> int:
    """Goes on until the kernel refuses, without having touched a byte of it."""
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    held: list[bytearray] = []
    while True:
        held.append(bytearray(1 << 20))
