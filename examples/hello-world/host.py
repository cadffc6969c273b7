"""The host side of the demo: calls functions of this project inside a sandbox and prints what comes back.

Run with `make demo` from the root of the repository, or where agentix and the backend are installed:

    python host.py                                       the `uv` backend: a process of this machine
    python host.py docker --image debian:bookworm-slim   a container of docker, or of podman; the image is any Linux one
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "src"))  # the host needs the names; the sandbox gets an installed copy

import numpy as np
from hello_world import tasks

from agentix import Failed, Ok, RemoteCallError, Sandbox, SandboxConfig, SandboxProvider, WorkerExited, providers

CALLS = 100
PROJECT = str(Path(__file__).parent)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Calls functions of this project inside a sandbox.")
    parser.add_argument("backend", nargs="?", default="uv", choices=["uv", "docker", "podman"])
    parser.add_argument("--engine", help="the container engine's client, if not the one of the backend's name")
    parser.add_argument("--image", default="debian:bookworm-slim", help="the image of a container (%(default)s)")
    parser.add_argument("--bundle", help="this project's bundle for a container; without it one is built")
    return parser.parse_args()


@asynccontextmanager
async def backend(options: argparse.Namespace) -> AsyncIterator[tuple[SandboxProvider, SandboxConfig]]:
    """The only part that knows where sandboxes run."""
    if options.backend == "uv":
        from agentix.provider.uv import UvProvider, UvProviderConfig

        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        async with UvProvider(UvProviderConfig(project=PROJECT, python=python)) as provider:
            # This backend runs the project itself, whatever image and bundle say.
            yield provider, SandboxConfig(image="local", bundle="local")
        return
    from agentix.provider.docker import DockerProviderConfig

    with tempfile.TemporaryDirectory() as scratch:
        bundle = options.bundle
        if bundle is None:
            bundle = f"{scratch}/hello-world.bundle.tar"
            program = str(Path(sys.executable).with_name("agentix"))
            await asyncio.to_thread(subprocess.run, [program, "build", PROJECT, "--output", bundle], check=True)
        config = DockerProviderConfig(container_engine=options.engine or options.backend)
        yield providers().get(options.backend)(config), SandboxConfig(image=options.image, bundle=bundle)


class Stopwatch:
    """Prints a line with the time since the last one."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def say(self, what: str) -> None:
        now = time.perf_counter()
        print(f"{(now - self._last) * 1000:9.2f} ms  {what}", flush=True)
        self._last = time.perf_counter()


async def values(sandbox: Sandbox, watch: Stopwatch) -> None:
    watch.say(await sandbox.remote(tasks.greet, "newcomer"))
    watch.say(f"the same again: {await sandbox.remote(tasks.greet, 'newcomer')}")
    line = await sandbox.remote(tasks.fit_line, [(0, 1.0), (1, 3.1), (2, 4.9), (3, 7.0)])
    watch.say(f"numpy in the sandbox fits a line: {line}")
    means = await sandbox.remote(tasks.running_mean, [1.0, 2.0, 3.0, 4.0, 5.0], window=2)
    watch.say(f"a numpy array comes back as one: {means}, as expected: {np.allclose(means, [1.5, 2.5, 3.5, 4.5])}")


async def failures(sandbox: Sandbox, watch: Stopwatch) -> None:
    try:
        await sandbox.remote(tasks.parse_order, "apples")
    except RemoteCallError as error:
        watch.say(f"an exception arrives with its traceback: {error.error.type}: {error.error.message}")
        print("\n".join(f"              | {line}" for line in str(error).splitlines()))
    for order in ("apples:3", "apples:many"):
        match await sandbox.try_remote(tasks.parse_order, order):
            case Ok(value):
                watch.say(f"try_remote({order!r}): Ok({value})")
            case Failed(error):
                watch.say(f"try_remote({order!r}): Failed({type(error).__name__})")


async def many(sandbox: Sandbox, watch: Stopwatch) -> None:
    results = await asyncio.gather(*(sandbox.remote(tasks.nap, 0.2, i) for i in range(CALLS)))
    watch.say(f"{CALLS} async calls of 200 ms at once, all right: {results == list(range(CALLS))}")
    results = await asyncio.gather(*(sandbox.remote(tasks.work, 0.2, i) for i in range(CALLS)))
    watch.say(f"{CALLS} sync calls of 200 ms at once, all right: {results == list(range(CALLS))}")
    start = time.perf_counter()
    for _ in range(1000):
        await sandbox.remote(tasks.parse_order, "apples:3")
    watch.say(f"1000 calls, one after the other: {(time.perf_counter() - start) * 1000:.0f} us each")


async def crash(sandbox: Sandbox, watch: Stopwatch) -> None:
    try:
        await sandbox.remote(tasks.crash)
    except WorkerExited as error:
        watch.say(f"the worker was killed: returncode {error.returncode}")
        print("\n".join(f"              | {line}" for line in str(error).splitlines()))
    watch.say(f"the next call finds a new worker: {await sandbox.remote(tasks.greet, 'survivor')}")


async def main() -> None:
    watch = Stopwatch()
    async with backend(arguments()) as (provider, config):
        async with provider.session(config) as first:
            watch.say("project and numpy where the sandbox needs them, first sandbox up")
            health = await first.health()
            watch.say(f"runtime {health.version} says {health.status}")
        async with provider.session(config) as sandbox:
            watch.say("first sandbox deleted, a second one up")
            await values(sandbox, watch)
            await failures(sandbox, watch)
            await many(sandbox, watch)
            await crash(sandbox, watch)
    watch.say("sandbox removed")


if __name__ == "__main__":
    asyncio.run(main())
