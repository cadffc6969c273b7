"""`agentix.agents.claude_code` through a real runtime, with a stand-in for the program that says what it was given."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agentix.agents import claude_code
from agentix.agents.claude_code import ClaudeCodeInput, ClaudeCodeResult
from processes import Runtime, alive, eventually

from agentix import RemoteCallError, RuntimeClient

Run = Callable[[Awaitable[Any]], Any]
LOGGER = "agentix.agents.claude_code"

STAND_IN = f"""#!{sys.executable} -IS
import hashlib, json, os, subprocess, sys, time

def until(path):
    for _ in range(600):
        if os.path.exists(path):
            return
        time.sleep(0.05)

what = sys.argv[-1]
place = os.getcwd()
if what == "tell":
    said = {{"argv": sys.argv[1:], "env": dict(os.environ), "cwd": place, "stdin": sys.stdin.read()}}
    print(json.dumps(said))
    print("a warning \\u00fc", file=sys.stderr)
    sys.stdout.write("no end")
    sys.exit(3)
if what == "--print":
    text = sys.stdin.buffer.read()
    print(json.dumps({{"argv": sys.argv[1:], "bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}}))
if len(what) > 1000:
    print(json.dumps({{"bytes": len(os.fsencode(what)), "stdin": sys.stdin.read()}}))
if what == "wait":
    print("first", flush=True)
    print("trouble", file=sys.stderr, flush=True)
    until("go-on")
    print("second")
if what == "long":
    sys.stdout.write("x" * 700_000 + "\\nend\\n")
if what == "leave":
    child = subprocess.Popen(["sh", "-c", "echo $$ >> pids; while :; do sleep 60; done"])
    until("pids")
    print("done", flush=True)
if what == "tree":
    tree = ("echo $$ >> pids; (setsid sh -c 'trap : TERM INT HUP; echo $$ >> pids; while :; do sleep 60; done' &); "
            "sh -c 'echo $$ >> pids; sleep 600; :'")
    subprocess.Popen(["sh", "-c", tree])
    while not os.path.exists("pids") or len(open("pids").read().split()) < 3:
        time.sleep(0.05)
    print("early", flush=True)
    print("early trouble", file=sys.stderr, flush=True)
    open("pids", "a").write(f"{{os.getpid()}}\\n")
    time.sleep(600)
    print("late")
"""


@pytest.fixture(scope="module")
def runtime(worker_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """A runtime whose PATH has the stand-in."""
    root = tmp_path_factory.mktemp("claude")
    (root / "bin").mkdir()
    program = root / "bin" / "claude"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    path = f"{root}/bin:{os.environ['PATH']}"
    with Runtime(worker_python, root, PATH=path, ANTHROPIC_API_KEY="of the worker", OTHER="kept") as runtime:
        yield runtime


@pytest.fixture
def task(tmp_path: Path) -> ClaudeCodeInput:
    return ClaudeCodeInput(instruction="tell", model="some-model", workdir=str(tmp_path / "made" / "here"))


@pytest.fixture
def records() -> Iterator[list[tuple[str, str]]]:
    """What is logged, as level and text."""
    found: list[tuple[str, str]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append((record.levelname, record.getMessage()))

    logger, handler = logging.getLogger(LOGGER), Handler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture
def call(runtime: Runtime, run: Run) -> Callable[[ClaudeCodeInput], ClaudeCodeResult]:
    def caller(task: ClaudeCodeInput) -> ClaudeCodeResult:
        async def go() -> ClaudeCodeResult:
            async with RuntimeClient(runtime.url) as client:
                return await client.remote(claude_code.run, task)

        return run(go())

    return caller


def pids_in(task: ClaudeCodeInput, n: int) -> list[int]:
    path = Path(task.workdir, "pids")
    pids = [int(word) for word in path.read_text().split()] if path.exists() else []
    return pids if len(pids) >= n else []


PLAIN = ["--verbose", "--output-format", "stream-json", "--permission-mode", "bypassPermissions"]


def test_what_the_program_is_given(call: Callable[..., ClaudeCodeResult], task: ClaudeCodeInput) -> None:
    result = call(replace(task, env={"MINE": "1", "OTHER": "changed", "ANTHROPIC_MODEL": "no", "IS_SANDBOX": "0"}))
    assert type(result) is ClaudeCodeResult
    assert result.returncode == 3
    assert result.stderr == "a warning ü\n".encode()
    first, rest = result.stdout.split(b"\n", 1)
    assert rest == b"no end"
    said = json.loads(first)
    assert said["argv"] == [*PLAIN, "--model", "some-model", "--print", "--", "tell"]
    assert said["cwd"] == task.workdir
    assert said["stdin"] == ""
    env = said["env"]
    assert (env["MINE"], env["OTHER"], env["IS_SANDBOX"]) == ("1", "changed", "1")
    assert env["ANTHROPIC_BASE_URL"] == task.base_url
    assert task.base_url.endswith("api.anthropic.com")
    assert env["ANTHROPIC_MODEL"] == "some-model"
    assert env["ANTHROPIC_API_KEY"].startswith("sk-ant-api03-")
    assert env["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"
    assert env["ENABLE_BACKGROUND_TASKS"] == env["FORCE_AUTO_BACKGROUND_TASKS"] == "1"


def test_every_option(call: Callable[..., ClaudeCodeResult], task: ClaudeCodeInput) -> None:
    task = replace(
        task,
        api_key="key",
        base_url="http://127.0.0.1:1",
        max_turns=0,
        effort="high",
        append_system_prompt="be - brief",
    )
    said = json.loads(call(replace(task, allowed_tools="Bash,Read", disallowed_tools="Web")).stdout.split(b"\n")[0])
    assert said["argv"][len(PLAIN) + 2 :] == [
        *("--max-turns", "0", "--effort", "high", "--append-system-prompt", "be - brief"),
        *("--allowedTools", "Bash,Read", "--disallowedTools", "Web", "--print", "--", "tell"),
    ]
    assert (said["env"]["ANTHROPIC_API_KEY"], said["env"]["ANTHROPIC_BASE_URL"]) == ("key", "http://127.0.0.1:1")
    assert said["env"]["OTHER"] == "kept"


@pytest.mark.parametrize("length", [(128 << 10) - 1, 128 << 10, 3 << 20])
def test_an_instruction_of_any_length(
    call: Callable[..., ClaudeCodeResult], task: ClaudeCodeInput, length: int
) -> None:
    """An argument has a limit, of which its null character is a part; what the program reads has none."""
    instruction = "- tell: ü\n" + "x" * (length - 11)
    assert len(instruction.encode()) == length
    result = call(replace(task, instruction=instruction))
    assert (result.returncode, result.stderr) == (0, b"")
    said = json.loads(result.stdout)
    assert said["bytes"] == length
    if length < 128 << 10:
        assert said["stdin"] == ""
    else:
        assert said["argv"] == [*PLAIN, "--model", "some-model", "--print"]
        assert said["sha256"] == hashlib.sha256(instruction.encode()).hexdigest()


def test_lines_are_logged_while_it_runs(
    runtime: Runtime, run: Run, task: ClaudeCodeInput, records: list[tuple[str, str]]
) -> None:
    async def go() -> ClaudeCodeResult:
        async with RuntimeClient(runtime.url) as client:
            running = asyncio.ensure_future(client.remote(claude_code.run, replace(task, instruction="wait")))
            await eventually(lambda: len(records) >= 2, "both lines are there while it waits", 60)
            assert sorted(records) == [("INFO", "first"), ("WARNING", "trouble")]
            assert not running.done()
            await asyncio.to_thread(Path(task.workdir, "go-on").touch)
            result = await running
            await eventually(lambda: len(records) >= 3, "and the last one", 60)
            return result

    assert run(go()) == ClaudeCodeResult(0, b"first\nsecond\n", b"trouble\n")
    assert records[2:] == [("INFO", "second")]


def test_a_line_of_any_length(
    runtime: Runtime, run: Run, task: ClaudeCodeInput, records: list[tuple[str, str]]
) -> None:
    async def go() -> ClaudeCodeResult:
        async with RuntimeClient(runtime.url) as client:
            result = await client.remote(claude_code.run, replace(task, instruction="long"))
            await eventually(lambda: records[-1:] == [("INFO", "end")], "the last line is logged", 60)
            return result

    assert run(go()).stdout == b"x" * 700_000 + b"\nend\n"
    assert sum(len(text) for _, text in records[:-1]) == 700_000


def test_a_timeout_ends_the_tree_and_keeps_what_was_read(
    call: Callable[..., ClaudeCodeResult], task: ClaudeCodeInput
) -> None:
    result = call(replace(task, instruction="tree", timeout=5))
    assert result.returncode < 0
    assert (result.stdout, result.stderr) == (b"early\n", b"early trouble\n")
    pids = pids_in(task, 4)
    assert pids
    assert [pid for pid in pids if alive(pid)] == []


def test_what_it_leaves_behind_does_not_hold_up_the_result(
    call: Callable[..., ClaudeCodeResult], task: ClaudeCodeInput
) -> None:
    """A server that the agent has started has its pipes still."""
    result = call(replace(task, instruction="leave"))
    assert result == ClaudeCodeResult(0, b"done\n", b"")
    (pid,) = pids_in(task, 1)
    assert alive(pid), "it lives until the sandbox ends"


def test_a_cancelled_caller_ends_the_tree(runtime: Runtime, run: Run, task: ClaudeCodeInput) -> None:
    async def go() -> None:
        async with RuntimeClient(runtime.url) as client:
            running = asyncio.ensure_future(client.remote(claude_code.run, replace(task, instruction="tree")))
            await eventually(lambda: pids_in(task, 4), "the tree has started", 60)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await eventually(lambda: not any(alive(pid) for pid in pids_in(task, 4)), "all of it has ended", 60)

    run(go())


def test_why_nothing_was_run(call: Callable[..., ClaudeCodeResult], task: ClaudeCodeInput, tmp_path: Path) -> None:
    with pytest.raises(RemoteCallError, match="there is no claude on the PATH") as caught:
        call(replace(task, env={"PATH": "/nonexistent"}))
    assert caught.value.error.type == "FileNotFoundError"
    with pytest.raises(RemoteCallError, match="cannot be negative"):
        call(replace(task, timeout=-1))
    for instruction in ("a\0b", "\0" + "x" * (128 << 10)):
        with pytest.raises(RemoteCallError, match="holds a NUL") as caught:
            call(replace(task, instruction=instruction))
    (tmp_path / "file").touch()
    with pytest.raises(RemoteCallError, match="file"):
        call(replace(task, workdir=str(tmp_path / "file")))


def test_it_is_for_sandboxes() -> None:
    task = ClaudeCodeInput(instruction="x", model="m", workdir="/nonexistent/agx", env={"PATH": "/nonexistent"})
    with pytest.raises((RuntimeError, FileNotFoundError)):
        asyncio.run(claude_code.run(task))
