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
import socket
import stat
import tempfile
import threading
import time
from ipaddress import ip_address
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


def make_container_sandbox(prefix: str, size: int, *, with_socket: bool) -> Path:
    """Make a sandbox's directory, named by its id of `size` random bytes, for a container of any user.

    The token is a file that everybody may read, since the image's user must; the directory itself is this user's alone,
    and only the file is mounted into the container. The same goes for the socket's directory.
    """
    while True:
        try:
            path = make(base(), f"{prefix}{secrets.token_hex(size)}")
            break
        except FileExistsError:
            continue
    try:
        write_token(path / "token", 0o444)
        if with_socket:
            (path / "socket").mkdir()
            (path / "socket").chmod(0o777)
    except BaseException:
        remove_tree(path)
        raise
    return path


def facts_of(path: Path) -> dict[str, Any] | None:
    """Return those facts, with the token, or None if there is no such sandbox."""
    try:
        return {**json.loads((path / "sandbox.json").read_text()), "token": (path / "token").read_text().strip()}
    except (FileNotFoundError, NotADirectoryError, ValueError):  # also one that a crash of the machine left empty
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


def is_in_use(path: Path) -> bool:
    """Tell whether the process that made the directory still runs."""
    return is_locked(path / "host")


def is_left(path: Path) -> bool:
    """Tell whether the process that made the directory, or the lock file, has gone."""
    try:
        if path.name.startswith("host-"):
            return time.time() - path.stat().st_mtime > SWEEP_AGE and not is_locked(path)
        if not (path / "host").exists() and time.time() - path.stat().st_mtime < SWEEP_AGE:
            return False
        return not is_locked(path / "host")
    except OSError:
        return False  # somebody else has just removed it, or it is nothing of ours


def sweep_locks() -> None:
    """Remove the lock files of processes that have gone without doing so themselves."""
    for path in base().glob("host-*"):
        if is_left(path):
            with contextlib.suppress(OSError):
                path.unlink()


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


# ---- processes and ports ----


def host_label() -> str:
    """Return who this process is, as `agentix.host` says it: boot id, pid and start time."""
    return process_label(os.getpid())


def process_label(pid: int) -> str:
    """Return who a living process is; no other one ever has the same label."""
    return f"{_boot()}:{pid}:{_start_of(pid)}"


def is_host_alive(label: str) -> bool:
    """Tell whether the process that such a label names still runs on this machine."""
    try:
        boot, pid, start = label.split(":")
        return boot == _boot() and start == _start_of(int(pid))
    except (ValueError, OSError, IndexError):
        return False


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _start_of(pid: int) -> str:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


class Ports:
    """The host's ports that sandboxes of this process have; no two of them get the same."""

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._lock = threading.Lock()

    def take(self, host: str, count: int) -> list[int]:
        """Return ports that are free at the moment, for this process alone until they are given back."""
        found: list[int] = []
        with self._lock:
            held: list[socket.socket] = []
            try:
                while len(found) < count:
                    sock = socket.socket(socket.AF_INET6 if _is_v6(host) else socket.AF_INET, socket.SOCK_STREAM)
                    held.append(sock)
                    sock.bind((host, 0))
                    port: int = sock.getsockname()[1]
                    if port not in self._taken:
                        found.append(port)
                        self._taken.add(port)
            except BaseException as error:
                self._taken.difference_update(found)
                if isinstance(error, OSError):
                    raise RuntimeError(f"no port can be published on {host or 'this machine'}: {error}") from error
                raise
            finally:
                for sock in held:
                    sock.close()
        return found

    def give_back(self, ports: list[int]) -> None:
        """Let others have them."""
        with self._lock:
            self._taken.difference_update(ports)


def _is_v6(host: str) -> bool:
    return bool(host) and ip_address(host).version == 6


ports = Ports()
