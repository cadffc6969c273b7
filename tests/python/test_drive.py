"""The providers' asyncio shell with real processes: fake servers and fake uv's in every bad mood."""

import asyncio
import contextlib
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from agentix import _core
from agentix.provider._drive import Child, Driver, remove_tree

T = TypeVar("T")
FAKE = Path(__file__).parent / "fake_server.py"


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[T]], T]:
    """asyncio.run on each kind of loop; no task, process or descriptor may be left afterwards."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def run_it(work: Any) -> Any:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.sleep(0))  # the first loop of a kind opens what it keeps for ever
        before = state()
        with asyncio.Runner(loop_factory=factory) as runner:
            result = runner.run(asyncio.wait_for(work, 60))
        assert state() == before
        return result

    return run_it


def state() -> tuple[list[str], list[str]]:
    """Our open descriptors and living children."""
    fds = [f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}" for fd in range(256) if os.path.exists(f"/proc/self/fd/{fd}")]
    return fds, children()


async def until(true: Callable[[], object]) -> None:
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def child_of(driver: Driver) -> Child:
    assert driver.child is not None
    return driver.child


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def children() -> list[str]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return file.read().split()


def sandbox(directory: Path, behaviour: str, *, ready: float = 30, env: dict[str, str] | None = None) -> Driver:
    """A driver of a sandbox whose server is the fake one."""
    server = directory.parent / f"{directory.name}-server"
    server.write_text(f'#!/bin/sh\nexec {sys.executable} -S {FAKE} {behaviour} "$@"\n')
    server.chmod(0o700)
    directory.mkdir()
    (directory / "work").mkdir()
    brain = _core.uv_sandbox(
        runtime=server,
        python="/nowhere/python",
        dir=directory,
        cwd=directory / "work",
        token_file=directory / "token",
        socket=directory / "socket",
        host="127.0.0.1",
        ready=ready,
        lease=900,
        host_env=[f"{name}={value}" for name, value in os.environ.items()],
        config_env=[f"{name}={value}" for name, value in (env or {}).items()],
    )
    return Driver(brain)


# ---- the good life ----


@pytest.mark.parametrize("behaviour", ["live", "slow_ready", "slow_end"])
def test_a_server_starts_and_ends(run: Any, tmp_path: Path, behaviour: str) -> None:
    async def main() -> None:
        driver = sandbox(tmp_path / "s", behaviour)
        wish = await driver.drive()
        assert (wish["kind"], wish["url"]) == ("done", "http+unix://%2Ffake")
        assert driver.alive()
        assert (await driver.end())["kind"] == "gone"
        assert not driver.alive()
        assert not (tmp_path / "s").exists()

    run(main())


def test_output_is_drained_and_only_its_tail_kept(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        driver = sandbox(tmp_path / "s", "noisy")
        assert (await driver.drive())["kind"] == "done"
        child = child_of(driver)
        await until(lambda: b"the last line" in child.tail())
        assert len(child.tail()) <= 64 * 1024
        await driver.end()

    run(main())


def test_a_sandbox_outlives_the_loop_that_made_it(run: Any, tmp_path: Path) -> None:
    driver = sandbox(tmp_path / "s", "noisy")
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(driver.drive())["kind"] == "done"
    loop.close()
    assert driver.alive()

    async def main() -> None:
        driver.watch()
        child = child_of(driver)
        await until(lambda: b"the last line" in child.tail())
        assert (await driver.end())["kind"] == "gone"

    with asyncio.Runner() as runner:
        runner.run(main())
    assert not driver.alive()
    assert not children()


def test_a_sandbox_of_a_loop_that_is_not_closed(tmp_path: Path) -> None:
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    driver = sandbox(tmp_path / "s", "live")
    first.run_until_complete(driver.drive())
    assert second.run_until_complete(driver.end())["kind"] == "gone"
    first.run_until_complete(asyncio.sleep(0))
    first.close()
    second.close()


# ---- servers that fail ----


@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        ("boom", "starting the sandbox failed: the runtime server ended with exit code 3 before it was ready\nboom"),
        ("refused", "the runtime server could not listen\nfailed the address is in use"),
        ("refused_and_gone", "failed the address is in use"),
        ("endless_ready", "the runtime server could not listen\nxxx"),
        ("noisy_and_gone", "exit code 4 before it was ready\n"),
    ],
)
def test_a_server_that_fails_is_an_error_with_its_words(run: Any, tmp_path: Path, behaviour: str, text: str) -> None:
    async def main() -> None:
        wish = await sandbox(tmp_path / "s", behaviour).drive()
        assert wish["kind"] == "failed"
        assert text in wish["message"]
        assert len(wish["message"]) < 64 * 1024
        if behaviour == "noisy_and_gone":
            assert wish["message"].endswith("the last line")
        assert not (tmp_path / "s").exists()

    run(main())


@pytest.mark.parametrize("behaviour", ["silent", "drops_ready", "stubborn_silent"])
def test_a_server_that_is_never_ready(run: Any, tmp_path: Path, behaviour: str) -> None:
    async def main() -> None:
        wish = await sandbox(tmp_path / "s", behaviour.removeprefix("stubborn_"), ready=0.5).drive()
        assert wish["kind"] == "failed"
        assert "was not ready after 0.5 s" in wish["message"]

    run(main())


def test_a_grandchild_that_holds_the_output_holds_nothing_up(run: Any, tmp_path: Path) -> None:
    grandchild = tmp_path / "grandchild"

    async def main() -> None:
        wish = await sandbox(tmp_path / "s", "grandchild", env={"GRANDCHILD_FILE": str(grandchild)}).drive()
        assert wish["message"].endswith("exit code 5 before it was ready\nthe last words")

    began = time.monotonic()
    run(main())
    assert time.monotonic() - began < 30  # it would hold the pipe for 60 s
    os.kill(int(grandchild.read_text()), signal.SIGKILL)


@pytest.mark.parametrize("what", ["missing", "not_executable", "directory"])
def test_a_server_that_cannot_be_spawned(run: Any, tmp_path: Path, what: str) -> None:
    driver = sandbox(tmp_path / "s", "live")
    server = tmp_path / "s-server"
    if what == "not_executable":
        server.chmod(0o600)
    else:
        server.unlink()
        if what == "directory":
            server.mkdir()

    async def main() -> None:
        wish = await driver.drive()
        assert wish["kind"] == "failed"
        assert "the runtime server could not be started\n" in wish["message"]
        assert str(server) in wish["message"]

    run(main())


def test_a_working_directory_that_is_gone(run: Any, tmp_path: Path) -> None:
    driver = sandbox(tmp_path / "s", "live")
    (tmp_path / "s" / "work").rmdir()

    async def main() -> None:
        assert "could not be started" in (await driver.drive())["message"]

    run(main())


@contextlib.contextmanager
def descriptors_left(n: int) -> Iterator[None]:
    """While it lasts, only so many more descriptors can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    fillers = [os.dup(0)]
    while fillers[-1] < highest:
        fillers.append(os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (fillers[-1] + 1 + n, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in fillers:
            os.close(fd)


def test_too_few_descriptors(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        kinds = set[str]()
        for n in range(12):
            driver = sandbox(tmp_path / f"s{n}", "live")
            await asyncio.to_thread(int)  # what the loop needs itself is there
            with descriptors_left(n):
                wish = await driver.drive()
            kinds.add(wish["kind"])
            if wish["kind"] == "done":
                await driver.end()
            else:
                assert "could not be started" in wish["message"]
        assert kinds == {"failed", "done"}

    run(main())


# ---- ends that fail ----


def test_a_server_that_died_by_itself_is_deleted_all_the_same(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        driver = sandbox(tmp_path / "s", "suicide")
        assert (await driver.drive())["kind"] == "done"
        await until(lambda: not driver.alive())
        await asyncio.sleep(0.05)
        assert (await driver.end())["kind"] == "gone"
        assert not (tmp_path / "s").exists()

    run(main())


def test_a_server_that_died_while_no_loop_ran(run: Any, tmp_path: Path) -> None:
    driver = sandbox(tmp_path / "s", "live")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(driver.drive())
    assert driver.child is not None
    os.kill(driver.child.pid, signal.SIGKILL)
    loop.close()

    async def main() -> None:
        assert (await driver.end())["kind"] == "gone"

    with asyncio.Runner() as runner:
        runner.run(main())
    assert not children()


@pytest.mark.long
def test_a_server_that_ignores_the_first_signal_is_killed(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        driver = sandbox(tmp_path / "s", "stubborn")
        await driver.drive()
        assert (await driver.end())["kind"] == "gone"

    run(main())


# ---- cancelling ----


@pytest.mark.parametrize("behaviour", ["live", "silent", "noisy", "boom", "slow_ready"])
def test_cancelling_a_start_at_any_moment_leaves_nothing(run: Any, tmp_path: Path, behaviour: str) -> None:
    dice = random.Random(1)

    async def main() -> None:
        for i in range(15):
            directory = tmp_path / f"s{i}"
            driver = sandbox(directory, behaviour)
            task = asyncio.ensure_future(driver.drive())
            await asyncio.sleep(dice.random() * 0.1)
            task.cancel()
            for _ in range(dice.randrange(3)):
                await asyncio.sleep(dice.random() * 0.02)
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                if (await task)["kind"] == "done":  # it was so before the first cancel
                    await driver.end()
            assert not directory.exists()

    run(main())


def test_a_time_limit_around_a_start(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await sandbox(tmp_path / "s", "silent").drive()
        assert not (tmp_path / "s").exists()

    run(main())


def test_cancelling_an_end_finishes_it_first(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        driver = sandbox(tmp_path / "s", "slow_end")
        await driver.drive()
        task = asyncio.ensure_future(driver.end())
        for _ in range(5):
            await asyncio.sleep(0.02)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not driver.alive()
        assert not (tmp_path / "s").exists()

    run(main())


def test_a_loop_that_ends_meanwhile_undoes_the_start(run: Any, tmp_path: Path) -> None:
    """asyncio.run cancels every task that is left, also those that nobody waits for."""
    kept = []

    async def main() -> None:
        kept.append(asyncio.ensure_future(sandbox(tmp_path / "s", "silent").drive()))
        await asyncio.sleep(0.2)

    run(main())
    assert kept[0].cancelled()
    assert not (tmp_path / "s").exists()


# ---- the host ----


def test_a_forked_child_of_the_host_does_not_hold_the_lifeline(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        driver = sandbox(tmp_path / "s", "live")
        await driver.drive()
        assert driver.child is not None
        forked = os.fork()
        if forked == 0:
            signal.pause()
            os._exit(0)
        try:
            pid = driver.child.pid
            driver.child.close()  # as if this process had died
            pidfd = os.pidfd_open(pid)
            loop, gone = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(pidfd, gone.set)
            await gone.wait()
            loop.remove_reader(pidfd)
            os.close(pidfd)
            assert exit_code(pid) == 0
        finally:
            os.kill(forked, signal.SIGKILL)
            assert exit_code(forked) == -signal.SIGKILL
        driver.child.disown()

    run(main())


def test_a_forked_child_of_the_host_leaves_its_sandboxes_alone(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        driver = sandbox(tmp_path / "s", "live")
        await driver.drive()
        forked = os.fork()
        if forked == 0:
            os._exit(0 if not driver.alive() else 1)
        assert exit_code(forked) == 0
        assert driver.alive()
        await driver.end()

    run(main())


# ---- making an environment ----


def environment(tmp_path: Path, script: str) -> Driver:
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\n{script}\n")
    uv.chmod(0o700)
    brain = _core.uv_venv(
        uv=uv,
        venv=tmp_path / "venv",
        python="3.12",
        project=tmp_path,
        install=["one", "two"],
        index_url=None,
        extra_index_url=[],
        constraints=None,
        own=["agentix"],
        env=["PATH=/usr/bin:/bin", f"OUT={tmp_path}/calls"],
    )
    return Driver(brain)


def test_an_environment_is_made_in_two_steps(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        script = 'echo "$*" >>"$OUT"; mkdir -p "' + str(tmp_path) + '/venv"'
        wish = await environment(tmp_path, script).drive()
        assert wish["kind"] == "done"

    run(main())
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["venv", "pip"]
    assert calls[1].endswith(f"-- {tmp_path} one two")


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo no such python; exit 2", "making the virtual environment failed: exit code 2\nno such python"),
        ('[ "$1" = venv ] || kill -9 $$', "installing the project failed: signal 9"),
    ],
)
def test_a_step_that_fails(run: Any, tmp_path: Path, script: str, text: str) -> None:
    async def main() -> None:
        (tmp_path / "venv").mkdir()
        wish = await environment(tmp_path, script).drive()
        assert wish["kind"] == "failed"
        assert wish["message"].startswith(text)
        assert not (tmp_path / "venv").exists()

    run(main())


def test_cancelling_a_step_kills_all_that_it_started(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        script = f"sh -c 'echo $$ >{tmp_path}/inner; exec sleep 600' & wait"
        task = asyncio.ensure_future(environment(tmp_path, script).drive())
        await until(lambda: (tmp_path / "inner").exists() and (tmp_path / "inner").read_text())
        inner = int((tmp_path / "inner").read_text())
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not is_running(inner))

    run(main())


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


# ---- parts ----


def test_a_read_only_tree_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "file").write_text("x")
    (top / "link").symlink_to(tmp_path)
    (tmp_path / "bystander").mkdir(mode=0o500)
    for path in (top / "a" / "b", top / "a", top):
        path.chmod(0o500)
    pid = os.fork()
    if pid == 0:  # as root nothing is read-only
        with contextlib.suppress(OSError):
            os.chown(tmp_path, 65534, 65534)
            for path in (top, top / "a", top / "a" / "b", top / "a" / "b" / "file"):
                os.chown(path, 65534, 65534)
            os.chmod(tmp_path.parent, 0o755)
            os.chmod(tmp_path.parent.parent, 0o755)
            os.setuid(65534)
        remove_tree(top)
        os._exit(0 if not top.exists() else 1)
    assert exit_code(pid) == 0
    assert (tmp_path / "bystander").stat().st_mode & 0o777 == 0o500
    remove_tree(tmp_path / "missing")


def test_a_child_that_is_not_told_of_pidfds_is_not_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(_pid: int) -> int:
        raise OSError("no pidfds here")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    before = state()
    wish: Any = {"argv": ["/bin/sleep", "600"], "env": []}
    with pytest.raises(OSError, match="no pidfds"):
        Child(wish, with_pipes=True)
    assert state() == before
