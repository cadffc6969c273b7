"""How long each backend takes from asking for a sandbox to its first result, and to delete it again: one table.

    python bench/backends.py                        nine rounds of all
    python bench/backends.py --rounds 3 uv podman   a look at some
    python bench/backends.py --format json          the same as data

In each round every backend is measured once, a different one first each time; the table has medians over the rounds,
and the range. The first round warms up and is not counted. Bundles and images are there already, and providers are
made. `uv`, `docker` and `podman` are the real ones; `apptainer` is a stand-in that runs its containers in user
namespaces, and `cape`, `daytona` and `e2b` talk to emulated services on loopback: what the services themselves take is
not in those figures. Needs what the end-to-end tests need.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "e2e"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import box_bundle
import engines
import services
from agentix.provider.apptainer import ApptainerProviderConfig
from agentix.provider.cape import CapeProviderConfig
from agentix.provider.daytona import DaytonaProviderConfig
from agentix.provider.docker import DockerProviderConfig
from agentix.provider.e2b import E2BProviderConfig
from agentix.provider.uv import UvProviderConfig

from agentix import SandboxConfig, SandboxProvider

PROGRAM = Path(__file__).parents[1] / "tests" / "support" / "apptainer.py"
Backend = tuple[SandboxProvider, SandboxConfig]
STANDS_IN = {"apptainer": "a stand-in", "cape": "emulated", "daytona": "emulated", "e2b": "emulated"}


class Site:
    """Where all of them are: one temporary directory, one bundle, everything ended with the stack."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.stack = stack
        self.root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agx-")))
        os.environ["XDG_RUNTIME_DIR"] = str(self.root)
        self.tar = box_bundle.build_plain(self.directory("plain"))
        program = (
            "deploy",
            "docker",
            str(self.tar),
            "--bundle-cache-dir",
            str(self.root / "cache"),
            "--format",
            "json",
        )
        self.bundle: str = json.loads(box_bundle.agentix(*program))["bundle"]

    def directory(self, name: str) -> Path:
        path = self.root / name
        path.mkdir()
        return path

    def service(self, name: str) -> services.Service:
        return self.stack.enter_context(services.running(name, self.directory(name)))


def uv(site: Site) -> Backend:
    return UvProviderConfig(reuse_venv=sys.prefix).to_provider(), SandboxConfig(image="none", bundle="none")


def docker(site: Site) -> Backend:
    return with_engine(site, site.stack.enter_context(engines.docker()))


def podman(site: Site) -> Backend:
    return with_engine(site, site.stack.enter_context(engines.podman()))


def with_engine(site: Site, engine: engines.Engine) -> Backend:
    provider = DockerProviderConfig(container_engine=engine.program).to_provider()
    return provider, SandboxConfig(image=engine.image("busybox"), bundle=site.bundle)


def apptainer(site: Site) -> Backend:
    registry = site.directory("registry")
    (registry / "busybox.tar").symlink_to(engines.tree("busybox"))
    os.environ["APPTAINER_TEST_REGISTRY"] = str(registry)
    provider = ApptainerProviderConfig(binary=str(PROGRAM), cache_dir=str(site.root / "apptainer")).to_provider()
    return provider, SandboxConfig(image="busybox", bundle=site.bundle)


def cape(site: Site) -> Backend:
    import cape_service

    url = site.service("cape").urls["api"]
    os.environ.update(CAPE_TOKEN=cape_service.TOKEN, CAPE_BINARY=str(services.cape_program(site.directory("program"))))
    config = CapeProviderConfig(controller_url=url, pool="gpus", user="me", runtime_port_base=services.free_ports())
    return config.to_provider(), SandboxConfig(image="any", bundle=f"{site.bundle}/nix")


def daytona(site: Site) -> Backend:
    import daytona_service

    config = DaytonaProviderConfig(api_key=daytona_service.KEY, api_url=f"{site.service('daytona').urls['api']}/api")
    return config.to_provider(), SandboxConfig(image="any", bundle=str(site.tar))


def e2b(site: Site) -> Backend:
    import e2b_service

    urls = site.service("e2b").urls
    os.environ.update(E2B_API_URL=urls["api"], E2B_SANDBOX_URL=urls["gateway"])
    config = E2BProviderConfig(api_key=e2b_service.KEY, template_id="base")
    return config.to_provider(), SandboxConfig(image="any", bundle=str(site.tar))


BACKENDS: dict[str, Callable[[Site], Backend]] = {
    made.__name__: made for made in (uv, docker, podman, apptainer, cape, daytona, e2b)
}


async def one(provider: SandboxProvider, config: SandboxConfig) -> dict[str, float]:
    begin = time.perf_counter()
    sandbox = await provider.create(config)
    created = time.perf_counter()
    try:
        assert await sandbox.remote(math.factorial, 5) == 120
        first = time.perf_counter()
    finally:
        await sandbox.aclose()
        closed = time.perf_counter()
        await provider.delete(sandbox.sandbox_id)
    deleted = time.perf_counter()
    return {"first_s": first - begin, "create_s": created - begin, "delete_s": deleted - closed}


async def measure(backends: dict[str, Backend], rounds: int) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in backends}
    names = list(backends)
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            taken = await one(*backends[name])
            if number:  # the first round warms up
                found[name].append(taken)
    return found


def shown(found: dict[str, list[dict[str, float]]]) -> str:
    lines = [f"{'':11}{'create':>9}{'to first result':>17}{'range':>20}{'delete':>9}"]
    for name, rounds in found.items():
        median = {key: statistics.median(taken[key] for taken in rounds) for key in rounds[0]}
        first = [taken["first_s"] for taken in rounds]
        times = f"{median['create_s']:9.3f}{median['first_s']:17.3f}{f'{min(first):.3f} .. {max(first):.3f}':>20}"
        lines.append(f"{name:11}{times}{median['delete_s']:9.3f}  {STANDS_IN.get(name, '')}".rstrip())
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="What a sandbox of each backend costs, in seconds.")
    parser.add_argument("backends", nargs="*", default=list(BACKENDS), metavar="BACKEND", help=", ".join(BACKENDS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    if unknown := set(options.backends) - set(BACKENDS):
        parser.error(f"no such backend: {', '.join(sorted(unknown))}")
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        site = Site(stack)
        backends = {name: BACKENDS[name](site) for name in options.backends}
        load = os.getloadavg()[0]
        found: Any = asyncio.run(measure(backends, options.rounds))
        if options.format == "json":
            print(json.dumps({"load": load, "rounds": found}))
        else:
            print(f"{options.rounds} rounds, seconds, medians; load at the start {load:.1f}\n{shown(found)}")
        return 0
    return 130


if __name__ == "__main__":
    raise SystemExit(main())
