"""The e2b backend: the official SDK against an emulated service that really runs what it is asked to run."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import box_bundle
import clouds
import e2b_service
import pytest
import services
from agentix.provider.e2b import E2BProvider, E2BProviderConfig
from processes import eventually

from agentix import SandboxConfig, SandboxResource

sys.path.insert(0, str(box_bundle.BOX / "src"))
import box_targets as t

KEY = e2b_service.KEY


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[services.Service]:
    with services.running("e2b", tmp_path_factory.mktemp("e2b")) as service:
        yield service


@pytest.fixture
def service(running: services.Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[services.Service]:
    """The service, where the environment says it is; nothing may be left in it."""
    clouds.show(running, monkeypatch)
    yield running
    running.order()
    running.empty()


@pytest.fixture(scope="module")
def deployed(running: services.Service, plain_bundle: Path) -> str:
    """The bundle where the service has it, brought there by a user's command."""
    return clouds.deploy(running, plain_bundle)


def config(bundle: str, **settings: Any) -> SandboxConfig:
    return SandboxConfig(image="any", bundle=bundle, **settings)


def provider(**settings: Any) -> E2BProvider:
    return E2BProviderConfig(**settings).to_provider()


def test_a_session(run: Any, service: services.Service, deployed: str, plain_bundle: Path) -> None:
    async def main() -> None:
        env = {"A": "x\nB=evil", "Q": "a'b\"c $HOME #", "E": "", "AGENTIX_TOKEN_FILE": "/mine"}
        first = provider()
        async with first.session(config(deployed, env=env)) as sandbox:
            assert (await sandbox.remote(t.run, seed=7))["seed"] == 7
            seen = await sandbox.remote(t.environ)
            assert [seen.get(name) for name in ("A", "Q", "E", "B")] == [env["A"], env["Q"], "", None]
            assert await sandbox.remote(t.whoami) == (0, 0)

            # Neither without the service's header nor without the runtime's token does anybody get in.
            with pytest.raises(urllib.error.HTTPError, match="403"):
                await asyncio.to_thread(
                    call, sandbox.runtime_url, **without(sandbox.headers, "e2b-traffic-access-token")
                )
            with pytest.raises(urllib.error.HTTPError, match="401"):
                await asyncio.to_thread(call, sandbox.runtime_url, **sandbox.headers)
            secrets = (KEY, sandbox.token, sandbox.headers["e2b-traffic-access-token"])
            assert not any(str(secret) in repr(sandbox) for secret in secrets)

            other = await provider().get(sandbox.sandbox_id)
            assert (await other.remote(t.run, seed=8))["pid"] == (await sandbox.remote(t.run, seed=9))["pid"]
            await other.aclose()
        with pytest.raises(KeyError, match=sandbox.sandbox_id):
            await first.get(sandbox.sandbox_id)
        await first.delete(sandbox.sandbox_id)  # which is gone

    run(main())


@pytest.mark.long
def test_the_tar_itself_finds_what_is_there(
    run: Any, service: services.Service, deployed: str, plain_bundle: Path
) -> None:
    async def main() -> None:
        first = provider()
        again = await first.deploy_bundle(plain_bundle, name="mine:1")
        assert (again.bundle, again.metadata["state"], again.metadata["name"]) == (deployed, "there already", "mine:1")
        made = await asyncio.gather(*(first.create(config(str(plain_bundle))) for _ in range(2)))
        assert await asyncio.gather(*(one.remote(t.run, seed=n) for n, one in enumerate(made)))
        for one in made:
            await one.aclose()
            await first.delete(one.sandbox_id)

    run(main())


def without(headers: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in headers.items() if key != name}


def call(url: str, **headers: str) -> None:
    urllib.request.urlopen(urllib.request.Request(f"{url}/call", b"", headers), timeout=60)


def test_what_is_missing_is_said_first(service: services.Service, monkeypatch: pytest.MonkeyPatch) -> None:
    before = service.state()["log"]
    monkeypatch.delenv("E2B_TEMPLATE_ID")
    with pytest.raises(ValueError, match=r"E2B_TEMPLATE_ID.*template_id="):
        E2BProvider()
    monkeypatch.delenv("E2B_API_KEY")
    with pytest.raises(ValueError, match=r"E2B_API_KEY.*api_key="):
        E2BProvider()
    with pytest.raises(ValueError, match="timeout"):
        E2BProviderConfig(timeout=0)
    assert KEY not in repr(E2BProviderConfig(api_key=KEY, template_id="x"))
    assert service.state()["log"] == before


def test_what_the_service_cannot_do(run: Any, service: services.Service) -> None:
    async def main() -> None:
        one = provider()
        with pytest.raises(ValueError, match="linux/arm64"):
            await one.create(config("e2b:base", platform="linux/arm64"))
        with pytest.raises(ValueError, match="resource"):
            await one.create(config("e2b:base", resource=SandboxResource(gpu=1)))
        with pytest.raises(FileNotFoundError, match="agentix build"):
            await one.create(config("/nowhere.tar"))
        with pytest.raises(ValueError, match="sandbox id"):
            await one.delete("--all")  # pyright: ignore[reportArgumentType]
        wrong = "e2b_" + "0" * 40
        with pytest.raises(RuntimeError, match="401") as refused:
            await provider(api_key=wrong).create(config("e2b:base"))
        assert wrong not in str(refused.value)
        with pytest.raises(RuntimeError, match="not found"):
            await one.create(config("e2b:nowhere"))

    run(main())


def test_a_runtime_that_does_not_come_up(run: Any, service: services.Service) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"(?s)exit code 3.*boom"):
            await provider().create(config("e2b:boom"))
        with pytest.raises(RuntimeError, match=r"(?s)exit code 127.*bootstrap\.sh"):
            await provider().create(config("e2b:base"))
        with pytest.raises(RuntimeError, match=r"not ready after 1\.0 s"):
            await provider(health_timeout=1.0).create(config("e2b:asleep"))
        assert service.rentals() == []

    run(main())


FAULTS = [
    {"on": "POST /v2/sandboxes", "do": "lose"},
    {"on": "POST /v2/sandboxes", "do": "refuse", "status": 500},
    {"on": "POST /files", "do": "refuse", "status": 500},
    {"on": "POST /process.Process/Start", "do": "refuse", "status": 503},
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault['do']} {fault['on']}")
def test_a_step_that_fails(run: Any, service: services.Service, fault: dict[str, Any]) -> None:
    """Nothing is left, although the first request to end the sandbox fails too."""
    service.order(fault, {"on": "DELETE /sandboxes", "do": "refuse", "status": 500})

    async def main() -> None:
        with pytest.raises(RuntimeError, match="failed"):
            await provider().create(config("e2b:asleep"))
        assert service.rentals() == []

    run(main())


ASLEEP = "e2b:asleep"
ECHOING = ["POST /v2/sandboxes", "GET /v2/sandboxes"]


def test_what_the_service_repeats(
    run: Any, service: services.Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run(services.keeps_the_key(lambda: provider().create(config(ASLEEP)), service, ECHOING, KEY, monkeypatch, caplog))


def test_a_stream_that_is_cut_is_not_the_end(run: Any, service: services.Service) -> None:
    service.order({"on": "POST /process.Process/Start", "do": "cut"})

    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"not ready after 2\.0 s"):
            await provider(health_timeout=2.0).create(config(ASLEEP))

    run(main())


def test_cancelled_while_the_runtime_is_started(run: Any, service: services.Service) -> None:
    """In the middle of that request; nor does the SDK leave an exception that nobody took."""
    service.order({"on": "POST /process.Process/Start", "do": "delay", "seconds": 0.5})

    async def main() -> None:
        before = len(service.state()["log"])
        task = asyncio.ensure_future(provider().create(config(ASLEEP)))
        await eventually(
            lambda: "POST /process.Process/Start" in service.state()["log"][before:], "it is being started", 60
        )
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert service.rentals() == []
        del task
        gc.collect()
        await asyncio.sleep(0)

    run(main())


@pytest.mark.parametrize("times", [2, pytest.param(8, marks=pytest.mark.long)])
def test_cancelled_at_any_moment(run: Any, service: services.Service, times: int) -> None:
    run(clouds.cancel_at_any_moment(provider(), config("e2b:asleep"), service, times))


HOST = """
import asyncio
from agentix import SandboxConfig
from agentix.provider.e2b import E2BProviderConfig
async def main():
    sandbox = await E2BProviderConfig(timeout=6).to_provider().create(SandboxConfig(image="any", bundle={bundle!r}))
    print(sandbox.sandbox_id, flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""


@pytest.mark.long
def test_how_long_a_sandbox_lives(run: Any, service: services.Service, deployed: str) -> None:
    """As long as its handle; that of a killed host until its time is over."""
    host = subprocess.Popen([sys.executable, "-c", HOST.format(bundle=deployed)], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None

    async def main() -> None:
        one = provider(timeout=6)
        sandbox = await one.create(config(deployed))
        lost = (await asyncio.to_thread(host.stdout.readline)).strip()  # pyright: ignore[reportOptionalMemberAccess]
        host.kill()
        assert lost
        await eventually(lambda: clouds.renewed(service, lost) < 0, "it ends, as its host was killed", 60)
        assert (await sandbox.remote(t.run, seed=1))["seed"] == 1
        assert clouds.renewed(service, sandbox.sandbox_id) > 1
        await sandbox.aclose()
        await one.delete(sandbox.sandbox_id)

    try:
        run(main())
    finally:
        host.kill()
        host.communicate(timeout=60)
