"""Podman of somebody without rights, from a bundle deployed by that user to containers in that user's namespaces."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import box_bundle
import engines
import pytest

NAME, UID, SUBORDINATE = "agxbox", 61234, 200000

# In a mount namespace of its own the machine has that user, with subordinate ids; the directories on the way to the
# interpreter are made passable.
_AS_USER = r"""
set -eu
root=$1 uid=$2
shift 2
user="setpriv --reuid=$uid --regid=$uid --clear-groups"
for file in passwd group subuid subgid; do
  mount --bind "$root/$file" "/etc/$file"
done
mount --bind "$root/tun" /dev/net/tun
for path; do
  [ "$path" != -- ] || break
  above=
  IFS=/
  for part in ${path#/}; do
    unset IFS
    above=$above/$part
    if [ "$above" != "$path" ] && ! $user test -x "$above"; then
      mkdir -p "$root/hold"
      mount --rbind "$path" "$root/hold"
      mount -t tmpfs -o mode=0755 tmpfs "$above"
      mkdir -p "$path"
      mount --move "$root/hold" "$path"
      break
    fi
  done
  unset IFS
done
while [ "$1" != -- ]; do shift; done
shift
cd "$root/home"
exec $user "$@"
"""

HOST = """
import asyncio, json, os, subprocess, sys
root, program = sys.argv[1:]
sys.path.insert(0, root)
import box_targets as t
from agentix import SandboxConfig, SandboxResource
from agentix.provider.docker import DockerProviderConfig, PodmanProvider

def podman(*argv):
    return subprocess.run([program, *argv], check=True, capture_output=True, text=True, timeout=120).stdout.strip()

async def main():
    said = {"rootless": podman("info", "--format", "{{.Host.Security.Rootless}}")}
    podman("import", f"{root}/image.tar", "localhost/agentix-test/busybox:latest")
    config = SandboxConfig(image="localhost/agentix-test/busybox:latest", bundle=f"{root}/box.bundle.tar")
    for network in (None, "none"):
        provider = PodmanProvider(DockerProviderConfig(container_engine=program, network=network))
        async with provider.session(config) as sandbox:
            answer = await sandbox.remote(t.run, seed=42)
            said[str(network)] = {
                "url": sandbox.runtime_url.partition("://")[0],
                "python": answer["python"],
                "seed": answer["seed"],
                "solved": (await sandbox.remote(t.solve))[0],
                "whoami": await sandbox.remote(t.whoami),
                "interfaces": await sandbox.remote(t.interfaces),
                "no_new_privs": (await sandbox.remote(t.status))["NoNewPrivs"],
                "write": await sandbox.remote(t.write, "/nix/x"),
            }
        said["left"] = podman("ps", "-a", "-q")
    limited = SandboxConfig(image=config.image, bundle=config.bundle, resource=SandboxResource(cpu=1, memory="256m"))
    async with PodmanProvider(DockerProviderConfig(container_engine=program)).session(limited) as sandbox:
        said["limited"] = (await sandbox.remote(t.run, seed=1))["seed"]
        agentix = os.path.join(os.path.dirname(sys.executable), "agentix")
        ps = [agentix, "ps", "--format", "json", "--container-engine", program]
        done = subprocess.run(ps, check=True, capture_output=True, text=True, timeout=60)
        names = [row["sandbox"] for row in json.loads(done.stdout)["sandboxes"]]
        said["ps"] = names == [sandbox.sandbox_id]
    said["left"] += podman("ps", "-a", "-q")
    print(json.dumps(said))
asyncio.run(asyncio.wait_for(main(), 240))
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """What the user has: a home, a run-time directory, and files for /etc."""
    path = Path(tempfile.mkdtemp(prefix="agx-rootless-"))
    path.chmod(0o755)
    home, run = path / "home", path / "run"
    for directory in (home, run):
        directory.mkdir(mode=0o700)
        os.chown(directory, UID, UID)
    (path / "passwd").write_text(f"{Path('/etc/passwd').read_text()}{NAME}:x:{UID}:{UID}::{home}:/bin/sh\n")
    (path / "group").write_text(f"{Path('/etc/group').read_text()}{NAME}:x:{UID}:\n")
    for name in ("subuid", "subgid"):
        (path / name).write_text(f"{NAME}:{SUBORDINATE}:65536\n")
    os.mknod(path / "tun", 0o020666, os.makedev(10, 200))
    (path / "tun").chmod(0o666)
    (path / "containers.conf").write_text(
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    )
    shutil.copytree(box_bundle.BOX / "src/box_targets", path / "box_targets")
    yield path
    for file in run.rglob("pause.pid"):  # the process that holds the user's namespaces
        os.kill(int(file.read_text()), signal.SIGKILL)
    shutil.rmtree(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="making a user takes root; every other test of podman is rootless then")
@pytest.mark.timeout(420)
def test_podman_without_root(bundle: box_bundle.Bundle, root: Path) -> None:
    program = shutil.which("podman")
    assert program is not None
    assert shutil.which("newuidmap"), "newuidmap is missing; tools/setup.sh installs it"
    shutil.copy(engines.tree("busybox"), root / "image.tar")
    shutil.copy(bundle.tar, root / "box.bundle.tar")
    for name in ("image.tar", "box.bundle.tar"):
        (root / name).chmod(0o644)
    env = {
        "HOME": f"{root}/home",
        "XDG_RUNTIME_DIR": f"{root}/run",
        "CONTAINERS_CONF": f"{root}/containers.conf",
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin",
    }
    inside = ["sh", "-c", _AS_USER, "sh", str(root), str(UID), sys.base_prefix, sys.prefix, "--"]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", *inside, sys.executable, "-c", HOST, str(root), program],
        env=env,
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert said["rootless"] == "true"
    for network, url in (("None", "http"), ("none", "http+unix")):
        assert said[network]["url"] == url
        assert said[network]["python"] == "/nix/runtime/venv/bin/python"
        assert said[network]["seed"] == 42
        assert said[network]["solved"] == [0.8, 1.4]
        assert said[network]["whoami"] == [0, 0]  # of its namespace
        assert said[network]["no_new_privs"] == "1"
        assert said[network]["write"].startswith("OSError: Read-only")
    assert said["none"]["interfaces"] == ["lo"]
    assert said["limited"] == 1
    assert said["ps"] is True
    assert said["left"] == ""
