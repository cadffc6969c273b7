"""The daytona backend: the official SDK against an emulated service that really runs what it is asked to run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import box_bundle
import clouds
import daytona_service
import pytest
import services
from agentix.provider.daytona import DaytonaProvider, DaytonaProviderConfig
from processes import eventually

from agentix import SandboxConfig, SandboxResource

sys.path.insert(0, str(box_bundle.BOX / "src"))
import box_targets as t

KEY = daytona_service.KEY


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[services.Service]:
    with services.running("daytona", tmp_path_factory.mktemp("daytona")) as service:
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
    return SandboxConfig(**{"image": "any", "bundle": bundle, **settings})


def provider(**settings: Any) -> DaytonaProvider:
    return DaytonaProviderConfig(**settings).to_provider()


def test_a_session(run: Any, service: services.Service, deployed: str, plain_bundle: Path) -> None:
    async def main() -> None:
        env = {"A": "x\nB=evil", "Q": "a'b\"c $HOME #", "E": "", "AGENTIX_TOKEN_FILE": "/mine"}
        resource = SandboxResource(cpu=1.5, memory="1500m", gpu=1)
        first = provider()
        async with first.session(config(deployed, env=env, resource=resource)) as sandbox:
            assert (await sandbox.remote(t.run, seed=7))["seed"] == 7
            seen = await sandbox.remote(t.environ)
            assert [seen.get(name) for name in ("A", "Q", "E", "B")] == [env["A"], env["Q"], "", None]
            asked = service.state()["rentals"][0]["asked"]
            assert {key: asked[key] for key in ("cpu", "memory", "gpu")} == {"cpu": 2, "memory": 2, "gpu": 1}
            assert "x\nB=evil" not in str(asked)

            # Neither without the service's header nor without the runtime's token does anybody get in.
            with pytest.raises(urllib.error.HTTPError, match="401: Unauthorized"):
                await asyncio.to_thread(call, sandbox.runtime_url)
            with pytest.raises(urllib.error.HTTPError, match="401"):
                await asyncio.to_thread(call, sandbox.runtime_url, **sandbox.headers)
            secrets = (KEY, sandbox.token, sandbox.headers["X-Daytona-Preview-Token"])
            assert not any(str(secret) in repr(sandbox) for secret in secrets)

            other = await provider().get(sandbox.sandbox_id)
            assert (await other.remote(t.run, seed=8))["pid"] == (await sandbox.remote(t.run, seed=9))["pid"]
            await other.aclose()
        with pytest.raises(KeyError, match=sandbox.sandbox_id):
            await first.get(sandbox.sandbox_id)
        await first.delete(sandbox.sandbox_id)  # which is gone

        # The tar itself finds what is there already.
        again = await first.deploy_bundle(plain_bundle, name="mine:1")
        assert (again.bundle, again.metadata["state"], again.metadata["name"]) == (deployed, "there already", "mine:1")

    run(main())


def call(url: str, **headers: str) -> None:
    urllib.request.urlopen(urllib.request.Request(f"{url}/call", b"", headers), timeout=30)


def test_what_is_missing_is_said_first(service: services.Service, monkeypatch: pytest.MonkeyPatch) -> None:
    before = service.state()["log"]
    monkeypatch.delenv("DAYTONA_API_KEY")
    with pytest.raises(ValueError, match=r"DAYTONA_API_KEY.*api_key="):
        DaytonaProvider()
    with pytest.raises(ValueError, match="api_url"):
        DaytonaProviderConfig(api_url="ftp://x")
    with pytest.raises(ValueError, match="lease"):
        DaytonaProviderConfig(lease=0)
    assert KEY not in repr(DaytonaProviderConfig(api_key=KEY))
    assert service.state()["log"] == before


def test_what_the_service_cannot_do(run: Any, service: services.Service) -> None:
    async def main() -> None:
        one = provider()
        with pytest.raises(ValueError, match="linux/arm64"):
            await one.create(config("daytona:" + "b" * 24, platform="linux/arm64"))
        with pytest.raises(ValueError, match="deploy daytona"):
            await one.create(config("daytona:../../etc"))
        with pytest.raises(FileNotFoundError, match="agentix build"):
            await one.create(config("/nowhere.tar"))
        with pytest.raises(ValueError, match="sandbox id"):
            await one.delete("--all")  # pyright: ignore[reportArgumentType]
        wrong = "dtn_" + "0" * 40
        with pytest.raises(RuntimeError, match="Invalid credentials") as refused:
            await provider(api_key=wrong).create(config("daytona:" + "b" * 24))
        assert wrong not in str(refused.value)
        with pytest.raises(RuntimeError, match="cannot build"):
            await one.create(config("daytona:" + "b" * 24, image="nobody/has:it"))

    run(main())


def test_a_runtime_that_does_not_come_up(run: Any, service: services.Service) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"(?s)exit code 3.*boom"):
            await provider().create(config("daytona:" + "b" * 24))
        with pytest.raises(RuntimeError, match=r"(?s)exit code 9.*deploy it"):
            await provider().create(config("daytona:" + "c" * 24))
        with pytest.raises(RuntimeError, match=r"not ready after 1\.0 s"):
            await provider(health_timeout=1.0).create(config("daytona:" + "a" * 24))
        assert service.rentals() == []

    run(main())


FAULTS = [
    {"on": "POST /api/sandbox", "do": "lose"},
    {"on": "POST /api/sandbox", "do": "refuse", "status": 500},
    {"on": "POST /toolbox", "do": "refuse", "status": 500},
    {"on": "GET /api/sandbox", "do": "refuse", "status": 503},
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault['do']} {fault['on']}")
def test_a_step_that_fails(run: Any, service: services.Service, fault: dict[str, Any]) -> None:
    """Nothing is left, although the first request to end the sandbox fails too."""
    service.order(fault, {"on": "DELETE /api/sandbox", "do": "refuse", "status": 500})

    async def main() -> None:
        with pytest.raises(RuntimeError, match="failed"):
            await provider().create(config("daytona:" + "b" * 24))
        assert service.rentals() == []

    run(main())


ASLEEP = "daytona:" + "a" * 24
ECHOING = ["POST /api/sandbox", "GET /api/sandbox"]


def test_what_the_service_repeats(
    run: Any, service: services.Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run(services.keeps_the_key(lambda: provider().create(config(ASLEEP)), service, ECHOING, KEY, monkeypatch, caplog))


def test_errors_of_asking_are_not_the_end(run: Any, service: services.Service) -> None:
    service.order({"on": "GET /toolbox", "do": "refuse", "status": 503, "times": 3})

    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"not ready after 3\.0 s"):
            await provider(health_timeout=3.0).create(config(ASLEEP))
        assert service.state()["rentals"] == []

    run(main())


@pytest.mark.parametrize("times", [2, pytest.param(8, marks=pytest.mark.long)])
def test_cancelled_at_any_moment(run: Any, service: services.Service, times: int) -> None:
    run(clouds.cancel_at_any_moment(provider(), config("daytona:" + "a" * 24), service, times))


HOST = """
import asyncio
from agentix import SandboxConfig
from agentix.provider.daytona import DaytonaProviderConfig
async def main():
    provider = DaytonaProviderConfig(lease=120).to_provider()
    sandbox = await provider.create(SandboxConfig(image="any", bundle={bundle!r}))
    print(sandbox.sandbox_id, flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""


@pytest.mark.long
def test_how_long_a_sandbox_lives(
    run: Any, service: services.Service, deployed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as its handle; that of a killed host, and a closed one, until their time is over."""
    service.order({"on": "minute", "do": "minute", "seconds": 3.0})
    host = subprocess.Popen([sys.executable, "-c", HOST.format(bundle=deployed)], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None

    async def main() -> None:
        # A minute of this service is three seconds, so renewing must be as much quicker.
        monkeypatch.setattr("agentix.provider._lease.RENEWALS", 120)
        one = provider(lease=120)
        sandbox = await one.create(config(deployed))
        lost = (await asyncio.to_thread(host.stdout.readline)).strip()  # pyright: ignore[reportOptionalMemberAccess]
        host.kill()
        assert lost
        await eventually(
            lambda: clouds.renewed(service, sandbox.sandbox_id) >= 4, "it is renewed beyond its first time", 60
        )
        await eventually(lambda: clouds.renewed(service, lost) < 0, "it ends, as its host was killed", 60)
        assert (await sandbox.remote(t.run, seed=1))["seed"] == 1
        await sandbox.aclose()
        await eventually(lambda: clouds.renewed(service, sandbox.sandbox_id) < 0, "it ends when nobody holds it", 60)

    try:
        run(main())
    finally:
        host.kill()
        host.communicate(timeout=30)
