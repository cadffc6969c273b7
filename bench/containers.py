"""How long a container takes to give its first result, against the engine's own `run --rm IMAGE true`, in one run.

    python bench/containers.py [--rounds 10] [docker podman]

The two are measured in turn, so that what else the machine does strikes both. Needs what the end-to-end tests need.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "e2e"))

import box_bundle
import engines

sys.path.insert(0, str(box_bundle.BOX / "src"))

import box_targets
from agentix.provider.docker import DockerProvider, DockerProviderConfig

from agentix import SandboxConfig


def own_time(engine: engines.Engine, image: str) -> float:
    start = time.perf_counter()
    subprocess.run([engine.program, "run", "--rm", image, "/bin/busybox", "true"], check=True, capture_output=True)
    return time.perf_counter() - start


def resident(engine: engines.Engine, sandbox_id: str) -> dict[str, int]:
    """Proportional set sizes in KiB of the processes in a sandbox, by name, as this machine's root sees them."""
    todo = [int(engine("inspect", "--format", "{{.State.Pid}}", sandbox_id))]
    found: dict[str, int] = {}
    while todo:
        process = Path("/proc", str(todo.pop()))
        todo += map(int, (process / "task" / process.name / "children").read_text().split())
        rollup = (process / "smaps_rollup").read_text()
        pss = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        name = (process / "comm").read_text().strip()
        found[name] = found.get(name, 0) + pss
    return found


async def our_time(
    engine: engines.Engine, provider: DockerProvider, config: SandboxConfig
) -> tuple[float, dict[str, int]]:
    start = time.perf_counter()
    async with provider.session(config) as sandbox:
        await sandbox.remote(box_targets.run, seed=1)
        taken = time.perf_counter() - start
        return taken, await asyncio.to_thread(resident, engine, sandbox.sandbox_id)


def shown(name: str, values: list[float]) -> str:
    ordered = sorted(value * 1000 for value in values)
    return f"{name}: median {statistics.median(ordered):.0f} ms, best {ordered[0]:.0f} ms, worst {ordered[-1]:.0f} ms"


async def measure(engine: engines.Engine, bundle: str, rounds: int) -> None:
    image = engine.image("busybox")
    provider = DockerProvider(DockerProviderConfig(container_engine=engine.program))
    config = SandboxConfig(image=image, bundle=bundle)
    own, ours, memory = [own_time(engine, image)], [(await our_time(engine, provider, config))[0]], {}
    own.clear()  # the first round warms up
    ours.clear()
    for _ in range(rounds):
        own.append(own_time(engine, image))
        taken, memory = await our_time(engine, provider, config)
        ours.append(taken)
    difference = [(b - a) * 1000 for a, b in zip(own, ours, strict=True)]
    print(f"{engine.kind}, {rounds} rounds")
    print("  " + shown("run --rm IMAGE true", own))
    print("  " + shown("session to first result", ours))
    print(f"  difference: median {statistics.median(difference):.0f} ms, best {min(difference):.0f} ms")
    print("  idle memory (PSS): " + ", ".join(f"{name} {kib / 1024:.1f} MiB" for name, kib in sorted(memory.items())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engines", nargs="*", default=["docker", "podman"])
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        bundle = box_bundle.build(Path(root)).directory
        for name in options.engines:
            with getattr(engines, name)() as engine:
                asyncio.run(measure(engine, bundle, options.rounds))


if __name__ == "__main__":
    main()
