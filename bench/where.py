"""Where the time of a call goes: processor time, wake-ups, page faults, system calls and bytes moved, per call.

    python bench/where.py                  counts and times of host, server and worker in four scenarios
    python bench/where.py --strace         and their system calls, by name, with the bytes they carried
    python bench/where.py --perf           and the functions in which they spend their time
    python bench/where.py --only sequential

The scenarios: sequential (one sync call at a time), flight (128 of them at all times), async (the same of a coroutine),
echo (10 MiB of bytes, one at a time). The counts come from /proc, hence cost nothing. strace and perf get runs of their
own, since they slow down what they look at: of these, believe the numbers per call and the shares, not the times. Needs
root, or a ptrace scope and a perf_event_paranoid that permit it.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import peers
import probe
import side

WIDTH = 128
ECHO_MIB = 10
SECONDS = 1.5
TRACED_SECONDS = 1.0
SCENARIOS = ("sequential", "flight", "async", "echo")
NAMES = ("host", "server", "worker")
RETURNED = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)(?:\(| resumed>).* = (-?\d+)")
CARRIES = {"read", "readv", "recvfrom", "recvmsg", "write", "writev", "sendto", "sendmsg"}
Step = Callable[[], Awaitable[int]]


@dataclass
class Spent:
    """What a process has used since it began."""

    user_us: float = 0.0
    system_us: float = 0.0
    waits: float = 0.0  # it gave up the processor to wait: each ends by a wake-up
    preempted: float = 0.0
    faults: float = 0.0

    def minus(self, other: Spent) -> Spent:
        return Spent(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(Spent)))

    def per(self, calls: int) -> Spent:
        return Spent(*(getattr(self, f.name) / calls for f in fields(Spent)))


def spent(pids: list[int]) -> Spent:
    total = Spent()
    for pid in pids:
        stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total.faults += int(stat[7])
        # Ticks are too coarse for the sum, but the kernel scales them so that their ratio is right.
        user, system = int(stat[11]), int(stat[12])
        running = 0.0
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                running += int((task / "schedstat").read_text().split()[0]) / 1e3
                status = (task / "status").read_text()
                total.waits += int(status.rsplit("\nvoluntary_ctxt_switches:", 1)[1].split()[0])
                total.preempted += int(status.rsplit("nonvoluntary_ctxt_switches:", 1)[1].split()[0])
        share = system / (user + system) if user + system else 0.0
        total.user_us += running * (1 - share)
        total.system_us += running * share
    return total


def processes() -> dict[str, list[int]]:
    """The host is this one, the server is the runtime below it, and what that has started is the worker's."""
    tree = probe.children(os.getpid())
    servers = [pid for pid in tree if _comm(pid) == "agentix-runtime" and _comm(_parent(pid)) != "agentix-runtime"]
    workers = [pid for server in servers for pid in probe.children(server) if pid != server]
    return {"host": [os.getpid()], "server": servers, "worker": workers}


def _comm(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


async def steps(handle: side.Handle, name: str) -> AsyncIterator[int]:
    """Runs the scenario for as long as it is asked; each item is the number of calls done since the last."""
    add, blob = side.bench_target.add, os.urandom(ECHO_MIB << 20)
    if name == "sequential":
        while True:
            for _ in range(50):
                await handle.remote(add, 1, 2)
            yield 50
    elif name == "echo":
        while True:
            await handle.remote(side.bench_target.echo, blob)
            yield 1
    else:
        target = side.bench_target.add_async if name == "async" else add
        while True:
            await asyncio.gather(*(_some(handle, target) for _ in range(WIDTH)))
            yield WIDTH * 20


async def _some(handle: side.Handle, target: Callable[..., object]) -> None:
    for _ in range(20):
        await handle.remote(target, 1, 2)


async def play(running: AsyncIterator[int], seconds: float) -> tuple[int, float]:
    calls, begun = 0, time.perf_counter()
    while (now := time.perf_counter()) - begun < seconds:
        calls += await anext(running)
    return calls, now - begun


async def counts(running: AsyncIterator[int]) -> str:
    groups = processes()
    before = {name: spent(pids) for name, pids in groups.items()}
    calls, seconds = await play(running, SECONDS)
    lines = [
        f"{calls} calls in {seconds:.2f} s: {seconds / calls * 1e6:.1f} us each",
        "",
        "| per call | user | system | waits | preempted | page faults |",
        "|---|---|---|---|---|---|",
    ]
    for name, pids in groups.items():
        one = spent(pids).minus(before[name]).per(calls)
        times = f"{one.user_us:.1f} us | {one.system_us:.1f} us"
        lines.append(f"| {name} | {times} | {one.waits:.2f} | {one.preempted:.3f} | {one.faults:.2f} |")
    return "\n".join(lines)


@contextlib.contextmanager
def tracer(argv: list[str]) -> Iterator[None]:
    """A program that watches until the block ends."""
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.5)  # it says nothing when it has attached
        if process.poll() is not None:
            raise SystemExit(f"{argv[0]} ended with status {process.returncode}: may it look at other processes here?")
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def system_calls(running: AsyncIterator[int], scratch: Path) -> str:
    groups = processes()
    owner = {int(task.name): name for name, pids in groups.items() for pid in pids for task in _tasks(pid)}
    targets = [word for pids in groups.values() for pid in pids for word in ("-p", str(pid))]
    output = scratch / "strace"
    with tracer(["strace", "-f", "-s", "0", "-o", str(output), *targets]):
        calls, _ = await play(running, TRACED_SECONDS)
    found: dict[str, collections.Counter[str]] = {name: collections.Counter() for name in NAMES}
    carried: dict[str, collections.Counter[str]] = {name: collections.Counter() for name in NAMES}
    for line in output.read_text(errors="replace").splitlines():
        if (match := RETURNED.match(line)) is None:
            continue
        task, call, result = int(match[1]), match[2], int(match[3])
        name = owner.get(task, "worker")  # a thread that began meanwhile
        found[name][call] += 1
        if call in CARRIES and result > 0:
            carried[name]["in" if call.startswith("re") else "out"] += result
    lines = [f"{calls} calls", "", "| per call | system calls | bytes in, out |", "|---|---|---|"]
    for name in NAMES:
        common = [f"{call} {n / calls:.2f}" for call, n in found[name].most_common(8) if n / calls >= 0.01]
        moved = ", ".join(f"{carried[name][way] / calls:.0f}" for way in ("in", "out"))
        lines.append(f"| {name} | {', '.join(common)} | {moved} |")
    return "\n".join(lines)


def _tasks(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


async def functions(running: AsyncIterator[int], scratch: Path) -> str:
    """By a clock of the kernel's: a virtual machine may have no counters."""
    lines = ["| process | shares of its time | functions with the largest |", "|---|---|---|"]
    for name, pids in processes().items():
        data = scratch / f"perf-{name}"
        only = ",".join(map(str, pids))
        with tracer(["perf", "record", "-q", "-e", "cpu-clock", "-F", "4000", "-p", only, "-o", str(data)]):
            await play(running, TRACED_SECONDS)
        parts = [f"{where} {share}" for share, where in shares(data, "dso", 2.0)[:5]]
        # Programs without symbols have addresses only, which say nothing.
        named = [(share, what.rsplit(None, 1)[-1]) for share, what in shares(data, "symbol", 2.0)]
        tops = [f"{what} {share}" for share, what in named if not what.startswith("0x")]
        lines.append(f"| {name} | {', '.join(parts)} | {', '.join(tops[:6])} |")
    return "\n".join(lines)


def shares(data: Path, by: str, least: float) -> list[tuple[str, str]]:
    report = ["perf", "report", "-i", str(data), "--stdio", "--sort", by, "--percent-limit", str(least)]
    done = subprocess.run(report, capture_output=True, text=True, timeout=120)
    lines = [line.split("  -  ")[0].split() for line in done.stdout.splitlines()]
    found = [(line[0], " ".join(line[1:])) for line in lines if line and line[0].endswith("%")]
    return [(share, what.replace("[kernel.kallsyms]", "kernel")) for share, what in found]


async def profile(args: argparse.Namespace) -> None:
    impl = side.Ours(str(peers.environment("ours")))
    with tempfile.TemporaryDirectory(prefix="agx-where-") as scratch:
        for name in args.only or SCENARIOS:
            async with impl.sandbox() as handle:
                running = steps(handle, name)
                await play(running, 0.3)
                print(f"\n## {name}\n\n{await counts(running)}")
                if args.strace:
                    print(f"\n{await system_calls(running, Path(scratch))}")
                if args.perf:
                    print(f"\n{await functions(running, Path(scratch))}")
                await running.aclose()
    await impl.close()


def main() -> int:
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strace", action="store_true", help="system calls by name")
    parser.add_argument("--perf", action="store_true", help="functions")
    parser.add_argument("--only", action="append", choices=SCENARIOS)
    args = parser.parse_args()
    for tool in ("strace", "perf"):
        if getattr(args, tool) and shutil.which(tool) is None:
            parser.error(f"there is no {tool} on this machine")
    logging.disable(logging.CRITICAL)
    asyncio.run(profile(args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
