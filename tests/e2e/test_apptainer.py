"""What is the apptainer backend's own, on a stand-in for the program; the rest is the conformance suite's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import box_bundle
import engines
import pytest
from agentix.provider.apptainer import ApptainerProvider, ApptainerProviderConfig
from cli import Cli
from containers import left
from processes import until

sys.path.insert(0, str(box_bundle.BOX / "src"))

import box_targets as t

from agentix import SandboxConfig, SandboxResource
from agentix.provider import _places

PROGRAM = Path(__file__).parents[1] / "support" / "apptainer.py"


class Site:
    """A machine with the program: its cache, its registry, and what was pulled from it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = root / "cache"
        self.log = root / "log"

    def provider(self, **settings: Any) -> ApptainerProvider:
        return ApptainerProvider(ApptainerProviderConfig(binary=str(PROGRAM), cache_dir=str(self.cache), **settings))

    def pulls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def leave_pulls(self) -> None:
        """As a process does that is killed while it pulls."""
        lock = _places.base() / "host-0123456789ab"
        lock.touch()
        os.utime(lock, (0, 0))
        (self.cache / "images").mkdir(parents=True)
        for name in (f"{'f' * 32}.lock", f".{'f' * 32}.sif.0123abcd.sif"):
            (self.cache / "images" / name).touch()

    def images(self) -> list[Path]:
        return [path for path in (self.cache / "images").iterdir() if path.suffix != ".lock"]


@pytest.fixture
def site(tmp_path: Path, places: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    (tmp_path / "busybox.tar").symlink_to(engines.tree("busybox"))
    site = Site(tmp_path)
    monkeypatch.setenv("APPTAINER_TEST_REGISTRY", str(tmp_path))
    monkeypatch.setenv("APPTAINER_TEST_LOG", str(site.log))
    return site


def test_an_image_is_pulled_once(run: Any, site: Site, bundle: box_bundle.Bundle) -> None:
    async def main() -> None:
        config = SandboxConfig(image="busybox", bundle=bundle.directory, platform="linux/amd64")
        one, two = site.provider(), site.provider()
        site.leave_pulls()
        sandboxes = await asyncio.gather(one.create(config), one.create(config), two.create(config))
        for sandbox in sandboxes:
            assert (await sandbox.remote(t.run, seed=1))["python"] == "/nix/runtime/venv/bin/python"
            await sandbox.aclose()
        assert site.pulls() == ["['pull', 'docker://busybox', 'amd64']"]
        assert not (_places.base() / "host-0123456789ab").exists()
        (image,) = site.images()  # and nothing of the pull of another image that a killed process left
        for provider, sandbox in zip((one, one, two), sandboxes, strict=True):
            await provider.delete(sandbox.sandbox_id)
        config = SandboxConfig(image=str(image), bundle=bundle.directory)  # a file is used where it lies
        async with site.provider().session(config) as sandbox:
            assert (await sandbox.remote(t.run, seed=2))["seed"] == 2
        assert len(site.pulls()) == 1

    run(main())


def test_nothing_of_the_host_leaks(
    run: Any, site: Site, bundle: box_bundle.Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "home" / ".local/lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "agx_canary.py").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("PYTHONPATH", "PYTHONSTARTUP", "APPTAINERENV_LEAK", "SINGULARITYENV_LEAK", "LEAK"):
        monkeypatch.setenv(name, str(packages))
    exact = {"A": "x\nB=evil", "E": "", "Q": "a'b\"c $HOME #", "PATH": "/opt/mine:/bin", "LONG": "z" * 100_000}

    async def main() -> None:
        config = SandboxConfig(image="busybox", bundle=bundle.directory, env=exact)
        async with site.provider().session(config) as sandbox:
            assert not await sandbox.remote(t.importable, "agx_canary")
            assert [path for path in await sandbox.remote(t.paths) if not path.startswith("/nix/")] in ([], [""])
            seen = await sandbox.remote(t.environ)
            assert "LEAK" not in seen
            assert "B" not in seen
            assert {name: seen[name] for name in exact if name != "PATH"} == {
                name: value for name, value in exact.items() if name != "PATH"
            }
            assert seen["PATH"].endswith("/opt/mine:/bin")
            assert (await sandbox.remote(t.write, "/nix/x")).startswith("OSError: Read-only")
            assert sandbox.runtime_url.startswith("http+unix://")

    run(main())


def test_loopback_where_a_socket_has_no_room(
    run: Any, site: Site, bundle: box_bundle.Bundle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))

    async def main() -> None:
        async with site.provider().session(SandboxConfig(image="busybox", bundle=bundle.directory)) as sandbox:
            assert sandbox.runtime_url.startswith("http://127.0.0.1:")
            assert (await sandbox.remote(t.run, seed=3))["seed"] == 3

    run(main())


HOST = """
import asyncio
from agentix import SandboxConfig
from agentix.provider.apptainer import ApptainerProvider, ApptainerProviderConfig
config = ApptainerProviderConfig(binary={binary!r}, cache_dir={cache!r})
asyncio.run(ApptainerProvider(config).create(SandboxConfig(image="busybox", bundle={bundle!r})))
"""


def test_a_host_killed_before_its_runtime_came_up(
    run: Any, site: Site, bundle: box_bundle.Bundle, tmp_path: Path, places: Path
) -> None:
    """There is no lease yet that would end it: the next provider does."""
    slow = box_bundle.with_bootstrap(tmp_path / "slow", "exec /nix/busybox sleep 1000")
    code = HOST.format(binary=str(PROGRAM), cache=str(site.cache), bundle=slow)
    with subprocess.Popen([sys.executable, "-c", code]) as host:
        until(lambda: [path for path in places.glob("apptainer-*/process") if path.read_text()], "it is started", 60)
        host.kill()
    (note,) = places.glob("apptainer-*/process")
    label = note.read_text()
    assert _places.is_host_alive(label)

    async def main() -> None:
        async with site.provider().session(SandboxConfig(image="busybox", bundle=bundle.directory)) as sandbox:
            assert left(places) == [sandbox.sandbox_id]
            assert not _places.is_host_alive(label)

    run(main())


def failing(run: Any, provider: ApptainerProvider, config: SandboxConfig, kind: type[Exception] = RuntimeError) -> str:
    async def main() -> str:
        with pytest.raises(kind) as caught:
            await provider.create(config)
        return str(caught.value)

    return run(main())


def test_what_is_said_when_it_does_not_start(
    run: Any, site: Site, bundle: box_bundle.Bundle, tmp_path: Path, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def config(image: str = "busybox", where: str = bundle.directory, **more: Any) -> SandboxConfig:
        return SandboxConfig(image=image, bundle=where, **more)

    boom = box_bundle.with_bootstrap(tmp_path / "boom", "echo boom; exit 3")
    slow = box_bundle.with_bootstrap(tmp_path / "slow", "echo thinking; exec /nix/busybox sleep 1000")
    text = failing(run, site.provider(), config(where=boom))
    assert "the container ended with exit code 3 before it was ready\nboom" in text
    for seconds in (1.0, 8.0, 30.0):  # a busy machine takes its time until it is said
        text = failing(run, site.provider(health_timeout=seconds), config(where=slow))
        assert f"the container was not ready after {seconds} s\n" in text
        if "thinking" in text:
            break
    assert "\nthinking" in text
    assert "manifest unknown" in failing(run, site.provider(), config("nosuch:1"))
    assert "there is no image at" in failing(run, site.provider(), config("/nowhere.sif"), FileNotFoundError)
    text = failing(run, site.provider(flags=("--userns", "--no-such-flag")), config())
    assert "unknown flag: --no-such-flag" in text
    monkeypatch.setenv("PATH", "/nowhere")
    text = failing(run, ApptainerProvider(), config())
    assert "'apptainer' not found on PATH; install Apptainer, or set binary= or AGENTIX_APPTAINER_BIN" in text
    assert left(places) == []
    assert len(site.images()) == 1


def test_variables_choose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTIX_APPTAINER_BIN", str(PROGRAM))
    monkeypatch.setenv("AGENTIX_APPTAINER_CACHE", str(tmp_path))
    monkeypatch.setenv("AGENTIX_APPTAINER_FLAGS", " --userns  --nv ")
    config = ApptainerProviderConfig()
    assert (config.program(), config.cache(), config.exec_flags()) == (str(PROGRAM), tmp_path, ("--userns", "--nv"))
    config = ApptainerProviderConfig(binary="other", cache_dir="/c", flags=())
    assert (config.program(), config.cache(), config.exec_flags()) == ("other", Path("/c"), ())


def test_resources_become_options(run: Any, site: Site, bundle: box_bundle.Bundle) -> None:
    async def main() -> None:
        resource = SandboxResource(cpu=1.5, memory="64m", gpu=1)
        config = SandboxConfig(image="busybox", bundle=bundle.directory, resource=resource)
        async with site.provider().session(config) as sandbox:
            name = sandbox.sandbox_id.encode()
            (command,) = [words for words in commands() if b"--cpus" in words and name in b" ".join(words)]
            at = command.index(b"--cpus")
            assert command[at : at + 5] == [b"--cpus", b"1.5", b"--memory", b"67108864", b"--nv"]
            assert sandbox.token is not None
            assert sandbox.token.encode() not in b"".join(command)

    run(main())


def commands() -> Iterator[list[bytes]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes().split(b"\0")


def test_deploying(run: Any, site: Site, bundle: box_bundle.Bundle, tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    into = ["--bundle-cache-dir", site.cache / "bundles"]  # what one has unpacked all find
    answer = cli.json("deploy", "apptainer", bundle.tar, *into)
    assert Path(answer["bundle"], "nix/runtime/bootstrap.sh").exists()
    assert "apptainer shell --bind" in cli.run("deploy", "apptainer", bundle.tar, *into).stdout
    deployed = run(site.provider().deploy_bundle(bundle.tar, name="mine"))
    assert deployed.bundle == answer["bundle"]
    assert deployed.metadata["name"] == "mine"
    assert "apptainer" in [row["name"] for row in cli.json("plugin", "list")["providers"]]
