"""The uv backend with the real runtime: what it starts, what it says when it cannot, and that nothing is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import box_of_user
import pytest
import uv_targets as t
import uvloop
from agentix.provider.uv import UvProvider, UvProviderConfig, _places, _provider

from agentix import RemoteCallError, RuntimeUnreachable, SandboxConfig, SandboxResource
from agentix.provider import providers

PATIENCE = 60.0
CONFIG = SandboxConfig(image="ignored", bundle="ignored", resource=SandboxResource(cpu=1))


def config(**settings: Any) -> SandboxConfig:
    return SandboxConfig(image="ignored", bundle="ignored", **settings)


# ---- what is left ----


def processes() -> dict[int, list[str]]:
    """Command lines of all living processes."""
    found: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (line := (entry / "cmdline").read_bytes()):
                found[int(entry.name)] = os.fsdecode(line).split("\0")
    return found


def servers(root: Path) -> set[int]:
    """The runtime servers whose directory is below `root`."""
    return {pid for pid, argv in processes().items() if any(str(root) in part for part in argv[1:])}


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def open_descriptors() -> list[str]:
    return sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if is_open(int(fd)))


def is_open(fd: int) -> bool:
    return os.path.exists(f"/proc/self/fd/{fd}")


class Places:
    """The backend's directories, this test's own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sandboxes = root / "run" / f"agentix-{os.getuid()}"
        self.environments = root / "cache" / "agentix-uv"

    def left(self) -> list[str]:
        """What lies there besides the locks of living hosts."""
        found = [*self.sandboxes.glob("*"), *self.environments.glob("*")]
        return sorted(path.name for path in found if not path.name.startswith("host-") and path.name != "wheels")


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    # A short name: the path of a socket must fit.
    root = Path(tempfile.mkdtemp(prefix="agx-"))
    (root / "run").mkdir()
    (root / "cache").mkdir()
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    monkeypatch.setenv("UV_CACHE_DIR", os.environ.get("UV_CACHE_DIR") or f"{home}/uv")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(root / "run"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
    yield (places := Places(root))
    try:
        assert servers(root) == set()
        assert places.left() == []
    finally:
        shutil.rmtree(root)


@pytest.fixture
def reuse(places: Places, worker_python: str) -> UvProviderConfig:
    return UvProviderConfig(reuse_venv=str(Path(worker_python).parents[1]), lease=300)


# ---- the good life ----


def test_a_call_and_what_is_known_of_a_sandbox(run: Any, reuse: UvProviderConfig) -> None:
    async def main() -> None:
        async with UvProvider(reuse) as provider, provider.session(CONFIG) as sandbox:
            assert re.fullmatch(r"uv-[0-9a-f]{12}", sandbox.sandbox_id)
            assert sandbox.runtime_url.startswith("http+unix://")
            assert await sandbox.remote(math.factorial, 5) == 120
            assert (await sandbox.health()).status == "ok"
            found = await provider.get(sandbox.sandbox_id)
            assert (found.status, found.runtime_url) == ("running", sandbox.runtime_url)
            assert await found.remote(math.factorial, 4) == 24
            await found.aclose()
            await provider.delete(sandbox.sandbox_id)
            with pytest.raises(KeyError, match=f"no sandbox '{sandbox.sandbox_id}' runs here"):
                await provider.get(sandbox.sandbox_id)
            await provider.delete(sandbox.sandbox_id)
            await provider.delete("uv-000000000000")
            for odd in ("uv-000000000000", "", "../..", "uv-0", "host-000000000000"):
                with pytest.raises(KeyError):
                    await provider.get(odd)

    run(main())


def test_the_backend_is_registered() -> None:
    assert providers().get("uv") is UvProvider


def test_where_a_sandbox_stands_and_what_it_sees(run: Any, reuse: UvProviderConfig, places: Places) -> None:
    async def main() -> None:
        async with UvProvider(reuse) as provider, provider.session(CONFIG) as sandbox:
            directory = places.sandboxes / sandbox.sandbox_id
            assert await sandbox.remote(os.getcwd) == str(directory / "work")
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
            assert stat.S_IMODE(places.sandboxes.stat().st_mode) == 0o700
            for path in directory.iterdir():
                assert not stat.S_IMODE(path.stat().st_mode) & 0o077 or path.name == "socket"
            links = await sandbox.remote(t.descriptors)
            assert len(links) == 5  # 0 to 2 and the private ones
            assert links[0] == "/dev/null"

    run(main())


def test_a_long_directory_makes_it_listen_on_loopback(
    run: Any, reuse: UvProviderConfig, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = places.root / "run" / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))

    async def main() -> None:
        async with UvProvider(reuse) as provider, provider.session(CONFIG) as sandbox:
            assert sandbox.runtime_url.startswith("http://127.0.0.1:")
            assert await sandbox.remote(math.factorial, 5) == 120

    run(main())


def test_uvloop(reuse: UvProviderConfig) -> None:
    async def main() -> None:
        async with UvProvider(reuse) as provider, provider.session(CONFIG) as sandbox:
            assert await sandbox.remote(math.factorial, 5) == 120

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), PATIENCE))


def test_a_provider_in_two_loops(run: Any, reuse: UvProviderConfig) -> None:
    provider = UvProvider(reuse)

    async def first() -> str:
        sandbox = await provider.create(CONFIG)
        assert await sandbox.remote(t.noise, 30_000) == 30_000
        await sandbox.aclose()
        return sandbox.sandbox_id

    async def second(sandbox_id: Any) -> None:
        sandbox = await provider.get(sandbox_id)
        assert await sandbox.remote(t.noise, 30_000) == 30_000
        await sandbox.aclose()
        await provider.aclose()

    run(second(run(first())))


def test_many_at_once(run: Any, reuse: UvProviderConfig) -> None:
    async def one(provider: UvProvider, n: int) -> int:
        async with provider.session(CONFIG) as sandbox:
            return await sandbox.remote(math.factorial, n)

    async def main() -> None:
        async with UvProvider(reuse) as provider:
            values = await asyncio.gather(*(one(provider, n) for n in range(20)))
            assert values == [math.factorial(n) for n in range(20)]
            await asyncio.gather(*(provider.create(CONFIG) for _ in range(20)))

    run(main())


def test_one_after_another_leaves_nothing(run: Any, reuse: UvProviderConfig, places: Places) -> None:
    async def main() -> None:
        async with UvProvider(reuse) as provider:
            await provider.delete((await provider.create(CONFIG)).sandbox_id)
            before = open_descriptors()
            for _ in range(50):
                sandbox = await provider.create(CONFIG)
                await provider.delete(sandbox.sandbox_id)
            assert open_descriptors() == before
            assert places.left() == []
            assert servers(places.root) == set()

    run(main())


# ---- from elsewhere ----

HOST = """
import asyncio, os, sys
sys.path.insert(0, {targets!r})
import uv_targets as t
from agentix import SandboxConfig
from agentix.provider.uv import UvProvider, UvProviderConfig
config = SandboxConfig(image="ignored", bundle="ignored")
provider = UvProvider(UvProviderConfig(reuse_venv={venv!r}))
async def main():
{body}
asyncio.run(main())
"""


def host(body: str, venv: str, **settings: Any) -> subprocess.Popen[str]:
    """Another host process, which runs `body` in a coroutine with `provider` and `config`."""
    script = HOST.format(
        targets=str(Path(t.__file__).parent), venv=venv, body="".join(f"    {line}\n" for line in body.splitlines())
    )
    return subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **settings
    )


TWO_SANDBOXES = """
for _ in range(2):
    sandbox = await provider.create(config)
    asyncio.ensure_future(sandbox.remote(t.nap, 600))
    print(*await sandbox.remote(t.ids), flush=True)
await asyncio.sleep(600)
"""


def pids_of_two_sandboxes(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    pids = [int(pid) for _ in range(2) for pid in process.stdout.readline().split()]
    assert len(pids) == 4
    return pids


def test_a_killed_host_leaves_nothing(reuse: UvProviderConfig, places: Places) -> None:
    with host(TWO_SANDBOXES, str(reuse.reuse_venv)) as process:
        pids = pids_of_two_sandboxes(process)
        assert len(places.left()) == 2
        process.kill()
    began = time.monotonic()
    until(lambda: all(map(gone, pids)))
    assert time.monotonic() - began < 60  # 2 s on an idle machine
    until(lambda: places.left() == [])


def test_what_killed_servers_leave_is_swept(run: Any, reuse: UvProviderConfig, places: Places) -> None:
    with host(TWO_SANDBOXES, str(reuse.reuse_venv)) as process:
        pids = pids_of_two_sandboxes(process)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)  # none may notice that its host is gone
        process.kill()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    until(lambda: all(map(gone, pids)))
    assert len(places.left()) == 2

    async def main() -> None:
        async with UvProvider(reuse) as provider:
            sandbox = await provider.create(CONFIG)
            assert places.left() == [sandbox.sandbox_id]

    run(main())


def test_an_interrupted_host_leaves_nothing(reuse: UvProviderConfig, places: Places) -> None:
    body = """
async with provider, provider.session(config) as sandbox:
    print(*await sandbox.remote(t.ids), flush=True)
    await sandbox.remote(t.nap, 600)
"""
    with host(body, str(reuse.reuse_venv), stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert all(map(gone, pids))
    assert places.left() == []


def test_living_neighbours_are_not_swept(run: Any, reuse: UvProviderConfig, places: Places) -> None:
    body = """
sandbox = await provider.create(config)
print(sandbox.sandbox_id, flush=True)
sys.stdin.readline()
print(await sandbox.remote(len, "four"), flush=True)
await provider.aclose()
"""

    async def main() -> None:
        with host(body, str(reuse.reuse_venv)) as process:
            assert process.stdout is not None
            neighbour = process.stdout.readline().strip()
            for path in places.sandboxes.iterdir():
                os.utime(path, (0, 0))
            async with UvProvider(reuse) as provider:
                await provider.create(CONFIG)
                assert neighbour in places.left()
            out, _ = await asyncio.to_thread(process.communicate, "go on\n")
            assert out.strip() == "4"

    run(main())


def test_old_rubbish_is_swept_and_what_is_not_ours_is_not(run: Any, reuse: UvProviderConfig, places: Places) -> None:
    async def main() -> None:
        base, environments = _places.base(), _places.environments()
        old = [base / "uv-0123456789ab", environments / "venv-0123456789ab"]
        young = [base / "uv-ba9876543210", base / "something else", base / "uv-short"]
        for path in (*old, *young):
            (path / "inner").mkdir(parents=True)
        (base / "host-0123456789ab").touch()
        for path in (*old, base / "host-0123456789ab", base / "something else"):
            os.utime(path, (0, 0))
        async with UvProvider(reuse) as provider:
            await provider.create(CONFIG)
            assert not any(path.exists() for path in (*old, base / "host-0123456789ab"))
            assert all(path.exists() for path in young)
        for path in young:
            shutil.rmtree(path)

    run(main())


def test_a_directory_that_others_could_write_to_is_refused(run: Any, reuse: UvProviderConfig, places: Places) -> None:
    async def main() -> None:
        places.sandboxes.mkdir()
        places.sandboxes.chmod(0o777)
        with pytest.raises(RuntimeError, match="not a directory of yours alone"):
            await UvProvider(reuse).create(CONFIG)

    run(main())


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("/nowhere")], ids=["file", "link"])
def test_what_is_no_directory_is_refused_in_its_place(
    make: Callable[[Path], None], run: Any, reuse: UvProviderConfig, places: Places
) -> None:
    async def main() -> None:
        make(places.sandboxes)
        with pytest.raises(RuntimeError, match="not a directory of yours alone"):
            await UvProvider(reuse).create(CONFIG)

    run(main())


def test_a_forked_child_leaves_the_sandboxes_and_the_environment(run: Any, project: Any, places: Places) -> None:
    async def main() -> None:
        async with UvProvider(project()) as provider, provider.session(CONFIG) as sandbox:
            forked = os.fork()
            if forked == 0:
                end_like_a_script(provider)
            assert exit_code(forked) == 0
            assert len(places.left()) == 2
            assert await sandbox.remote(math.factorial, 5) == 120

    run(main())


def end_like_a_script(provider: UvProvider) -> None:
    """In a forked child: close the provider, on a loop of its own, and run what runs when an interpreter ends."""
    import atexit
    import threading

    def end() -> None:
        asyncio.run(provider.aclose())
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
        os._exit(0)

    with contextlib.suppress(BaseException):
        thread = threading.Thread(target=end)  # this one has a loop
        thread.start()
        thread.join(PATIENCE)
    os._exit(1)


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# ---- failures ----


@pytest.fixture
def fake_runtime(monkeypatch: pytest.MonkeyPatch, places: Places) -> Callable[[str], None]:
    """Let a shell script stand in for the runtime."""

    def use(script: str) -> None:
        path = places.root / "runtime"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)
        monkeypatch.setattr(_provider, "_find_runtime", lambda: str(path))

    return use


def test_a_runtime_that_ends_at_once(run: Any, reuse: UvProviderConfig, fake_runtime: Any) -> None:
    fake_runtime("echo boom; exit 3")

    async def main() -> None:
        began = time.monotonic()
        with pytest.raises(RuntimeError, match=r"exit code 3 before it was ready\nboom$"):
            async with UvProvider(reuse).session(CONFIG):
                pytest.fail("it started")
        assert time.monotonic() - began < reuse.health_timeout / 2

    run(main())


def test_a_runtime_that_is_never_ready(run: Any, reuse: UvProviderConfig, fake_runtime: Any) -> None:
    fake_runtime("echo waiting; exec sleep 600")
    reuse.health_timeout = 0.5

    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"was not ready after 0.5 s\nwaiting$"):
            await UvProvider(reuse).create(CONFIG)

    run(main())


def test_a_taken_port_is_named(run: Any, reuse: UvProviderConfig, fake_runtime: Any, places: Places) -> None:
    fake_runtime(f'AGENTIX_BIND_SOCKET=/nowhere/s exec {real_runtime()} "$@"')

    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"could not listen\nfailed cannot listen on /nowhere/s"):
            await UvProvider(reuse).create(CONFIG)

    run(main())


def real_runtime() -> str:
    return str(Path(sys.executable).parent / "agentix-runtime")


def test_a_worker_that_cannot_boot_is_the_calls_error(run: Any, places: Places, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text("#!/bin/sh\necho no such luck >&2\nexit 9\n")
    python.chmod(0o700)

    broken = UvProviderConfig(reuse_venv=str(tmp_path))

    async def main() -> None:
        async with UvProvider(broken) as provider, provider.session(CONFIG) as sandbox:
            with pytest.raises(RemoteCallError) as caught:
                await sandbox.remote(math.factorial, 5)
            assert "no such luck" in str(caught.value)

    run(main())


def test_deleting_while_calls_run(run: Any, reuse: UvProviderConfig) -> None:
    async def main() -> None:
        async with UvProvider(reuse) as provider:
            sandbox = await provider.create(CONFIG)
            await sandbox.remote(math.factorial, 1)
            calls = [asyncio.ensure_future(sandbox.remote(t.nap, 600)) for _ in range(5)]
            calls += [asyncio.ensure_future(sandbox.remote(t.doze, 600)) for _ in range(5)]
            await asyncio.sleep(0.2)
            await provider.delete(sandbox.sandbox_id)
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(outcome, (RemoteCallError, RuntimeUnreachable))
            await sandbox.aclose()

    run(main())


def test_a_working_directory_with_read_only_parts_goes_too(run: Any, reuse: UvProviderConfig) -> None:
    async def main() -> None:
        async with UvProvider(reuse) as provider, provider.session(CONFIG) as sandbox:
            await sandbox.remote(t.make_read_only)

    run(main())


# ---- cancelling ----


def test_cancelling_a_create_at_any_moment(run: Any, reuse: UvProviderConfig, places: Places) -> None:
    dice = random.Random(2)

    async def main() -> None:
        async with UvProvider(reuse) as provider:
            for _ in range(10):
                task = asyncio.ensure_future(provider.create(CONFIG))
                await asyncio.sleep(dice.random() * 0.03)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await provider.delete((await task).sandbox_id)
                assert places.left() == []
                assert servers(places.root) == set()

    run(main())


def test_cancelling_a_session_at_any_moment(run: Any, reuse: UvProviderConfig, places: Places) -> None:
    dice = random.Random(3)

    async def session(provider: UvProvider) -> None:
        async with provider.session(CONFIG) as sandbox:
            while True:
                await sandbox.remote(t.doze, 0.01)

    async def main() -> None:
        async with UvProvider(reuse) as provider:
            for _ in range(10):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(dice.random() * 0.3):
                        await session(provider)
                assert places.left() == []
                assert servers(places.root) == set()

    run(main())


def test_an_exception_in_the_body_is_the_one_that_comes_out(run: Any, reuse: UvProviderConfig) -> None:
    async def body(provider: UvProvider) -> None:
        async with provider.session(CONFIG) as sandbox:
            await sandbox.remote(math.factorial, 1)
            raise ZeroDivisionError

    async def main() -> None:
        async with UvProvider(reuse) as provider:
            with pytest.raises(ZeroDivisionError):
                await body(provider)

    run(main())


# ---- what crosses ----


def test_environment_values_are_exact(run: Any, reuse: UvProviderConfig) -> None:
    values = {
        "A": "x\nB=evil",
        "K": "-----BEGIN\nline\n",
        "E": "",
        "Q": "a'b\"c $HOME #",
        "U": "€\udcff",
        "PATH": "/mine:/usr/bin:/bin",
        "AGENTIX_BIND_HOST": "0.0.0.0",  # noqa: S104
        "AGENTIX_TOKEN_FILE": "/etc/hostname",
    }

    async def main() -> None:
        async with UvProvider(reuse) as provider, provider.session(config(env=values)) as sandbox:
            assert sandbox.runtime_url.startswith("http+unix://")
            environ = await sandbox.remote(t.environ_bytes)
            for name in "AKEQU":
                assert environ[name.encode()] == os.fsencode(values[name])
            assert b"B" not in environ
            assert environ[b"PATH"].endswith(values["PATH"].encode())
            assert b"AGENTIX_TOKEN_FILE" not in environ

    run(main())


@pytest.mark.parametrize("name", ["", "A B", "A=B", "A\nB", "A\0"])
def test_bad_names_are_refused_before_anything_starts(run: Any, reuse: UvProviderConfig, name: str) -> None:
    good = config()
    good.env = {name: "x"}

    async def main() -> None:
        with pytest.raises(ValueError, match="env"):
            await UvProvider(reuse).create(good)

    run(main())


def test_the_hosts_own_environment_stays_outside(reuse: UvProviderConfig, places: Places, tmp_path: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    user_site = tmp_path / ".local" / "lib" / version / "site-packages"
    on_path = tmp_path / "on_path"
    for directory in (user_site, on_path):
        directory.mkdir(parents=True)
        (directory / f"agx_canary_{directory.name.replace('-', '_')}.py").write_text("x = 1")
        (directory / "msgpack.py").write_text("version = 'old'")
    startup = tmp_path / "startup.py"
    startup.write_text("raise SystemExit('the startup file was run')")
    body = """
sandbox = await provider.create(config)
import json
print(json.dumps([await sandbox.remote(t.environ), await sandbox.remote(t.import_path),
                  await sandbox.remote(t.can_import, "agx_canary_site_packages"),
                  await sandbox.remote(t.can_import, "agx_canary_on_path")]))
await provider.aclose()
"""
    env = {
        **os.environ,
        "HOME": str(tmp_path),
        "PYTHONPATH": str(on_path),
        "PYTHONSTARTUP": str(startup),
        "LD_PRELOAD": "",
        "AGX_CANARY": "canary-in-the-environment",
        "AGENTIX_CLIENT_TOKEN_FILE": "/canary",
    }
    with host(body, str(reuse.reuse_venv), env=env, cwd=on_path) as process:
        out, _ = process.communicate()
    import json

    environ, path, *canaries = json.loads(out)
    assert canaries == [False, False]
    assert "canary" not in json.dumps([environ, path])
    assert not {"PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "AGENTIX_SAVED_PYTHONPATH"} & set(environ)
    assert environ["HOME"] == str(tmp_path)
    assert all(str(tmp_path) not in entry for entry in path)


def test_secrets_show_nowhere(
    run: Any, reuse: UvProviderConfig, places: Places, caplog: pytest.LogCaptureFixture, fake_runtime: Any
) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        async with UvProvider(reuse) as provider:
            async with provider.session(config(env={"SECRET": "canary-value"})) as sandbox:
                assert (await sandbox.remote(t.environ))["SECRET"] == "canary-value"
                with pytest.raises(RemoteCallError) as caught:
                    await sandbox.remote(math.factorial, -1)
                token = sandbox.token
                assert token is not None
                assert len(token) == 64
                _, server = await sandbox.remote(t.ids)
                assert unreadable_to_others(f"/proc/{server}/environ")
                assert unreadable_to_others(str(places.sandboxes / sandbox.sandbox_id / "token"))
                shown = [repr(sandbox), str(sandbox), repr(provider), str(caught.value), caplog.text]
                shown += [part for argv in processes().values() for part in argv]
            fake_runtime("env; exit 1")
            with pytest.raises(RuntimeError) as failed:
                await UvProvider(reuse).create(CONFIG)
            shown.append(str(failed.value))
            assert not any(token in text or "canary-value" in text for text in shown)

    run(main())


def unreadable_to_others(path: str) -> bool:
    """Whether a process of nobody cannot read it."""
    if os.getuid() != 0:
        return not os.stat(path).st_mode & 0o077
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with open(path, "rb") as file:
                file.read()
        except PermissionError:
            code = 0
        finally:
            os._exit(code)
    return exit_code(pid) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_logs_of_two_users(run: Any, reuse: UvProviderConfig, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox's directory of logs is private and goes with it; runtimes of two users do not disturb each other."""
    monkeypatch.delenv("AGENTIX_LOG_DIR", raising=False)
    Path("/tmp/agentix").mkdir(mode=0o700, exist_ok=True)
    owner = Path("/tmp/agentix").stat().st_uid
    other = 65534 if owner != 65534 else 65533
    # With the right to read this tree, wherever it lies, but not to pass for somebody else.
    become = f"--reuid={other} --regid={other} --clear-groups --inh-caps=+dac_override --ambient-caps=+dac_override"
    home = places.root / "other"
    home.mkdir()
    os.chown(home, other, other)
    places.root.chmod(0o755)
    script = [sys.executable, str(Path(__file__).parent / "box_of_user.py"), str(reuse.reuse_venv), "of the other"]
    variables = {**os.environ, "HOME": str(home), "TMPDIR": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    variables.pop("XDG_RUNTIME_DIR")
    result = None

    async def main() -> dict[str, Any]:
        nonlocal result
        async with UvProvider(reuse) as provider, provider.session(CONFIG) as sandbox:
            mine = await box_of_user.facts(sandbox.remote, "of root")
            command = ["setpriv", *become.split(), *script]
            result = await asyncio.to_thread(
                subprocess.run, command, env=variables, capture_output=True, text=True, timeout=90, check=False
            )
        return mine

    mine = run(main())
    assert result is not None
    assert result.returncode == 0, result.stderr
    theirs = json.loads(result.stdout)
    try:
        assert (mine["mode"], mine["uid"]) == (0o700, 0)
        assert Path(mine["path"]).parents[2] == places.sandboxes
        assert mine["log_dir"] == str(Path(mine["path"]).parent)
        assert (theirs["uv"]["mode"], theirs["uv"]["uid"]) == (0o700, other)
        assert home in Path(theirs["uv"]["path"]).parents
        for gone_with_it in (mine, theirs["uv"]):
            assert not Path(gone_with_it["path"]).parents[1].exists()
        assert (theirs["alone"]["mode"], theirs["alone"]["uid"]) == (0o700, other)
        assert Path(theirs["alone"]["path"]).parent == Path(f"/tmp/agentix-{other}")
        assert theirs["alone"]["log_dir"] is None
    finally:
        Path(theirs["alone"]["path"]).unlink()
        with contextlib.suppress(OSError):
            Path(f"/tmp/agentix-{other}").rmdir()


def test_logs_that_are_to_stay(run: Any, reuse: UvProviderConfig, tmp_path: Path) -> None:
    async def main() -> dict[str, Any]:
        kept = config(env={"AGENTIX_LOG_DIR": str(tmp_path / "kept")})
        async with UvProvider(reuse) as provider, provider.session(kept) as sandbox:
            return await box_of_user.facts(sandbox.remote, "to be kept")

    facts = run(main())
    assert Path(facts["path"]).parent == tmp_path / "kept"
    assert "stdout to be kept" in Path(facts["path"]).read_text()


# ---- fresh environments ----

BACKEND = '''
"""A build backend that needs nothing: a wheel is a zip file."""

import zipfile


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = "small_project-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{wheel_directory}/{name}", "w") as wheel:
        wheel.writestr("small_project.py", "def greet(name):\\n    return f'hello {name}'\\n")
        info = "small_project-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: small-project\\nVersion: 1.0\\nREQUIRES")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
'''


@pytest.fixture
def project(places: Places) -> Callable[..., UvProviderConfig]:
    """A project that is built and installed without an index."""

    def make(requires: str = "agentix", **settings: Any) -> UvProviderConfig:
        root = places.root / "project"
        root.mkdir()
        (root / "backend.py").write_text(BACKEND.replace("REQUIRES", f"Requires-Dist: {requires}\\n"))
        (root / "pyproject.toml").write_text(
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
            f'[project]\nname = "small-project"\nversion = "1.0"\ndependencies = ["{requires}"]\n'
            '[tool.uv.sources]\nagentix = { path = "/nowhere" }\n'
        )
        # An index that is never there: whatever is asked of it is an error.
        index = {"index_url": "http://user:canary@127.0.0.1:9/simple", **settings}
        return UvProviderConfig(project=str(root), python=sys.executable, **index)

    return make


def test_a_project_in_a_fresh_environment(run: Any, project: Any, places: Places) -> None:
    async def main() -> None:
        async with UvProvider(project()) as provider:
            async with provider.session(CONFIG) as sandbox:
                assert await sandbox.remote(named("small_project", "greet"), "you") == "hello you"
                where = await sandbox.remote(named("agentix", "__getattr__"), "__version__")
                assert where == "0.1.0"
                path = await sandbox.remote(named("builtins", "eval"), "__import__('sys').prefix")
                assert path.startswith(str(places.environments))
            async with provider.session(CONFIG) as sandbox:  # the same environment again
                assert await sandbox.remote(named("builtins", "eval"), "__import__('sys').prefix") == path
            assert len(list(places.environments.glob("venv-*"))) == 1
        assert not list(places.environments.glob("venv-*"))

    run(main())


def named(module: str, name: str) -> Any:
    """A function that only the sandbox has."""

    def function(*_args: object) -> None: ...

    function.__module__, function.__qualname__ = module, name
    return function


@pytest.mark.parametrize("requires", ["agentix==9.9", "agentix>1"])
def test_a_project_that_wants_another_agentix(run: Any, project: Any, requires: str) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="installing the project failed: exit code 1") as caught:
            await UvProvider(project(requires)).create(CONFIG)
        assert str(caught.value).endswith("the environment gets what runs here, agentix==0.1.0, and no other version")
        assert "canary" not in str(caught.value)

    run(main())


def test_uv_that_cannot_be_run(run: Any, project: Any) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="uv could not be started"):
            await UvProvider(project(uv_bin="/nowhere/uv")).create(CONFIG)

    run(main())


def test_uv_that_is_missing(run: Any, project: Any) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="'no-such-uv' was not found"):
            await UvProvider(project(uv_bin="no-such-uv")).create(CONFIG)

    run(main())


def test_creates_share_the_making_of_the_environment(run: Any, project: Any, places: Places) -> None:
    async def main() -> None:
        async with UvProvider(project()) as provider:
            tasks = [asyncio.ensure_future(provider.create(CONFIG)) for _ in range(5)]
            await asyncio.sleep(0.05)
            tasks[0].cancel()
            tasks[1].cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(outcome).__name__ for outcome in outcomes] == ["CancelledError"] * 2 + ["Sandbox"] * 3
            assert len(list(places.environments.glob("venv-*"))) == 1

    run(main())


@pytest.mark.parametrize("delay", [0, 0.02, 0.1])
def test_the_making_is_given_up_with_the_last_who_waits_for_it(
    run: Any, project: Any, places: Places, delay: float
) -> None:
    async def main() -> None:
        async with UvProvider(project()) as provider:
            tasks = [asyncio.ensure_future(provider.create(CONFIG)) for _ in range(3)]
            await asyncio.sleep(delay)
            for task in tasks:
                task.cancel()
            await asyncio.sleep(0)
            late = asyncio.ensure_future(provider.create(CONFIG))
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(outcome, asyncio.CancelledError)
            await late
            assert len(list(places.environments.glob("venv-*"))) == 1

    run(main())


def test_a_provider_that_is_forgotten_takes_its_environment_along(run: Any, project: Any, places: Places) -> None:
    async def main() -> None:
        provider = UvProvider(project())
        sandbox = await provider.create(CONFIG)
        await provider.delete(sandbox.sandbox_id)

    run(main())
    import gc

    gc.collect()
    assert places.left() == []


# ---- settings ----


@pytest.mark.parametrize(
    ("settings", "named_in"),
    [
        ({}, "project="),
        ({"reuse_venv": "/nowhere"}, "reuse_venv"),
        ({"project": "/nowhere"}, "project"),
        ({"project": "PROJECT", "python": "-x"}, "python"),
        ({"project": "PROJECT", "uv_bin": ""}, "uv_bin"),
        ({"project": "PROJECT", "install": ("--index-url=x",)}, "install"),
        ({"project": "PROJECT", "host": "0.0.0.0"}, "host"),  # noqa: S104
        ({"project": "PROJECT", "host": "localhost"}, "host"),
        ({"project": "PROJECT", "health_timeout": 0}, "health_timeout"),
        ({"project": "PROJECT", "health_timeout": float("nan")}, "health_timeout"),
        ({"project": "PROJECT", "health_timeout": "60"}, "health_timeout"),
        ({"project": "PROJECT", "lease": -1}, "lease"),
        ({"project": "PROJECT", "lease": float("inf")}, "lease"),
        ({"project": "PROJECT", "lease": True}, "lease"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], named_in: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    with pytest.raises(ValueError, match=named_in):
        UvProviderConfig(**{k: str(tmp_path) if v == "PROJECT" else v for k, v in settings.items()})


def test_without_a_config_the_project_here_is_meant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="pyproject"):
        UvProvider()
    (tmp_path / "pyproject.toml").touch()
    UvProvider()
