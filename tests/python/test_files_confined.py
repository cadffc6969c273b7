"""`agentix.files` in the sandbox: `upload` and `download` stay below the upload root, whatever links are in it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from agentix.files import UploadResult, _confine, download, upload
from agentix.files._batch import DIRECTORY, FILE
from agentix.files._confine import locate
from agentix.files._landing import discard, hidden
from agentix.files._sandbox import abort, begin_put, end_put

SECRET = b"outside"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An upload root with links of all kinds, beside which lies what must not be touched."""
    inside = tmp_path / "root"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "etc").mkdir()
    (inside / "usr" / "bin").mkdir(parents=True)
    (inside / "usr" / "bin" / "tool").write_bytes(b"tool")
    (inside / "etc").mkdir()
    (inside / "etc" / "name").write_bytes(b"inside name")
    (inside / "bin").symlink_to("usr/bin")
    (inside / "bin-from-root").symlink_to("/usr/bin")
    (inside / "top").symlink_to("/")
    (inside / "up").symlink_to("../../../../..")
    (inside / "chain").symlink_to("chain2")
    (inside / "chain2").symlink_to("/chain3")
    (inside / "chain3").symlink_to("usr/bin/tool")
    (inside / "dangling").symlink_to("/new/place/file")
    (inside / "round").symlink_to("about")
    (inside / "about").symlink_to("round")
    (inside / "self").symlink_to("self/x")
    (inside / "escape").symlink_to("../secret")
    (inside / "host-secret").symlink_to(str(tmp_path / "secret"))
    monkeypatch.setattr(_confine, "ROOT", str(inside))
    return inside


def up(path: str, content: bytes = b"new") -> UploadResult:
    return asyncio.run(asyncio.wait_for(upload(path, content), 30))


def down(path: str) -> bytes:
    return asyncio.run(asyncio.wait_for(download(path), 30))


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("a", "a"),
        ("a/b/c", "a/b/c"),
        ("./a//b/./c", "a/b/c"),
        ("bin/new", "usr/bin/new"),
        ("bin-from-root/new", "usr/bin/new"),
        ("bin/../new", "usr/new"),  # after the link, not before
        ("bin/../../new", "new"),
        ("top/a", "a"),
        ("top/top/bin/new", "usr/bin/new"),
        ("up/a", "a"),  # clamped
        ("chain", "usr/bin/tool"),
        ("dangling", "new/place/file"),
        ("a/../b", "b"),
    ],
)
def test_where_a_path_leads(root: Path, path: str, where: str) -> None:
    if path == "bin/../../new":  # more steps up than down, as it is written
        with pytest.raises(PermissionError, match="outside allowed root"):
            up(path)
        return
    assert up(path, b"content") == UploadResult(str(root / where), 7)
    assert (root / where).read_bytes() == b"content"
    assert not (root / where).is_symlink()
    assert down(path) == b"content"
    assert down(str(root / path)) == b"content"


@pytest.mark.parametrize("path", ["/etc/hostname", "../x", "a/../../x", "/", "..", "bin/../../../secret"])
def test_a_path_outside(root: Path, tmp_path: Path, path: str) -> None:
    for act in (lambda: up(path), lambda: down(path)):
        with pytest.raises(PermissionError, match="outside allowed root"):
            act()
    with pytest.raises(PermissionError, match="outside allowed root"):
        up(str(root) + "-other/x")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["etc", "root", "secret"]


@pytest.mark.parametrize("path", ["round", "about/x", "self"])
def test_a_cycle(root: Path, path: str) -> None:
    for act in (lambda: up(path), lambda: down(path)):
        with pytest.raises(PermissionError, match="symlink"):
            act()


def test_forty_links_are_followed_and_no_more(root: Path) -> None:
    (root / "l0").write_bytes(b"end")
    for n in range(1, 42):
        (root / f"l{n}").symlink_to(f"l{n - 1}")
    assert down("l40") == b"end"
    with pytest.raises(PermissionError, match="more than 40 symlinks"):
        down("l41")


@pytest.mark.parametrize("path", ["escape", "host-secret"])
def test_what_lies_outside_is_never_touched(root: Path, tmp_path: Path, path: str) -> None:
    with pytest.raises(FileNotFoundError, match=path):
        down(path)
    up(path, b"mine")  # somewhere below the root
    assert (tmp_path / "secret").read_bytes() == SECRET
    assert down(path) == b"mine"


def test_what_is_not_there(root: Path) -> None:
    for path in ("none", "none/below", "etc/none"):
        with pytest.raises(FileNotFoundError, match=path):
            down(path)
    with pytest.raises(NotADirectoryError):
        down("etc/name/x")
    with pytest.raises(NotADirectoryError):
        up("etc/name/x")
    with pytest.raises(IsADirectoryError):
        down("etc")
    with pytest.raises(IsADirectoryError):
        up("usr")
    with pytest.raises(IsADirectoryError):
        up("top")
    with pytest.raises(ValueError, match="null"):
        down("a\0b")
    with pytest.raises(TypeError):
        up("a", "text")  # type: ignore[arg-type]
    assert not (root / "a").exists()


def test_the_root_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_confine, "ROOT", str(tmp_path / "not" / "yet"))
    with pytest.raises(FileNotFoundError):
        down("x")
    assert up("x").path == str(tmp_path / "not" / "yet" / "x")


def test_a_root_that_is_a_link(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(root)
    monkeypatch.setattr(_confine, "ROOT", str(tmp_path / "link"))
    assert down(f"{tmp_path}/link/etc/name") == b"inside name"
    assert down(f"{root}/etc/name") == b"inside name"
    assert down("top/etc/name") == b"inside name"


def test_sources_without_end(root: Path) -> None:
    os.mkfifo(root / "fifo")
    with pytest.raises(PermissionError, match="not a regular file"):
        down("fifo")
    with pytest.raises(PermissionError, match="neither a file"):
        up("fifo")


@pytest.mark.parametrize(
    "path", ["/dev/zero", "/proc/self/environ", "/proc/kmsg", "/proc/self/fd/0", "/proc/self/root/x"]
)
def test_sources_without_end_in_the_whole_file_system(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(_confine, "ROOT", "/")
    with pytest.raises((PermissionError, FileNotFoundError)):
        down(path)


def test_a_device_is_not_replaced(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_confine, "ROOT", "/")
    with pytest.raises(PermissionError, match="neither a file"):
        up("/dev/null")


def test_modes(root: Path) -> None:
    old = os.umask(0o027)
    try:
        up("fresh")
        (root / "script").write_bytes(b"old")
        (root / "script").chmod(0o750)
        up("script")
    finally:
        os.umask(old)
    assert (root / "fresh").stat().st_mode & 0o777 == 0o640
    assert (root / "script").stat().st_mode & 0o777 == 0o750
    assert (root / "script").read_bytes() == b"new"


def test_a_reader_sees_the_old_or_the_new(root: Path) -> None:
    """And never a part: the file gets its name when it is whole."""
    path = root / "file"
    contents = [bytes([n]) * 300_000 for n in range(2)]
    up("file", contents[0])
    seen: set[bytes] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.add(path.read_bytes())

    thread = threading.Thread(target=look)
    thread.start()
    for n in range(60):
        up("file", contents[n % 2])
    stop.set()
    thread.join(30)
    assert seen <= set(contents)
    assert [entry.name for entry in root.iterdir() if entry.name.startswith(".")] == []


@pytest.mark.parametrize("anonymous", [True, False])
def test_nothing_is_left_of_a_failure(root: Path, monkeypatch: pytest.MonkeyPatch, anonymous: bool) -> None:
    """Also where a file cannot be made without a name."""
    if not anonymous:
        real = os.path.exists
        monkeypatch.setattr(os.path, "exists", lambda path: not str(path).startswith("/proc/self/fd") and real(path))
    before = tree(root)
    up("again", b"x")
    (root / "again").unlink()
    assert tree(root) == before

    def full(fd: int, data: object, offset: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        up("deep/down/file")
    assert tree(root) == before


@pytest.mark.parametrize("path", ["new/deep/" + "x" * 300, "new/deep/" + "x" * 300 + "/y", "new/../etc/name/x"])
def test_no_directory_is_left_of_a_path_that_cannot_be(root: Path, path: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError):  # noqa: PT011 - of several kinds
        up(path)
    with pytest.raises(OSError):  # noqa: PT011 - of several kinds
        begin_put("a" * 32, path, FILE, 1, 0o644)
    assert not (root / "new").exists()
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_directory_is_left_where_there_is_no_room(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda fd: SimpleNamespace(f_blocks=10, f_bavail=1, f_frsize=1))
    with pytest.raises(OSError, match="No space left"):
        up("new/deep/f")
    assert not (root / "new").exists()


@pytest.mark.parametrize("kind", [FILE, DIRECTORY])
def test_who_fails_does_not_take_a_directory_from_others(root: Path, kind: str) -> None:
    """Whoever of them made it. An empty one is still one in which another writes: a file has no name before its end."""
    fails, deep, above = (os.urandom(16).hex() for _ in range(3))
    begin_put(fails, "new/deep/f", FILE, 1, 0o644)
    begin_put(deep, "new/deep/g", kind, 0 if kind == FILE else None, 0o755)
    begin_put(above, "new/h", kind, 0 if kind == FILE else None, 0o755)
    abort(fails)
    end_put(deep, 0, 0)
    end_put(above, 0, 0)
    assert (root / "new" / "deep" / "g").exists()
    assert (root / "new" / "h").exists()


def test_directories_that_go_meanwhile_are_made_again(root: Path) -> None:
    """One transfer after the other makes and removes them while files are written there."""
    over = threading.Event()

    def fail_again_and_again() -> None:
        while not over.wait(0.001):
            with locate("new/deep/f", make=True) as place:
                place.unmake()

    thread = threading.Thread(target=fail_again_and_again)
    thread.start()
    try:
        for n in range(25):
            up("new/deep/g", bytes([n]))
            assert down("new/deep/g") == bytes([n])
            (root / "new" / "deep" / "g").unlink()
    finally:
        over.set()
        thread.join(30)


def test_no_room_is_said_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = os.statvfs(root)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((*tuple(room)[:4], 0, *tuple(room)[5:])))
    with pytest.raises(OSError, match="No space left on device: 3 bytes"):
        up("file")


def test_a_cancelled_upload_has_ended(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    begun = threading.Event()

    def slow(fd: int, data: bytes, offset: int) -> int:
        begun.set()
        time.sleep(0.05)
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", slow)

    async def main() -> None:
        task = asyncio.create_task(upload("large", bytes(20 << 20)))
        await asyncio.to_thread(begun.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        names = os.listdir(root)
        assert "large" not in names
        await asyncio.sleep(0.2)
        assert os.listdir(root) == names

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_swapped_directory_leads_nowhere_else(root: Path, tmp_path: Path) -> None:
    """A directory that becomes a link to the outside, and back, while uploads go through it."""
    (root / "dir").mkdir()
    (tmp_path / "etc").mkdir(exist_ok=True)
    stop = threading.Event()

    def swap() -> None:
        count = 0
        while not stop.is_set():
            count += 1
            try:
                os.rename(root / "dir", root / f"dir{count}")
                os.symlink(tmp_path / "etc", root / "dir")
                os.unlink(root / "dir")
                os.rename(root / f"dir{count}", root / "dir")
            except OSError:  # an upload has made the directory that was missing
                pass

    thread = threading.Thread(target=swap, daemon=True)
    thread.start()
    outcomes: dict[type | None, int] = {}
    for n in range(400):
        outcome: type | None = None
        try:
            up(f"dir/f{n}")
        except OSError as exc:
            outcome = type(exc)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    stop.set()
    thread.join(30)
    assert list((tmp_path / "etc").iterdir()) == []
    assert outcomes.get(None)


def test_what_a_killed_worker_left_is_discarded(root: Path) -> None:
    token = "0123456789abcdef" * 2
    (root / "usr" / hidden(token)).mkdir()
    (root / "usr" / hidden(token) / "x").write_bytes(b"")
    with _confine.locate("usr/new") as place:
        discard(place, token)
    assert not (root / "usr" / hidden(token)).exists()
    (root / "usr" / hidden(token)).mkdir()
    with _confine.locate("usr") as place:
        discard(place, token)
    assert not (root / "usr" / hidden(token)).exists()


def tree(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_descriptors_do_not_leak(root: Path) -> None:
    acts: list[Callable[[], object]] = [
        lambda: up("x/y/z"),
        lambda: down("chain"),
        lambda: down("none"),
        lambda: up("round"),
        lambda: down("usr"),
        lambda: up("usr"),
    ]

    def all_of_them() -> None:
        for act in acts:
            try:
                act()
            except OSError:
                pass

    all_of_them()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        all_of_them()
    assert len(os.listdir("/proc/self/fd")) == before
