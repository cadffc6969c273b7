"""A backend that runs bundles under `unshare`: no image, no privilege, the network of the host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agentix import DeployedBundle, RuntimeUnreachable, Sandbox, SandboxConfig, SandboxId
from agentix.provider.base import SandboxProvider
from agentix.provider.lease import keep_lease

ID = re.compile(r"unshare-[0-9a-f]{12}")
READY_SECONDS = 60.0
STOP_SECONDS = 10.0

ROOT = r"""
set -eu
root=$1 nix=$2 box=$3
mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir -p "$root/nix" "$root/proc" "$root/dev" "$root/run/agentix" "$root/tmp" "$root/root"
mount --rbind "$nix" "$root/nix"
mount -o remount,bind,ro "$root/nix"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind "$box" "$root/run/agentix"
exec /usr/sbin/chroot "$root" /nix/runtime/bootstrap.sh
"""


def base() -> Path:
    """The directory for sandboxes, this user's alone."""
    path = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"own-backend-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid() or path.stat().st_mode & 0o077:
        raise RuntimeError(f"{path} is not a directory of yours alone; remove it")
    return path


class UnshareProvider(SandboxProvider):
    """`lease`: seconds that a sandbox lives without a connection."""

    def __init__(self, lease: float = 900) -> None:
        if lease <= 0:
            raise ValueError(f"lease must be above 0 seconds, as in UnshareProvider(lease=900): {lease!r}")
        if shutil.which("unshare") is None:
            raise RuntimeError("unshare is not on PATH; install util-linux")
        self._lease = lease
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    async def create(self, config: SandboxConfig) -> Sandbox:
        """Start a sandbox; RuntimeError holds its last output if it does not come."""
        bundle = Path(config.bundle)
        if not await asyncio.to_thread(bundle.is_dir):
            bundle = Path((await self.deploy_bundle(bundle)).bundle)
        directory = base() / f"unshare-{secrets.token_hex(6)}"
        try:
            return await self._start(directory, bundle / "nix", config)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(self._end, directory))
            raise

    async def delete(self, sandbox_id: SandboxId) -> None:
        """End a sandbox; an unknown id is passed over."""
        if ID.fullmatch(sandbox_id):
            await asyncio.shield(asyncio.to_thread(self._end, base() / sandbox_id))

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Return a handle; KeyError if nothing runs under that id."""
        facts = _facts(base() / sandbox_id) if ID.fullmatch(sandbox_id) else None
        child = self._children.get(sandbox_id)
        if facts is None or (child is not None and child.poll() is not None) or not _runs(facts):
            raise KeyError(f"no sandbox {sandbox_id!r} runs here")
        return self._handle(sandbox_id, facts["url"], facts["token"])

    async def deploy_bundle(
        self, bundle: Path, *, name: str | None = None, platform: str | None = None
    ) -> DeployedBundle:
        """Unpack a bundle into the cache that the docker backend uses too."""
        process = await asyncio.create_subprocess_exec(
            *("agentix", "deploy", "docker", "--format=json", "--", str(bundle)), stdout=-1, stderr=-1
        )
        out, err = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"the bundle {bundle} was not deployed: {err.decode().strip()}")
        return DeployedBundle(bundle=json.loads(out)["bundle"])

    async def _start(self, directory: Path, nix: Path, config: SandboxConfig) -> Sandbox:
        box, token = directory / "box", secrets.token_hex(32)
        child = self._spawn(directory, nix, token, config.env or {})
        url = f"http+unix://{quote(str(box / 's'), safe='')}"
        facts = {"url": url, "token": token, "pid": child.pid, "start": _start_of(child.pid)}
        (directory / "facts.json").write_text(json.dumps(facts))
        sandbox = self._handle(SandboxId(directory.name), url, token)
        try:
            deadline = time.monotonic() + READY_SECONDS
            while child.poll() is None and time.monotonic() < deadline:
                with contextlib.suppress(RuntimeUnreachable):
                    if (box / "s").exists():
                        await sandbox.health()
                        return sandbox
                await asyncio.sleep(0.05)
        except BaseException:
            await sandbox.aclose()
            raise
        await sandbox.aclose()
        text = (directory / "output").read_text(errors="replace")[-4096:]
        raise RuntimeError(f"the sandbox did not start (exit code {child.poll()}):\n{text}")

    def _spawn(self, directory: Path, nix: Path, token: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
        box, root = directory / "box", directory / "root"
        for path in (directory, box, root):
            path.mkdir(mode=0o700)
        settings = {
            **env,
            "AGENTIX_BIND_SOCKET": "/run/agentix/s",
            "AGENTIX_TOKEN_FILE": "/run/agentix/token",
            "AGENTIX_LEASE": str(self._lease),
        }
        (box / "token").write_text(token)
        (box / "environ").write_bytes(b"".join(os.fsencode(f"{key}={value}\0") for key, value in settings.items()))
        names = ["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
        with (directory / "output").open("wb") as output:
            child = self._children[directory.name] = subprocess.Popen(
                ["unshare", *names, "sh", "-c", ROOT, "sh", str(root), str(nix), str(box)],
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "AGENTIX_ENV_FILE": "/run/agentix/environ"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return child

    def _handle(self, sandbox_id: SandboxId, url: str, token: str) -> Sandbox:
        return keep_lease(Sandbox(sandbox_id=sandbox_id, runtime_url=url, token=token), self._lease)

    def _end(self, directory: Path) -> None:
        """End what runs, and remove the directory. The namespace of processes ends with its first one."""
        child = self._children.pop(directory.name, None)
        facts = _facts(directory)
        pid = (
            child.pid
            if child is not None and child.poll() is None
            else facts["pid"]
            if facts and _runs(facts)
            else None
        )
        if pid is not None:
            pidfd = os.pidfd_open(pid)
            try:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                deadline = time.monotonic() + STOP_SECONDS
                while _start_of(pid) and time.monotonic() < deadline:
                    time.sleep(0.05)
            finally:
                os.close(pidfd)
        if child is not None:
            child.wait(STOP_SECONDS)
        shutil.rmtree(directory, ignore_errors=True)


def _facts(directory: Path) -> dict[str, Any] | None:
    try:
        return json.loads((directory / "facts.json").read_text())
    except FileNotFoundError:
        return None


def _runs(facts: dict[str, Any]) -> bool:
    return bool(facts["start"]) and _start_of(facts["pid"]) == facts["start"]


def _start_of(pid: int) -> str:
    """When a process was started, which tells it from a later one with its id; empty if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
