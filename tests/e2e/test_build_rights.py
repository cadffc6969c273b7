"""`agentix build` without root, and where private namespaces are forbidden."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

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
