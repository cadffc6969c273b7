"""Boxes that the emulated services of the tests rent out: namespaces and a root directory of their own on this machine.

A cell has its own network (so that every one of them can have its port 8000), processes, and files; what it sees of the
host is /usr, read-only. It imports nothing of what it is used to test.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

_SETUP = r"""
set -eu
root=$1
mount --bind "$root" "$root"
mount --bind /usr "$root/usr"
mount -o remount,bind,ro "$root/usr" 2>/dev/null || true
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
shift
while [ $# -gt 0 ]; do mkdir -p "$root$1"; mount --bind "$2" "$root$1"; shift 2; done
ip link set lo up
exec chroot "$root" /bin/sh -c 'echo up; exec sleep infinity'
"""
_UNSHARE = ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _libc.prctl(1, signal.SIGKILL)


class Cell:
    """One box. `start`, then `run` and `connect` at will, then `kill`; or `copy_to` what becomes the root of others."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pid = 0
        self._process: subprocess.Popen[str] | None = None

    def start(self, image: Path | None = None, binds: Mapping[str, Path] | None = None) -> None:
        """Begin with the files of `image`, another cell's copy, or with next to nothing; `binds` are mounted inside."""
        if image is not None:
            copy(image, self.root)
        for name in ("dev", "proc", "usr", "tmp", "run", "root", "home/user", "workspace", "etc", "var"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        (self.root / "tmp").chmod(0o1777)
        for name in ("bin", "sbin", "lib", "lib64"):
            if not os.path.lexists(self.root / name):
                (self.root / name).symlink_to(f"usr/{name}")
        (self.root / "etc/passwd").write_text("root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n")
        (self.root / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost {os.uname().nodename}\n")
        (self.root / "etc/nsswitch.conf").write_text("hosts: files\n")
        mounts = [str(word) for pair in (binds or {}).items() for word in pair]
        self._process = subprocess.Popen(
            [*_UNSHARE, *_user(), "/bin/sh", "-c", _SETUP, "setup", str(self.root), *mounts],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "up\n":
            raise RuntimeError("a cell could not be made")
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        self.pid = int(children[0])

    def command(self, argv: Sequence[str], user: str = "root", cwd: str = "/") -> list[str]:
        """Return what runs `argv` inside."""
        enter = ["nsenter", "--target", str(self.pid), "--mount", "--net", "--pid", "--ipc", "--uts", "--root"]
        become = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"] if user != "root" else []
        move = ["env", "-C", cwd]
        return [*enter, *(["--user"] if _user() else []), *move, *become, *argv]

    async def run(
        self, argv: Sequence[str], env: Mapping[str, str], *, user: str = "root", cwd: str = "/"
    ) -> asyncio.subprocess.Process:
        """Start `argv` inside, with pipes for its output."""
        home = "/root" if user == "root" else "/home/user"
        base = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": home, "USER": user, "LOGNAME": user}
        return await asyncio.create_subprocess_exec(
            *self.command(argv, user, cwd),
            env={**base, **env},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )

    def path(self, inside: str) -> Path:
        """Return where a file of the cell is on the host."""
        return self.root / inside.lstrip("/")

    def socket(self) -> socket.socket:
        """Return a socket that is in the cell's network."""
        made: list[socket.socket | OSError] = []
        thread = threading.Thread(target=lambda: made.append(self._socket()))  # only that thread moves
        thread.start()
        thread.join()
        if isinstance(made[0], OSError):
            raise made[0]
        return made[0]

    def _socket(self) -> socket.socket | OSError:
        try:
            with open(f"/proc/{self.pid}/ns/net") as there:
                if _libc.setns(there.fileno(), _CLONE_NEWNET):
                    return ConnectionRefusedError("the cell is gone")
        except OSError as error:
            return error
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End all its processes and remove its files."""
        if self._process is not None:
            for pid in (self.pid, self._process.pid):
                with contextlib.suppress(ProcessLookupError):
                    if pid:
                        os.kill(pid, signal.SIGKILL)
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
        shutil.rmtree(self.root, ignore_errors=True)


def copy(source: Path, target: Path) -> None:
    """Copy a root directory; the files of /nix, which nobody changes, are shared."""
    target.mkdir(parents=True, exist_ok=True)
    for name in sorted(os.listdir(source)):
        if name in ("dev", "proc", "usr"):
            continue
        flags = "-al" if name == "nix" else "-a"
        subprocess.run(["cp", flags, str(source / name), str(target)], check=True)


def _user() -> list[str]:
    return [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
