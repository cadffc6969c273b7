"""The cape backend: the `cape` program and its controller as they are documented, and workloads that really run."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import stat
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import box_bundle
import cape_service
import pytest
import services
from agentix.provider.cape import CapeProvider, CapeProviderConfig, _provider
from containers import left
from processes import eventually, until

from agentix import SandboxConfig, SandboxResource

sys.path.insert(0, str(box_bundle.BOX / "src"))
import box_targets as t

TOKEN = cape_service.TOKEN
BASE = services.free_ports()
SCRIPTS = {"boom": "echo boom; exit 3", "asleep": "exec /nix/busybox sleep 1000"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[services.Service]:
    with services.running("cape", tmp_path_factory.mktemp("cape")) as service:
        yield service


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return services.cape_program(tmp_path_factory.mktemp("tool"))


@pytest.fixture
def service(
    running: services.Service, tool: Path, places: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[services.Service]:
    """The pool, where the environment says it is; nothing may be left in it, or here."""
    for name, value in {"CONTROLLER_URL": running.urls["api"], "TOKEN": TOKEN, "BINARY": str(tool)}.items():
        monkeypatch.setenv(f"CAPE_{name}", value)
    yield running
    running.order()
    running.empty()
    assert left(places) == []


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Bundles whose runtime does not come up, as nodes see them."""
    made: dict[str, str] = {}
    for name, script in SCRIPTS.items():
        made[name] = box_bundle.with_bootstrap(tmp_path_factory.mktemp(name), script) + "/nix"
    return made


def provider(**settings: Any) -> CapeProvider:
    return CapeProviderConfig(**{"pool": "gpus", "user": "me", "runtime_port_base": BASE, **settings}).to_provider()


def config(bundle: str, **settings: Any) -> SandboxConfig:
    return SandboxConfig(image="any", bundle=bundle, **settings)


def last(service: services.Service) -> dict[str, Any]:
    return service.state()["requests"][-1]


def cancel_by_hand(request: str) -> None:
    where = ["--controller-url", os.environ["CAPE_CONTROLLER_URL"]]
    subprocess.run([os.environ["CAPE_BINARY"], "cancel", *where, "--reason", "test", request], check=True, timeout=60)


def test_a_session(run: Any, service: services.Service, bundle: box_bundle.Bundle) -> None:
    async def main() -> None:
        nix = f"{bundle.directory}/nix"
        env = {"A": "x\nB=evil", "AGENTIX_TOKEN_FILE": "/mine"}
        one = provider(extra_binds=("/usr:/usr2:ro",), runtime_adapter="ra")
        resource = SandboxResource(cpu=1.5, memory="1500m", gpu=2)
        async with one.session(config(nix, env=env, resource=resource)) as sandbox:
            assert (await sandbox.remote(t.run, seed=7))["seed"] == 7
            seen = await sandbox.remote(t.environ)
            assert (seen["A"], "B" in seen) == (env["A"], False)
            asked = last(service)["asked"]
            said = ("pool", "user", "task_id", "image", "gpus", "cpu_cores", "memory_gb", "runtime_adapter")
            values = ["gpus", "me", sandbox.sandbox_id, "any", 2, 2, 2, "ra"]
            assert [asked[name] for name in said] == values
            assert asked["bind"] == [f"{nix}:/nix:ro", "/usr:/usr2:ro"]
            assert asked["env"][:2] == ["AGENTIX_BIND_HOST=0.0.0.0", f"AGENTIX_BIND_PORT={BASE}"]
            assert asked["max_duration_seconds"] == 14400
            assert str(sandbox.token) not in repr(sandbox)

            second = await one.create(config(nix))
            assert second.runtime_url == f"http://127.0.0.1:{BASE + 1}"
            other = await provider().get(second.sandbox_id)
            assert other.status == "running"
            assert (await other.remote(t.run, seed=8))["seed"] == 8
            for handle in (second, other):
                await handle.aclose()
            await provider().delete(second.sandbox_id)  # by another one than made it
            await one.delete(second.sandbox_id)
        assert last(service)["reason"] == "agentix_delete"
        with pytest.raises(KeyError, match="Sandbox not found"):
            await one.get(sandbox.sandbox_id)
        await one.delete("cape-000000000000")  # pyright: ignore[reportArgumentType]

    run(main())


def test_a_shared_directory_when_logs_are_lost(
    run: Any, service: services.Service, bundle: box_bundle.Bundle, tmp_path: Path
) -> None:
    service.order({"on": "GET /requests", "do": "change", "body": {"logs": ""}, "times": 1000})

    async def main() -> None:
        async with provider(meta_root=str(tmp_path)).session(
            config(f"{bundle.directory}/nix", env={"SECRET": "canary"})
        ) as sandbox:
            assert (await sandbox.remote(t.environ))["SECRET"] == "canary"
            asked = str(last(service)["asked"])
            assert "canary" not in asked
            assert str(sandbox.token) not in asked
            meta = tmp_path / sandbox.sandbox_id
            assert {stat.S_IMODE((meta / name).stat().st_mode) for name in ("token", "environ")} == {0o600}
        assert os.listdir(tmp_path) == []

    run(main())


def test_what_is_missing_is_said_first(
    service: services.Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = service.state()["log"]
    file = tmp_path / "token"
    assert CapeProviderConfig().runtime_port_base == 8710
    with pytest.raises(ValueError, match="pool="):
        CapeProvider(CapeProviderConfig())
    for text, mode, words in (("x" * 9, 0o644, "chmod 600"), ("", 0o600, "empty"), (" \n", 0o600, "empty")):
        file.write_text(text)
        file.chmod(mode)
        with pytest.raises(ValueError, match=words) as refused:
            provider(token_file=str(file))
        assert str(file) in str(refused.value)
    file.write_bytes(b"\xff" + TOKEN.encode())
    with pytest.raises(ValueError, match="it is not text") as refused:
        provider(token_file=str(file))
    assert TOKEN not in "".join(traceback.format_exception(refused.value))
    file.write_text(" ")
    monkeypatch.setenv("CAPE_TOKEN_FILE", str(file))
    with pytest.raises(ValueError, match="empty"):
        provider()  # a file comes before the variable
    monkeypatch.delenv("CAPE_TOKEN_FILE")
    monkeypatch.delenv("CAPE_TOKEN")
    with pytest.raises(ValueError, match="CAPE_TOKEN is not set"):
        provider()
    monkeypatch.delenv("CAPE_CONTROLLER_URL")
    with pytest.raises(ValueError, match=r"CAPE_CONTROLLER_URL.*controller_url="):
        provider()
    assert service.state()["log"] == before


def test_what_cannot_be_given(run: Any, service: services.Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        changed = config("/b", resource=SandboxResource(memory=1))
        assert changed.resource is not None
        changed.resource.memory = "much"
        with pytest.raises(RuntimeError, match="cannot map memory"):
            await provider().create(changed)
        for bundle in ("/a:/b", "relative"):
            with pytest.raises(ValueError, match="bundle"):
                await provider().create(config(bundle))
        with pytest.raises(ValueError, match="sandbox id"):
            await provider().delete("--all")  # pyright: ignore[reportArgumentType]
        monkeypatch.setenv("CAPE_CONTROLLER_URL", "http://127.0.0.1:1")
        with pytest.raises(RuntimeError, match="cape run ended with exit code 1") as failed:
            await provider().create(config("/b"))
        assert TOKEN not in str(failed.value)
        assert "<redacted>" in str(failed.value)
        monkeypatch.setenv("CAPE_BINARY", "no-such-cape")
        with pytest.raises(RuntimeError, match="no-such-cape"):
            await provider().create(config("/b"))

    run(main())


def test_a_runtime_that_does_not_come_up(run: Any, service: services.Service, trees: dict[str, str]) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"(?s)the request is failed.*boom"):
            await provider().create(config(trees["boom"]))
        assert last(service)["reason"] == "agentix_create_failed"
        # Which of the two it is depends on how busy the machine is.
        with pytest.raises(TimeoutError, match=r"(no AGENTIX_ENDPOINT marker|not healthy) after 1\.0 s"):
            await provider(health_timeout=1).create(config(trees["asleep"]))
        service.order({"on": "GET /requests", "do": "change", "body": {"logs": "AGENTIX_ENDPOINT x"}, "times": 1000})
        with pytest.raises(TimeoutError, match=r"no AGENTIX_ENDPOINT marker after 1\.0 s"):
            await provider(health_timeout=1).create(config(trees["asleep"]))
        assert last(service)["state"] == "cancelled"
        service.order()
        with pytest.raises(RuntimeError, match="the request is expired"):
            await provider(max_duration_seconds=1).create(config(trees["asleep"]))

    run(main())


@pytest.mark.long  # what is made of each, the brain's own tests show
def test_answers_that_are_wrong(
    run: Any, service: services.Service, trees: dict[str, str], bundle: box_bundle.Bundle
) -> None:
    refused = {"on": "GET /requests", "do": "refuse", "status": 503}

    async def main() -> None:
        service.order({**refused, "times": 3})
        async with provider().session(config(f"{bundle.directory}/nix")) as sandbox:
            assert sandbox.status == "running"
        service.order({**refused, "times": 100})
        with pytest.raises(RuntimeError, match="cape status failed too often"):
            await provider(transient_failure_limit=1).create(config(trees["asleep"]))
        service.order({"on": "GET /requests", "do": "change", "body": {"request_id": "req-000001"}})
        with pytest.raises(RuntimeError, match="another request"):
            await provider().create(config(trees["asleep"]))
        service.order({"on": "POST /requests", "do": "change", "body": {"also": ["req-000001"]}})
        with pytest.raises(RuntimeError, match="more than one request"):
            await provider().create(config(trees["asleep"]))
        service.order({"on": "POST /requests", "do": "change", "body": {"request_id": "req-1"}})
        with pytest.raises(RuntimeError, match="named no request"):
            await provider().create(config(trees["asleep"], env={"LOST": "1"}))
        assert "cancelled" not in last(service)["state"]  # nobody can know which it was
        await eventually(lambda: last(service)["state"] == "running", "it has begun", 60)
        await asyncio.to_thread(cancel_by_hand, last(service)["id"])

    run(main())


def test_a_cancellation_that_is_not_taken(
    run: Any, service: services.Service, bundle: box_bundle.Bundle, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        one = provider()
        sandbox = await one.create(config(f"{bundle.directory}/nix"))
        await sandbox.aclose()
        service.order({"on": "POST /requests/", "do": "refuse", "status": 500, "times": 3})
        with caplog.at_level(logging.WARNING):
            await one.delete(sandbox.sandbox_id)
        assert "try again" in caplog.text
        assert (await one.get(sandbox.sandbox_id)).status == "running"
        await one.delete(sandbox.sandbox_id)
        assert last(service)["state"] == "cancelled"

        ended = await one.create(config(f"{bundle.directory}/nix"))
        await ended.aclose()
        service.order({"on": "POST /requests/", "do": "refuse", "status": 404})
        await one.delete(ended.sandbox_id)
        assert not _provider._ports._taken  # pyright: ignore[reportPrivateUsage]
        await asyncio.to_thread(cancel_by_hand, last(service)["id"])

    run(main())


def test_deleted_twice_and_cancelled_meanwhile(
    run: Any, service: services.Service, bundle: box_bundle.Bundle, tmp_path: Path
) -> None:
    async def main() -> None:
        one = provider(meta_root=str(tmp_path))
        nix = config(f"{bundle.directory}/nix")
        sandbox = await one.create(nix)
        await sandbox.aclose()
        async with asyncio.timeout(40):  # less than the program would be waited for
            await asyncio.gather(*(one.delete(sandbox.sandbox_id) for _ in range(2)))
        assert os.listdir(tmp_path) == []

        sandbox = await one.create(nix)
        await sandbox.aclose()
        before = len(service.state()["log"])
        service.order({"on": "POST /requests/", "do": "delay", "seconds": 0.3})
        task = asyncio.ensure_future(one.delete(sandbox.sandbox_id))
        await eventually(lambda: len(service.state()["log"]) > before, "the pool is told", 60)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert last(service)["state"] == "cancelled"
        assert os.listdir(tmp_path) == []
        assert not _provider._ports._taken  # pyright: ignore[reportPrivateUsage]
        await one.delete(sandbox.sandbox_id)
        with pytest.raises(KeyError):
            await one.get(sandbox.sandbox_id)

    run(main())


def test_a_create_that_cannot_be_undone_is_told_of(
    run: Any, service: services.Service, trees: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    service.order({"on": "POST /requests/", "do": "refuse", "status": 500, "times": 3})

    async def main() -> None:
        known = len(service.state()["requests"])
        task = asyncio.ensure_future(provider().create(config(trees["asleep"])))
        await eventually(lambda: len(service.state()["requests"]) > known, "it is submitted", 60)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert "may be left behind" in caplog.text
        assert last(service)["id"] in caplog.text
        await asyncio.to_thread(cancel_by_hand, last(service)["id"])

    with caplog.at_level(logging.WARNING):
        run(main())


@pytest.mark.long
def test_cancelled_at_any_moment(run: Any, service: services.Service, trees: dict[str, str]) -> None:
    moments = random.Random(5)

    async def main() -> None:
        one = provider()
        before = service.state()["requests"]
        for _ in range(8):
            task = asyncio.ensure_future(one.create(config(trees["asleep"])))
            await asyncio.sleep(moments.uniform(0, 1.0))
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        mine = [request for request in service.state()["requests"] if request not in before]
        assert mine
        assert {request["reason"] for request in mine} == {"agentix_create_cancelled"}
        assert not _provider._ports._taken  # pyright: ignore[reportPrivateUsage]

    run(main())


HOST = """
import asyncio
from agentix import SandboxConfig
from agentix.provider.cape import CapeProviderConfig
async def main():
    provider = CapeProviderConfig(pool="gpus", user="me", runtime_port_base={port}, lease={lease}).to_provider()
    sandbox = await provider.create(SandboxConfig(image="any", bundle={bundle!r}))
    print(sandbox.sandbox_id, flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""


@pytest.mark.parametrize("lease", [pytest.param(8, marks=pytest.mark.long), 900])
def test_a_killed_host(
    run: Any, service: services.Service, places: Path, bundle: box_bundle.Bundle, trees: dict[str, str], lease: int
) -> None:
    """Its sandbox ends by its lease, or by the next provider that makes one."""
    code = HOST.format(bundle=f"{bundle.directory}/nix", lease=lease, port=BASE + 10)
    host = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    name = host.stdout.readline().strip()
    host.kill()
    host.communicate(timeout=30)
    assert left(places) == [name]
    if lease == 8:
        until(lambda: last(service)["state"] == "succeeded", "the lease ends it", 90)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="boom"):
            await provider().create(config(trees["boom"]))
        assert left(places) == []

    run(main())


def test_a_host_killed_before_its_sandbox_is_known(
    run: Any, service: services.Service, places: Path, trees: dict[str, str], tmp_path: Path
) -> None:
    """It has been told the request's id, and that is found."""
    code = HOST.format(bundle=trees["asleep"], lease=900, port=BASE + 12)
    with subprocess.Popen([sys.executable, "-c", code]) as host:
        until(lambda: [path for path in places.glob("cape-*/request") if path.read_text()], "it is noted", 60)
        host.kill()

    async def main() -> None:
        (name,) = left(places)
        (tmp_path / name).mkdir()
        killed = last(service)["id"]
        with pytest.raises(RuntimeError, match="boom"):
            await provider(meta_root=str(tmp_path)).create(config(trees["boom"]))
        assert left(places) == []
        assert os.listdir(tmp_path) == []
        (found,) = [request for request in service.state()["requests"] if request["id"] == killed]
        assert (found["state"], found["reason"]) == ("cancelled", "agentix_delete")

    run(main())


def test_no_deploy(service: services.Service) -> None:
    program = str(Path(sys.executable).parent / "agentix")
    done = subprocess.run([program, "deploy", "cape", "x"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "has no deploy" in done.stderr
    listed = subprocess.run([program, "plugin", "list"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "cape  ok" in listed
