"""`upload_path` and `download_path` against a sandbox that is this process, honest or not."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import pickle
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agentix.files import (
    TransferError,
    UploadResult,
    _conduit,
    _confine,
    _landing,
    _transfer,
    download_path,
    upload_path,
)
from agentix.files import _batch as b
from agentix.files import _sandbox as far
from agentix.files._batch import checksum_of
from agentix.files._landing import TreeLanding

from agentix._core import checksum
from agentix.runtime.shared.safepickle import restricted_loads


class Near:
    """Calls functions here, in threads, as a sandbox would; what it gives has been through the loader."""

    def __init__(self, alter: Callable[[str, Any], Any] | None = None) -> None:
        self.calls: list[str] = []
        self.alter = alter or (lambda name, value: value)

    async def remote(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        name = fn.__name__
        self.calls.append(name)
        value = await asyncio.to_thread(fn, *args)
        return restricted_loads(pickle.dumps(self.alter(name, value), 5))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    inside = tmp_path / "root"
    inside.mkdir()
    monkeypatch.setattr(_confine, "ROOT", str(inside))
    yield inside
    assert far._sessions == {}, "a transfer was left"
    assert list(inside.rglob(".agentix-*")) == []


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    local = tmp_path / "here"
    local.mkdir()
    yield local
    assert list(local.rglob(".agentix-*")) == []


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def make_tree(top: Path) -> None:
    seed = random.Random(3)
    (top / "a" / "b" / "c").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "empty file").write_bytes(b"")
    (top / "a" / "small").write_bytes(b"small")
    (top / "a" / "large").write_bytes(seed.randbytes(3 * b.CHUNK + 17))
    (top / "a" / "b" / "chunk").write_bytes(seed.randbytes(b.CHUNK))
    (top / "a" / "b" / "c" / "chunk and one").write_bytes(seed.randbytes(b.CHUNK + 1))
    for n in range(600):
        (top / "a" / "b" / f"f{n}").write_bytes(seed.randbytes(n))
    (top / os.fsdecode(b"not utf-8 \xff\xfe")).write_bytes(b"name")
    (top / "new\nline").write_bytes(b"name")
    (top / "a" / "script").write_bytes(b"#!/bin/sh\n")
    (top / "a" / "script").chmod(0o755)
    (top / "a" / "private").write_bytes(b"mine")
    (top / "a" / "private").chmod(0o600)
    (top / "a" / "b" / "c").chmod(0o750)
    (top / "read only").mkdir()
    (top / "read only" / "below").mkdir()
    (top / "read only" / "file").write_bytes(b"x")
    (top / "read only" / "below").chmod(0o500)
    (top / "read only").chmod(0o555)
    (top / "to-small").symlink_to("a/small")
    (top / "a" / "b" / "up").symlink_to("../../empty")
    (top / "a" / "in-full").symlink_to(top / "empty file")
    (top / "a" / "dangling").symlink_to("nowhere")


def listing(top: Path) -> dict[str, tuple[int, bytes | str | None]]:
    """Modes, contents and links of a tree."""
    found: dict[str, tuple[int, bytes | str | None]] = {}
    for path in sorted(top.rglob("*")):
        about = path.lstat()
        what: bytes | str | None = None
        if stat.S_ISLNK(about.st_mode):
            what = os.readlink(path)
        elif stat.S_ISREG(about.st_mode):
            what = path.read_bytes()
        found[str(path.relative_to(top))] = (stat.S_IMODE(about.st_mode), what)
    return found


# ---- honest ----


@pytest.mark.parametrize("size", [0, 1, b.CHUNK - 1, b.CHUNK, b.CHUNK + 1, 5 * b.CHUNK + 3])
def test_a_file_there_and_back(root: Path, here: Path, size: int) -> None:
    content = random.Random(size).randbytes(size)
    (here / "out").write_bytes(content)
    (here / "out").chmod(0o640)
    told: list[tuple[int, int | None]] = []
    sandbox = Near()
    up = run(upload_path(sandbox, here / "out", "deep/file", progress=lambda *now: told.append(now)))
    assert up == UploadResult(str(root / "deep" / "file"), size)
    assert (root / "deep" / "file").read_bytes() == content
    assert stat.S_IMODE((root / "deep" / "file").stat().st_mode) == 0o640
    check_progress(told, size)
    told.clear()
    down = run(download_path(sandbox, "deep/file", here / "x" / "back", progress=lambda *now: told.append(now)))
    assert down == UploadResult(str(here / "x" / "back"), size)
    assert (here / "x" / "back").read_bytes() == content
    assert stat.S_IMODE((here / "x" / "back").stat().st_mode) == 0o640
    check_progress(told, size)


def check_progress(told: list[tuple[int, int | None]], size: int) -> None:
    assert told[0] == (0, size)
    assert told[-1] == (size, size)
    assert told == sorted(told)  # type: ignore[type-var]


def test_a_tree_there_and_back(root: Path, here: Path) -> None:
    make_tree(here / "tree")
    told: list[tuple[int, int | None]] = []
    sandbox = Near()
    up = run(upload_path(sandbox, here / "tree", "tree", progress=lambda *now: told.append(now)))
    expected = listing(here / "tree")
    expected["a/in-full"] = (0o777, "../empty file")  # valid there, too
    assert listing(root / "tree") == expected
    size = sum(len(what) for _, what in expected.values() if isinstance(what, bytes))
    assert up == UploadResult(str(root / "tree"), size)
    assert told[0] == (0, None)
    assert told[-1] == (size, None)
    assert run(download_path(sandbox, "tree", here / "back")).size == size
    assert listing(here / "back") == expected
    assert sandbox.calls.count("put") < 20  # small files travel together


def test_an_empty_directory(root: Path, here: Path) -> None:
    (here / "empty").mkdir(mode=0o750)
    run(upload_path(Near(), here / "empty", "e"))
    assert stat.S_IMODE((root / "e").stat().st_mode) == 0o750
    run(download_path(Near(), "e", here / "e2"))
    assert listing(here / "e2") == {}


def test_a_tree_is_merged_into_one_that_is_there(root: Path, here: Path) -> None:
    (here / "t" / "both" / "new").mkdir(parents=True)
    (here / "t" / "both" / "file").write_bytes(b"new")
    (here / "t" / "fresh").mkdir(mode=0o555)
    (here / "t" / "link").symlink_to("both/file")
    (root / "t" / "both").mkdir(parents=True)
    (root / "t" / "both" / "file").write_bytes(b"old")
    (root / "t" / "both" / "kept").write_bytes(b"kept")
    (root / "t" / "link").write_bytes(b"was a file")
    (root / "t").chmod(0o700)
    run(upload_path(Near(), here / "t", "t"))
    assert listing(root / "t") == {
        "both": (0o755, None),
        "both/file": (0o644, b"new"),
        "both/kept": (0o644, b"kept"),
        "both/new": (0o755, None),
        "fresh": (0o555, None),
        "link": (0o777, "both/file"),
    }
    assert stat.S_IMODE((root / "t").stat().st_mode) == 0o700
    run(upload_path(Near(), here / "t" / "both", str(root)))  # the root itself
    assert (root / "file").read_bytes() == b"new"


@pytest.mark.parametrize("deep", ["", "d/e/"])
def test_a_merge_that_cannot_be_changes_nothing(root: Path, here: Path, deep: str) -> None:
    (here / "t" / deep / "x").mkdir(parents=True)
    (here / "t" / "first").write_bytes(b"1")
    (root / "t" / deep).mkdir(parents=True)
    (root / "t" / deep / "x").symlink_to("/")
    before = listing(root)
    with pytest.raises(FileExistsError):
        run(upload_path(Near(), here / "t", "t"))
    assert listing(root) == before


def test_kinds_that_do_not_fit(root: Path, here: Path) -> None:
    (here / "file").write_bytes(b"1")
    (here / "dir").mkdir()
    (root / "file").write_bytes(b"1")
    (root / "dir").mkdir()
    with pytest.raises(NotADirectoryError):
        run(upload_path(Near(), here / "dir", "file"))
    with pytest.raises(IsADirectoryError):
        run(upload_path(Near(), here / "file", "dir"))
    with pytest.raises(NotADirectoryError):
        run(download_path(Near(), "dir", here / "file"))
    with pytest.raises(IsADirectoryError):
        run(download_path(Near(), "file", here / "dir"))
    with pytest.raises(FileNotFoundError):
        run(download_path(Near(), "none", here / "none"))
    with pytest.raises(FileNotFoundError):
        run(upload_path(Near(), here / "none", "none"))
    with pytest.raises(PermissionError, match="outside allowed root"):
        run(download_path(Near(), "/etc/hostname", here / "made" / "none"))
    assert sorted(os.listdir(here)) == ["dir", "file"]


def test_a_local_source_is_not_left_by_links(root: Path, here: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (here / "t").mkdir()
    (here / "t" / "out").symlink_to(tmp_path / "secret")
    (here / "t" / "up").symlink_to("../../secret")
    run(upload_path(Near(), here / "t", "t"))
    assert os.readlink(root / "t" / "out") == str(tmp_path / "secret")
    assert os.readlink(root / "t" / "up") == "../../secret"
    (here / "named").symlink_to(tmp_path / "secret")  # whoever names a link means what it leads to
    run(upload_path(Near(), here / "named", "named"))
    assert (root / "named").read_bytes() == b"secret"


@pytest.mark.parametrize("place", ["dev", "fifo", "proc", "in a tree"])
def test_local_sources_without_end(root: Path, here: Path, place: str) -> None:
    os.mkfifo(here / "fifo")
    source = {"dev": "/dev/zero", "fifo": here / "fifo", "proc": "/proc/self/environ", "in a tree": here}[place]
    with pytest.raises(PermissionError, match="may have no end"):
        run(upload_path(Near(), source, "x"))
    assert listing(root) == {}


# ---- what changes meanwhile ----


@pytest.mark.parametrize("how", ["grows", "shrinks", "altered"])
@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("tree", [False, True])
def test_a_source_that_changes(root: Path, here: Path, how: str, way: str, tree: bool) -> None:
    top = here if way == "up" else root
    (top / "t").mkdir()
    path = top / "t" / "changing"
    path.write_bytes(bytes(12 * b.CHUNK))
    changed: list[bool] = []

    def progress(done: int, total: int | None) -> None:
        if done and not changed:
            changed.append(True)
            with path.open("r+b") as file:
                if how == "grows":
                    file.seek(0, 2)
                    file.write(b"more")
                elif how == "shrinks":
                    file.truncate(11 * b.CHUNK - 5)
                else:
                    file.seek(3)
                    file.write(b"x")

    name = "t" if tree else "t/changing"
    with pytest.raises(TransferError, match=r"shorter|changed while it was read"):
        run(
            upload_path(Near(), here / name, "new/there", progress=progress)
            if way == "up"
            else download_path(Near(), name, here / "new" / "there", progress=progress)
        )
    assert changed
    assert not (here / "new").exists()
    assert not (root / "new").exists()


@pytest.mark.parametrize("when", ["first", "middle", "last"])
def test_a_progress_function_that_raises(root: Path, here: Path, when: str) -> None:
    """Whenever it does: the last time it is called is before the file gets its name."""

    def progress(done: int, total: int | None) -> None:
        if when == "middle" if 0 < done < (total or 0) else when == ("last" if done else "first"):
            raise LookupError("enough")

    (here / "f").write_bytes(bytes(3 * b.CHUNK))
    (root / "f").write_bytes(bytes(3 * b.CHUNK))
    with pytest.raises(LookupError, match="enough"):
        run(upload_path(Near(), here / "f", "up/f", progress=progress))
    with pytest.raises(LookupError, match="enough"):
        run(download_path(Near(), "f", here / "down" / "f", progress=progress))
    assert os.listdir(root) == ["f"]
    assert os.listdir(here) == ["f"]


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("at", ["begin_put", "begin_get", "put", "take", "end_put", "end_get"])
def test_a_cancelled_caller(root: Path, here: Path, way: str, at: str) -> None:
    """Wherever it is cancelled, nothing is left; at the very end the whole file may stand there."""
    content = bytes(6 * b.CHUNK)
    (here / "f").write_bytes(content)
    (root / "f").write_bytes(content)

    async def main() -> None:
        task: asyncio.Task[Any]

        class Cancelling(Near):
            async def remote(self, fn: Callable[..., Any], /, *args: Any) -> Any:
                if fn.__name__ == at:
                    task.cancel()
                return await super().remote(fn, *args)

        sandbox = Cancelling()
        task = asyncio.create_task(
            upload_path(sandbox, here / "f", "new/f")
            if way == "up"
            else download_path(sandbox, "f", here / "new" / "f")
        )
        try:
            await task
        except asyncio.CancelledError:
            pass

    run(main())
    for new in (root / "new" / "f", here / "new" / "f"):
        assert not new.exists() or new.read_bytes() == content
        assert new.exists() or not new.parent.exists()


def test_links_do_not_depend_on_how_a_source_is_spelt(
    root: Path, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "t" / "sub").mkdir(parents=True)
    (here / "t" / "f").write_bytes(b"f")
    (here / "t" / "sub" / "whole").symlink_to(here / "t" / "f")
    (here / "t" / "sub" / "other").symlink_to("/etc/passwd")
    (tmp_path / "by").symlink_to(here)
    monkeypatch.chdir(here)
    spelt = ["t", "t/", "./t", "t/.", "../here/t", "t/sub/..", str(here / "t") + "//", str(tmp_path / "by" / "t")]
    for n, source in enumerate(spelt):
        run(upload_path(Near(), source, f"up{n}"))
        assert os.readlink(root / f"up{n}" / "sub" / "whole") == "../f", source
        assert os.readlink(root / f"up{n}" / "sub" / "other") == "/etc/passwd"


def test_a_directory_that_somebody_has_locked(root: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for a while, but not by the event loop."""
    (root / "f").write_bytes(b"f")
    waited: list[int] = []

    def pause(_: float) -> None:
        waited.append(threading.get_ident())

    monkeypatch.setattr(_confine, "time", SimpleNamespace(sleep=pause))
    lock = os.open(here, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run(download_path(Near(), "f", here / "f"))
    finally:
        os.close(lock)
    assert (here / "f").read_bytes() == b"f"
    assert waited
    assert threading.get_ident() not in waited


@pytest.mark.parametrize("round", range(3))
def test_several_trees_to_one_new_name(root: Path, here: Path, round: int) -> None:
    """Whoever comes second is merged into what the first one made."""
    for n in range(8):
        top = here / f"t{n}"
        (top / "shared" / "deep").mkdir(parents=True)
        (top / "shared" / f"own{n}").write_bytes(b"%d" % n)
        (top / "shared" / "deep" / f"own{n}").write_bytes(b"%d" % n)
        (top / "same").write_bytes(b"%d" % n)
        (top / "shared").chmod(0o750)

    class Together(Near):
        """All of them are begun before one is ended, and then they end at the same moment."""

        async def remote(self, fn: Callable[..., Any], /, *args: Any) -> Any:
            if fn.__name__ == "end_put":
                await asyncio.wait_for(barrier.wait(), 30)
            return await super().remote(fn, *args)

    async def main() -> None:
        nonlocal barrier
        barrier = asyncio.Barrier(8)
        await asyncio.gather(*(upload_path(Together(), here / f"t{n}", "new") for n in range(8)))

    barrier: asyncio.Barrier
    run(main())
    found = listing(root / "new")
    assert {name for name in found if "own" in name} == {
        f"shared/{deep}own{n}" for n in range(8) for deep in ("", "deep/")
    }
    assert found["same"][1] in {b"%d" % n for n in range(8)}
    assert found["shared"][0] == 0o750


KILLED = """
import os, signal, sys
from agentix.files._landing import TreeLanding, FileLanding
from agentix.files._transfer import _local
place = _local(sys.argv[1])
landing = TreeLanding(place, "0" * 32, 0o755, outside_links="refuse")
landing.accept([("f", b"d/f", 0o644, 4, 0, b"half")])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("exists", [False, True])
def test_what_a_killed_host_left_goes_with_the_next_download(root: Path, here: Path, exists: bool) -> None:
    (root / "t").mkdir()
    (root / "t" / "f").write_bytes(b"f")
    target = here / "target"
    if exists:
        target.mkdir()
    left = (target if exists else here) / (".agentix-" + "0" * 32)
    done = subprocess.run([sys.executable, "-c", KILLED, target], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (left / "d" / "f").exists()
    living = TreeLanding(_transfer._local(str(target)), "1" * 32, 0o755, outside_links="refuse")
    beside = left.with_name(".agentix-" + "1" * 32)
    mine = left.with_name(".agentix-not-of-ours")
    mine.mkdir()
    try:
        run(download_path(Near(), "t", target))
        assert not left.exists()
        assert beside.exists()
        assert mine.exists()
        assert (target / "f").read_bytes() == b"f"
    finally:
        living.abort()
        living.place.close()
        mine.rmdir()


def test_who_is_taken_for_left_behind_begins_again(root: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another transfer has just locked the new directory, and takes a moment to remove it."""
    real = os.mkdir
    sweepers: list[threading.Thread] = []

    def mkdir(path: str | bytes, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        real(path, mode, dir_fd=dir_fd)
        if not sweepers:
            fd = os.open(path, os.O_RDONLY, dir_fd=dir_fd)
            fcntl.flock(fd, fcntl.LOCK_EX)
            sweepers.append(threading.Timer(0.2, lambda: (os.rmdir(here / os.fsdecode(path)), os.close(fd))))
            sweepers[0].start()

    monkeypatch.setattr(os, "mkdir", mkdir)
    landing = TreeLanding(_transfer._local(str(here / "target")), "0" * 32, 0o755, outside_links="refuse")
    sweepers[0].join(30)
    try:
        assert (here / (".agentix-" + "0" * 32)).is_dir()
        landing.accept([("f", b"f", 0o644, 4, 0, b"here")])
        landing.finish(1, 4)
        assert (here / "target" / "f").read_bytes() == b"here"
    finally:
        landing.place.close()


def test_what_has_the_name_now_is_not_what_was_left(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found has been removed by somebody else before it was locked, and its name been taken again."""
    left = here / (".agentix-" + "0" * 32)
    left.mkdir()
    real = os.open

    def opened(path: str, flags: int, *args: Any, **kwargs: Any) -> int:
        fd = real(path, flags, *args, **kwargs)
        if path == left.name and not (left / "f").exists():
            left.rmdir()
            left.mkdir()
            (left / "f").write_bytes(b"of a living transfer")
        return fd

    directory = real(here, os.O_RDONLY | os.O_DIRECTORY)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", opened)
        _landing._sweep(directory)
    os.close(directory)
    assert (left / "f").read_bytes() == b"of a living transfer"
    shutil.rmtree(left)


# ---- a sandbox that lies ----


class Piped(Near):
    """A sandbox with conduits, whose other end `far` plays in a thread."""

    def __init__(self, answers: dict[str, Any], far: Callable[[socket.socket], None]) -> None:
        super().__init__()
        self.answers = answers
        self.far = far
        self.threads: list[threading.Thread] = []

    async def remote(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        if fn.__name__ in self.answers:
            self.calls.append(fn.__name__)
            if fn.__name__ in ("send", "receive"):
                await asyncio.to_thread(self.threads[-1].join, 30)
            return self.answers[fn.__name__]
        return await super().remote(fn, *args)

    async def _open_conduit(self, name: str) -> socket.socket | None:
        near, far = socket.socketpair()

        def play() -> None:
            with far:
                far.settimeout(30)
                try:
                    self.far(far)
                except OSError:
                    pass

        self.threads.append(threading.Thread(target=play, daemon=True))
        self.threads[-1].start()
        return near


def nothing(far: socket.socket) -> None:
    pass


def pieces(content: bytes, *, wrong: bool = False) -> Callable[[socket.socket], None]:
    def play(far: socket.socket) -> None:
        far.recv(1)
        for at in range(0, len(content), _conduit.PIECE):
            piece = content[at : at + _conduit.PIECE]
            far.sendall(((checksum(piece) + wrong) % (1 << 64)).to_bytes(8, "little") + piece)
        far.sendall(b"more than was asked for")

    return play


LARGE = random.Random(5).randbytes(_conduit.FROM + 1234)


@pytest.mark.parametrize("there", [True, None, "0", 2.0, len(LARGE) + 1, b""])
def test_a_conduit_that_has_what_cannot_be(root: Path, here: Path, there: Any) -> None:
    (here / "f").write_bytes(LARGE)
    (root / "g").write_bytes(LARGE)
    with pytest.raises(TransferError, match="how much of the file it has"):
        run(upload_path(Piped({"conduit": there}, nothing), here / "f", "new/f"))
    with pytest.raises(TransferError, match="how much of the file it has"):
        run(download_path(Piped({"conduit": there}, nothing), "g", here / "new" / "f"))
    assert os.listdir(root) == ["g"]
    assert os.listdir(here) == ["f"]


@pytest.mark.parametrize("said", [True, False, None, "yes", 7])
def test_a_conduit_that_says_nothing(root: Path, here: Path, said: Any) -> None:
    """Whatever its call says of it: what did not come this way comes in batches."""
    (here / "f").write_bytes(LARGE)
    far = Piped({"conduit": 0, "send": said, "receive": said}, nothing)
    run(upload_path(far, here / "f", "f"))
    run(download_path(far, "f", here / "back"))
    assert (root / "f").read_bytes() == (here / "back").read_bytes() == LARGE
    assert {"put", "take", "send", "receive"} <= set(far.calls)


def test_what_comes_by_a_conduit(root: Path, here: Path) -> None:
    (root / "f").write_bytes(LARGE)
    run(download_path(Piped({"conduit": 0, "send": True}, pieces(LARGE)), "f", here / "back"))
    assert (here / "back").read_bytes() == LARGE
    with pytest.raises(TransferError, match="checksum of a piece is wrong"):
        run(download_path(Piped({"conduit": 0, "send": True}, pieces(LARGE, wrong=True)), "f", here / "new" / "f"))
    other = LARGE[:-5] + b"other"  # it is the sandbox's to say what is in its files
    run(download_path(Piped({"conduit": 0, "send": True}, pieces(other)), "f", here / "other"))
    assert (here / "other").read_bytes() == other
    assert sorted(os.listdir(here)) == ["back", "other"]


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_transfer_by_a_conduit_that_is_cancelled_says_nothing(root: Path, here: Path, way: str) -> None:
    """What its thread failed with, since its connection was shut, is nobody's to hear of any more."""
    (here / "f").write_bytes(LARGE)
    (root / "f").write_bytes(LARGE)
    said: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        begun, over = asyncio.Event(), threading.Event()

        class Stalling(Piped):
            async def remote(self, fn: Callable[..., Any], /, *args: Any) -> Any:
                if fn.__name__ in ("send", "receive"):
                    begun.set()
                    await asyncio.Event().wait()
                return await super().remote(fn, *args)

        sandbox = Stalling({"conduit": 0}, lambda far: void(over.wait(30)))
        task = asyncio.create_task(
            upload_path(sandbox, here / "f", "new/f")
            if way == "up"
            else download_path(sandbox, "f", here / "new" / "f")
        )
        await asyncio.wait_for(begun.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        over.set()
        for thread in sandbox.threads:
            await asyncio.to_thread(thread.join, 30)
        del task
        gc.collect()

    run(main())
    assert said == []


def void(_: object) -> None:
    pass


def offering(kind: str, batches: list[list[Any]], *, totals: tuple[int, int] | None = None) -> Near:
    """A sandbox that says these batches."""
    size = batches[0][0][3] if kind == b.FILE else None
    said = iter(batches)
    lock = threading.Lock()

    class Lying(Near):
        async def remote(self, fn: Callable[..., Any], /, *args: Any) -> Any:
            match fn.__name__:
                case "begin_get":
                    return kind, size, 0o755
                case "take":
                    with lock:
                        batch = next(said, [])
                    return (checksum_of(batch) if well_formed(batch) else 0), batch
                case "end_get":
                    entries = [entry for batch in batches for entry in batch]
                    return totals or (len(entries), sum(len(entry[5]) for entry in entries if entry[0] == b.FILE))
                case _:
                    return None

    return Lying()


def well_formed(batch: list[Any]) -> bool:
    return all(type(entry) is tuple and len(entry) == 6 for entry in batch)


def file(path: bytes, data: bytes = b"evil", mode: int = 0o644) -> tuple[Any, ...]:
    return (b.FILE, path, mode, len(data), 0, data)


def link(path: bytes, text: bytes) -> tuple[Any, ...]:
    return (b.LINK, path, 0o777, 0, 0, text)


def directory(path: bytes, mode: int = 0o755) -> tuple[Any, ...]:
    return (b.DIRECTORY, path, mode, 0, 0, b"")


HOSTILE: dict[str, list[Any]] = {
    "above": [file(b"../agx85")],
    "above, later": [file(b"a/../../agx85")],
    "dots": [file(b"a/./b")],
    "absolute": [file(b"/tmp/agx85")],
    "empty name": [file(b"a//b")],
    "no name": [file(b"")],
    "trailing": [file(b"a/")],
    "null": [file(b"a\0b")],
    "long name": [file(b"x" * 256)],
    "long path": [file(b"/".join([b"x" * 200] * 21))],
    "deep": [file(b"/".join([b"x"] * 300))],
    "link to a file outside": [link(b"x", b"/etc/hostname")],
    "link above": [link(b"x", b"../agx85")],
    "link above through a link": [link(b"s", b"."), link(b"x", b"s/../agx85")],
    "link, then through it": [link(b"x", b"sub"), file(b"x/file")],
    "link, then the file itself": [link(b"x", b"victim"), file(b"x")],
    "file, then link": [file(b"x"), link(b"x", b"y")],
    "file twice": [file(b"x"), file(b"x")],
    "file, then directory": [file(b"x"), directory(b"x")],
    "directory, then link": [directory(b"x"), link(b"x", b"y")],
    "directory, then file": [directory(b"x"), file(b"x")],
    "file as a directory": [file(b"x"), file(b"x/y")],
    "empty link": [link(b"x", b"")],
    "unknown kind": [("b", b"dev", 0o644, 0, 0, b"")],
    "hard link": [("h", b"x", 0o644, 0, 0, b"/etc/passwd")],
    "beyond its size": [(b.FILE, b"x", 0o644, 4, 2, b"evil")],
    "negative": [(b.FILE, b"x", 0o644, 4, -1, b"e")],
    "no progress": [(b.FILE, b"x", 0o644, 4, 0, b"")] * 3,
    "not whole": [(b.FILE, b"x", 0o644, 5, 0, b"evil")],
    "text": [("f", "x", 0o644, 4, 0, b"evil")],
    "short": [("f", b"x", 0o644)],
    "no tuple": ["f"],
    "bool": [(b.FILE, b"x", True, 4, 0, b"evil")],
    "many unfinished": [(b.FILE, b"x%d" % n, 0o644, 9, 0, b"evil") for n in range(200)],
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("exists", [False, True])
def test_a_hostile_tree(here: Path, tmp_path: Path, name: str, exists: bool) -> None:
    (tmp_path / "victim").write_bytes(b"victim")
    target = here / "below" / "target"
    if exists:
        target.mkdir(parents=True)
        (target / "kept").write_bytes(b"kept")
    before = listing(tmp_path)
    totals = None if well_formed(HOSTILE[name]) else (1, 1)
    with pytest.raises(TransferError):
        run(download_path(offering(b.DIRECTORY, [HOSTILE[name]], totals=totals), "x", target))
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    "answer",
    [
        None,
        (b.DIRECTORY, 3, 0o755),
        (b.FILE, None, 0o644),
        (b.FILE, -1, 0o644),
        (b.FILE, 1, 0o4755),
        (b.FILE, True, 0o644),
        ("b", 1, 0o644),
        (b.FILE, 1),
        "f",
    ],
)
def test_a_hostile_offer(here: Path, answer: Any) -> None:
    class Lying(Near):
        async def remote(self, fn: Callable[..., Any], /, *args: Any) -> Any:
            return answer

    with pytest.raises(TransferError, match="neither a file nor a directory"):
        run(download_path(Lying(), "x", here / "t"))
    assert os.listdir(here) == []


def test_an_offer_that_does_not_fit_is_refused_at_once(here: Path) -> None:
    huge = offering(b.FILE, [[(b.FILE, b"", 0o644, 1 << 60, 0, b"x")]])
    with pytest.raises(OSError, match="No space left"):
        run(download_path(huge, "x", here / "t"))
    with pytest.raises(TransferError, match="more than 1000"):
        run(download_path(offering(b.FILE, [[file(b"", bytes(1001))]]), "x", here / "t", max_bytes=1000))
    many = [[file(b"%d-%d" % (n, m)) for m in range(200)] for n in range(10)]
    with pytest.raises(TransferError, match="more than 1000 entries"):
        run(download_path(offering(b.DIRECTORY, many), "x", here / "t", max_entries=1000))
    with pytest.raises(TransferError, match="more than 1000 bytes"):
        run(download_path(offering(b.DIRECTORY, many), "x", here / "t", max_bytes=1000))
    assert os.listdir(here) == []


@pytest.mark.parametrize("batches", [[[file(b"sub")]], [[directory(b"x")]], [[file(b"", b"ab"), file(b"", b"abc")]]])
def test_something_else_than_the_file_that_was_offered(here: Path, batches: list[list[Any]]) -> None:
    with pytest.raises(TransferError):
        run(download_path(offering(b.FILE, batches), "x", here / "t"))
    assert os.listdir(here) == []


def test_wrong_totals_and_checksums(root: Path, here: Path) -> None:
    with pytest.raises(TransferError, match="1 entries and 4 bytes came of 2 and 4"):
        run(download_path(offering(b.DIRECTORY, [[file(b"x")]], totals=(2, 4)), "x", here / "t"))
    (root / "f").write_bytes(bytes(5 * b.CHUNK))

    def alter(name: str, value: Any) -> Any:
        if name == "take" and value[1] and value[1][0][4]:
            (*about, data) = value[1][0]
            return value[0], [(*about, data[:-1] + b"x")]
        return value

    with pytest.raises(TransferError, match="checksum"):
        run(download_path(Near(alter), "f", here / "t"))
    assert os.listdir(here) == []
    far.begin_put("c" * 32, "t", b.DIRECTORY, None, 0o755)
    with pytest.raises(TransferError, match="checksum"):
        far.put("c" * 32, 1, [file(b"x")])
    far.abort("c" * 32)


def test_links_that_lead_out_may_be_left_out(here: Path) -> None:
    entries = [link(b"in", b"d/x"), link(b"out", b"/etc/hostname"), link(b"d/up", b"../in"), link(b"d/out", b"../../x")]
    result = run(download_path(offering(b.DIRECTORY, [entries]), "x", here / "t", outside_links="skip"))
    assert result.size == 0
    assert sorted(listing(here / "t")) == ["d", "d/up", "in"]


def test_set_id_bits_are_dropped(here: Path) -> None:
    tree = [[file(b"x", mode=0o6755), directory(b"d", 0o7777)]]
    run(download_path(offering(b.DIRECTORY, tree), "x", here / "t"))
    assert stat.S_IMODE((here / "t" / "x").stat().st_mode) == 0o755
    assert stat.S_IMODE((here / "t" / "d").stat().st_mode) == 0o777


@pytest.mark.parametrize("kind", [b.FILE, b.DIRECTORY])
def test_a_local_target_that_is_a_link(here: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (here / "t").symlink_to(tmp_path / ("elsewhere" if kind == b.DIRECTORY else "secret"))
    with pytest.raises(PermissionError, match="is a symlink"):
        run(download_path(offering(kind, [[file(b"x" if kind == b.DIRECTORY else b"")]]), "x", here / "t"))
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert (here / "t").is_symlink()


def test_a_link_in_a_target_is_not_followed(here: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (here / "t").mkdir()
    (here / "t" / "d").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        run(download_path(offering(b.DIRECTORY, [[file(b"d/x")]]), "x", here / "t"))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_disk_that_is_full(root: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "t").mkdir()
    for n in range(50):
        (root / "t" / f"f{n}").write_bytes(bytes(10_000))
    real = os.pwrite
    left = [30]

    def filling(fd: int, data: Any, offset: int) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", filling)
    with pytest.raises(OSError, match="No space left"):
        run(download_path(Near(), "t", here / "t"))
    assert os.listdir(here) == []
    assert far._sessions == {}


# ---- the far end ----


def test_a_transfer_whose_host_is_gone_ends(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(far, "_watching", False)  # the watch of an earlier test sleeps for longer
    far.begin_put("a" * 32, "new/t", b.DIRECTORY, None, 0o755)
    assert (root / "new").exists()
    waited = threading.Event()
    for _ in range(100):
        if not far._sessions:
            break
        waited.wait(0.1)
    assert listing(root) == {}
    with pytest.raises(TransferError, match="no such transfer"):
        far.put("a" * 32, 0, [])
    with pytest.raises(TransferError, match="has ended"):
        far.begin_put("a" * 32, "new/t", b.DIRECTORY, None, 0o755)
    assert listing(root) == {}


def test_a_call_that_comes_after_its_abort(root: Path) -> None:
    far.abort("b" * 32)
    with pytest.raises(TransferError, match="has ended"):
        far.begin_get("b" * 32, str(root))
    with pytest.raises(ValueError, match="token"):
        far.begin_get("../" * 11, str(root))
    with pytest.raises(ValueError, match="token"):
        far.abort("/x", "y")


def test_descriptors_do_not_leak(root: Path, here: Path) -> None:
    make_tree(here / "tree")

    def there_and_back(n: int) -> None:
        run(upload_path(Near(), here / "tree", f"t{n}"))
        run(download_path(Near(), f"t{n}", here / f"b{n}"))
        for entries in (HOSTILE["not whole"], HOSTILE["file twice"], HOSTILE["many unfinished"]):
            with pytest.raises(TransferError):
                run(download_path(offering(b.DIRECTORY, [entries]), "x", here / f"h{n}"))

    there_and_back(0)
    before = len(os.listdir("/proc/self/fd"))
    for n in range(1, 4):
        there_and_back(n)
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_host_side_is_not_needed_in_a_sandbox() -> None:
    from fresh import python

    done = python(
        "-c",
        "import agentix.files._sandbox, agentix.files, sys; agentix.files.upload;"
        "print('asyncio' in sys.modules, 'agentix.files._transfer' in sys.modules)",
    )
    assert done.split() == ["False", "False"], done
