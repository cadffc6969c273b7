"""How much goes beside calls: events of plugins, items of streams, records and captured output, and a flood of it.

    python bench/channels.py                  everything, ours and the reference (its environment is made if need be)
    python bench/channels.py --only ours      without the reference
    python bench/channels.py --quick          a hundredth of the flood, a tenth of the rest
    python bench/channels.py --no-flood       the rates alone

Each participant runs in a process of its own, under the interpreter of its environment, and by the documented API only.
A row that cannot be had is MISSING, with the reason below the table.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import peers
import probe

sys.path.insert(0, str(probe.TARGETS))

GIVE_UP_SECONDS = 60.0
FIRST_SECONDS = 10.0
FLOOD_SECONDS = 1500.0
LINE = 100

ROWS = [
    ("items_s", "stream items, sync generator", "/s", ">= 20,000"),
    ("items_async_s", "stream items, async generator", "/s", ">= 20,000"),
    ("up_s", "events of a plugin to the host", "/s", ""),
    ("down_s", "events of a plugin to the sandbox", "/s", ""),
    ("file_lines_s", "captured lines to the file", "/s", ">= 100,000"),
    ("host_lines_s", "captured lines to the host's loggers", "/s", ""),
    ("host_records_s", "records to the host's loggers", "/s", ""),
    ("flood_lines", "flood: lines of 100 bytes", "", ""),
    ("flood_lines_s", "flood: lines taken", "/s", ""),
    ("flood_told_share", "flood: lines at the host or said to be lost", "%", "100"),
    ("flood_server_MiB", "flood: server, peak", "MiB", "<= 64"),
    ("flood_worker_MiB", "flood: worker, peak above before", "MiB", "<= 64"),
    ("quiet_call_p99_ms", "before the flood: a small call, p99", "ms", ""),
    ("flood_call_p50_ms", "flood: a small call meanwhile, p50", "ms", ""),
    ("flood_call_p99_ms", "flood: a small call meanwhile, p99", "ms", "<= 100"),
    ("flood_call_max_ms", "flood: a small call meanwhile, worst", "ms", ""),
]


class Ears(logging.Handler):
    """Counts what comes from the sandbox."""

    def __init__(self) -> None:
        super().__init__(0)
        self.count = 0
        self.lost = 0
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if found := re.search(r"buffer full\D*(\d+)", text):
            self.lost += int(found[1])
            return
        self.count += 1
        if text.startswith("last"):
            self.last = text


class Bench:
    def __init__(self, which: str, quick: bool, flood: bool) -> None:
        self.report = probe.Report("agentix" if which == "ours" else "agentixx")
        self.which = which
        self.scale = 10 if quick else 1
        self.events = (100_000 if which == "ours" else 10_000) // self.scale  # more would take it minutes
        self.flood_lines = (10**5 if quick else 10**7) if flood else 0
        self.ears = Ears()
        self.log_dir = ""

    # ---- servers ----

    @contextlib.asynccontextmanager
    async def sandbox(self, *namespaces: Any) -> AsyncIterator[tuple[Any, int]]:
        """A client, and the process id of its server."""
        from agentix import RuntimeClient

        with tempfile.TemporaryDirectory(prefix="agx-bench-") as scratch:
            self.log_dir = f"{scratch}/logs"
            process, url = self._start(scratch)
            try:
                client = RuntimeClient(url)
                for ns in namespaces:
                    client.register_namespace(ns)
                async with client:
                    yield client, process.pid
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait()

    def _start(self, scratch: str) -> tuple[subprocess.Popen[bytes], str]:
        import side

        env = side.server_env(AGENTIX_LOG_DIR=self.log_dir)
        if self.which == "reference":
            before, side.server_env = side.server_env, lambda: env  # its log file is what is measured here
            try:
                process, port = side.Reference()._ready()
            finally:
                side.server_env = before
            return process, f"http://127.0.0.1:{port}"
        path, (reader, writer) = f"{scratch}/server.sock", os.pipe()
        env |= {"AGENTIX_READY_FD": str(writer), "AGENTIX_BIND_SOCKET": path}
        here = str(Path(sys.executable).parent / "agentix-runtime")
        python = peers.python_of(peers.environment("ours"))
        process = subprocess.Popen([here, "--python", python], env=env, pass_fds=[writer], stderr=subprocess.DEVNULL)
        os.close(writer)
        with os.fdopen(reader, "rb") as end:
            if not end.readline().startswith(b"ready"):
                raise ConnectionError("the server did not start")
        return process, "http+unix://" + path.replace("/", "%2F")

    # ---- rates ----

    async def rates(self) -> None:
        await self._step(self._items, "items_s", "items_async_s")
        await self._step(self._events, "up_s", "down_s")
        await self._step(self._file, "file_lines_s")
        await self._step(self._host_lines, "host_lines_s")
        await self._step(self._host_records, "host_records_s")

    async def _step(self, step: Callable[[], Awaitable[None]], *keys: str) -> None:
        with self.report.attempt(*keys):
            async with asyncio.timeout(2 * GIVE_UP_SECONDS):
                await step()

    async def _items(self) -> None:
        import channel_target as target

        async with self.sandbox() as (client, _):
            if not hasattr(few := client.remote(target.items, 1), "__aiter__"):
                few.close()
                raise NotImplementedError("it has no streams: what `remote` returns can only be awaited")
            for key, function in (("items_s", target.items), ("items_async_s", target.items_async)):
                n = 200_000 // self.scale
                await _count(client.remote(function, 100))
                begun = time.perf_counter()
                assert await _count(client.remote(function, n)) == n
                self.report.rows[key] = n / (time.perf_counter() - begun)

    async def _events(self) -> None:
        import channel_target as target

        from agentix import AsyncClientNamespace

        class Host(AsyncClientNamespace):
            heard = 0

            def on_up(self, data: object) -> None:
                self.heard += 1

        host, n = Host("/bench-channels"), self.events
        async with self.sandbox(host) as (client, _):
            await client.remote(target.emit, 10)
            await _until(lambda: host.heard >= 10)
            begun = time.perf_counter()
            await client.remote(target.emit, n)
            await _until(lambda: host.heard >= n + 10)
            self.report.rows["up_s"] = n / (time.perf_counter() - begun)
            begun = time.perf_counter()
            for i in range(n):
                await host.emit("down", i)
            while await client.remote(target.heard) < n:
                if time.perf_counter() - begun > GIVE_UP_SECONDS:
                    raise TimeoutError(f"{await client.remote(target.heard)} of {n} events came")
            self.report.rows["down_s"] = n / (time.perf_counter() - begun)

    async def _file(self) -> None:
        import channel_target as target

        n = 400_000 // self.scale
        async with self.sandbox() as (client, _):
            await client.remote(target.lines, 10, LINE, "first")
            await _until(lambda: self._ends_with(b"first"), FIRST_SECONDS, "what is printed comes to no log file")
            begun = time.perf_counter()
            await client.remote(target.lines, n, LINE, "last of the file")
            await _until(lambda: self._ends_with(b"last of the file"))
            self.report.rows["file_lines_s"] = n / (time.perf_counter() - begun)

    def _ends_with(self, text: bytes) -> bool:
        for path in Path(self.log_dir).glob("*.log"):
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 4096))
                if text in file.read():
                    return True
        return False

    async def _host_lines(self) -> None:
        """What is lost on the way does not count."""
        import channel_target as target

        n = 100_000 // self.scale
        async with self.sandbox() as (client, _), self.listening():
            await self._hears_lines(client)
            before, begun = self.ears.count, time.perf_counter()
            await client.remote(target.lines, n, LINE, "last line")
            await _until(lambda: self.ears.last == "last line")
            self.report.rows["host_lines_s"] = (self.ears.count - before) / (time.perf_counter() - begun)

    async def _hears_lines(self, client: Any) -> None:
        import channel_target as target

        await client.remote(target.lines, 1, LINE, "last of the first")
        await _until(lambda: self.ears.last == "last of the first", FIRST_SECONDS, "what is printed comes to no logger")

    async def _host_records(self) -> None:
        import channel_target as target

        n = self.events
        async with self.sandbox() as (client, _), self.listening():
            before, begun = self.ears.count, time.perf_counter()
            await client.remote(target.records, n, "last record")
            await _until(lambda: self.ears.last == "last record")
            self.report.rows["host_records_s"] = (self.ears.count - before) / (time.perf_counter() - begun)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        # The reference's records come under the sandbox's own names.
        logger = logging.getLogger("agentix.sandbox" if self.which == "ours" else "bench.channels")
        logger.addHandler(self.ears)
        logger.setLevel(1)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(self.ears)
            logger.setLevel(logging.NOTSET)

    # ---- the flood ----

    async def flood(self) -> None:
        import bench_target
        import channel_target as target

        rows, taken, n = self.report.rows, [], self.flood_lines
        self.ears = Ears()
        async with self.listening(), self.sandbox() as (client, server):

            async def small() -> None:
                start = time.perf_counter()
                await client.remote(bench_target.add, 1, 2)
                taken.append(time.perf_counter() - start)
                await asyncio.sleep(0.02)

            await self._hears_lines(client)
            self.ears.count = 0
            worker = await client.remote(target.pid)
            before = probe.resident_mib(worker)
            for _ in range(200 // self.scale):
                await small()
            rows["quiet_call_p99_ms"] = probe.percentile(taken, 99) * 1e3
            taken.clear()
            begun = time.perf_counter()
            flood = asyncio.ensure_future(client.remote(target.lines, n, LINE, "last of the flood"))
            while not flood.done():
                await small()
            await flood
            rows["flood_lines"] = n
            rows["flood_lines_s"] = n / (time.perf_counter() - begun)
            await _until(lambda: self.ears.last == "last of the flood")
            rows["flood_call_p50_ms"] = probe.percentile(taken, 50) * 1e3
            rows["flood_call_p99_ms"] = probe.percentile(taken, 99) * 1e3
            rows["flood_call_max_ms"] = max(taken) * 1e3
            rows["flood_server_MiB"] = probe._field_kib(f"/proc/{server}/status", "VmHWM:") / 1024
            rows["flood_worker_MiB"] = probe._field_kib(f"/proc/{worker}/status", "VmHWM:") / 1024 - before
        rows["flood_told_share"] = (self.ears.count + self.ears.lost) / (n + 1) * 100

    async def all(self) -> None:
        await self.rates()
        if self.flood_lines:
            with self.report.attempt(*(key for key, *_ in ROWS if key.startswith(("flood", "quiet")))):
                async with asyncio.timeout(FLOOD_SECONDS):
                    await self.flood()


async def _count(items: Any) -> int:
    n = 0
    async for _ in items:
        n += 1
    return n


async def _until(true: Callable[[], bool], seconds: float = GIVE_UP_SECONDS, what: str = "not everything came") -> None:
    end = time.perf_counter() + seconds
    while not true():
        if time.perf_counter() > end:
            raise TimeoutError(f"{what} within {seconds:.0f} s")
        await asyncio.sleep(0.002)


def run(which: str, args: argparse.Namespace) -> dict[str, Any]:
    python = sys.executable
    try:
        if which == "reference":
            python = peers.python_of(peers.environment(which))
        more = [flag for flag, set_ in (("--quick", args.quick), ("--no-flood", args.no_flood)) if set_]
        done = subprocess.run(
            [python, __file__, "--side", which, *more],
            stdout=subprocess.PIPE,
            stderr=None if args.verbose else subprocess.DEVNULL,
            timeout=FLOOD_SECONDS + 600,
        )
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return report
    except (peers.Unavailable, OSError, ValueError, subprocess.TimeoutExpired) as error:
        return {"rows": {}, "failed": {key: str(error) for key, *_ in ROWS}}


def show(reports: dict[str, dict[str, Any]]) -> None:
    print(f"| {'row':45} | {'goal':>10} |" + "".join(f" {name:>12} |" for name in reports))
    print(f"|{'-' * 47}|{'-' * 11}:|" + f"{'-' * 13}:|" * len(reports))
    for key, text, unit, goal in ROWS:
        cells = [
            f"{r['rows'][key]:,.{0 if r['rows'][key] >= 100 else 1}f} {unit}" if key in r["rows"] else "MISSING"
            for r in reports.values()
        ]
        print(f"| {text:45} | {goal:>10} |" + "".join(f" {cell.strip():>12} |" for cell in cells))
    for name, report in reports.items():
        for why in sorted(set(report["failed"].values())):
            keys = ", ".join(key for key, reason in report["failed"].items() if reason == why)
            print(f"{name}: {keys}: {why}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cpus at the end")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=("ours", "reference"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-flood", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="show what the participants write on stderr")
    parser.add_argument("--side", choices=("ours", "reference"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        bench = Bench(args.side, args.quick, not args.no_flood)
        asyncio.run(bench.all())
        bench.report.print()
        return
    names = [args.only] if args.only else ["ours", "reference"]
    show({name: run(name, args) for name in names})


if __name__ == "__main__":
    main()
