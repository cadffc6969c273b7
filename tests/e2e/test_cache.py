"""`agentix cache`: what builds and deploys keep in the home directory, and how the former is emptied."""

from __future__ import annotations

import fcntl
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from bundles import write_bundle
from bundletools import agentix, build, environment, project
from cli import AGENTIX, Cli
from cli import environment as cli_environment


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return Cli(home)


@pytest.fixture
def build_home(cli: Cli) -> Path:
    """A cache with one of everything, and something that is not ours."""
    cache = cli.home / ".cache/agentix/build"
    for name in ("python-0123/python/bin", "stage-abcdef/tree", "nix/store/x", "llhttp-0123"):
        (cache / name).mkdir(parents=True)
        (cache / name / "file").write_bytes(b"x" * 5000)
    (cache / "nix/store/x").chmod(0o555)
    (cache / "state-0123").write_text("x")
    (cache / "npm-0123.tgz").write_text("x")
    return cache


def test_where(cli: Cli) -> None:
    assert cli.json("cache", "dir") == {"bundles": str(cli.cache), "build": f"{cli.home}/.cache/agentix/build"}
    assert cli.run("cache", "dir", AGENTIX_BUILD_CACHE_DIR="/x", AGENTIX_BUNDLE_CACHE_DIR="/y").stdout == (
        "bundles -> /y\nbuild -> /x\n"
    )


def test_nothing_is_there(cli: Cli) -> None:
    said = cli.json("cache", "size")
    assert (said["bundles"]["bytes"], said["build"]["bytes"]) == (0, 0)
    assert cli.json("cache", "clean")["bytes"] == 0
    assert not (cli.home / ".cache").exists()


def test_size(cli: Cli, build_home: Path, tmp_path: Path) -> None:
    cli.json("deploy", "docker", write_bundle(tmp_path / "x.tar"))
    said = cli.json("cache", "size")
    assert said["bundles"]["bundles"] == 1
    assert said["bundles"]["bytes"] > 0
    ours = [path for path in build_home.rglob("*") if "llhttp" not in str(path)]
    assert said["build"] == {
        "path": str(build_home),
        "bytes": sum(path.lstat().st_blocks * 512 for path in ours),
        "interpreters": 1,
        "records": 1,
        "stages": 1,
        "nix_stores": 1,
        "npm_packages": 1,
    }
    assert "(1 bundles)" in cli.run("cache", "size").stdout


def test_clean(cli: Cli, build_home: Path) -> None:
    before = cli.json("cache", "size")["build"]
    would = cli.json("cache", "clean", "--dry-run")
    assert cli.json("cache", "size")["build"] == before
    did = cli.json("cache", "clean")
    assert (would.pop("dry_run"), did.pop("dry_run")) == (True, False)
    assert would == did == before
    assert sorted(path.name for path in build_home.iterdir()) == ["in-use", "llhttp-0123"]
    assert cli.run("cache", "clean").stdout.startswith("freed -> 0 B  (0 interpreters, ")


def test_a_build_at_work_keeps_its_cache(cli: Cli, build_home: Path) -> None:
    with open(build_home / "in-use", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert cli.error("cache", "clean") == f"a build is at work in {build_home}"
        assert (build_home / "python-0123").exists()
    assert cli.run("cache", "clean").returncode == 0


def test_a_build_waits_while_the_cache_is_cleaned(tmp_path: Path, build_cache: Path) -> None:
    where, env = project(tmp_path / "p"), environment(build_cache)
    place = build_cache / "agentix/build"
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "in-use", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with subprocess.Popen([AGENTIX, "build"], cwd=where, env=env, stderr=subprocess.DEVNULL) as process:
            try:
                deadline = time.monotonic() + 30
                while not waits_for_a_lock(process.pid):
                    assert process.poll() is None
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
                fcntl.flock(lock, fcntl.LOCK_UN)
                assert process.wait(timeout=120) == 0
            finally:
                process.kill()


def waits_for_a_lock(pid: int) -> bool:
    """In the kernel's list of locks a waiting one stands behind an arrow."""
    return any(f" {pid} " in line for line in Path("/proc/locks").read_text().splitlines() if " -> " in line)


def test_what_is_cleaned_is_made_again(tmp_path: Path) -> None:
    where, env = project(tmp_path / "p"), environment(tmp_path / "cache")
    first = build(cwd=where, env=env)
    done = agentix("cache", "clean", cwd=where, env=env)
    assert done.stdout.startswith("freed -> ")
    assert "(1 interpreters, 1 records of builds, 0 stages, 0 Nix stores, 0 npm packages)" in done.stdout
    again = build(cwd=where, env=env)
    assert not again["reused"]
    assert again["digest"] == first["digest"]


def test_a_kill_leaves_no_half_interpreter(cli: Cli) -> None:
    cache = cli.home / ".cache/agentix/build"
    moments, cut = random.Random(5), 0
    for _ in range(12):
        layer = cache / "python-0123"
        layer.mkdir(parents=True, exist_ok=True)
        for number in range(1500):
            (layer / str(number)).touch()
        process = subprocess.Popen(
            [AGENTIX, "cache", "clean"], env=cli_environment(cli.home), stdout=subprocess.DEVNULL
        )
        time.sleep(moments.uniform(0, 0.08))
        process.kill()
        cut += process.wait(timeout=20) == -signal.SIGKILL
        assert not layer.exists() or len(list(layer.iterdir())) == 1500
    assert cut > 0
    assert cli.run("cache", "clean").returncode == 0
    assert [path.name for path in cache.iterdir()] == ["in-use"]
