"""What a command costs: `bash.run("true")` beside starting the same shell here and making a plain call.

    python bench/processes.py                 nine rounds, one table
    python bench/processes.py --rounds 3      a look
    python bench/processes.py --format json   the same as data

In each round everything is measured once, in turns; the ratio is taken inside the round and the table has the median
over the rounds, with the range. `floor` is fork + exec + wait of `bash -c true` with both outputs in pipes, in this
process, and then a plain call into the sandbox: no way to run a command there does with less.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from agentix import RuntimeClient, bash
from agentix.testing import serve

GOAL = 3.0
MEGABYTES = 64


def shell_here(shell: str, command: str) -> bytes:
    """Fork, exec, read both pipes to their ends, wait."""
    out, out_w = os.pipe()
    err, err_w = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, out_w, 1), (os.POSIX_SPAWN_DUP2, err_w, 2)]
    pid = os.posix_spawn(shell, [shell, "-c", command], os.environ, file_actions=actions)
    os.close(out_w)
    os.close(err_w)
    parts: list[bytes] = []
    while data := os.read(out, 1 << 18):
        parts.append(data)
    while os.read(err, 1 << 18):
        pass
    os.close(out)
    os.close(err)
    os.waitpid(pid, 0)
    return b"".join(parts)


async def median_ms(work: Callable[[], Awaitable[Any]], n: int) -> float:
    times: list[float] = []
    for _ in range(n):
        begin = time.perf_counter()
        await work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e3


async def measure(rounds: int, n: int) -> dict[str, list[float]]:
    shell = shutil.which("bash") or "/bin/bash"
    flood = f"head -c {MEGABYTES << 20} /dev/zero"
    rows: dict[str, list[float]] = {"floor_ms": [], "run_ms": [], "run_ratio": [], "here_MB_s": [], "stream_MB_s": []}

    async def here() -> None:
        shell_here(shell, "true")

    async with serve() as url, RuntimeClient(url) as client:

        async def plain() -> None:
            await client.remote(len, b"")

        async def command() -> None:
            assert (await client.remote(bash.run, "true", executable=shell)).exit_code == 0

        async def stream() -> float:
            begin, size = time.perf_counter(), 0
            async for event in client.remote(bash.run_stream, flood):
                size += len(event.data) if isinstance(event, bash.BashStdout) else 0
            assert size == MEGABYTES << 20
            return MEGABYTES / (time.perf_counter() - begin)

        for _ in range(20):
            await command()
        for _ in range(rounds):
            floor = await median_ms(here, n) + await median_ms(plain, n)
            run = await median_ms(command, n)
            rows["floor_ms"].append(floor)
            rows["run_ms"].append(run)
            rows["run_ratio"].append(run / floor)
            begin = time.perf_counter()
            assert len(shell_here(shell, flood)) == MEGABYTES << 20
            rows["here_MB_s"].append(MEGABYTES / (time.perf_counter() - begin))
            rows["stream_MB_s"].append(await stream())
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description="What a command in a sandbox costs.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=50, help="of each in a round")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        rows = asyncio.run(measure(options.rounds, options.calls))
        medians = {name: statistics.median(values) for name, values in rows.items()}
        if options.format == "json":
            print(json.dumps({"rounds": rows, "medians": medians}))
        else:
            names = {
                "floor_ms": "fork + exec + plain call, ms",
                "run_ms": 'bash.run("true"), ms',
                "run_ratio": f"ratio (goal <= {GOAL:g})",
                "here_MB_s": f"{MEGABYTES} MiB of output through a pipe here, MiB/s",
                "stream_MB_s": "the same by run_stream, MiB/s",
            }
            for name, label in names.items():
                values = rows[name]
                print(f"{label:52} {medians[name]:9.2f}   {min(values):.2f} .. {max(values):.2f}")
        return int(medians["run_ratio"] > GOAL)
    return 130


if __name__ == "__main__":
    raise SystemExit(main())
