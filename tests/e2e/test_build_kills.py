"""`agentix build` killed at any moment: no half bundle, no process, no mount; what it left is removed by the next."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from bundletools import AGENTIX, agentix, build, environment, project


def processes_with(word: bytes) -> list[str]:
    """The processes whose environment has this word."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if word in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                pass
    return found


def check_bundles(where: Path, env: dict[str, str]) -> None:
    for path in (where / "dist").glob("*.bundle.tar"):
        done = agentix("bundle", "verify", path, cwd=where, env=env)
        assert done.returncode == 0, done.stderr


def grow_old(cache: Path) -> None:
    """Young stages are left alone: one that is just being made has no lock yet. Adds one without a lock, too."""
    (cache / "stage-000000" / "tree").mkdir(parents=True)
    for stage in cache.glob("stage-*"):
        for path in (stage / "lock", stage):
            if path.exists():
                os.utime(path, (0, 0))


def kill_builds(where: Path, cache: Path, count: int) -> int:
    mark = f"AGX_TEST_MARK={where}"
    env = environment(cache, AGX_TEST_MARK=str(where))
    build(cwd=where, env=env)  # with what later ones find in the cache
    source = where / "src/proj/__init__.py"
    source.write_text("A = 0\n")
    began = time.monotonic()
    build(cwd=where, env=env)
    takes = time.monotonic() - began
    mounts = Path("/proc/self/mounts").read_text()
    moments, killed = random.Random(78), 0
    for number in range(1, count + 1):
        source.write_text(f"A = {number}\n")
        process = subprocess.Popen([AGENTIX, "build"], cwd=where, env=env, stderr=subprocess.DEVNULL)
        time.sleep(moments.uniform(0, takes))
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        deadline = time.monotonic() + 10
        while left := processes_with(mark.encode()):
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
        check_bundles(where, env)
    assert Path("/proc/self/mounts").read_text().count(str(cache)) == mounts.count(str(cache))
    grow_old(cache / "agentix/build")
    source.write_text("A = -1\n")
    said = build(cwd=where, env=env)
    assert [path.name for path in (where / "dist").iterdir()] == [Path(said["bundle"]).name]
    assert [path.name for path in (cache / "agentix/build").iterdir() if path.name.startswith("stage-")] == []
    check_bundles(where, env)
    return killed


def test_a_kill_at_any_moment_leaves_nothing_half(tmp_path: Path, build_cache: Path) -> None:
    assert kill_builds(project(tmp_path / "p"), build_cache, 3) > 0


def test_what_a_killed_build_was_writing_is_written_over(tmp_path: Path, build_cache: Path) -> None:
    where, env = project(tmp_path / "p"), environment(build_cache)
    bundle = where / build(cwd=where, env=env)["bundle"]
    size = bundle.stat().st_size
    bundle.with_name(bundle.name + ".part").write_bytes(b"\xff" * (size + (1 << 20)))
    bundle.unlink()
    said = build(cwd=where, env=env)
    assert [path.name for path in (where / "dist").iterdir()] == [bundle.name]
    assert (said["size"], bundle.stat().st_size) == (size, size)
    check_bundles(where, env)


def test_builds_of_one_bundle_take_turns(tmp_path: Path, build_cache: Path) -> None:
    where, env = project(tmp_path / "p"), environment(build_cache)
    builds = [subprocess.Popen([AGENTIX, "build"], cwd=where, env=env, stderr=subprocess.PIPE) for _ in range(2)]
    for process in builds:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    assert [path.name for path in (where / "dist").iterdir()] == ["proj-1.2-linux-amd64.bundle.tar"]
    check_bundles(where, env)


@pytest.mark.long
def test_many_kills_leave_nothing_half(tmp_path: Path, build_cache: Path) -> None:
    assert kill_builds(project(tmp_path / "p"), build_cache, 60) > 30
