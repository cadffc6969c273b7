"""Where sandboxes and environments of this backend lie: one private directory a user, one directory a sandbox.

The server of a sandbox locks `lock` in its directory for as long as it lives, a provider does the same beside its
environment. What nobody locks any more was left by a killed process and is swept by the next provider.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

ID_PATTERN = re.compile(r"uv-[0-9a-f]{12}")
SWEEP_AGE = 60.0
"""Seconds that an unlocked directory is left alone: its owner may be about to lock it."""
SOCKET_PATH_MAX = 100
"""Bytes of a Unix socket's path that every kernel takes, with a margin."""


def base() -> Path:
    """Return the user's private directory, made if need be; RuntimeError if somebody else could write to it."""
    root = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    path = Path(root) / f"agentix-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise RuntimeError(f"{path} is not a directory of yours alone; remove it, or set XDG_RUNTIME_DIR to one that is")
    return path


def new_sandbox_id() -> str:
    return f"uv-{secrets.token_hex(6)}"


def make_sandbox_dir(sandbox_id: str) -> Path:
    """Make the directory with its token and its working directory."""
    path = base() / sandbox_id
    path.mkdir(mode=0o700)
    (path / "work").mkdir(mode=0o700)
    write_private(path / "token", secrets.token_hex(32))
    return path


def write_private(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w") as file:
        file.write(text)


def describe(path: Path, **facts: Any) -> None:
    """Leave what another process needs to find the sandbox again."""
    write_private(path / "sandbox.json.new", json.dumps(facts))
    os.rename(path / "sandbox.json.new", path / "sandbox.json")


def find(sandbox_id: str) -> dict[str, Any] | None:
    """Return those facts, with the token, if the sandbox's server is alive."""
    if not ID_PATTERN.fullmatch(sandbox_id):
        return None
    path = base() / sandbox_id
    try:
        if not is_locked(path / "lock"):
            return None
        return {**json.loads((path / "sandbox.json").read_text()), "token": (path / "token").read_text().strip()}
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_locked(path: Path) -> bool:
    """Tell whether a living process holds the lock."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def lock(path: Path) -> int:
    """Take the lock at `path` for the life of this process; return its descriptor."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def sweep() -> None:
    """Remove what killed processes left."""
    now = time.time()
    for path in base().iterdir():
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime < SWEEP_AGE or is_locked(path / "lock"):
                continue
            if ID_PATTERN.fullmatch(path.name) or path.name.startswith("venv-"):
                shutil.rmtree(path, ignore_errors=True)
