"""Where sandboxes and environments of this backend lie: private directories of the user, one for each of them.

Each holds a hard link to a file that the process which made it keeps locked; a sandbox's server locks another one,
`lock`. What nobody locks any more was left by a killed process and is removed by whichever provider starts next.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import re
import secrets
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

from agentix.provider._drive import remove_tree

ID_PATTERN = re.compile(r"uv-[0-9a-f]{12}")
OURS_PATTERN = re.compile(r"(uv|venv|host)-[0-9a-f]{12}")
SWEEP_AGE = 60.0
"""Seconds that something without any lock is left alone: its maker may be about to lock it."""
WHEEL_AGE = 30 * 24 * 3600.0
"""Seconds after which a wheel that no environment was made from is removed."""
SOCKET_PATH_MAX = 100
"""Bytes of a Unix socket's path that every kernel takes, with a margin."""


def base() -> Path:
    """Return the user's directory for sandboxes, short enough for the path of a socket."""
    root = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isabs(root) or not os.access(root, os.W_OK | os.X_OK):
        root = tempfile.gettempdir()
    return _private(Path(root) / f"agentix-{os.getuid()}")


def environments() -> Path:
    """Return the user's directory for environments, where uv has its cache and can link from it instead of copying."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    path = Path(root) if os.path.isabs(root) else Path.home() / ".cache"
    try:
        path.mkdir(exist_ok=True)
        return _private(path / "agentix-uv")
    except (OSError, RuntimeError):
        return base()  # a home that is missing, read-only or somebody else's


def wheels() -> Path:
    """Return the directory for wheels of our own distributions, one directory for each content."""
    return _private(environments() / "wheels")


def _private(path: Path) -> Path:
    with contextlib.suppress(FileExistsError):  # also for what is no directory, which the look below tells
        path.mkdir(mode=0o700)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise RuntimeError(f"{path} is not a directory of yours alone; remove it, or see to it that it is")
    return path


def make_sandbox() -> Path:
    """Make a sandbox's directory, named by its id, with its token and its working directory."""
    path = _make(base(), "uv")
    (path / "work").mkdir(mode=0o700)
    write_private(path / "token", secrets.token_hex(32))
    return path


def make_environment() -> Path:
    """Make the directory of a virtual environment."""
    return _make(environments(), "venv")


def _make(where: Path, kind: str) -> Path:
    path = where / f"{kind}-{secrets.token_hex(6)}"
    path.mkdir(mode=0o700)
    try:
        os.link(_host.held_in(where), path / "host")
    except BaseException:
        remove_tree(path)
        raise
    return path


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody else may read."""
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


def sweep() -> None:
    """Remove what killed processes left."""
    for where in {base(), environments()}:
        for path in where.iterdir():
            with contextlib.suppress(OSError):
                if OURS_PATTERN.fullmatch(path.name) and _is_left(path):
                    path.unlink() if path.name.startswith("host-") else remove_tree(path)
    for path in wheels().iterdir():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > WHEEL_AGE:
                remove_tree(path)


def _is_left(path: Path) -> bool:
    if path.name.startswith("host-"):
        return time.time() - path.stat().st_mtime > SWEEP_AGE and not is_locked(path)
    if not (path / "host").exists() and time.time() - path.stat().st_mtime < SWEEP_AGE:
        return False
    return not is_locked(path / "host") and not is_locked(path / "lock")
