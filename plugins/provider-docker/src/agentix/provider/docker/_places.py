"""What this backend keeps on the host: a private directory for each sandbox, and the ports that are spoken for.

The token lies in the directory as a file that everybody may read, since the image's user must; the directory itself is
the user's alone, and only the file is mounted into the container. The same goes for the socket's directory.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
from ipaddress import ip_address
from pathlib import Path

from agentix.provider import _places as shared
from agentix.provider._drive import remove_tree

ID_PATTERN = re.compile(r"agentix-[0-9a-f]{8}")


def directory(sandbox_id: str) -> Path:
    """Return where a sandbox's directory is, or would be."""
    return shared.base() / sandbox_id


def make_sandbox(*, with_socket: bool) -> Path:
    """Make a sandbox's directory, named by its id, with its token."""
    while True:
        try:
            path = shared.make(shared.base(), f"agentix-{secrets.token_hex(4)}")
            break
        except FileExistsError:
            continue
    try:
        shared.write_token(path / "token", 0o444)
        if with_socket:
            (path / "socket").mkdir()
            (path / "socket").chmod(0o777)
    except BaseException:
        remove_tree(path)
        raise
    return path


def is_in_use(path: Path) -> bool:
    """Tell whether the process that made the directory still runs."""
    return shared.is_locked(path / "host")


def left_directories(engine: str) -> list[Path]:
    """Return the directories of sandboxes of an engine, or of none yet, that killed processes left."""
    return [
        path
        for path in shared.base().iterdir()
        if ID_PATTERN.fullmatch(path.name)
        and shared.is_left(path)
        and (shared.facts_of(path) or {}).get("engine", engine) == engine
    ]


def host_label() -> str:
    """Return who this process is, as `agentix.host` says it: boot id, pid and start time."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{os.getpid()}:{_start_of('self')}"


def is_host_alive(label: str) -> bool:
    """Tell whether the process that such a label names still runs on this machine."""
    try:
        boot, pid, start = label.split(":")
        return boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip() and start == _start_of(str(int(pid)))
    except (ValueError, OSError, IndexError):
        return False


def _start_of(pid: str) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


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
