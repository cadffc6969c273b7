"""One large file through a real runtime, over connections of its own: cut, altered, refused, slow; hosts that die."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import call_targets as t
import pytest
from agentix.files import TransferError, _conduit, download_path, upload, upload_path
from agentix.files._conduit import PIECE
from processes import Runtime

from agentix import CallTimeout, RemoteCallError, RuntimeClient, WorkerExited

MIB = 1 << 20
SIZE = 9 * MIB + 12_345


@pytest.fixture(scope="module")
def box(worker_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Runtime, Path]]:
    home = tmp_path_factory.mktemp("conduit")
    (home / "root").mkdir()
    with Runtime(worker_python, home, AGENTIX_UPLOAD_ROOT=str(home / "root")) as server:
        yield server, home / "root"


@pytest.fixture
def root(box: tuple[Runtime, Path]) -> Iterator[Path]:
    yield box[1]
    assert [path for path in box[1].rglob("*") if path.name.startswith(".agentix-")] == []
    for path in box[1].iterdir():
        subprocess.run(["rm", "-rf", path], check=True, timeout=30)


@pytest.fixture
def large(root: Path, tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(SIZE))
    path.chmod(0o640)
    shutil.copy(path, root / "f")
    return path


def moving(client: RuntimeClient, way: str, large: Path, name: str, **options: Any) -> Any:
    """The transfer of it: up, or down from its copy, to a name on the other side."""
    if way == "up":
        return upload_path(client, large, name, **options)
    return download_path(client, "f", large.parent / name, **options)


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Client(RuntimeClient):
    """Notes what is called, and has its conduits pass through `between`, if that is given."""

    between: Callable[[bytes, int], bytes | None] | None = None

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.called: list[str] = []
        self.opened = 0

    async def __aenter__(self) -> Client:
        await super().__aenter__()
        return self

    def remote(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.called.append(fn.__name__)
        return super().remote(fn, *args, **kwargs)

    async def _open_conduit(self, name: str) -> socket.socket | None:
        sock = await super()._open_conduit(name)
        self.opened += 1
        return sock if self.between is None or sock is None else relayed(sock, self.between)


def relayed(far: socket.socket, between: Callable[[bytes, int], bytes | None]) -> socket.socket:
    """A socket whose bytes go both ways by `between(data, bytes so far)`; None: the connection ends."""
    near, ours = socket.socketpair()

    def carry(source: socket.socket, target: socket.socket) -> None:
        done = 0
        with contextlib.suppress(OSError):
            while data := source.recv(64 << 10):
                changed = between(data, done)
                done += len(data)
                if changed is None:
                    break
                target.sendall(changed)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    threads = [threading.Thread(target=carry, args=pair, daemon=True) for pair in ((far, ours), (ours, far))]

    def close() -> None:
        for thread in threads:
            thread.join(30)
        far.close()
        ours.close()

    for thread in threads:
        thread.start()
    threading.Thread(target=close, daemon=True).start()
    return near


async def open_descriptors(client: RuntimeClient) -> int:
    return await client.remote(len, await client.remote(os.listdir, "/proc/self/fd"))


def test_both_ways_and_nothing_is_left(run: Any, box: Any, root: Path, large: Path, tmp_path: Path) -> None:
    async def main() -> None:
        async with Client(box[0].url) as client:
            told: list[tuple[int, int | None]] = []
            await client.remote(upload, "first", b"")
            before = 0
            for n in range(4):
                up = await upload_path(client, large, f"a/{n}", progress=lambda *now: told.append(now))
                assert (up.path, up.size) == (str(root / "a" / str(n)), SIZE)
                down = await download_path(client, f"a/{n}", tmp_path / "back", progress=lambda *now: told.append(now))
                assert (down.path, down.size) == (str(tmp_path / "back"), SIZE)
                assert digest(large) == digest(root / "a" / str(n)) == digest(tmp_path / "back")
                assert (tmp_path / "back").stat().st_mode & 0o777 == 0o640
                assert told[0] == (0, SIZE)
                assert told[-1] == (SIZE, SIZE)
                assert {total for _, total in told} == {SIZE}
                now = await open_descriptors(client)
                before = before or now
                assert now == before, "descriptors of the worker"
            assert "put" not in client.called
            assert "take" not in client.called
            assert client.opened == 8

    run(main())


@pytest.mark.parametrize("size", [_conduit.FROM - 1, _conduit.FROM, _conduit.FROM + 1, _conduit.FROM + PIECE])
def test_sizes_at_the_edges(run: Any, box: Any, root: Path, tmp_path: Path, size: int) -> None:
    (tmp_path / "f").write_bytes(os.urandom(size))

    async def main() -> None:
        async with Client(box[0].url) as client:
            await upload_path(client, tmp_path / "f", "f")
            await download_path(client, "f", tmp_path / "back")
            assert client.opened == (2 if size >= _conduit.FROM else 0)

    run(main())
    assert digest(tmp_path / "f") == digest(root / "f") == digest(tmp_path / "back")


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("after", [0, 1, PIECE, 3 * MIB])
def test_a_connection_that_is_cut(
    run: Any, box: Any, root: Path, large: Path, tmp_path: Path, way: str, after: int
) -> None:
    """Each goes so far and no further: another one goes on from there, or calls do if there is no getting on."""

    async def main() -> None:
        async with Client(box[0].url) as client:
            client.between = lambda data, done: None if done >= after else data[: after - done]
            await moving(client, way, large, "g")
            assert client.opened > 1
            assert ("put" in client.called or "take" in client.called) == (after < PIECE + 8)

    run(main())
    assert digest(large) == digest((root if way == "up" else tmp_path) / "g")


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_byte_that_changes(run: Any, box: Any, root: Path, large: Path, tmp_path: Path, way: str) -> None:
    def between(data: bytes, done: int) -> bytes:
        place = 5 * MIB - done
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :] if 0 <= place < len(data) else data

    async def main() -> None:
        async with Client(box[0].url) as client:
            client.between = between
            if way == "up":
                with pytest.raises(RemoteCallError, match="checksum of a piece is wrong"):
                    await upload_path(client, large, "new/f")
            else:
                with pytest.raises(TransferError, match="checksum of a piece is wrong"):
                    await download_path(client, "f", tmp_path / "new" / "f")
            assert await client.remote(t.add, 1, 2) == 3

    run(main())
    assert not (root / "new").exists()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("how", ["none", "fails", "older worker"])
def test_where_there_are_no_conduits(
    run: Any, box: Any, root: Path, large: Path, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def opener(name: str) -> None:
        if how == "fails":
            raise OSError("not now")

    def older(token: str, name: str) -> int:
        raise NotImplementedError

    older.__module__, older.__qualname__ = "agentix.files._sandbox", "conduit_of_another_release"
    monkeypatch.setattr("agentix.files._straight.PAUSE_SECONDS", 0.01)

    async def main() -> None:
        async with Client(box[0].url) as client:
            client._open_conduit = opener  # type: ignore[method-assign]
            if how == "older worker":
                from agentix.files import _sandbox

                monkeypatch.setattr(_sandbox, "conduit_of_another_release", older, raising=False)
                monkeypatch.setattr("agentix.files._straight.conduit", older)
            await upload_path(client, large, "f")
            await download_path(client, "f", tmp_path / "back")
            assert {"put", "take"} <= set(client.called)

    run(main())
    assert digest(large) == digest(root / "f") == digest(tmp_path / "back")


def test_a_deadline_is_for_calls(run: Any, box: Any, root: Path, large: Path) -> None:
    """A file that takes longer than a call may is no failure."""

    def slowly(data: bytes, done: int) -> bytes:
        time.sleep(0.04)
        return data

    async def main() -> None:
        async with Client(box[0].url, call_deadline=3) as client:
            client.between = slowly
            await upload_path(client, large, "g")
            assert client.opened > 1

    run(main())
    assert digest(large) == digest(root / "g")


def test_a_deadline_of_one_that_is_stuck(
    run: Any, box: Any, root: Path, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails as a call does."""
    monkeypatch.setattr("agentix.files._straight.ATTEMPTS", 1)
    finished = threading.Event()

    async def main() -> None:
        async with Client(box[0].url, call_deadline=3) as client:
            client.between = lambda data, done: None if finished.wait(100) else data
            try:
                with pytest.raises(CallTimeout):
                    await upload_path(client, large, "new/h")
            finally:
                finished.set()
            assert await client.remote(t.add, 1, 2) == 3

    run(main())
    assert not (root / "new").exists()


class Stopped(Exception):
    pass


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("when", ["first", "middle", "last"])
def test_progress_that_raises(run: Any, box: Any, root: Path, large: Path, tmp_path: Path, way: str, when: str) -> None:
    def progress(done: int, total: int | None) -> None:
        if (when == "first") == (done == 0) and (when != "last" or done == total):
            raise Stopped(when)

    async def main() -> None:
        async with Client(box[0].url) as client:
            client.between = lambda data, _: data  # slow enough to be told of the middle
            with pytest.raises(Stopped, match=when):
                await moving(client, way, large, "new/f", progress=progress)
            assert await client.remote(t.add, 1, 2) == 3

    run(main())
    assert not (root / "new").exists()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_worker_that_dies(run: Any, box: Any, root: Path, large: Path, tmp_path: Path, way: str) -> None:
    async def main() -> None:
        async with Client(box[0].url) as client:
            await client.remote(t.add, 1, 2)

            def between(data: bytes, done: int) -> bytes:
                if done > 3 * MIB and not killed:
                    killed.extend(box[0].workers())
                    os.kill(killed[0], signal.SIGKILL)
                return data

            killed: list[int] = []
            client.between = between
            with pytest.raises((WorkerExited, RemoteCallError)):
                await moving(client, way, large, "new/f")
            assert killed
            assert await client.remote(t.add, 1, 2) == 3

    run(main())
    assert not (root / "new" / "f").exists()
    assert not (tmp_path / "new").exists()


def test_several_at_once(run: Any, box: Any, root: Path, large: Path, tmp_path: Path) -> None:
    async def main() -> None:
        async with Client(box[0].url) as client:
            await asyncio.gather(*(upload_path(client, large, f"f{n}") for n in range(12)))
            await asyncio.gather(*(download_path(client, f"f{n}", tmp_path / f"b{n}") for n in range(12)))
            assert client.opened == 24

    run(main())
    assert {digest(tmp_path / f"b{n}") for n in range(12)} == {digest(large)}


HOST = textwrap.dedent("""
    import asyncio, sys, threading
    from agentix import RuntimeClient
    from agentix.files import upload_path, download_path

    async def main(url, way, source, target):
        told = threading.Event()

        def progress(done, total):
            if done > 3 << 20 and not told.is_set():
                told.set()
                print("going", flush=True)
                sys.stdin.read()  # until it is killed

        async with RuntimeClient(url) as client:
            await (upload_path if way == "up" else download_path)(client, source, target, progress=progress)

    asyncio.run(main(*sys.argv[1:]))
""")


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_host_that_is_killed(run: Any, box: Any, root: Path, tmp_path: Path, way: str) -> None:
    """Nothing stands under the name, and nobody waits for it for ever."""
    source = (tmp_path if way == "up" else root) / "source"
    source.write_bytes(bytes(200 * MIB))
    target = (root if way == "up" else tmp_path) / "target"
    with subprocess.Popen(
        [sys.executable, "-c", HOST, box[0].url, way, source, target],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as host:
        try:
            assert host.stdout is not None
            assert host.stdout.readline() == "going\n"
        finally:
            host.kill()
        host.wait(30)

    async def main() -> None:
        async with RuntimeClient(box[0].url) as client:
            names = ["agentix-file"]  # no thread of a transfer goes on at our end; at theirs its call has ended
            assert not [thread for thread in threading.enumerate() if thread.name in names]
            assert await client.remote(t.add, 1, 2) == 3

    run(main())
    assert not target.exists()


def test_a_name_that_nobody_expects(run: Any, box: Any) -> None:
    """The worker closes what it has not asked for."""

    async def main() -> None:
        async with RuntimeClient(box[0].url) as client:
            await client.remote(t.add, 1, 2)
            before = await open_descriptors(client)
            socks = [await client._open_conduit("0" * 32) for _ in range(20)]
            for sock in socks:
                assert sock is not None
                sock.close()
            again = await client._open_conduit("0" * 32)
            assert again is not None
            again.settimeout(30)
            assert await asyncio.to_thread(again.recv, 1) == b""
            again.close()
            for _ in range(600):
                if await open_descriptors(client) <= before + 2:  # the copy of the socket, and that of the listing
                    break
                await asyncio.sleep(0.05)
            else:
                pytest.fail("connections that nobody expects are kept")

    run(main())


def test_without_the_token(run: Any, worker_python: str, tmp_path: Path) -> None:
    """A conduit needs what a call needs."""
    (tmp_path / "token").write_text("the-token")
    with Runtime(worker_python, tmp_path, AGENTIX_TOKEN_FILE=str(tmp_path / "token")) as server:

        async def main() -> None:
            async with RuntimeClient(server.url, token="the-token") as client:
                await client.remote(t.add, 1, 2)
                sock = await client._open_conduit("0" * 32)
                assert sock is not None
                sock.close()
            client = RuntimeClient(server.url, token="another")
            with pytest.raises(OSError, match="did not prove"):
                await client._open_conduit("0" * 32)
            await client.close()
            client = RuntimeClient(server.url)
            assert await client._open_conduit("0" * 32) is None
            await client.close()

        run(main())
