"""Files through a real runtime: any size in little memory, cut links, full disks, killed workers, and a container."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import re
import signal
import statistics
import subprocess
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import box_bundle
import call_targets as t
import engines
import pytest
from agentix.files import TransferError, download, download_path, upload, upload_path
from containers import provider_of
from processes import Runtime, peak, rss
from shim import Shim

from agentix import RemoteCallError, RuntimeClient, RuntimeUnreachable, SandboxConfig, WorkerExited

MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
def runtime(worker_python: str, tmp_path: Path, root: Path) -> Iterator[Runtime]:
    with Runtime(worker_python, tmp_path, AGENTIX_UPLOAD_ROOT=str(root)) as server:
        yield server


def random_file(path: Path, mib: int) -> str:
    """Write so much and give its digest."""
    seed, whole = random.Random(mib), hashlib.sha256()
    with path.open("wb") as file:
        for _ in range(mib):
            piece = seed.randbytes(MIB)
            whole.update(piece)
            file.write(piece)
    return whole.hexdigest()


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def forget_peak() -> None:
    """Let the peak of this process be what it needs from here on."""
    Path("/proc/self/clear_refs").write_text("5")


def names(top: Path) -> list[str]:
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


def many(top: Path, files: int, size: int) -> None:
    for n in range(files):
        path = top / f"d{n // 100}" / f"f{n}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(n).randbytes(size))


# ---- values ----


def test_bytes_there_and_back(run: Any, runtime: Runtime, root: Path) -> None:
    content = random.Random(1).randbytes(5 * MIB)

    async def main() -> None:
        async with RuntimeClient(runtime.url) as client:
            result = await client.remote(upload, "a/b/c", content)
            assert (result.path, result.size) == (str(root / "a" / "b" / "c"), len(content))
            assert type(result).__qualname__ == "UploadResult"
            assert await client.remote(download, "a/b/c") == content
            for name, path in [("FileNotFoundError", "none"), ("PermissionError", "../x"), ("IsADirectoryError", "a")]:
                with pytest.raises(RemoteCallError) as caught:
                    await client.remote(download, path)
                assert caught.value.error.type == name
            with pytest.raises(RemoteCallError, match="outside allowed root"):
                await client.remote(upload, "/etc/agx85", b"")

    run(main())


# ---- any size ----


@pytest.mark.timeout(200)
def test_large_files_in_little_memory(run: Any, runtime: Runtime, root: Path, tmp_path: Path) -> None:
    expected = random_file(tmp_path / "large", 200)
    waits: list[float] = []

    async def small_calls(client: RuntimeClient) -> None:
        while True:
            began = time.monotonic()
            assert await client.remote(t.add, 1, 2) == 3
            waits.append(time.monotonic() - began)
            await asyncio.sleep(0.1)

    async def main() -> None:
        async with RuntimeClient(runtime.url) as client:
            await client.remote(upload, "first", b"")  # imports
            forget_peak()
            processes = [os.getpid(), runtime.pid, *runtime.workers()]
            before = [rss(pid) for pid in processes]
            calls = asyncio.create_task(small_calls(client))
            assert (await upload_path(client, tmp_path / "large", "large")).size == 200 * MIB
            assert (await download_path(client, "large", tmp_path / "back")).size == 200 * MIB
            calls.cancel()
            grown = [(peak(pid) - was) // MIB for pid, was in zip(processes, before, strict=True)]
            assert max(grown) < 80, f"MiB that host, server and worker have grown: {grown}"

    run(main())
    assert digest(root / "large") == digest(tmp_path / "back") == expected
    assert statistics.median(waits) < 1, waits
    assert max(waits) < 10, waits


def test_many_small_files(run: Any, runtime: Runtime, root: Path, tmp_path: Path) -> None:
    many(tmp_path / "tree", 3000, 1000)

    async def main() -> None:
        async with RuntimeClient(runtime.url) as client:
            await upload_path(client, tmp_path / "tree", "tree")
            await download_path(client, "tree", tmp_path / "back")

    run(main())
    assert subprocess.run(["diff", "-r", tmp_path / "tree", tmp_path / "back"], timeout=60, check=False).returncode == 0
    assert len(names(root)) == 3031


# ---- faults ----


def test_a_link_that_is_cut(run: Any, runtime: Runtime, root: Path, tmp_path: Path) -> None:
    expected = random_file(tmp_path / "large", 40)

    async def main(shim: Shim) -> None:
        async with RuntimeClient(shim.url, reconnection_delay=0.01) as client:
            cuts: list[int] = []

            def progress(done: int, total: int | None) -> None:
                if done and len(cuts) < (6 if first else 3):
                    cuts.append(shim.cut())

            first = 0

            await upload_path(client, tmp_path / "large", "large", progress=progress)
            first = len(cuts)
            await download_path(client, "large", tmp_path / "back", progress=progress)
            assert 0 < first < len(cuts)
            assert sum(cuts) > 0

    with Shim(runtime.url) as shim:
        run(main(shim))
    assert digest(root / "large") == digest(tmp_path / "back") == expected


def test_a_link_that_stays_cut(run: Any, runtime: Runtime, root: Path, tmp_path: Path) -> None:
    random_file(tmp_path / "large", 40)
    random_file(root / "large", 40)

    async def main(shim: Shim) -> None:
        def progress(done: int, total: int | None) -> None:
            if done:
                shim.refuse = True
                shim.cut()

        options: Any = {"reconnection_attempts": 2, "reconnection_delay": 0.01, "call_deadline": 5}
        async with RuntimeClient(shim.url, **options) as client:
            with pytest.raises(RuntimeUnreachable) as caught:
                await upload_path(client, tmp_path / "large", "new/up", progress=progress)
            assert "was not told" in "".join(caught.value.__notes__)
            shim.refuse = False
        async with RuntimeClient(shim.url, **options) as client:
            with pytest.raises(RuntimeUnreachable):
                await download_path(client, "large", tmp_path / "new" / "down", progress=progress)

    with Shim(runtime.url) as shim:
        run(main(shim))
    assert not (root / "new" / "up").exists()
    assert not (tmp_path / "new").exists()


@contextlib.contextmanager
def small_disk(where: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    where.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", where], check=True, timeout=30)
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", where], check=True, timeout=30)


def test_a_full_disk(run: Any, worker_python: str, tmp_path: Path) -> None:
    many(tmp_path / "tree", 200, 100_000)
    random_file(tmp_path / "large", 12)

    async def main(url: str, far: Path, near: Path) -> None:
        async with RuntimeClient(url) as client:
            for source in ("tree", "large"):
                with pytest.raises(RemoteCallError, match="No space left on device"):
                    await upload_path(client, tmp_path / source, f"disk/x/{source}")
                assert names(far) == []
                with pytest.raises(OSError, match="No space left on device"):
                    await download_path(client, source, near / "x" / source)
                assert names(near) == []
            with pytest.raises(RemoteCallError, match="No space left on device"):
                await client.remote(upload, "disk/x", bytes(9 * MIB))
            assert names(far) == []
            assert (await upload_path(client, tmp_path / "tree" / "d0" / "f0", "disk/x")).size == 100_000

    with (
        small_disk(tmp_path / "disk") as far,
        small_disk(tmp_path / "near") as near,
        Runtime(worker_python, tmp_path, AGENTIX_UPLOAD_ROOT=str(tmp_path)) as server,
    ):
        run(main(server.url, far, near))


def test_a_file_that_grows(run: Any, runtime: Runtime, root: Path, tmp_path: Path) -> None:
    random_file(root / "log", 10)

    def progress(done: int, total: int | None) -> None:
        with (root / "log").open("ab") as file:
            file.write(b"more")

    async def main() -> None:
        async with RuntimeClient(runtime.url) as client:
            with pytest.raises((RemoteCallError, TransferError), match="changed while it was read"):
                await download_path(client, "log", tmp_path / "log", progress=progress)

    run(main())
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("tree", [False, True])
def test_a_worker_that_is_killed(run: Any, runtime: Runtime, root: Path, tmp_path: Path, tree: bool) -> None:
    (tmp_path / "t").mkdir()
    random_file(tmp_path / "t" / "large", 20)
    name = "t" if tree else "t/large"

    async def main() -> None:
        async with RuntimeClient(runtime.url) as client:
            killed: list[int] = []

            def progress(done: int, total: int | None) -> None:
                if done and not killed:
                    killed.extend(runtime.workers())
                    os.kill(killed[0], signal.SIGKILL)

            with pytest.raises((WorkerExited, RemoteCallError)):
                await upload_path(client, tmp_path / name, "here", progress=progress)
            assert names(root) == []
            killed.clear()
            await upload_path(client, tmp_path / name, "here")
            before = names(root)
            with pytest.raises((WorkerExited, RemoteCallError)):
                await download_path(client, "here", tmp_path / "back" / "x", progress=progress)
            assert names(root) == before
            assert not (tmp_path / "back").exists()
            assert await client.remote(t.add, 1, 2) == 3

    run(main())


def test_a_cancelled_caller(run: Any, runtime: Runtime, root: Path, tmp_path: Path) -> None:
    random_file(tmp_path / "large", 20)
    random_file(root / "large", 20)

    async def main() -> None:
        async with RuntimeClient(runtime.url) as client:
            for up in (True, False):

                async def transfer(up: bool = up) -> None:
                    """Cancel itself when the first bytes have gone."""
                    me = asyncio.current_task()
                    assert me is not None

                    def progress(done: int, total: int | None) -> None:
                        if done:
                            me.cancel()

                    if up:
                        await upload_path(client, tmp_path / "large", "new/x", progress=progress)
                    else:
                        await download_path(client, "large", tmp_path / "new/x", progress=progress)

                task = asyncio.create_task(transfer())
                await asyncio.wait([task], timeout=60)
                assert task.cancelled()
                assert names(root) == ["large"]
                assert not (tmp_path / "new").exists()
            assert await client.remote(t.add, 1, 2) == 3

    run(main())


# ---- the guide ----


def test_the_guide(
    run: Any,
    runtime: Runtime,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its blocks, as they stand there."""
    guide = Path(__file__).parents[2] / "docs" / "guides" / "files.md"
    blocks = re.findall(r"^```python\n(.*?)^```", guide.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    code = "async def main(sandbox):\n" + textwrap.indent("".join(blocks), "    ")
    scope: dict[str, Any] = {}
    exec(compile(code, str(guide), "exec"), scope)
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        async with RuntimeClient(runtime.url) as client:
            await scope["main"](client)

    run(main())
    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"{root}/notes/today.txt 12",
        "0 of 15 bytes",
        "15 of 15 bytes",
        f"{tmp_path}/out/project: refused: it is more than 10 bytes",
    ]


# ---- a container ----


@pytest.mark.usefixtures("places", "nothing_left")
def test_in_a_container(run: Any, docker_engine: engines.Engine, bundle: box_bundle.Bundle, tmp_path: Path) -> None:
    many(tmp_path / "tree", 300, 1000)
    (tmp_path / "tree" / "link").symlink_to("d0/f1")
    (tmp_path / "tree" / "d0" / "f0").chmod(0o751)
    expected = random_file(tmp_path / "tree" / "large", 8)
    config = SandboxConfig(image=docker_engine.image("bookworm"), bundle=bundle.directory)

    async def main() -> None:
        async with provider_of(docker_engine).session(config) as sandbox:
            assert (await sandbox.remote(upload, "note", b"text")).path == "/workspace/note"
            assert await sandbox.remote(download, "/workspace/note") == b"text"
            with pytest.raises(RemoteCallError, match="outside allowed root /workspace"):
                await sandbox.remote(download, "/etc/hostname")
            assert (await upload_path(sandbox, tmp_path / "tree", "in/tree")).path == "/workspace/in/tree"
            docker_engine("exec", sandbox.sandbox_id, "/bin/ln", "-s", "/etc/hostname", "/workspace/in/tree/bad")
            with pytest.raises(TransferError, match="may lead out of the tree: /etc/hostname"):
                await download_path(sandbox, "in", tmp_path / "back")
            assert not (tmp_path / "back").exists()
            await download_path(sandbox, "in/tree", tmp_path / "back", outside_links="skip")

    run(main())
    assert subprocess.run(["diff", "-r", tmp_path / "tree", tmp_path / "back"], timeout=60, check=False).returncode == 0
    assert digest(tmp_path / "back" / "large") == expected
    assert os.readlink(tmp_path / "back" / "link") == "d0/f1"
    assert (tmp_path / "back" / "d0" / "f0").stat().st_mode & 0o777 == 0o751
