"""How fast files go into a container and out of it, against `docker cp`, in one run.

    python bench/files.py [--rounds 5] [--mib 1024] [--files 10000]

The two are measured in turn, so that what else the machine does strikes both; ratios are taken inside a round. Beside
time: how much host, server and worker grow, and how long each was running per GiB of the large file, which other work
of the machine hardly moves. Needs what the end-to-end tests need.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "e2e"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import box_bundle
import engines
from agentix.files import download_path, upload, upload_path
from agentix.provider.docker import DockerProvider, DockerProviderConfig
from processes import children, peak, rss

from agentix import Sandbox, SandboxConfig

MIB = 1 << 20


def make(root: Path, mib: int, files: int) -> None:
    block = os.urandom(MIB)
    with (root / "large").open("wb") as file:
        for _ in range(mib):
            file.write(block)
    for n in range(files):
        path = root / "many" / f"d{n // 100}" / f"f{n}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(block[: 1024 + n % 1024])


class Ours:
    def __init__(self, sandbox: Sandbox, root: Path) -> None:
        self.sandbox = sandbox
        self.root = root

    async def up(self, name: str, to: str) -> None:
        await upload_path(self.sandbox, self.root / name, to)

    async def down(self, name: str, to: str) -> None:
        await download_path(self.sandbox, name, self.root / to)


class Docker:
    """The engine's own command."""

    def __init__(self, program: str, container: str, root: Path) -> None:
        self.program = program
        self.container = container
        self.root = root

    async def up(self, name: str, to: str) -> None:
        await self.cp(str(self.root / name), f"{self.container}:/workspace/{to}")

    async def down(self, name: str, to: str) -> None:
        await self.cp(f"{self.container}:/workspace/{name}", str(self.root / to))

    async def cp(self, source: str, target: str) -> None:
        process = await asyncio.create_subprocess_exec(self.program, "cp", "--quiet", source, target)
        if await process.wait():
            raise RuntimeError(f"docker cp {source} {target} failed")


async def timed(work: Awaitable[None]) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


class Running:
    """How long processes have been running, in seconds of a processor."""

    def __init__(self, pids: dict[str, int]) -> None:
        self.pids = pids
        self.taken: dict[str, list[dict[str, float]]] = {}

    def now(self) -> dict[str, float]:
        fields = {
            name: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for name, pid in self.pids.items()
        }
        return {name: (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK") for name, parts in fields.items()}

    def note(self, what: str, before: dict[str, float]) -> None:
        self.taken.setdefault(what, []).append({name: now - before[name] for name, now in self.now().items()})


async def one_round(
    who: Ours | Docker, tag: str, root: Path, clean: Awaitable[object], running: Running
) -> dict[str, float]:
    taken = {}
    for kind in ("large", "many"):
        for way, work in (
            ("up", lambda kind=kind: who.up(kind, f"{kind}-{tag}")),
            ("down", lambda kind=kind: who.down(f"{kind}-{tag}", f"back-{kind}-{tag}")),
        ):
            before = running.now()
            taken[f"{kind} {way}"] = await timed(work())
            if isinstance(who, Ours):
                running.note(f"{kind} {way}", before)
    same = ["diff", "-rq"]
    for kind in ("large", "many"):
        await asyncio.to_thread(subprocess.run, [*same, root / kind, root / f"back-{kind}-{tag}"], check=True)
    (root / f"back-large-{tag}").unlink()
    shutil.rmtree(root / f"back-many-{tag}")
    await clean
    return taken


def processes_of(engine: engines.Engine, sandbox_id: str) -> dict[str, int]:
    server = int(engine("inspect", "--format", "{{.State.Pid}}", sandbox_id))
    while "agentix-runtime" not in Path(f"/proc/{server}/comm").read_text() and children(server):
        server = children(server)[0]
    return {"host": os.getpid(), "server": server, "worker": children(server)[0]}


def show(rows: dict[str, list[tuple[float, float]]], sizes: dict[str, float], grown: dict[str, float]) -> None:
    print(f"{'':12} {'ours':>12} {'docker cp':>12} {'ours/docker':>12}  (time; below 1 is faster)")
    for name, pairs in rows.items():
        ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        kind = name.split()[0]
        if kind == "large":
            cells = [f"{sizes[kind] / seconds:.0f} MB/s" for seconds in (ours, theirs)]
        else:
            cells = [f"{seconds:.2f} s" for seconds in (ours, theirs)]
        print(f"{name:12} {cells[0]:>12} {cells[1]:>12} {ratio:>12.2f}")
    print("grown above base, at most: " + ", ".join(f"{name} {mib:.1f} MiB" for name, mib in grown.items()))


async def measure(engine: engines.Engine, bundle: str, root: Path, options: argparse.Namespace) -> None:
    provider = DockerProvider(DockerProviderConfig(container_engine=engine.program))
    config = SandboxConfig(image=engine.image("bookworm"), bundle=bundle)
    rows: dict[str, list[tuple[float, float]]] = {}
    async with provider.session(config) as sandbox:
        await sandbox.remote(upload, "first", b"")
        pids = processes_of(engine, sandbox.sandbox_id)
        Path("/proc/self/clear_refs").write_text("5")  # noqa: ASYNC240
        before = {name: rss(pid) for name, pid in pids.items()}
        grown = dict.fromkeys(pids, 0.0)
        running = Running(pids)
        both = [Ours(sandbox, root), Docker(engine.program, sandbox.sandbox_id, root)]
        for n in range(options.rounds + 1):
            results = {}
            for who in both if n % 2 else reversed(both):
                tag = f"{type(who).__name__}-{n}"
                clean = asyncio.to_thread(
                    engine,
                    "exec",
                    sandbox.sandbox_id,
                    "/bin/rm",
                    "-rf",
                    *(f"/workspace/{k}-{tag}" for k in ("large", "many")),
                )
                results[type(who)] = await one_round(who, tag, root, clean, running)
            if n:  # the first one warms up
                for name in results[Ours]:
                    rows.setdefault(name, []).append((results[Ours][name], results[Docker][name]))
        for name, pid in pids.items():
            grown[name] = (peak(pid) - before[name]) / MIB
    print(f"{options.rounds} rounds: {options.mib} MiB in one file, {options.files} files of 1 to 2 KiB")
    show(rows, {"large": options.mib * MIB / 1e6}, grown)
    for what in ("large up", "large down"):
        spent = {
            name: statistics.median(one[name] for one in running.taken[what]) * 1024 / options.mib for name in pids
        }
        print(f"{what}, seconds running per GiB: " + ", ".join(f"{name} {spent[name]:.2f}" for name in spent))
    print(f"load at the end: {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--files", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agx-files-") as root:
        make(Path(root), options.mib, options.files)
        bundle = box_bundle.build(Path(root)).directory
        with engines.docker() as engine:
            asyncio.run(measure(engine, bundle, Path(root), options))


if __name__ == "__main__":
    main()
