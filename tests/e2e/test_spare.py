"""The spare worker: it succeeds one that dies, nobody can tell it from a fresh start, and it may die itself."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import spare_targets as t
from processes import Runtime, alive, children, eventually, kill

from agentix import RemoteCallError, RuntimeClient, WorkerExited

KNOBS: dict[str, Any] = {"call_deadline": 60}


@pytest.fixture
def runtime(worker_python: str, tmp_path: Path) -> Iterator[Runtime]:
    with Runtime(worker_python, tmp_path, AGENTIX_SPARE_WORKERS="1") as runtime:
        yield runtime


async def spare_of(runtime: Runtime, worker: int) -> int:
    """The spare's process id, once there is one that has booted as far as it does."""

    def waits() -> list[int]:
        return [pid for pid in children(runtime.pid) if pid != worker and is_booted(pid)]

    await eventually(waits, "a spare waits", 60)
    return waits()[0]


def is_booted(pid: int) -> bool:
    """Whether it sleeps although it has begun: it has nothing to wait for then but the word."""
    try:
        flags = int(re.findall(r"flags:\s*(\d+)", Path(f"/proc/{pid}/fdinfo/4").read_text())[0], 8)
        return bool(flags & os.O_CLOEXEC) and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    except (OSError, IndexError):
        return False


async def call_again(client: RuntimeClient, pid: int) -> int:
    """Who answers after the worker was killed: a call may still be given to one whose death is not yet seen."""
    while True:
        try:
            answered = await client.remote(os.getpid)
        except WorkerExited:
            continue
        if answered != pid:
            return answered


def test_the_spare_succeeds_and_is_like_a_fresh_start(runtime: Runtime) -> None:
    async def main() -> None:
        async with RuntimeClient(runtime.url, **KNOBS) as client:
            worker = await client.remote(os.getpid)
            fresh, first = await client.remote(t.facts), await client.remote(t.worker_id)
            bits = await client.remote(t.random_bits)
            spare = await spare_of(runtime, worker)
            kill(worker)
            assert await call_again(client, worker) == spare
            assert await client.remote(t.facts) == fresh
            assert await client.remote(t.worker_id) != first
            again = await client.remote(t.random_bits)
            assert again[0] != bits[0]
            assert again[1] != bits[1]
            assert not alive(worker)

    asyncio.run(main())


@pytest.mark.parametrize("victims", ["worker", "spare", "worker spare", "spare worker"])
def test_kills_in_every_order(runtime: Runtime, victims: str) -> None:
    async def main() -> None:
        async with RuntimeClient(runtime.url, **KNOBS) as client:
            pids = {"worker": await client.remote(os.getpid)}
            pids["spare"] = await spare_of(runtime, pids["worker"])
            for victim in victims.split():
                kill(pids[victim])
            if victims == "spare":
                assert await client.remote(os.getpid) == pids["worker"]
                return
            answered = await call_again(client, pids["worker"])
            if victims == "worker":
                assert answered == pids["spare"]
            else:
                await eventually(lambda: not alive(pids["spare"]), "the killed spare is dead")
                answered = await call_again(client, pids["spare"])
            assert await client.remote(abs, -3) == 3
            assert await client.remote(os.getpid) == answered

    asyncio.run(main())


def test_a_spare_killed_while_it_boots_or_is_woken(worker_python: str, tmp_path: Path) -> None:
    """A gate holds each start that is a spare's: it is taken there, killed there, and another one answers."""
    gate, boots = tmp_path / "gate", tmp_path / "boots"
    wrapper = tmp_path / "python"
    wrapper.write_text(
        "#!/bin/sh\n"
        f"case $3 in *True*) echo $$ >> {shlex.quote(str(boots))}\n"
        f"while [ ! -e {shlex.quote(str(gate))} ]; do sleep 0.02; done;; esac\n"
        f'exec {shlex.quote(worker_python)} "$@"\n'
    )
    wrapper.chmod(0o700)

    async def main(runtime: Runtime) -> None:
        async with RuntimeClient(runtime.url, **KNOBS) as client:
            worker = await client.remote(os.getpid)
            await eventually(boots.exists, "a spare boots", 60)
            await eventually(boots.read_text, "and says so", 60)
            spare = int(boots.read_text().split()[0])
            kill(worker)
            call = asyncio.ensure_future(call_again(client, worker))
            await eventually(lambda: worker not in children(runtime.pid), "the death is seen", 60)
            assert not call.done()
            kill(spare)
            assert await call not in (worker, spare)

    with Runtime(str(wrapper), tmp_path, AGENTIX_SPARE_WORKERS="1") as runtime:
        asyncio.run(main(runtime))


def test_a_spare_that_does_not_wake_is_passed_over(runtime: Runtime) -> None:
    async def main() -> None:
        async with RuntimeClient(runtime.url, **KNOBS) as client:
            worker = await client.remote(os.getpid)
            spare = await spare_of(runtime, worker)
            os.kill(spare, signal.SIGSTOP)
            kill(worker)
            assert await call_again(client, worker) not in (worker, spare)
            await eventually(lambda: not alive(spare), "it has ended")

    asyncio.run(main())


def test_many_deaths_in_a_row(runtime: Runtime) -> None:
    deaths_in_a_row(runtime, 20)


@pytest.mark.long
def test_two_hundred_deaths_in_a_row(runtime: Runtime) -> None:
    deaths_in_a_row(runtime, 200)


def deaths_in_a_row(runtime: Runtime, n: int) -> None:
    async def main() -> None:
        async with RuntimeClient(runtime.url, **KNOBS) as client:
            seen: set[int] = set()
            pid = await client.remote(os.getpid)
            for _ in range(n):
                seen.add(pid)
                kill(pid)
                pid = await call_again(client, pid)
            assert len(seen | {pid}) == n + 1
            await spare_of(runtime, pid)
            assert len(children(runtime.pid)) == 2

    asyncio.run(main())


def test_a_worker_that_ends_itself_or_fills_its_memory(runtime: Runtime) -> None:
    """The spare has none of its limits, nor anything else of it."""

    async def main() -> None:
        async with RuntimeClient(runtime.url, **KNOBS) as client:
            worker = await client.remote(os.getpid)
            spare = await spare_of(runtime, worker)
            with pytest.raises(RemoteCallError, match="MemoryError"):
                await client.remote(t.fill_memory, 512 << 20)
            with pytest.raises(WorkerExited) as caught:
                await client.remote(os._exit, 7)
            assert caught.value.returncode == 7
            assert await client.remote(os.getpid) == spare
            assert (await client.remote(t.facts))["limits"].count((512 << 20, 512 << 20)) == 0

    asyncio.run(main())


def test_what_is_installed_meanwhile_is_there(worker_python: str, tmp_path: Path) -> None:
    """A path file that came after the spare's start: a fresh start reads it, so the spare is not used."""
    venv, extra = tmp_path / "venv", tmp_path / "extra"
    subprocess.run([worker_python, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=120)
    mine = next(venv.glob("lib/python*/site-packages"))
    theirs = next(Path(worker_python).parents[1].glob("lib/python*/site-packages/agentix-tests.pth"))
    (mine / theirs.name).write_text(theirs.read_text())

    async def main(runtime: Runtime) -> None:
        async with RuntimeClient(runtime.url, **KNOBS) as client:
            worker = await client.remote(os.getpid)
            spare = await spare_of(runtime, worker)
            (mine / "extra.pth").write_text(f"{extra}\n")
            kill(worker)
            worker = await call_again(client, worker)
            assert worker != spare
            assert str(extra) not in (await client.remote(t.facts))["path"]
            spare = await spare_of(runtime, worker)
            extra.mkdir()  # the file has named it all the while
            kill(worker)
            assert await call_again(client, worker) != spare
            assert str(extra) in (await client.remote(t.facts))["path"]

    with Runtime(str(venv / "bin" / "python"), tmp_path, AGENTIX_SPARE_WORKERS="1") as runtime:
        asyncio.run(main(runtime))


def test_the_spare_ends_with_the_server(worker_python: str, tmp_path: Path) -> None:
    async def main(runtime: Runtime, number: int) -> None:
        async with RuntimeClient(runtime.url, reconnection=False, **KNOBS) as client:
            worker = await client.remote(os.getpid)
            spare = await spare_of(runtime, worker)
            runtime.signal(number)
            await eventually(lambda: not alive(spare) and not alive(worker), "both end", 60)

    for number in (signal.SIGTERM, signal.SIGKILL):
        with Runtime(worker_python, tmp_path, AGENTIX_SPARE_WORKERS="1") as runtime:
            asyncio.run(main(runtime, number))
