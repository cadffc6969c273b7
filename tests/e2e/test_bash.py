"""`agentix.bash` through a real runtime: results, streams, limits, and the end of whole trees, seen from outside."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import Runtime, alive, children, eventually

from agentix import CallTimeout, RemoteCallError, RuntimeClient, bash

Run = Callable[[Awaitable[Any]], Any]


@pytest.fixture(scope="module")
def runtime(worker_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with Runtime(worker_python, tmp_path_factory.mktemp("bash")) as runtime:
        yield runtime


@pytest.fixture
def call(runtime: Runtime, run: Run) -> Callable[..., Any]:
    """Run one command in a sandbox and return what it gives."""

    def caller(command: str, **options: Any) -> Any:
        async def go() -> Any:
            async with RuntimeClient(runtime.url) as client:
                return await client.remote(bash.run, command, **options)

        return run(go())

    return caller


def pids_now(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()] if path.exists() else []


async def pids_in(path: Path, n: int) -> list[int]:
    """What commands of the tests write: a process id a line."""
    await eventually(lambda: len(pids_now(path)) >= n, "the processes have started")
    return pids_now(path)


def running(pids: list[int]) -> list[int]:
    return [pid for pid in pids if alive(pid)]


# ---- what comes back ----


def test_gives_exit_code_and_both_streams(call: Callable[..., Any]) -> None:
    assert call("echo out; echo err >&2; exit 3") == bash.BashResult(3, "out\n", "err\n")


def test_tells_a_signal_as_a_negative_code(call: Callable[..., Any]) -> None:
    assert call("kill -9 $$").exit_code == -9


def test_replaces_the_environment(call: Callable[..., Any]) -> None:
    assert call("echo $A:${HOME-none}", env={"A": "1"}) == bash.BashResult(0, "1:none\n", "")


def test_runs_in_a_directory(call: Callable[..., Any], tmp_path: Path) -> None:
    assert call("pwd", cwd=str(tmp_path)).stdout == f"{tmp_path}\n"


def test_feeds_input_of_any_size(call: Callable[..., Any]) -> None:
    assert call("cat; wc -c </dev/null", stdin=b"abc").stdout == "abc0\n"
    assert call("wc -c", stdin=b"x" * 5_000_000).stdout == "5000000\n"
    assert call("head -c 3", stdin=b"abcdef" * 1_000_000).stdout == "abc"


def test_bounds_output_and_drains_the_rest(call: Callable[..., Any]) -> None:
    result = call("yes x | head -c 3000000; echo end >&2", max_output=10)
    assert result == bash.BashResult(0, "x\nx\nx\nx\nx\n[truncated at 10 bytes]", "end\n")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"executable": "/no/such"}, "cannot execute /no/such: No such file or directory"),
        ({"executable": "no-such"}, "there is no no-such on the PATH"),
        ({"cwd": "/no/such"}, "in the directory /no/such: No such file or directory"),
    ],
)
def test_says_why_nothing_was_started(call: Callable[..., Any], options: dict[str, Any], words: str) -> None:
    with pytest.raises(RemoteCallError) as caught:
        call("true", **options)
    assert caught.value.error.type == "FileNotFoundError"
    assert words in caught.value.error.message


# ---- what it leaves ----


@pytest.mark.parametrize(
    "background",
    ["sleep 60 &", "while :; do echo more; sleep 0.1; done &", "setsid sleep 60 & disown;", "nohup sleep 60 &"],
)
def test_background_does_not_hold_the_call_open(call: Callable[..., Any], tmp_path: Path, background: str) -> None:
    begin = time.monotonic()
    result = call(f"{background} echo $! >{tmp_path}/pid; echo hi")
    assert time.monotonic() - begin < 5
    assert result.exit_code == 0
    assert "hi\n" in result.stdout
    pid = int((tmp_path / "pid").read_text())
    assert alive(pid), "it lives until the sandbox ends"
    os.kill(pid, 9)


# ---- the end of a tree ----

ESCAPES = {
    "child": "sleep 60 & echo $! >>pids; sleep 60",
    "double fork": "(sleep 60 & echo $! >>pids); sleep 60",
    "session": "setsid sh -c 'echo $$ >>pids; exec sleep 60' & sleep 60",
    "double fork and session": "(setsid sh -c '(echo $$; exec sleep 60) >>pids & exit' &) ; sleep 60",
    "deaf": "trap '' TERM INT HUP; sh -c 'echo $$ >>pids; while :; do sleep 1; done'",
}


@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize("how", ["timeout", "cancel", "deadline"])
def test_ends_a_whole_tree(runtime: Runtime, run: Run, tmp_path: Path, escape: str, how: str) -> None:
    command, pids = f"cd {tmp_path}; echo $$ >>pids; {ESCAPES[escape]}", tmp_path / "pids"

    async def by_timeout() -> list[int]:
        async with RuntimeClient(runtime.url) as client:
            result = await client.remote(bash.run, "echo early;" + command, timeout=1)
        assert result == bash.BashResult(-1, "early\n", "Command timed out after 1s")
        return await pids_in(pids, 2)

    async def by_cancel() -> list[int]:
        async with RuntimeClient(runtime.url) as client:
            task = asyncio.ensure_future(client.remote(bash.run, command))
            started = await pids_in(pids, 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await eventually(lambda: not running(started), "the tree ends", 3)
        return started

    async def by_deadline() -> list[int]:
        async with RuntimeClient(runtime.url, call_deadline=1) as client:
            with pytest.raises(CallTimeout):
                await client.remote(bash.run, command)
            started = await pids_in(pids, 2)
            await eventually(lambda: not running(started), "the tree ends", 3)
        return started

    started = run({"timeout": by_timeout, "cancel": by_cancel, "deadline": by_deadline}[how]())
    assert running(started) == []


# ---- streams ----


def test_streams_events_as_they_come(runtime: Runtime, run: Run) -> None:
    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            events = client.remote(bash.run_stream, "echo a; read x; echo $x >&2; exit 2", stdin=b"b\n")
            assert [event async for event in events] == [
                bash.BashStdout("a\n"),
                bash.BashStderr("b\n"),
                bash.BashExit(2),
            ]
            begin = time.monotonic()
            async for event in client.remote(bash.run_stream, "echo now; sleep 60"):
                assert event == bash.BashStdout("now\n")
                break
            assert time.monotonic() - begin < 10

    run(go())


def test_a_stream_that_takes_too_long_ends_with_an_error(runtime: Runtime, run: Run) -> None:
    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            events = client.remote(bash.run_stream, "echo early; sleep 60; echo late", timeout=0.5)
            assert [event async for event in events] == [
                bash.BashStdout("early\n"),
                bash.BashError("Command timed out after 0.5s"),
            ]

    run(go())


def test_keepers_end_with_their_trees(runtime: Runtime, call: Callable[..., Any]) -> None:
    before = len(children(runtime.pid))
    for _ in range(5):
        call("true")
    assert len(children(runtime.pid)) <= before + 1
