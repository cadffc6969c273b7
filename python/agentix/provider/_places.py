"""Directories that local backends keep on the host: private to the user, one for each sandbox.

Each holds a hard link to a file that the process which made it keeps locked; so what a killed process left is known by
nobody locking it any more. Backends add what they need, and remove what is left when they next start.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import secrets
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

from ._drive import remove_tree

SWEEP_AGE = 60.0
"""Seconds that something without any lock is left alone: its maker may be about to lock it."""
SOCKET_PATH_MAX = 100
"""Bytes of a Unix socket's path that every kernel takes, with a margin."""


def base() -> Path:
    """Return the user's directory for sandboxes, short enough for the path of a socket."""
    root = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isabs(root) or not os.access(root, os.W_OK | os.X_OK):
        root = tempfile.gettempdir()
    return private(Path(root) / f"agentix-{os.getuid()}")


def private(path: Path) -> Path:
    """Make a directory of this user alone, or check that it is one; RuntimeError if it is not."""
    with contextlib.suppress(FileExistsError):  # also for what is no directory, which the look below tells
        path.mkdir(mode=0o700)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise RuntimeError(f"{path} is not a directory of yours alone; remove it, or see to it that it is")
    return path


def make(where: Path, name: str) -> Path:
    """Make a private directory of this process; FileExistsError if the name is taken."""
    path = where / name
    path.mkdir(mode=0o700)
    try:
        os.link(_host.held_in(where), path / "host")
    except BaseException:
        remove_tree(path)
        raise
    return path


def write_new(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file that was not there, with this very mode."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w") as file:
        file.write(text)
        os.fchmod(fd, mode)


def write_token(path: Path, mode: int = 0o600) -> None:
    """Write a fresh token of 256 bits."""
    write_new(path, secrets.token_hex(32), mode)


def describe(path: Path, **facts: Any) -> None:
    """Leave what another process needs to find the sandbox again."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path / "sandbox.json.new")
    write_new(path / "sandbox.json.new", json.dumps(facts))
    os.rename(path / "sandbox.json.new", path / "sandbox.json")


def facts_of(path: Path) -> dict[str, Any] | None:
    """Return those facts, with the token, or None if there is no such sandbox."""
    try:
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


def is_left(path: Path) -> bool:
    """Tell whether the process that made the directory, or the lock file, has gone."""
    if path.name.startswith("host-"):
        return time.time() - path.stat().st_mtime > SWEEP_AGE and not is_locked(path)
    if not (path / "host").exists() and time.time() - path.stat().st_mtime < SWEEP_AGE:
        return False
    return not is_locked(path / "host")


class _Host:
    """The files that this process keeps locked for as long as it lives, one for each directory of directories."""

    def __init__(self) -> None:
        self._held: dict[Path, tuple[Path, int]] = {}
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self._remove)

    def held_in(self, where: Path) -> Path:
        held = self._held.get(where)
        if held is None or not held[0].exists():
            path = where / f"host-{secrets.token_hex(6)}"
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            self._held[where] = held = path, fd
        return held[0]

    def _remove(self) -> None:
        for path, _ in self._held.values():
            path.unlink(missing_ok=True)
        self._forget()

    def _forget(self) -> None:
        for _, fd in self._held.values():
            os.close(fd)
        self._held.clear()


_host = _Host()
