"""`kill -9` of worker, server and host at each step of a call, seen in what the victim itself wrote or sent.

The steps are told by the target's journal, by the host's notes, and by what the shim between host and server has of
their bytes; none is guessed by waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import storm_targets as t
from processes import Runtime, alive, eventually, kill, until
from shim import Shim

from agentix import RemoteCallError, RuntimeClient, WorkerExited

BOTH = pytest.mark.parametrize("http_sync_ms", [None, 2000], ids=["link", "http"])
KNOBS: dict[str, Any] = {"call_deadline": 20, "reconnection_delay": 0.02, "reconnection_attempts": 0}


class Scene:
    """A server whose workers boot only while the gate is open, a shim before it, a journal of targets."""

    def __init__(self, python: str, directory: Path) -> None:
        self.directory = directory
        self.journal = directory / "journal"
        self.boots = directory / "boots"
        self.gate = directory / "gate"
        wrapper = directory / "python"
        wrapper.write_text(
            "#!/bin/sh\n"
            f"echo $$ >> {shlex.quote(str(self.boots))}\n"
            f"while [ ! -e {shlex.quote(str(self.gate))} ]; do sleep 0.01; done\n"
            f'exec {shlex.quote(python)} "$@"\n'
        )
        wrapper.chmod(0o700)
        self.open_gate()
        self.runtime = Runtime(str(wrapper), directory)
        self.shim = Shim("")

    def __enter__(self) -> Scene:
        self.runtime.start()
        self.shim.target = self.runtime.url
        self.shim.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.open_gate()
        self.shim.__exit__(*exc)
        self.runtime.end()

    def open_gate(self) -> None:
        self.gate.touch()

    def close_gate(self) -> None:
        self.gate.unlink()

    def lines(self) -> Counter[str]:
        text = self.journal.read_text() if self.journal.exists() else ""
        return Counter(line.strip() for line in text.splitlines())

    def call(self, client: RuntimeClient, key: str, seconds: float = 0.0, size: int = 64) -> asyncio.Task[bytes]:
        return asyncio.create_task(client.remote(t.work, str(self.journal), key, seconds, size))

    async def has(self, line: str) -> None:
        await eventually(lambda: self.lines()[line], f'"{line}" in the journal')

    async def no_worker(self) -> None:
        """Close the gate and kill the worker; on return the server knows, and another one waits at the gate."""
        boots = len(self.boots.read_text().split())
        self.close_gate()
        kill(self.runtime.workers()[0])
        await eventually(lambda: len(self.boots.read_text().split()) > boots, "the next worker boots")

    async def next_server(self) -> None:
        await asyncio.to_thread(self.runtime.kill)
        self.open_gate()
        await asyncio.to_thread(self.runtime.start)
        self.shim.target = self.runtime.url

    def hold(self, direction: str, *, held: bool = True) -> None:
        """From now on, or not any more; and record, from now on."""
        for link in self.shim.links():
            self.shim.change(getattr(link, direction), held=held, record=True, recorded=bytearray())

    def call_is_there(self) -> bool:
        """Whether a call has come to the shim since hold("up"); a WebSocket masks what a client says."""
        return any(len(link.up.recorded) > 200 for link in self.shim.links())

    def result_is_there(self) -> bool:
        """Whether the result of the call "a" has, since hold("down")."""
        return any(t.value_of("a", 64) in link.down.recorded for link in self.shim.links())


@pytest.fixture
def scene(worker_python: str, tmp_path: Path) -> Any:
    with Scene(worker_python, tmp_path) as scene:
        yield scene


# ---- the worker ----


@BOTH
def test_a_worker_killed_before_it_took_the_call(scene: Scene, http_sync_ms: int | None) -> None:
    """Accepted and held: the next worker runs it."""

    async def main() -> None:
        async with RuntimeClient(scene.shim.url, http_sync_ms=http_sync_ms, **KNOBS) as client:
            await client.remote(len, "x")
            await scene.no_worker()
            scene.hold("up", held=False)
            call = scene.call(client, "a")
            await eventually(scene.call_is_there, "the call is on its way")
            kill(int(scene.boots.read_text().split()[-1]))
            scene.open_gate()
            assert await call == t.value_of("a", 64)

    asyncio.run(main())
    assert scene.lines() == {"start a": 1, "end a": 1}


@BOTH
def test_a_worker_killed_in_the_call(scene: Scene, http_sync_ms: int | None) -> None:
    async def main() -> None:
        async with RuntimeClient(scene.shim.url, http_sync_ms=http_sync_ms, **KNOBS) as client:
            call = scene.call(client, "a", 30)
            await scene.has("start a")
            kill(scene.runtime.workers()[0])
            with pytest.raises(WorkerExited) as caught:
                await call
            assert caught.value.returncode == -9
            assert await scene.call(client, "b") == t.value_of("b", 64)

    asyncio.run(main())
    assert scene.lines() == {"start a": 1, "start b": 1, "end b": 1}


@BOTH
@pytest.mark.parametrize("size", [64, 30 << 20], ids=["whole", "half"])
def test_a_worker_killed_as_it_writes_the_result(scene: Scene, http_sync_ms: int | None, size: int) -> None:
    """What the pipe holds whole is a result; half a frame is none. The server is stopped, so that it reads neither."""

    async def main() -> None:
        async with RuntimeClient(scene.shim.url, http_sync_ms=http_sync_ms, **KNOBS) as client:
            await client.remote(t.value_of, "x", 16)
            worker = scene.runtime.workers()[0]
            call = scene.call(client, "a", 0.3, size)
            await scene.has("start a")
            scene.runtime.signal(signal.SIGSTOP)
            await scene.has("end a")
            await eventually(lambda: is_asleep(worker), "the worker has written what it can")
            kill(worker)
            await eventually(lambda: not alive(worker), "it is dead")
            scene.runtime.signal(signal.SIGCONT)
            if size == 64:
                assert await call == t.value_of("a", 64)
            else:
                with pytest.raises(WorkerExited):
                    await call
            with contextlib.suppress(WorkerExited):  # it may have gone to the dead one, whose end was not seen yet
                assert await scene.call(client, "b") == t.value_of("b", 64)
            assert await scene.call(client, "c") == t.value_of("c", 64)

    asyncio.run(main())
    lines = scene.lines()
    assert {lines.pop("start b", 1), lines.pop("end b", 1)} == {1}
    assert lines == {"start a": 1, "end a": 1, "start c": 1, "end c": 1}


@BOTH
def test_a_worker_that_is_gone_but_for_its_death(scene: Scene, http_sync_ms: int | None) -> None:
    """Its channel has ended: what is called now is left to the next worker."""

    async def main() -> None:
        async with RuntimeClient(scene.shim.url, http_sync_ms=http_sync_ms, **KNOBS) as client:
            await client.remote(len, "x")
            lost = asyncio.create_task(client.remote(t.hang_up, str(scene.journal), 30))
            await scene.has("hung up")
            assert await scene.call(client, "b") == t.value_of("b", 64)
            with pytest.raises(WorkerExited):
                await lost

    asyncio.run(main())
    assert scene.lines() == {"hung up": 1, "start b": 1, "end b": 1}


def is_asleep(pid: int) -> bool:
    """Whether all its threads have slept, and switched nothing, for a while."""

    def state() -> list[str]:
        threads = sorted(Path(f"/proc/{pid}/task").iterdir())
        lines = [line for thread in threads for line in (thread / "status").read_text().splitlines()]
        return [line for line in lines if line.startswith(("State", "voluntary", "nonvoluntary"))]

    before = state()
    time.sleep(0.05)
    return before == state() and not any("running" in line for line in before)


# ---- the server ----


@BOTH
def test_a_server_killed_before_the_call_began(scene: Scene, http_sync_ms: int | None) -> None:
    """It has accepted the call, no worker has it: the client cannot know, and does not send it to the next server."""

    async def main() -> None:
        async with RuntimeClient(scene.shim.url, http_sync_ms=http_sync_ms, **KNOBS) as client:
            await client.remote(len, "x")
            await scene.no_worker()
            scene.hold("up", held=False)
            call = scene.call(client, "a")
            await eventually(scene.call_is_there, "the call is on its way")
            await scene.next_server()
            with pytest.raises(RemoteCallError) as caught:
                await call
            assert (caught.value.error.type, caught.value.error.reason) == ("ResultUnavailable", "instance_changed")
            assert await scene.call(client, "b") == t.value_of("b", 64)

    asyncio.run(main())
    assert scene.lines() == {"start b": 1, "end b": 1}


@BOTH
def test_a_server_killed_in_the_call(scene: Scene, http_sync_ms: int | None) -> None:
    async def main() -> None:
        async with RuntimeClient(scene.shim.url, http_sync_ms=http_sync_ms, **KNOBS) as client:
            call = scene.call(client, "a", 30)
            await scene.has("start a")
            await scene.next_server()
            with pytest.raises(RemoteCallError) as caught:
                await call
            assert (caught.value.error.type, caught.value.error.reason) == ("ResultUnavailable", "instance_changed")
            assert await scene.call(client, "b") == t.value_of("b", 64)

    asyncio.run(main())
    assert scene.lines() == {"start a": 1, "start b": 1, "end b": 1}


@BOTH
@pytest.mark.parametrize("arrives", [True, False], ids=["arrives", "lost"])
def test_a_server_killed_when_it_had_answered(scene: Scene, http_sync_ms: int | None, arrives: bool) -> None:
    async def main() -> None:
        async with RuntimeClient(scene.shim.url, http_sync_ms=http_sync_ms, **KNOBS) as client:
            await client.remote(len, "x")
            scene.hold("down")
            call = scene.call(client, "a")
            await eventually(scene.result_is_there, "the result is on its way")
            await scene.next_server()
            if arrives:
                scene.hold("down", held=False)
            else:
                scene.shim.cut()
            if arrives:
                assert await call == t.value_of("a", 64)
            else:
                with pytest.raises(RemoteCallError) as caught:
                    await call
                assert caught.value.error.reason == "instance_changed"
            assert await scene.call(client, "b") == t.value_of("b", 64)

    asyncio.run(main())
    assert scene.lines() == {"start a": 1, "end a": 1, "start b": 1, "end b": 1}


@BOTH
def test_a_server_killed_before_the_acknowledgement(scene: Scene, http_sync_ms: int | None) -> None:
    async def main() -> None:
        async with RuntimeClient(scene.shim.url, http_sync_ms=http_sync_ms, **KNOBS) as client:
            call = scene.call(client, "a", 0.2)
            await scene.has("start a")
            scene.hold("up")
            assert await call == t.value_of("a", 64)
            await scene.next_server()
            scene.shim.cut()
            assert await scene.call(client, "b") == t.value_of("b", 64)

    asyncio.run(main())
    assert scene.lines() == {"start a": 1, "end a": 1, "start b": 1, "end b": 1}


# ---- the host ----


class Host:
    """`lone_host.py` at work."""

    def __init__(self, scene: Scene, key: str, seconds: float, sync: int | None) -> None:
        self.key = key
        self.notes = scene.directory / f"notes-{key}"
        script = Path(__file__).parent / "lone_host.py"
        words = [scene.shim.url, self.notes, scene.journal, key, seconds, "none" if sync is None else sync]
        self.process = subprocess.Popen([sys.executable, str(script), *map(str, words)], stdin=subprocess.PIPE)

    def wrote(self) -> list[str]:
        text = self.notes.read_text() if self.notes.exists() else ""
        return [line.strip() for line in text.splitlines()]

    def go(self) -> None:
        """Make the call, once it is ready."""
        self.notes_that(f"ready {self.key}")
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def notes_that(self, line: str) -> None:
        until(lambda: line in self.wrote(), f'"{line}" in the notes of the host')

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(20)


def all_goes_on(scene: Scene, sync: int | None) -> None:
    """Another host's call is served, and what the killed one left is not run again."""
    other = Host(scene, "other", 0, sync)
    other.go()
    other.notes_that("value other")
    assert other.end() == 0
    assert os.path.isdir(f"/proc/{scene.runtime.pid}")


@BOTH
def test_a_host_killed_before_the_server_heard(scene: Scene, http_sync_ms: int | None) -> None:
    """What it had sent arrives when it is dead: the call runs, once, or not at all."""
    host = Host(scene, "a", 0, http_sync_ms)
    host.notes_that("ready a")
    scene.hold("up")
    host.go()
    until(scene.call_is_there, "the call is on its way")
    host.kill()
    scene.hold("up", held=False)
    all_goes_on(scene, http_sync_ms)
    assert scene.lines()["start a"] <= 1
    assert scene.lines()["start other"] == scene.lines()["end other"] == 1


@BOTH
def test_a_host_killed_in_the_call(scene: Scene, http_sync_ms: int | None) -> None:
    """Its call is run to the end, once; the result waits for nobody."""
    host = Host(scene, "a", 1, http_sync_ms)
    host.go()
    until(lambda: scene.lines()["start a"], "the target begins")
    host.kill()
    all_goes_on(scene, http_sync_ms)
    until(lambda: scene.lines()["end a"], "the target ends")
    assert scene.lines() == {"start a": 1, "end a": 1, "start other": 1, "end other": 1}


@BOTH
def test_a_host_killed_before_it_read_the_result(scene: Scene, http_sync_ms: int | None) -> None:
    host = Host(scene, "a", 0.3, http_sync_ms)
    host.go()
    until(lambda: scene.lines()["start a"], "the target begins")
    scene.hold("down")
    until(scene.result_is_there, "the result is on its way")
    host.kill()
    assert "value a" not in host.wrote()
    scene.hold("down", held=False)
    all_goes_on(scene, http_sync_ms)
    assert scene.lines() == {"start a": 1, "end a": 1, "start other": 1, "end other": 1}


@BOTH
def test_a_host_killed_before_it_acknowledged(scene: Scene, http_sync_ms: int | None) -> None:
    host = Host(scene, "a", 0.3, http_sync_ms)
    host.go()
    until(lambda: scene.lines()["start a"], "the target begins")
    scene.hold("up")
    host.notes_that("value a")
    host.kill()
    scene.hold("up", held=False)
    all_goes_on(scene, http_sync_ms)
    assert scene.lines() == {"start a": 1, "end a": 1, "start other": 1, "end other": 1}


@BOTH
@pytest.mark.parametrize("seconds", [3, pytest.param(120, marks=pytest.mark.long)])
def test_a_host_that_is_stopped_gets_its_result(scene: Scene, http_sync_ms: int | None, seconds: int) -> None:
    """Its call ends while it stands still; nobody has hung up when it goes on, or else it comes back."""
    host = Host(scene, "a", 2, http_sync_ms)
    host.go()
    until(lambda: scene.lines()["start a"], "the target begins")
    host.process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    host.process.send_signal(signal.SIGCONT)
    host.notes_that("value a")
    assert host.end() == 0
    assert scene.lines() == {"start a": 1, "end a": 1}
