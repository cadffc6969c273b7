"""What tests of e2b and of daytona do alike: both rent sandboxes of a service that is emulated here (`services`)."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import daytona_service
import e2b_service
import pytest
import services

from agentix import SandboxConfig, SandboxProvider


def environ(service: services.Service) -> dict[str, str]:
    """The variables by which the backend finds the service and its account."""
    urls = service.urls
    if service.name == "daytona":
        return {"DAYTONA_API_URL": f"{urls['api']}/api", "DAYTONA_API_KEY": daytona_service.KEY}
    return {
        "E2B_API_URL": urls["api"],
        "E2B_SANDBOX_URL": urls["gateway"],
        "E2B_API_KEY": e2b_service.KEY,
        "E2B_TEMPLATE_ID": "base",
    }


def show(service: services.Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the environment say where the service is."""
    for name, value in environ(service).items():
        monkeypatch.setenv(name, value)


def deploy(service: services.Service, bundle: Path) -> str:
    """Bring the bundle where the service has it, by a user's command; what sandboxes are to name."""
    program = str(Path(sys.executable).parent / "agentix")
    command = [program, "deploy", service.name, str(bundle), "--format", "json"]
    env = {**os.environ, **environ(service)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["platform"] == "linux/amd64"
    assert answer["metadata"]["state"] == "uploaded"
    assert service.rentals() == []
    return answer["bundle"]


def renewed(service: services.Service, sandbox_id: str) -> int:
    """How often the sandbox's time was renewed; -1: it is over."""
    return next((rental["renewed"] for rental in service.state()["rentals"] if rental["id"] == sandbox_id), -1)


async def cancel_at_any_moment(
    provider: SandboxProvider, asleep: SandboxConfig, service: services.Service, times: int
) -> None:
    """Cancel so many creations of a sandbox whose runtime never comes up, so every moment is one of the start."""
    moments = random.Random(5)
    for _ in range(times):
        task = asyncio.ensure_future(provider.create(asleep))
        await asyncio.sleep(moments.uniform(0, 0.8))
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert service.rentals() == []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1), provider.session(asleep):
            raise AssertionError("it cannot have started")
    assert service.rentals() == []
