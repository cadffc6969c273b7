"""`agentix ps`, `rm` and `prune` on real engines with live sandboxes, and hosts that are killed at any moment."""

from __future__ import annotations

import asyncio
import random
import subprocess
from pathlib import Path
from typing import Any

import box_bundle
import engines
import pytest
from cli import Cli
from containers import host, left, provider_of, running, until

from agentix import SandboxConfig

pytestmark = pytest.mark.usefixtures("places", "nothing_left")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def orphan(engine: engines.Engine, bundle: box_bundle.Bundle) -> str:
    """A sandbox that runs although its host was killed."""
    body = "s = await provider.create(config)\nprint(s.sandbox_id, flush=True)\nawait asyncio.sleep(1000)"
    process = host(engine, bundle, body, lease=600)
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    process.kill()
    process.communicate()
    assert name in running(engine)
    return name


def test_ps_rm_and_prune(run: Any, engine: engines.Engine, bundle: box_bundle.Bundle, cli: Cli, places: Path) -> None:
    assert not engine.foreign, f"prune would remove sandboxes that are no test's: {engine.foreign}"
    option = ["--container-engine", engine.program]

    def rows(*more: str) -> dict[str, tuple[str, bool]]:
        listed = cli.json("ps", *more, *option)["sandboxes"]
        return {row["sandbox"]: (row["status"], row["host_alive"]) for row in listed}

    async def main() -> None:
        lost = await asyncio.to_thread(orphan, engine, bundle)
        provider = provider_of(engine)
        config = SandboxConfig(image=engine.image("busybox"), bundle=bundle.directory)
        live, ended = [await provider.create(config) for _ in range(2)]
        await asyncio.to_thread(engine, "kill", ended.sandbox_id)
        await until(lambda: ended.sandbox_id not in running(engine))

        assert rows() == {lost: ("running", False), live.sandbox_id: ("running", True)}
        assert rows("--all") == {**rows(), ended.sandbox_id: ("exited", True)}
        assert f"{live.sandbox_id}  {engine.program}  running  host alive  lease 900" in cli.run("ps", *option).stdout

        assert "is running" in cli.error("rm", live.sandbox_id, *option)
        assert "no sandbox 'agentix-00000000'" in cli.error("rm", "agentix-00000000", *option, code=3)
        dry = cli.json("prune", "--dry-run", "--force", *option)["removed"]
        assert sorted(dry) == sorted([ended.sandbox_id, lost])
        assert set(rows("--all")) == {lost, live.sandbox_id, ended.sandbox_id}
        assert cli.json("prune", *option)["removed"] == [ended.sandbox_id]
        assert cli.run("prune", "--force", *option).stdout == f"{lost}\n"
        assert (await live.health()).status == "ok"
        assert cli.json("rm", "--force", live.sandbox_id, *option)["removed"] == [live.sandbox_id]
        assert rows("--all") == {}

        for sandbox in (live, ended):
            await sandbox.aclose()
            await provider.delete(sandbox.sandbox_id)  # which lets go of what is here
        async with provider_of(engine).session(config):  # which tidies up after the killed host
            await until(lambda: lost not in left(places))

    run(main())


def test_a_container_that_never_ran(run: Any, engine: engines.Engine, bundle: box_bundle.Bundle) -> None:
    """Its host was killed between `create` and `start`: no lease ends it, so the next provider does."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    name, nobody = "agentix-0000dead", f"{boot}:{1 << 22}:1"
    labels = [f"--label=agentix.{key}={value}" for key, value in (("sandbox", name), ("host", nobody), ("lease", "9"))]
    engine("create", "--name", name, *labels, engine.image("busybox"), "/bin/sleep", "99")

    async def main() -> None:
        config = SandboxConfig(image=engine.image("busybox"), bundle=bundle.directory)
        async with provider_of(engine).session(config) as sandbox:
            await until(lambda: engine.sandboxes() == [sandbox.sandbox_id])

    run(main())


# ---- kill -9 at any moment ----


def killed_at(engine: engines.Engine, bundle: box_bundle.Bundle, seconds: float) -> None:
    body = "print('go', flush=True)\nasync with provider.session(config) as s:\n    await s.remote(t.nap, 1000)"
    process = host(engine, bundle, body, lease=2)
    assert process.stdout is not None
    assert process.stdout.readline() == "go\n"
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate()


async def kills(engine: engines.Engine, bundle: box_bundle.Bundle, places: Path, count: int) -> None:
    moments = random.Random(72)
    for _ in range(count):
        await asyncio.to_thread(killed_at, engine, bundle, moments.uniform(0, 1.2))
    await until(lambda: not running(engine))  # the lease
    config = SandboxConfig(image=engine.image("busybox"), bundle=bundle.directory)
    async with provider_of(engine).session(config) as sandbox:  # the next one tidies up
        await until(lambda: engine.sandboxes() == [sandbox.sandbox_id] == left(places))


def test_hosts_killed_at_any_moment(run: Any, engine: engines.Engine, bundle: box_bundle.Bundle, places: Path) -> None:
    run(kills(engine, bundle, places, 5))


@pytest.mark.long
def test_many_hosts_killed(engine: engines.Engine, bundle: box_bundle.Bundle, places: Path) -> None:
    asyncio.run(asyncio.wait_for(kills(engine, bundle, places, 60), 900))
