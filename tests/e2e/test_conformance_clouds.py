"""The suite for backends, on those whose sandboxes are elsewhere: here, in the emulated services."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import cape_service
import clouds
import daytona_service
import e2b_service
import pytest
import services
from agentix.provider.cape import CapeProviderConfig
from agentix.provider.daytona import DaytonaProviderConfig
from agentix.provider.e2b import E2BProviderConfig

from agentix import Sandbox, SandboxProvider
from agentix.provider import _places
from agentix.testing import conformance

pytestmark = pytest.mark.long  # the tests of each backend are the quick ones


class Cloud(conformance.Backend):
    """A backend and the service that it uses."""

    def __init__(self, service: services.Service, **settings: Any) -> None:
        super().__init__(image="any", **settings)
        self.service = service

    def left(self) -> Iterable[str]:
        return self.service.rentals()

    def order(self, method: str, path: str, header: str, key: str) -> None:
        request = urllib.request.Request(self.service.urls["api"] + path, method=method, headers={header: key})
        urllib.request.urlopen(request, timeout=30).close()


class E2B(Cloud):
    name = "e2b"

    def provider(self, lease: float | None = 900) -> SandboxProvider:
        return E2BProviderConfig(timeout=math.ceil(lease or 900)).to_provider()

    def kill(self, sandbox: Sandbox) -> None:
        self.order("DELETE", f"/sandboxes/{sandbox.sandbox_id}", "X-API-KEY", e2b_service.KEY)

    def refusals(self) -> Iterable[conformance.Refusal]:
        for name, setting in (("E2B_API_KEY", "api_key="), ("E2B_TEMPLATE_ID", "template_id=")):
            yield conformance.Refusal(self.provider, name, setting, variables={name: None})
        yield conformance.Refusal(lambda: E2BProviderConfig(timeout=0), "timeout")


class Daytona(Cloud):
    name = "daytona"
    without: ClassVar[Mapping[str, str]] = {"lease": "its leases are whole minutes"}

    def provider(self, lease: float | None = 900) -> SandboxProvider:
        return DaytonaProviderConfig(lease=lease).to_provider()

    def kill(self, sandbox: Sandbox) -> None:
        self.order("DELETE", f"/api/sandbox/{sandbox.sandbox_id}", "Authorization", f"Bearer {daytona_service.KEY}")

    def refusals(self) -> Iterable[conformance.Refusal]:
        yield conformance.Refusal(self.provider, "DAYTONA_API_KEY", "api_key=", variables={"DAYTONA_API_KEY": None})
        yield conformance.Refusal(lambda: DaytonaProviderConfig(lease=-1), "lease")


class Cape(Cloud):
    name = "cape"
    port = services.free_ports()
    without: ClassVar[Mapping[str, str]] = {"bundle": "its bundles are paths of the nodes"}

    def provider(self, lease: float | None = 900) -> SandboxProvider:
        return CapeProviderConfig(pool="gpus", user="me", lease=lease, runtime_port_base=self.port).to_provider()

    def kill(self, sandbox: Sandbox) -> None:
        facts = _places.facts_of(_places.base() / sandbox.sandbox_id)
        assert facts is not None
        where = ["--controller-url", self.service.urls["api"], "--reason", "killed", facts["request"]]
        subprocess.run([os.environ["CAPE_BINARY"], "cancel", *where], check=True, timeout=60)

    def left(self) -> Iterable[str]:
        yield from super().left()
        yield from (path.name for path in _places.base().iterdir() if not path.name.startswith("host-"))

    def refusals(self) -> Iterable[conformance.Refusal]:
        for name, setting in (("CAPE_CONTROLLER_URL", "controller_url="), ("CAPE_TOKEN", "token_file=")):
            yield conformance.Refusal(self.provider, name, setting, variables={name: None})
        yield conformance.Refusal(lambda: CapeProviderConfig().to_provider(), "pool=")


class TestE2B(conformance.Suite):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls, tmp_path_factory: pytest.TempPathFactory, plain_bundle: Path) -> Iterator[E2B]:
        with services.running("e2b", tmp_path_factory.mktemp("e2b")) as service, pytest.MonkeyPatch.context() as patch:
            clouds.show(service, patch)
            yield E2B(service, bundle=str(plain_bundle))


class TestDaytona(conformance.Suite):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls, tmp_path_factory: pytest.TempPathFactory, plain_bundle: Path) -> Iterator[Daytona]:
        directory = tmp_path_factory.mktemp("daytona")
        with services.running("daytona", directory) as service, pytest.MonkeyPatch.context() as patch:
            clouds.show(service, patch)
            yield Daytona(service, bundle=str(plain_bundle))


class TestCape(conformance.Suite):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls, tmp_path_factory: pytest.TempPathFactory, plain_bundle: Path) -> Iterator[Cape]:
        root = tmp_path_factory.mktemp("cape")
        program = str(Path(sys.executable).parent / "agentix")
        deploy = [program, "deploy", "docker", str(plain_bundle), "--bundle-cache-dir", str(root / "cache")]
        subprocess.run(deploy, check=True, capture_output=True, timeout=120)
        nix = next((root / "cache").glob("sha256-*/nix"))
        with (
            services.running("cape", root / "pool") as service,
            tempfile.TemporaryDirectory(prefix="agx-") as run,
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setenv("XDG_RUNTIME_DIR", run)
            patch.setenv("CAPE_CONTROLLER_URL", service.urls["api"])
            patch.setenv("CAPE_TOKEN", cape_service.TOKEN)
            patch.setenv("CAPE_BINARY", str(services.cape_program(root)))
            yield Cape(service, bundle=str(nix))
