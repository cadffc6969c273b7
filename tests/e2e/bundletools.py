"""What the tests of `agentix build` share: the command, projects, and roots in which a bundle has to run alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
AGENTIX = BIN / "agentix"

_EMPTY_ROOT = r"""
set -eu
tree=$1 root=$2 shared=$3 image=$4
shift 4
mount -t tmpfs tmpfs "$root"
mkdir "$root/nix" "$root/proc" "$root/dev" "$root/tmp" "$root/shared"
mount --rbind "$tree/nix" "$root/nix"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind "$shared" "$root/shared"
for name in $image; do
  if [ -L "/$name" ]; then cp -P "/$name" "$root/$name"; elif [ -d "/$name" ]; then
    mkdir "$root/$name"; mount --rbind "/$name" "$root/$name"
  fi
done
exec chroot "$root" /nix/closure/bin/busybox env -i "$@"
"""


def environment(cache: Path, **more: str) -> dict[str, str]:
    """The environment of a build: a cache of its own, but uv's usual one, so that nothing is fetched twice."""
    uv_cache = subprocess.run([BIN / "uv", "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    kept = {key: value for key, value in os.environ.items() if key not in {"VIRTUAL_ENV", "AGENTIX_SAVED_PATH"}}
    return {
        **kept,
        "XDG_CACHE_HOME": str(cache),
        "UV_CACHE_DIR": uv_cache,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        **more,
    }


def agentix(*arguments: str | Path, cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the command line and take down what it says."""
    return subprocess.run(
        [AGENTIX, *arguments], cwd=cwd, env=dict(env), capture_output=True, text=True, timeout=300, check=False
    )


def build(*arguments: str | Path, cwd: Path, env: Mapping[str, str]) -> dict[str, Any]:
    """Run `agentix build`, which must succeed, and give back what it prints as JSON."""
    done = agentix("build", *arguments, "--format", "json", cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def project(
    directory: Path,
    name: str = "proj",
    requires: str | None = ">=3.11",
    dependencies: tuple[str, ...] = (),
    more: str = "",
) -> Path:
    """Make a project of one module."""
    package = directory / "src" / name.replace("-", "_")
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def where() -> str:\n    return __file__\n")
    lines = [
        "[build-system]",
        'requires = ["hatchling"]',
        'build-backend = "hatchling.build"',
        "[project]",
        f'name = "{name}"',
        'version = "1.2"',
        f"dependencies = {json.dumps(list(dependencies))}",
    ]
    if requires is not None:
        lines.append(f'requires-python = "{requires}"')
    (directory / "pyproject.toml").write_text("\n".join([*lines, more, ""]))
    return directory


def git(directory: Path, *arguments: str) -> None:
    """Run git as somebody."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *who, *arguments], cwd=directory, check=True, capture_output=True)


def unpack(bundle: Path, to: Path) -> Path:
    """Unpack a plain bundle as it is."""
    with tarfile.open(bundle) as tar:
        tar.extractall(to, filter="fully_trusted")
    return to


def _in_empty_root(
    tree: Path, scratch: Path, environ: Mapping[str, str], argv: tuple[str, ...], image: str = ""
) -> list[str]:
    root, shared = scratch / "root", scratch / "shared"
    root.mkdir(exist_ok=True, parents=True)
    shared.mkdir(exist_ok=True)
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    words = [str(tree), str(root), str(shared), image, *(f"{key}={value}" for key, value in environ.items()), *argv]
    return ["unshare", *user, "--mount", "--propagation", "private", "sh", "-c", _EMPTY_ROOT, "sh", *words]


def run_alone(tree: Path, scratch: Path, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program of an unpacked bundle in a root that has nothing but it, /proc, /dev and /shared."""
    command = _in_empty_root(tree, scratch, environ, argv)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def serve_alone(tree: Path, scratch: Path, image: str = "", **environ: str) -> Iterator[str]:
    """Start the entry point in such a root, which may have directories of /, too; gives the URL of its socket."""
    socket = scratch / "shared" / "s"
    environ = {"AGENTIX_BIND_SOCKET": "/shared/s", **environ}
    command = _in_empty_root(tree, scratch, environ, ("/nix/runtime/bootstrap.sh",), image)
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not socket.exists():
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield "http+unix://" + str(socket).replace("/", "%2F")
    finally:
        server.terminate()
        server.wait(20)
