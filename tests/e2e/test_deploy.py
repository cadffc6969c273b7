"""`agentix deploy docker` and `agentix bundle` on honest and hostile archives, killed and at once."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from bundles import HONEST, Member, bundle_digest, directory, hardlink, manifest, symlink, write_bundle, write_tar
from cli import AGENTIX, Cli, environment

FIFO = Member("nix/fifo", type=tarfile.FIFOTYPE)
DEVICE = Member("nix/device", type=tarfile.CHRTYPE)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return Cli(home)


def deployed(cli: Cli, tar: Path) -> Path:
    return Path(cli.json("deploy", "docker", tar)["bundle"])


# ---- honest bundles


def test_a_bundle_becomes_an_entry_named_by_its_content(cli: Cli, tmp_path: Path) -> None:
    tar = write_bundle(
        tmp_path / "x.bundle.tar",
        Member("./nix/r\u00e9sum\u00e9/e\u0301", b"text"),
        Member("nix/tool", b"#!/bin/sh\n", mode=0o755),
        symlink("nix/absolute", "/nix/runtime"),
        symlink("nix/runtime/relative", "../tool"),
        hardlink("nix/same", "nix/tool"),
        Member("nix/" + "long/" * 40 + "name", b"x"),
    )
    result = cli.json("deploy", "docker", tar)
    path = Path(result["bundle"])
    digest = bundle_digest(path)
    assert path == cli.cache / digest.replace(":", "-")
    assert result["platform"] == "linux/amd64"
    assert result["metadata"] == {"cache": str(cli.cache), "name": "demo:1.0"}
    assert list(result) == ["bundle", "platform", "metadata", "hints"]
    assert all(str(path) in line for line in result["hints"].values())
    assert (path / "nix/r\u00e9sum\u00e9/e\u0301").read_text() == "text"
    assert os.readlink(path / "nix/absolute") == "/nix/runtime"
    assert (path / "nix/runtime/relative").read_bytes() == b"#!/bin/sh\n"
    assert (path / "nix/same").stat().st_ino == (path / "nix/tool").stat().st_ino
    assert os.access(path / "nix/tool", os.X_OK)
    assert (path / "manifest.json").read_bytes() == manifest().data
    assert cli.entries() == [path.name]
    assert cli.cache.stat().st_mode & 0o777 == 0o700


def test_the_text_form(cli: Cli, tmp_path: Path) -> None:
    done = cli.run("deploy", "podman", write_bundle(tmp_path / "x.tar"), "--name", "mine:2", "--run-arg", "--gpus=all")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    path = cli.cache / cli.entries()[0]
    assert lines[:5] == [
        f"bundle -> {path}",
        "platform -> linux/amd64",
        f"cache -> {cli.cache}",
        "name -> mine:2",
        "",
    ]
    assert lines[5::2] == ["# inspect", "# look around in a container", "# remove"]
    assert lines[8].startswith("podman run ")
    assert " --gpus=all IMAGE sh" in lines[8]
    assert len(lines) == 11
    done = cli.run("deploy", "docker", tmp_path / "x.tar", "--container-engine", "nerdctl")
    assert "\nnerdctl run " in done.stdout


def test_zstd_and_gnu_tars(cli: Cli, tmp_path: Path) -> None:
    plain = write_tar(
        tmp_path / "g.tar", [manifest(), *HONEST, Member("nix/" + "d/" * 90 + "f", b"1")], format=tarfile.GNU_FORMAT
    )
    subprocess.run(["zstd", "-q", str(plain)], check=True)
    assert deployed(cli, plain) == deployed(cli, tmp_path / "g.tar.zst")


def test_directories_need_not_be_members(cli: Cli, tmp_path: Path) -> None:
    path = deployed(cli, write_tar(tmp_path / "x.tar", [HONEST[-1], Member("nix/a/b/c", b"1"), manifest()]))
    assert (path / "nix/a/b").stat().st_mode & 0o777 == 0o755


def test_special_bits_do_not_survive(cli: Cli, tmp_path: Path) -> None:
    path = deployed(
        cli, write_bundle(tmp_path / "x.tar", Member("nix/s", b"", mode=0o6755), directory("nix/d", 0o3777))
    )
    assert (path / "nix/s").stat().st_mode & 0o7777 == 0o755
    assert (path / "nix/d").stat().st_mode & 0o7777 == 0o777


def test_what_is_there_is_left_alone(cli: Cli, tmp_path: Path) -> None:
    tar = write_bundle(tmp_path / "x.tar")
    path = deployed(cli, tar)
    (path / "mark").touch()
    assert deployed(cli, tar) == path
    assert (path / "mark").exists()


def test_a_tar_that_has_not_changed_is_not_unpacked_again(cli: Cli, tmp_path: Path) -> None:
    tar = write_bundle(tmp_path / "x.tar", Member("nix/a", b"1"))
    path = deployed(cli, tar)
    assert not list(cli.cache.glob(".seen-*"))  # it might yet change within one tick of its clock
    time.sleep(3.1)
    assert deployed(cli, tar) == path
    (memory,) = cli.cache.glob(".seen-*")
    # Only what unpacks has reason to look for leftovers.
    leftover = cli.cache / ".tmp-0123456789abcdef"
    leftover.mkdir()
    assert deployed(cli, tar) == path
    assert leftover.exists()
    before = tar.stat()
    data = tar.read_bytes()
    tar.write_bytes(data.replace(b"1" + bytes(511), b"2" + bytes(511)))
    os.utime(tar, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert tar.stat().st_size == before.st_size
    assert deployed(cli, tar) != path
    tar.write_bytes(data)
    assert cli.run("bundle", "rm", path).returncode == 0
    assert deployed(cli, tar) == path
    assert cli.run("bundle", "prune", "--all", "--force").returncode == 0
    assert cli.run("bundle", "prune").returncode == 0
    assert not memory.exists()


def test_an_entry_without_an_entry_point_is_replaced(cli: Cli, tmp_path: Path) -> None:
    tar = write_bundle(tmp_path / "x.tar")
    path = deployed(cli, tar)
    (path / "nix/runtime/bootstrap.sh").unlink()
    (path / "litter").touch()
    assert deployed(cli, tar) == path
    assert sorted(child.name for child in path.iterdir()) == ["manifest.json", "nix"]
    assert cli.entries() == [path.name]


def test_the_digest_is_computed_not_believed(cli: Cli, tmp_path: Path) -> None:
    good = write_bundle(tmp_path / "good.tar", Member("nix/a", b"good"))
    path = deployed(cli, good)
    evil = write_bundle(tmp_path / "evil.tar", Member("nix/a", b"evil"), digest=path.name.replace("-", ":"))
    done = cli.run("deploy", "docker", evil)
    assert done.returncode == 0
    assert "warning: the manifest says the digest is" in done.stderr
    assert (path / "nix/a").read_bytes() == b"good"
    assert len(cli.entries()) == 2
    assert cli.error("bundle", "verify", evil)


def test_platform(cli: Cli, tmp_path: Path) -> None:
    tar = write_bundle(tmp_path / "x.tar")
    assert cli.json("deploy", "docker", tar, "--platform", "x86_64")["platform"] == "linux/amd64"
    assert "linux/amd64" in cli.error("deploy", "docker", tar, "--platform", "linux/arm64")
    cli.error("deploy", "docker", tar, "--platform", "amiga", code=2)


# ---- hostile bundles

HOSTILE = {
    "up": ([Member("../agx80", b"x")], "unsafe member"),
    "absolute": ([Member("/tmp/agx80", b"x")], "unsafe member"),
    "inner-up": ([Member("a/../../agx80", b"x")], "unsafe member"),
    "nix-up": ([Member("nix/../../agx80", b"x")], "unsafe member"),
    "not-nix": ([Member("etc/agx80", b"x")], "non-/nix member"),
    "link-outside-nix": ([symlink("x", "/tmp"), Member("x/agx80", b"x")], "non-/nix member"),
    "link-then-file": ([symlink("nix/x", "/tmp"), Member("nix/x/agx80", b"x")], "unsafe member"),
    "link-then-directory": ([symlink("nix/x", "../.."), directory("nix/x/agx80")], "unsafe member"),
    "link-over-directory": ([directory("nix/d"), symlink("nix/d", "/nix/e")], "duplicate member"),
    "leaving-link-over-directory": ([directory("nix/d"), symlink("nix/d", "/tmp")], "duplicate member"),
    "file-over-link": ([symlink("nix/l", "/nix/new"), Member("nix/l", b"x")], "duplicate member"),
    "through-inner-link": ([symlink("nix/l", "/nix/runtime"), Member("nix/l/x", b"x")], "parent is not a directory"),
    "below-a-file": ([Member("nix/f"), Member("nix/f/x", b"x")], "parent is not a directory"),
    "hard-link-out": ([hardlink("nix/h", "../../etc/passwd")], "unsafe hard-link target"),
    "hard-link-absolute": ([hardlink("nix/h", "/etc/passwd")], "unsafe hard-link target"),
    "hard-link-through-link": (
        [symlink("nix/l", "/etc"), hardlink("nix/h", "nix/l/passwd")],
        "unsafe hard-link target",
    ),
    "hard-link-to-nothing": ([hardlink("nix/h", "nix/none")], "does not exist"),
    "fifo": ([FIFO], "unsupported member type"),
    "device": ([DEVICE], "unsupported member type"),
    "nix-is-a-link": ([], "unsafe member"),
    "deep": ([Member("nix/" + "d/" * 130 + "x", b"x")], "too many directories"),
    "long": ([Member("nix/" + "n" * 256, b"x")], "name too long"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused_whole(cli: Cli, tmp_path: Path, name: str) -> None:
    extra, message = HOSTILE[name]
    members = [manifest(), *HONEST, *extra]
    if name == "nix-is-a-link":
        members = [manifest(), symlink("nix", "/tmp"), Member("nix/agx80", b"x")]
    tar = write_tar(tmp_path / "evil.tar", members)
    assert message in cli.error("deploy", "docker", tar)
    assert cli.entries() == []
    assert not list(tmp_path.rglob("agx80*"))
    assert not Path("/tmp/agx80").exists()


def test_links_that_lead_away_are_left_out(cli: Cli, tmp_path: Path) -> None:
    tar = write_bundle(
        tmp_path / "x.tar",
        symlink("nix/away", "/etc/passwd"),
        symlink("nix/l", "/nix"),
        symlink("nix/crooked", "l/../etc"),
        symlink("nix/stays", "runtime/../runtime"),
    )
    done = cli.run("deploy", "docker", tar)
    assert done.returncode == 0
    assert [line.split(":")[1] for line in done.stderr.splitlines() if "left out" in line] == [
        " left out nix/away",
        " left out nix/crooked",
    ]
    (entry,) = cli.entries()
    assert sorted(p.name for p in (cli.cache / entry / "nix").iterdir()) == ["l", "runtime", "stays"]


NOT_BUNDLES = {
    "empty": b"",
    "text": b"hello\n" * 1000,
    "zeros": bytes(10240),
    "half": None,
    "no-manifest": [*HONEST],
    "no-entry-point": [manifest(), *HONEST[:-1]],
    "other-format": [manifest(format="docker"), *HONEST],
    "other-version": [manifest(schema_version=2), *HONEST],
    "bad-json": [Member("manifest.json", b"{"), *HONEST],
    "huge-manifest": [Member("manifest.json", b" " * (1 << 20)), *HONEST],
    "two-manifests": [manifest(), manifest(), *HONEST],
}


@pytest.mark.parametrize("name", NOT_BUNDLES)
def test_what_is_no_bundle_is_said_in_one_line(cli: Cli, tmp_path: Path, name: str) -> None:
    content = NOT_BUNDLES[name]
    tar = tmp_path / "x.tar"
    if isinstance(content, list):
        write_tar(tar, content)
    elif content is None:
        tar.write_bytes(write_bundle(tmp_path / "whole.tar", Member("nix/a", bytes(5000))).read_bytes()[:4000])
    else:
        tar.write_bytes(content)
    assert str(tar) in cli.error("deploy", "docker", tar)
    assert cli.entries() == []


def test_missing_tar_and_directories(cli: Cli, tmp_path: Path) -> None:
    assert "No such file" in cli.error("deploy", "docker", tmp_path / "none.tar")
    assert "a directory" in cli.error("deploy", "docker", tmp_path)


def test_bombs_are_noticed(cli: Cli, tmp_path: Path) -> None:
    tar = write_bundle(tmp_path / "x.tar", Member("nix/zeros", bytes(80 << 20)))
    subprocess.run(["zstd", "-q", "--rm", str(tar)], check=True)
    assert "times its size" in cli.error("deploy", "docker", tmp_path / "x.tar.zst")
    assert cli.entries() == []


# ---- the cache directory


def test_a_cache_that_is_a_link_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    cli.cache.parent.mkdir(parents=True)
    cli.cache.symlink_to(tmp_path / "real")
    assert "a link" in cli.error("deploy", "docker", write_bundle(tmp_path / "x.tar"))
    assert list((tmp_path / "real").iterdir()) == []


def test_a_cache_of_another_user_is_refused(cli: Cli, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.fail("this test needs to give a directory away: run it as root")
    cli.cache.mkdir(parents=True)
    os.chown(cli.cache, 1234, 1234)
    assert "another user" in cli.error("deploy", "docker", write_bundle(tmp_path / "x.tar"))
    assert cli.entries() == []


def test_a_cache_that_others_may_write_is_refused(cli: Cli, tmp_path: Path) -> None:
    cli.cache.mkdir(parents=True)
    cli.cache.chmod(0o777)
    assert "others" in cli.error("deploy", "docker", write_bundle(tmp_path / "x.tar"))


def test_an_entry_that_is_a_link_is_not_used(cli: Cli, tmp_path: Path) -> None:
    tar = write_bundle(tmp_path / "x.tar")
    path = deployed(cli, tar)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    cli.error("deploy", "docker", tar)
    assert cli.entries() == [path.name]


def test_the_second_archive_cannot_use_what_the_first_left(cli: Cli, tmp_path: Path) -> None:
    outside = tmp_path / "agx83"
    outside.mkdir()
    first = write_bundle(tmp_path / "1.tar", symlink("nix/runtime/venv", str(outside)))
    path = deployed(cli, first)
    # As if the first had its link, and the second the very same place.
    (path / "nix/runtime/venv").symlink_to(outside)
    second = write_bundle(
        tmp_path / "2.tar", Member("nix/runtime/venv/agx83", b"x"), digest=path.name.replace("-", ":")
    )
    assert deployed(cli, second) != path
    assert list(outside.iterdir()) == []


def test_another_cache_directory(cli: Cli, tmp_path: Path) -> None:
    tar = write_bundle(tmp_path / "x.tar")
    result = cli.json("deploy", "docker", tar, "--bundle-cache-dir", tmp_path / "other")
    assert Path(result["bundle"]).parent == tmp_path / "other"
    assert cli.json("deploy", "docker", tar, AGENTIX_BUNDLE_CACHE_DIR=str(tmp_path / "third"))["metadata"][
        "cache"
    ] == str(tmp_path / "third")
    assert cli.entries() == []


# ---- killed, and at once


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    noise = random.Random(80)
    files = [Member(f"nix/lib/{i:03}/data", noise.randbytes(200_000)) for i in range(150)]
    return write_bundle(tmp_path_factory.mktemp("large") / "large.tar", *files)


def check_entries(cli: Cli, allowed: set[str]) -> None:
    """Every entry is whole; anything else is a directory in work."""
    for name in cli.entries():
        if not name.startswith(".tmp-"):
            assert name in allowed
            assert bundle_digest(cli.cache / name).replace(":", "-") == name


def kill_often(cli: Cli, tar: Path, times: int) -> int:
    """Kill deploys at random moments, looking at the cache after each; return how many were really killed."""
    began = time.monotonic()
    path = deployed(cli, tar)
    takes = time.monotonic() - began
    moments = random.Random(83)
    killed = 0
    for _ in range(times):
        assert cli.run("bundle", "rm", path).returncode == 0
        process = cli.start("deploy", "docker", tar)
        time.sleep(moments.uniform(0, takes))
        process.kill()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        check_entries(cli, {path.name})
        assert deployed(cli, tar) == path
        assert cli.entries() == [path.name]
    return killed


def test_a_kill_at_any_moment_leaves_no_half_entry(cli: Cli, large: Path) -> None:
    assert kill_often(cli, large, 8) > 2


@pytest.mark.long
def test_many_kills_leave_no_half_entry(cli: Cli, large: Path) -> None:
    assert kill_often(cli, large, 150) > 50


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cleans_up(cli: Cli, large: Path, number: signal.Signals) -> None:
    for _ in range(50):  # on an idle machine it may be done before the signal comes
        process = cli.start("deploy", "docker", large)
        deadline = time.monotonic() + 20
        while not any((entry / "nix/lib").exists() for entry in cli.cache.glob(".tmp-*")) and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.0002)
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
        if process.returncode:
            break
        shutil.rmtree(cli.cache)
    assert process.returncode == 128 + number
    assert "interrupted" in err
    assert cli.entries() == []


def test_many_deploys_at_once(cli: Cli, large: Path, tmp_path: Path) -> None:
    small = write_bundle(tmp_path / "small.tar")
    processes = [cli.start("deploy", "docker", tar, "--format", "json") for tar in [large, small] * 4]
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert out
    assert len(cli.entries()) == 2
    check_entries(cli, set(cli.entries()))


def test_disk_full(cli: Cli, large: Path) -> None:
    cli.cache.mkdir(parents=True, mode=0o700)
    script = 'mount -t tmpfs -o size=4m,mode=0700 none "$1" && shift && "$@"; code=$?; ls -A "$0" >&2; exit $code'
    namespace = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    done = subprocess.run(
        [*namespace, "sh", "-c", script, str(cli.cache), str(cli.cache), AGENTIX, "deploy", "docker", str(large)],
        env=environment(cli.home),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    error, *left = done.stderr.splitlines()
    assert error.startswith("error: cannot write nix/lib/")
    assert error.endswith("No space left on device")
    assert left in ([], [".lock"])


# ---- agentix bundle


def test_bundle_verbs(cli: Cli, tmp_path: Path) -> None:
    tar = write_bundle(tmp_path / "x.tar")
    assert cli.run("bundle", "list").stdout == ""
    path = deployed(cli, tar)
    digest = path.name.replace("-", ":")
    (row,) = cli.json("bundle", "list")["bundles"]
    assert (row["digest"], row["path"], row["name"], row["tag"]) == (digest, str(path), "demo", "1.0")
    assert cli.json("bundle", "inspect", tar)["digest"] == "sha256:" + "0" * 64
    for name in (path, path.name, digest, path.name[7:15]):
        assert cli.json("bundle", "inspect", name)["digest"] == digest
        assert cli.json("bundle", "verify", name) == {
            "path": path.name,
            "expected": digest,
            "computed": digest,
            "ok": True,
        }
    assert cli.run("bundle", "verify", write_bundle(tmp_path / "y.tar", digest=digest)).returncode == 0
    (path / "nix/runtime/bootstrap.sh").write_text("#!/bin/false\n")
    assert cli.run("bundle", "verify", path).returncode == 1
    cli.error("bundle", "inspect", "0123456789", code=3)
    cli.error("bundle", "rm", "0123456789", code=3)
    assert cli.run("bundle", "rm", path).returncode == 0
    assert cli.entries() == []


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"tag": "2"},
        {"platform": "linux/arm64"},
        {"nix_system": "aarch64-linux"},
        {"entrypoint": "/nix/evil.sh"},
        {"runtime_env": {"PATH": "/evil"}},
        {"agentix_added_env": {}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_changed_manifest_is_noticed(cli: Cli, tmp_path: Path, change: dict[str, object]) -> None:
    """The digest holds the manifest, too; so the same tree under another manifest is another entry."""
    path = deployed(cli, write_bundle(tmp_path / "honest.tar"))
    digest = path.name.replace("-", ":")
    honest = write_bundle(tmp_path / "x.tar", digest=digest)
    assert cli.json("bundle", "verify", honest)["computed"] == digest
    changed = write_bundle(tmp_path / "y.tar", digest=digest, **change)
    assert f"{changed} should be {digest}" in cli.error("bundle", "verify", changed)
    done = cli.run("deploy", "docker", changed)
    assert done.returncode == 0
    assert f"warning: the manifest says the digest is {digest}, but what was unpacked is sha256:" in done.stderr
    assert str(path) not in done.stdout
    assert cli.run("bundle", "verify", path).returncode == 0
    (path / "manifest.json").write_bytes(manifest(digest=digest, **change).data)
    assert cli.run("bundle", "verify", path).returncode == 1


def test_how_a_manifest_is_written_does_not_count(cli: Cli, tmp_path: Path) -> None:
    path = deployed(cli, write_bundle(tmp_path / "x.tar"))
    said = dict(reversed(json.loads(manifest().data).items()))
    data = json.dumps({**said, "later": [1]}, indent=7).encode()
    assert deployed(cli, write_tar(tmp_path / "y.tar", [Member("manifest.json", data), *HONEST])) == path


def test_bundle_prune(cli: Cli, tmp_path: Path) -> None:
    path = deployed(cli, write_bundle(tmp_path / "x.tar"))
    (cli.cache / ".tmp-0123456789abcdef/nix").mkdir(parents=True)
    assert cli.json("bundle", "prune") == {"bundles": 0, "leftovers": 1}
    assert cli.entries() == [path.name]
    cli.error("bundle", "prune", "--all", code=2)
    assert cli.json("bundle", "prune", "--all", "--force") == {"bundles": 1, "leftovers": 0}
    assert cli.entries() == []
