"""`agentix build` without root, and where private namespaces are forbidden."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import engines
import pytest
from bundletools import AGENTIX, BIN, agentix, environment, project

# Makes directories on the way to the interpreter passable, in a mount namespace of its own, and becomes nobody.
_AS_NOBODY = r"""
set -eu
nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"
while [ "$1" != -- ]; do
  path=$1 above=
  shift
  IFS=/
  for part in ${path#/}; do
    unset IFS
    above=$above/$part
    if [ "$above" != "$path" ] && ! $nobody test -x "$above"; then
      mkdir -p "$SCRATCH/hold"
      mount --rbind "$path" "$SCRATCH/hold"
      mount -t tmpfs -o mode=0755 tmpfs "$above"
      mkdir -p "$path"
      mount --move "$SCRATCH/hold" "$path"
      break
    fi
  done
  unset IFS
done
shift
exec $nobody --no-new-privs "$@"
"""


def as_nobody(scratch: Path, *command: str | Path, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command as somebody without rights; where we are that already, as ourselves."""
    argv = [str(word) for word in command]
    if os.geteuid() == 0:
        paths = [sys.base_prefix, sys.prefix, str(scratch)]
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _AS_NOBODY, "sh", *paths, "--", *argv]
    env = {**env, "SCRATCH": str(scratch)}
    return subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that others can get to: pytest's own are closed to them, and every pytest sees to it."""
    path = Path(tempfile.mkdtemp(prefix="agx-nobody-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def test_nobody_can_build(open_path: Path) -> None:
    where = project(open_path / "p")
    env = {**environment(open_path / "cache"), "HOME": str(open_path), "UV_CACHE_DIR": str(open_path / "uv")}
    if os.geteuid() == 0:
        for path in (open_path, *open_path.rglob("*")):
            os.chown(path, 65534, 65534)
    done = as_nobody(open_path, AGENTIX, "build", cwd=where, env=env)
    assert done.returncode == 0, done.stderr
    assert "digest -> sha256:" in done.stdout
    assert (where / "dist" / "proj-1.2-linux-amd64.bundle.tar").is_file()


def test_where_namespaces_are_forbidden_the_error_says_so(tmp_path: Path, build_cache: Path) -> None:
    """A user namespace in which no further one may be made, and no capability left."""
    where = project(tmp_path / "p")
    script = (
        "echo 0 >/proc/sys/user/max_user_namespaces && "
        "exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all " + str(AGENTIX) + " build"
    )
    env = environment(build_cache, PATH=f"{BIN}:{os.environ['PATH']}")
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        cwd=where,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert "does not allow the private mount namespace" in done.stderr
    assert "--container-engine" in done.stderr
    assert not (where / "dist").exists()


def test_an_engine_that_is_missing_or_fails(tmp_path: Path, build_cache: Path) -> None:
    where = project(tmp_path / "p")
    env = environment(build_cache)
    gone = agentix("build", "--container-engine", "agx-no-engine", cwd=where, env=env)
    assert gone.returncode == 4
    assert "container engine 'agx-no-engine' not found on PATH" in gone.stderr
    engine = tmp_path / "engine"
    engine.write_text('#!/bin/sh\necho "the engine says no" >&2\nexit 7\n')
    engine.chmod(0o755)
    failed = agentix("build", "--container-engine", engine, cwd=where, env=env)
    assert failed.returncode == 7
    assert "the engine says no" in failed.stderr
    assert "run … exited with code 7" in failed.stderr
    other = agentix("build", "--container-engine", engine, "--platform", "arm64", cwd=where, env=env)
    assert other.returncode == 1
    assert "--container-image" in other.stderr
    assert not (where / "dist").exists()


# ---- for another platform


def cannot_build(where: Path, cache: Path, engine: str | Path, *more: str) -> str:
    """What the build says that must fail before it has copied or made anything."""
    done = agentix(
        *("build", "--platform", "arm64", "--container-engine", engine, *more), cwd=where, env=environment(cache)
    )
    assert done.returncode not in (0, 2), done.stderr
    assert done.stdout == ""
    assert not (where / "dist").exists()
    assert not (cache / "agentix/build").exists()
    return done.stderr


def test_what_an_engine_is_asked_before_a_build_for_another_platform(tmp_path: Path) -> None:
    where, asked = project(tmp_path / "p"), tmp_path / "asked"
    engine = tmp_path / "engine"
    engine.write_text(f'#!/bin/sh\necho "$*" >>{asked}\necho "exec /x: exec format error" >&2\nexit 1\n')
    engine.chmod(0o755)
    said = cannot_build(
        where, tmp_path / "cache", engine, "--container-image", "img", "--container-arg=-D", "--container-run-arg=-t"
    )
    assert asked.read_text() == "-D run --rm --platform=linux/arm64 -t --entrypoint=agentix img --version\n"
    assert "it does not run agentix of img for linux/arm64: exec /x: exec format error" in said
    assert "qemu-user-static" in said
    engine.write_text('#!/bin/sh\necho "no such image" >&2\nexit 125\n')
    said = cannot_build(where, tmp_path / "cache", engine, "--container-image", "img")
    assert "run … exited with code 125" in said
    assert "no such image" in said
    assert "--container-image" in said


def foreign_image(path: Path, tag: str) -> Path:
    """An image for arm64, whose agentix is as much of a program of that platform as a kernel looks at."""
    header = struct.pack(
        "<4s5B7xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 0, 2, 183, 1, 0x400078, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, 128, 128, 4096)

    def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.mode, info.size = 0o755, len(data)
        tar.addfile(info, io.BytesIO(data))

    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        add(tar, "bin/agentix", (header + segment).ljust(128, b"\0"))
    config = {
        "architecture": "arm64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        add(tar, "config.json", json.dumps(config).encode())
        add(tar, "layer.tar", layer.getvalue())
        add(tar, "manifest.json", json.dumps(manifest).encode())
    return path


def test_an_engine_that_does_not_run_that_platform(engine: engines.Engine, tmp_path: Path) -> None:
    """A real one: programs of that platform do not start here, and an image for ours is none for that."""
    where, tag = project(tmp_path / "p"), f"localhost/agentix-test/foreign-{engine.kind}:latest"
    engine("load", "-i", str(foreign_image(tmp_path / "image.tar", tag)))
    try:
        said = cannot_build(where, tmp_path / "cache", engine.program, "--container-image", tag)
    finally:
        engine("rmi", "-f", tag)
    assert f"it does not run agentix of {tag} for linux/arm64" in said
    if not Path("/proc/sys/fs/binfmt_misc/qemu-aarch64").exists():
        assert "xec format error" in said, said
        assert "qemu-user-static" in said
    ours = engine.image("busybox")
    said = cannot_build(where, tmp_path / "cache", engine.program, "--container-image", ours)
    assert f"it does not run agentix of {ours} for linux/arm64" in said
