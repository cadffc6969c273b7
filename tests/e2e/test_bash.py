"""`agentix.bash` through a real runtime: results, streams, limits, and the end of whole trees, seen from outside."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import bash_targets as t
import pytest
from processes import Runtime, alive, children, descriptors, eventually, rss

from agentix import CallTimeout, RemoteCallError, RuntimeClient, WorkerExited, bash

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
    assert time.monotonic() - begin < 30
    assert result.exit_code == 0
    assert "hi\n" in result.stdout
    pid = int((tmp_path / "pid").read_text())
    assert alive(pid), "it lives until the sandbox ends"
    os.kill(pid, 9)


def test_background_does_not_hold_a_stream_open(
    runtime: Runtime, run: Run, call: Callable[..., Any], tmp_path: Path
) -> None:
    talker = f"(echo $BASHPID >{tmp_path}/pid; while :; do echo more; sleep 0.05; done) & echo hi"

    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            events = [event async for event in client.remote(bash.run_stream, talker)]
            assert events.pop() == bash.BashExit(0)
            assert "hi\n" in "".join(event.data for event in events if isinstance(event, bash.BashStdout))
            [pid] = await pids_in(tmp_path / "pid", 1)
            assert (await client.remote(bash.run, "echo next; sleep 0.3")).stdout == "next\n", "none of it comes here"
            assert alive(pid)
            os.kill(pid, 9)

    begin = time.monotonic()
    run(go())
    assert time.monotonic() - begin < 30


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
            await eventually(lambda: not running(started), "the tree ends", 30)
        return started

    async def by_deadline() -> list[int]:
        async with RuntimeClient(runtime.url, call_deadline=1) as client:
            with pytest.raises(CallTimeout):
                await client.remote(bash.run, command)
            started = await pids_in(pids, 2)
            await eventually(lambda: not running(started), "the tree ends", 30)
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
            assert time.monotonic() - begin < 30

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


# ---- whatever the worker is doing ----


def test_a_cancelled_call_of_a_blocked_worker_loses_its_tree_at_once(
    runtime: Runtime, run: Run, tmp_path: Path
) -> None:
    command = f"cd {tmp_path}; echo $$ >>pids; setsid sh -c 'echo $$ >>pids; exec sleep 60' & sleep 60"

    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            task = asyncio.ensure_future(client.remote(t.run_blocked, command, 12))
            started = await pids_in(tmp_path / "pids", 2)
            await asyncio.sleep(0.3)  # by now the loop is held up
            begin = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await eventually(lambda: not running(started), "the tree ends", 30)
            assert time.monotonic() - begin < 4.5, "before the worker, which gets 5 s, does"

    run(go())


def test_a_command_outlives_a_blocked_worker(runtime: Runtime, run: Run) -> None:
    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            assert await client.remote(t.run_blocked, "head -c 200000 /dev/zero; sleep 0.3; exit 7", 1) == 7

    run(go())


def test_a_command_ends_with_its_call(runtime: Runtime, run: Run, tmp_path: Path) -> None:
    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            assert await client.remote(t.forget, f"echo $$ >>{tmp_path}/pids; exec sleep 60") == "forgotten"
        started = await pids_in(tmp_path / "pids", 1)
        await eventually(lambda: not running(started), "the command ends", 30)

    run(go())


def test_a_timeout_inside_the_sandbox_has_ended_the_tree_when_it_is_told(
    runtime: Runtime, run: Run, tmp_path: Path
) -> None:
    command = f"cd {tmp_path}; echo $$ >>pids; (setsid sh -c 'echo $$ >>pids; exec sleep 60' &); sleep 60"

    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            assert await client.remote(t.run_within, command, 1) == "over"
            assert running(await pids_in(tmp_path / "pids", 2)) == []
            assert await client.remote(t.run_within, "true", 20) == "in time"

    run(go())


def test_a_tree_ends_with_its_worker(runtime: Runtime, run: Run, tmp_path: Path) -> None:
    command = f"cd {tmp_path}; echo $$ >>pids; (setsid sh -c 'echo $$ >>pids; exec sleep 60' &); sleep 60"

    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            with pytest.raises(WorkerExited):
                await client.remote(t.run_then_die, command, 7)
            started = await pids_in(tmp_path / "pids", 2)
            await eventually(lambda: not running(started), "the tree ends", 30)
            assert (await client.remote(bash.run, "echo again")).stdout == "again\n"

    run(go())


def test_sync_targets_run_commands_too(runtime: Runtime, run: Run) -> None:
    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            assert await client.remote(t.run_in_thread, "echo $((6*7))") == bash.BashResult(0, "42\n", "")

    run(go())


def test_many_at_once_and_one_too_many(runtime: Runtime, run: Run) -> None:
    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            results = await client.remote(t.run_many, "echo x", 40)
            assert results == [bash.BashResult(0, "x\n", "")] * 40
            assert (await client.remote(t.run_without_descriptors, "echo y")) == "y\n"

    run(go())


def test_a_reader_that_is_slow_holds_up_the_command_not_the_runtime(runtime: Runtime, run: Run) -> None:
    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            before = rss(runtime.pid)
            task = asyncio.ensure_future(client.remote(t.read_slowly, "head -c 100000000 /dev/zero | tr '\\0' a", 1.5))
            await asyncio.sleep(1)
            assert rss(runtime.pid) - before < 20 << 20
            first, rest = await task
            assert first + rest == 100_000_000

    run(go())


# ---- the end of the runtime ----


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_trees_end_with_the_runtime(worker_python: str, run: Run, tmp_path: Path, number: int) -> None:
    left = f"cd {tmp_path}; setsid sleep 60 & echo $! >>pids"
    runs = f"cd {tmp_path}; echo $$ >>pids; (setsid sh -c 'echo $$ >>pids; exec sleep 60' &); sleep 60"

    async def go() -> None:
        with Runtime(worker_python, tmp_path) as runtime:
            client = RuntimeClient(runtime.url)
            async with client:
                await client.remote(bash.run, left)
                task = asyncio.ensure_future(client.remote(bash.run, runs))
                started = await pids_in(tmp_path / "pids", 3)
                runtime.signal(number)
                await eventually(lambda: not running(started), "the trees end", 30)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        groups = [Path(place) for place in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/freezer")]
        name = f"agentix-{runtime.instance[:12]}-*"
        await eventually(lambda: not [left for place in groups for left in place.glob(name)], "no cgroup is left", 30)

    run(go())


def test_a_keeper_that_was_killed_costs_its_command_only(runtime: Runtime, run: Run, tmp_path: Path) -> None:
    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            task = asyncio.ensure_future(client.remote(bash.run, f"echo $PPID $$ >>{tmp_path}/pids; exec sleep 60"))
            keeper, shell = await pids_in(tmp_path / "pids", 2)
            os.kill(keeper, signal.SIGKILL)
            assert (await task).exit_code == -9
            await eventually(lambda: not running([shell]), "the shell ends", 30)
            assert (await client.remote(bash.run, "echo fine")).stdout == "fine\n"

    run(go())


@pytest.mark.timeout(120)
def test_a_keeper_that_was_stopped_does_not_save_its_tree(runtime: Runtime, run: Run, tmp_path: Path) -> None:
    command = f"cd {tmp_path}; echo $PPID $$ >>pids; sleep 60 & echo $! >>pids; wait"

    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            task = asyncio.ensure_future(client.remote(bash.run, command))
            started = await pids_in(tmp_path / "pids", 3)
            os.kill(started[0], signal.SIGSTOP)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await eventually(lambda: not running(started), "the tree ends", 20)

    run(go())


@pytest.mark.parametrize("again", [False, True])
def test_a_tree_that_stops_its_keeper_gains_no_time(runtime: Runtime, run: Run, tmp_path: Path, again: bool) -> None:
    """Its timeout is told in time, and with one that got away from the group nobody is left."""
    stop = "(while :; do kill -STOP $K; done) &" if again else "kill -STOP $K;"
    command = (
        f"cd {tmp_path}; K=$PPID; (setsid sh -c 'echo $$ >>pids; exec sleep 60' &); echo $$ >>pids; {stop} sleep 60"
    )

    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            begin = time.monotonic()
            task = asyncio.ensure_future(client.remote(bash.run, command, timeout=0.5))
            started = await pids_in(tmp_path / "pids", 2)
            assert (await task).exit_code == -1
            assert time.monotonic() - begin < 7, "a keeper that answers nothing is given up after 7 s"
            await eventually(lambda: not running(started), "the tree ends", 20)

    run(go())


HOST = """
import asyncio, sys
from agentix import SandboxConfig, bash
from agentix.provider.uv import UvProvider, UvProviderConfig

async def main():
    provider = UvProvider(UvProviderConfig(reuse_venv=sys.argv[1]))
    async with provider, provider.session(SandboxConfig(image="local", bundle="local")) as sandbox:
        await sandbox.remote(bash.run, sys.argv[2])
        await sandbox.remote(bash.run, sys.argv[3])

asyncio.run(main())
"""


def test_trees_end_with_a_host_that_was_killed(worker_python: str, run: Run, tmp_path: Path) -> None:
    left = f"cd {tmp_path}; setsid sleep 60 & echo $! >>pids"
    runs = f"cd {tmp_path}; echo $$ >>pids; (setsid sh -c 'echo $$ >>pids; exec sleep 60' &); sleep 60"

    async def go() -> None:
        venv = str(Path(worker_python).parents[1])
        environ = {**os.environ, "XDG_RUNTIME_DIR": places, "XDG_CACHE_HOME": places}
        host = await asyncio.create_subprocess_exec(sys.executable, "-c", HOST, venv, left, runs, env=environ)
        try:
            started = await pids_in(tmp_path / "pids", 3)
            assert len(running(started)) == 3
        finally:
            host.kill()
            await host.wait()
        await eventually(lambda: not running(started), "the trees end with their sandbox", 30)

    with tempfile.TemporaryDirectory(prefix="agx-") as places:  # a short name: the path of a socket must fit
        run(go())


# ---- where it runs ----


def test_needs_a_sandbox(run: Run) -> None:
    with pytest.raises(RuntimeError, match=r"await sandbox\.remote"):
        run(bash.run("true"))


def test_refuses_what_no_process_can_be_given(call: Callable[..., Any]) -> None:
    for options, words in (
        ({"env": {"A=B": "x"}}, "is no name of a variable"),
        ({"env": {"A": "x\0y"}}, "a variable holds a NUL"),
        ({"cwd": "/tmp\0"}, "cwd holds a NUL"),
        ({"timeout": -1}, "cannot be negative"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"timeout": float("-inf")}, "cannot be negative"),
        ({"max_output": -1}, "cannot be negative"),
    ):
        with pytest.raises(RemoteCallError, match="ValueError") as caught:
            call("true", **options)
        assert words in caught.value.error.message
    for most in (1 << 64, 1 << 65, 10**30):  # modulo 2**64 the first is none at all
        with pytest.raises(RemoteCallError, match="OverflowError") as caught:
            call("echo ok", max_output=most)
        assert "at most 18446744073709551615" in caught.value.error.message
    with pytest.raises(RemoteCallError, match="TypeError"):
        call("echo ok", max_output=1e6)
    with pytest.raises(RemoteCallError) as caught:
        call("true; #" + "x" * 200_000)
    assert "Argument list too long" in caught.value.error.message


def test_bounds_that_are_none(call: Callable[..., Any]) -> None:
    for options in ({"timeout": float("inf")}, {"timeout": 1e300}, {"max_output": (1 << 64) - 1}, {"timeout": 1 << 80}):
        assert call("echo ok", **options) == bash.BashResult(0, "ok\n", ""), options


# ---- text ----


def test_characters_cross_the_borders_of_reads(runtime: Runtime, run: Run) -> None:
    text = "a" * 65535 + "€😀"
    slow = "for b in '\\xe2' '\\x82' '\\xac'; do printf $b; sleep 0.1; done; printf '\\xe2'"

    async def streamed(client: RuntimeClient, command: str) -> str:
        events = [event async for event in client.remote(bash.run_stream, command)]
        assert events.pop() == bash.BashExit(0)
        return "".join(event.data for event in events if isinstance(event, bash.BashStdout))

    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            for command, right in ((f"printf '{text}'", text), (slow, "€\ufffd")):
                assert (await client.remote(bash.run, command)).stdout == right
                assert await streamed(client, command) == right

    run(go())


def test_a_character_that_was_cut_by_the_bound_is_left_out(call: Callable[..., Any]) -> None:
    assert call("printf 'ab€'", max_output=3).stdout == "ab\n[truncated at 3 bytes]"
    assert call("printf 'ab€'", max_output=5).stdout == "ab€"


# ---- the environment ----


def test_start_up_files_of_the_image_have_no_say(worker_python: str, run: Run, tmp_path: Path) -> None:
    for name in (".bashrc", ".profile", "env"):
        (tmp_path / name).write_text("echo banner; PS1='nothing like a prompt'; exit 1\n")
    environ = {"HOME": str(tmp_path), "BASH_ENV": str(tmp_path / "env"), "LC_ALL": "C", "PS1": "%"}

    async def go() -> None:
        with Runtime(worker_python, tmp_path, **environ) as runtime:
            async with RuntimeClient(runtime.url) as client:
                assert await client.remote(bash.run, "unset TERM; echo ok") == bash.BashResult(0, "ok\n", "")

    run(go())


def test_a_start_up_file_that_is_asked_for_is_read_once(call: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "script").write_text("echo from script\n")
    (tmp_path / "rc").write_text(f"bash {tmp_path}/script; NAME=value; export OTHER=$#\n")
    env = {"PATH": os.environ["PATH"], "BASH_ENV": str(tmp_path / "rc")}
    result = call('echo "$NAME" $OTHER $# "$BASH_ENV"; bash -c "echo ${BASH_ENV@A}"; env; exit 5', env=env)
    lines = result.stdout.splitlines()
    assert lines[:2] == ["from script", f"value 0 0 {tmp_path}/rc"]
    assert result.exit_code == 5
    assert not [line for line in lines[3:] if "BASH_ENV" in line or "AGENTIX" in line], "nor is it exported"


# What a file does, then a command, and what tells them apart if the file is not read as bash reads it.
FILES = {
    "nothing": ("", "echo $? $# $0 $-"),
    "failure": ("false", "echo $?"),
    "exit": ("exit 4", "echo never"),
    "arguments": ('echo $# "$@" ${FUNCNAME-none}', "echo $#"),
    "errexit": ("set -e", "false; echo never"),
    "nounset": ("set -u", "echo $nope; echo never"),
    "xtrace": ("set -x", "echo x"),
    "verbose": ("set -v", "echo x"),
    "exit trap": ("trap 'echo bye' EXIT", "echo x"),
    "debug trap": ("set -T; trap 'echo debug' DEBUG", "echo x; echo y"),
    "alias": ("shopt -s expand_aliases; alias hi='echo hello'", "hi there"),
    "new arguments": ("set -- 1 2", "echo $#"),
    "descriptor": ("exec 3>&1", "echo x >&3"),
    "input": ("read x", "cat; echo $x"),
    "one command": ("", "sh -c 'kill -9 $$'"),
    "exec": ("", "exec sh -c 'kill -9 $$'"),
    "lines": ("", "no-such-thing\necho $LINENO\nno-such-thing"),
    "syntax": ("", "echo a\nif then"),
    "text": ("", 'echo "$BASH_EXECUTION_STRING"'),
}
# Its value is expanded, and no name of something on the PATH.
NAMES = ["$HOME/f", "~/f", "./f", "f", "no-such", "/no/such", "$(echo f)", "${X:-f}", "a b", 'q"q', "b\\s", "true"]


@pytest.mark.timeout(120)
def test_a_start_up_file_is_read_as_bash_reads_it(runtime: Runtime, run: Run, tmp_path: Path) -> None:
    for name in ("f", "a b", 'q"q', "b\\s"):
        (tmp_path / name).write_text(f"echo {name[0]} is read\n")
    table: list[tuple[str, str]] = [(name, "echo $?") for name in NAMES]
    for name, (text, command) in FILES.items():
        (tmp_path / f"rc of {name}").write_text(text + "\n")
        table.append((f"{tmp_path}/rc of {name}", command))

    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            for name, command in table:
                env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "BASH_ENV": name}
                options: dict[str, Any] = {
                    "executable": "/bin/bash",
                    "cwd": str(tmp_path),
                    "env": env,
                    "stdin": b"a\nb\n",
                }
                ours = await client.remote(bash.run, command, timeout=20, **options)
                argv = ["/bin/bash", "-c", command]
                bashs = await asyncio.to_thread(
                    subprocess.run, argv, cwd=tmp_path, env=env, input=b"a\nb\n", capture_output=True, timeout=20
                )
                right = bash.BashResult(bashs.returncode, bashs.stdout.decode(), bashs.stderr.decode())
                assert ours == right, (name, command)

    run(go())


def test_the_image_s_own_environment(worker_python: str, run: Run, tmp_path: Path) -> None:
    environ = {
        "HOME": str(tmp_path),
        "PATH": ":".join(dict.fromkeys(["/opt/own/bin", *os.environ["PATH"].split(":")])),
        "PYTHONPATH": "/opt/own",
        "NIX_PATH": "kept",
        "CPATH": "/opt/own/include",
    }
    (tmp_path / ".bashrc").write_text("bash -c 'echo from rc'\n")

    async def go() -> None:
        with Runtime(worker_python, tmp_path, **environ) as runtime:
            async with RuntimeClient(runtime.url) as client:
                await client.remote(t.set_variable, "NIX_PATH", "live")
                env = await client.remote(bash.image_env, {"CPATH": "mine"})
                assert not [name for name in env if name.startswith(("AGENTIX_ADDED_", "AGENTIX_SAVED_"))]
                assert {name: env.get(name) for name in environ} == {**environ, "NIX_PATH": "live", "CPATH": "mine"}
                assert "LD_LIBRARY_PATH" not in env
                assert env["BASH_ENV"] == str(tmp_path / ".bashrc")
                own = await client.remote(t.variables)
                assert own["PATH"] != env["PATH"]
                result = await client.remote(bash.run, "echo $PYTHONPATH", env=env)
                assert result == bash.BashResult(0, "from rc\n/opt/own\n", "")
                assert (await client.remote(bash.image_env, {"BASH_ENV": "x"}))["BASH_ENV"] == "x"
                assert "BASH_ENV" not in await client.remote(bash.image_env, {"HOME": "/no/such"})

    run(go())


def test_awkward_variables_arrive_as_they_are(call: Callable[..., Any]) -> None:
    env = {"A": "x\nB=evil", "K": "-----BEGIN\nline\n", "E": "", "Q": "a'b\"c $HOME #", "PATH": os.environ["PATH"]}
    result = call("env -0", env=env)
    seen = dict(item.split("=", 1) for item in result.stdout.split("\0") if item)
    assert {name: seen.get(name) for name in env} == env
    assert "B" not in seen


@pytest.mark.parametrize("executable", ["sh", "/bin/sh"])
def test_another_shell(call: Callable[..., Any], tmp_path: Path, executable: str) -> None:
    (tmp_path / "rc").write_text("echo from rc\n")
    assert call("echo ${BASH_VERSION-none}", executable=executable).stdout == "none\n"
    env = {"PATH": os.environ["PATH"], "BASH_ENV": str(tmp_path / "rc")}
    assert call("echo ok", executable=executable, env=env).stdout == "ok\n", "a shell that is no bash does not read it"


# ---- the guide ----

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "shell.md"


def test_the_guide_s_examples_run(runtime: Runtime, run: Run) -> None:
    blocks = [
        block for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S) if "sandbox.remote" in block
    ]
    assert len(blocks) >= 4

    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            for block in blocks:
                space: dict[str, Any] = {}
                exec("async def example(sandbox):\n" + textwrap.indent(block, "    "), space)
                await space["example"](client)

    run(go())


# ---- nothing left to make a process with ----


def test_without_descriptors_the_call_says_so(runtime: Runtime, run: Run) -> None:
    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            assert (await client.remote(bash.run, "echo before")).stdout == "before\n"
            old = resource.prlimit(runtime.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(runtime.pid, resource.RLIMIT_NOFILE, (descriptors(runtime.pid) + 2, old[1]))
            try:
                with pytest.raises(RemoteCallError, match="Too many open files") as caught:
                    await client.remote(bash.run, "echo never")
                assert "cannot start" in caught.value.error.message
                assert await client.remote(t.variables), "other calls go on"
            finally:
                resource.prlimit(runtime.pid, resource.RLIMIT_NOFILE, old)
            assert (await client.remote(bash.run, "echo after")).stdout == "after\n"

    run(go())


@pytest.mark.long
def test_one_more_than_may_run(runtime: Runtime, run: Run) -> None:
    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            results = await client.remote(t.run_many, "sleep 30", 513, 10)
            refused = [result for result in results if isinstance(result, str)]
            assert len(refused) == 1
            assert "too many run already" in refused[0]
            assert (await client.remote(bash.run, "echo after")).stdout == "after\n"

    run(go())


# ---- below the plugin ----


def test_odd_requests_are_answered_and_cost_nobody_else(runtime: Runtime, run: Run) -> None:
    table = [
        (b"/bin/true", b"true", b"", b"/", "malformed"),
        (b"/bin/true", b"", b"", b"/", "malformed"),
        (b"/bin/true", b"true\0", b"A=1", b"/", "malformed"),
        (b"/bin/\0true", b"true\0", b"", b"/", "Invalid argument"),
        (b"/bin/" + b"x" * 5000, b"true\0", b"", b"/", "File name too long"),
        (b"/bin/true", b"true\0", b"", b"/" + b"x" * 5000, "File name too long"),
        (b"/bin/\xff", b"true\0", b"", b"/", "cannot execute /bin/?"),
        (b"/bin/true", b"true\0" + b"x" * (4 << 20) + b"\0", b"", b"/", "too long"),
        (b"", b"true\0", b"", b"/", "No such file"),
        (b"/bin/true", b"\0", b"", b"/", "code=0"),
    ]

    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            workers = runtime.workers()
            for *request, words in table:
                assert words in await client.remote(t.start_raw, *request), request[:1]
            assert await client.remote(t.talk_of_nobody) == "fine"
            assert await client.remote(t.overfeed, 300_000) == ("ended", -9)
            assert await client.remote(t.signal_and_wait, signal.SIGUSR1) == (5, "exited")
            assert runtime.workers()[:1] == workers[:1], "the worker is still the same"

    run(go())


def test_a_process_of_no_call_lives_as_long_as_its_worker(runtime: Runtime, run: Run) -> None:
    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            pid = await client.remote(t.detached, "exec sleep 60")
            await client.remote(bash.run, "true")
            assert alive(pid)
            with pytest.raises(WorkerExited):
                await client.remote(t.run_then_die, "true", 1)
            await eventually(lambda: not alive(pid), "it ends with its worker", 30)

    run(go())


def test_without_a_path_the_shell_is_found_all_the_same(call: Callable[..., Any]) -> None:
    assert call("echo ${BASH_VERSION:+bash}", env={}).stdout == "bash\n"
