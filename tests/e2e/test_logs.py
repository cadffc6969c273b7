"""Records and output of a real worker, at the host's loggers and in the durable file."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import call_targets as t
import log_targets as target
import pytest
from test_roads import Shim, until

import agentix
from agentix import RuntimeClient, WorkerExited
from agentix.testing import serve


class Keeper(logging.Handler):
    def __init__(self) -> None:
        super().__init__(0)
        self.records: list[logging.LogRecord] = []
        self.pause = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        time.sleep(self.pause)

    def settle(self) -> None:
        """Wait until no record comes any more: they are handled beside the loop, and the last of many come late."""
        seen = -1
        while seen != len(self.records):
            seen = len(self.records)
            time.sleep(0.3)

    def under(self, name: str) -> list[str]:
        return [record.getMessage() for record in self.records if record.name == name]

    def out(self) -> list[str]:
        return self.under("agentix.sandbox.stdout")


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    handler = Keeper()
    logger = logging.getLogger("agentix.sandbox")
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(1)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.fixture
def log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "deep" / "logs"
    monkeypatch.setenv("AGENTIX_LOG_DIR", str(path))
    return path


def peak_kb(pid: int) -> int:
    return int(re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[0])


def files(log_dir: Path) -> list[str]:
    return os.listdir(log_dir) if log_dir.exists() else []


def written(log_dir: Path) -> str:
    return "".join(path.read_text() for path in sorted(log_dir.glob("sandbox-*.log")))


@contextlib.asynccontextmanager
async def runtime(python: str, **options: Any) -> AsyncGenerator[RuntimeClient]:
    async with serve(python=python) as url, RuntimeClient(url, **options) as client:
        yield client


def test_records(run: Any, worker_python: str, keeper: Keeper, log_dir: Path) -> None:
    async def main() -> dict[str, Any]:
        async with runtime(worker_python) as client:
            facts: dict[str, Any] = await client.remote(target.facts)
            await client.remote(target.log, 50)
            return facts

    facts = run(main())
    records = [r for r in keeper.records if r.name == "agentix.sandbox.log_targets.mine"]
    assert [r.getMessage() for r in records] == [f"record {i}" for i in range(50)]
    record: Any = records[7]
    assert (record.levelno, record.levelname, record.funcName, record.module) == (20, "INFO", "log", "log_targets")
    assert record.index == 7
    assert record.nested["a"][0] == 1
    assert record.nested["a"][1].startswith("<object object")
    assert record.agentix_context == facts["context"]
    assert re.fullmatch(r"sandbox-\w+-worker-" + facts["id"], record.agentix_context)
    assert abs(record.created - time.time()) < 60
    assert facts["root"] == logging.INFO
    assert (log_dir / f"sandbox-{facts['id']}.log").stat().st_mode & 0o777 == 0o600
    assert log_dir.stat().st_mode & 0o777 == 0o700
    assert "INFO log_targets.mine record 49\n" in written(log_dir)


def test_odd_records(run: Any, worker_python: str, keeper: Keeper, log_dir: Path) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            await client.remote(target.log_oddly)

    run(main())
    failed, extra, noticed, bad, beyond = keeper.records
    assert failed.getMessage().startswith("x <unlocked _thread.lock")
    assert failed.exc_text is not None
    assert failed.exc_text.endswith("LookupError: inner")
    assert "Traceback" in failed.exc_text
    assert extra.__dict__["obj"].startswith("<unlocked _thread.lock")
    assert extra.__dict__["plain"] == 1
    assert (noticed.levelno, noticed.levelname) == (25, "NOTICE")
    assert "%d" in bad.getMessage()
    assert "not a number" in bad.getMessage()
    assert beyond.levelno == 50


def test_a_file_begins_with_its_first_line(run: Any, worker_python: str, log_dir: Path) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            await client.remote(t.add, 1, 2)
            assert files(log_dir) == []
            await client.remote(target.print_text, "first")
            await until(lambda: "stdout first\n" in written(log_dir))

    run(main())


def test_a_logger_of_the_hosts(run: Any, worker_python: str, keeper: Keeper, log_dir: Path) -> None:
    mine = logging.getLogger("test_logs.known")
    mine.addHandler(keeper)

    async def main() -> None:
        async with runtime(worker_python) as client:
            await client.remote(target.log_under, "test_logs.known", "known")
            await client.remote(target.log_under, "test_logs.unknown", "unknown")
            await client.remote(target.log_under, "agentix.sandbox.own", "own")
            await client.remote(target.log_under, "agentix.sio.inner", "never")

    try:
        run(main())
    finally:
        mine.removeHandler(keeper)
    said = [(r.name, r.getMessage()) for r in keeper.records]
    assert ("test_logs.known", "known") in said
    assert ("agentix.sandbox.test_logs.unknown", "unknown") in said
    assert ("agentix.sandbox.own", "own") in said
    assert "agentix.sandbox.agentix.sio.inner" not in [name for name, _ in said]


def test_output_of_all_kinds(run: Any, worker_python: str, keeper: Keeper, log_dir: Path) -> None:
    """Case T21: nothing that is written to 1 or 2 meets the frames."""

    async def main() -> dict[str, Any]:
        async with runtime(worker_python) as client:
            assert await client.remote(target.write_everywhere) == 42
            await client.remote(target.print_text, "to stderr", err=True)
            facts: dict[str, Any] = await client.remote(target.facts)
            return facts

    facts = run(main())
    text = "\n".join(keeper.out())
    for piece in ("partial", "from C", "kid", "type"):
        assert piece in text
    assert keeper.under("agentix.sandbox.stderr") == ["kid-err", "to stderr"]
    record: Any = keeper.records[0]
    assert (record.levelno, record.agentix_stream, record.worker_id) == (20, "stdout", facts["id"])
    assert (record.module, record.pathname) == ("stdio", "")
    assert record.agentix_context == facts["context"]
    file = written(log_dir)
    for piece in ("stdout partial\\x0c", "stdout kid", "stderr kid-err", "stderr to stderr"):
        assert piece in file
    assert file.count("kid-err") == 1


def test_the_tail_is_delivered_before_close_is_over(
    run: Any, worker_python: str, keeper: Keeper, log_dir: Path
) -> None:
    """Case T23."""

    async def main() -> None:
        async with serve(python=worker_python) as url:
            for i in range(25):
                async with RuntimeClient(url) as client:
                    await client.remote(target.print_text, f"tail {i}", end="")
                assert keeper.out()[-1] == f"tail {i}"
                assert f"stdout tail {i}\n" in written(log_dir)
            for i in range(5):
                async with RuntimeClient(url) as client:
                    with pytest.raises(WorkerExited):
                        await client.remote(target.print_and_exit, f"last {i}")
                assert keeper.out()[-1] == f"last {i}"

    run(main())


def test_characters_stay_whole(run: Any, worker_python: str, keeper: Keeper, log_dir: Path) -> None:
    """Case T26."""

    async def main() -> None:
        async with runtime(worker_python) as client:
            await client.remote(target.print_text, "a" * 65535 + "€😀", end="")
            await client.remote(target.write_raw, [b"\n"])
            await client.remote(target.write_raw, [b"\xe2", b"\x82", b"\xac"], 0.1)
            await client.remote(target.write_raw, [b" and \xe2\n", b"\xe2"])

    run(main())
    assert "".join(keeper.out()) == "a" * 65535 + "€😀" + "€ and \ufffd" + "\ufffd"


def test_long_lines(run: Any, worker_python: str, keeper: Keeper, log_dir: Path) -> None:
    """Case T51: a line of 2 MB."""

    async def main() -> None:
        async with runtime(worker_python) as client:
            await client.remote(target.print_text, "z" * 2_000_000)

    run(main())
    assert sum(map(len, keeper.out())) == 2_000_000
    assert max(map(len, keeper.out())) <= 65536 + 4
    assert min(map(len, keeper.out()[:-1])) >= 65536


def test_hostile_text(run: Any, worker_python: str, keeper: Keeper, log_dir: Path, monkeypatch: Any) -> None:
    """Case T31."""
    text = "\x1b]0;title\x07\x1b[2J\r2026-01-01 00:00:00 [host] root: forged\u2028\x00\x9b31m"
    shown = io.StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level
    agentix.configure_logging(stream=shown)

    async def main() -> None:
        async with runtime(worker_python) as client:
            await client.remote(target.print_text, text)
            await client.remote(target.log_under, "x", "two\nlines " + text)

    try:
        run(main())
    finally:
        root.handlers[:], root.level = before
    lines = [line for line in shown.getvalue().split("\n") if "forged" in line]
    assert len(lines) == 2
    for line in lines:
        assert line.isprintable()
        assert re.match(r"[-\d]+ [\d:,]+ \[sandbox-\w+-worker-\w+\] agentix\.sandbox\.", line)
    file = written(log_dir)
    assert all(line.isprintable() for line in file.split("\n"))
    assert keeper.out() == [text.replace("\x9b", "\x9b")]


def test_a_flood(run: Any, worker_python: str, keeper: Keeper, log_dir: Path) -> None:
    """Case T28, and what a flood costs: calls go on, memory is bounded, what is dropped is counted."""
    keeper.pause = 0.01
    begun = time.perf_counter()
    slowest: list[float] = []

    async def beside(client: RuntimeClient, flood: asyncio.Future[Any]) -> None:
        while not flood.done():
            begun = time.perf_counter()
            await client.remote(t.add, 1, 2)
            slowest.append(time.perf_counter() - begun)
            await asyncio.sleep(0.02)

    async def main() -> None:
        async with runtime(worker_python) as client:
            facts = await client.remote(target.facts)
            flood = asyncio.ensure_future(client.remote(target.flood_without_newline, 200))
            await beside(client, flood)
            flood = asyncio.ensure_future(client.remote(target.flood, 300_000))
            await beside(client, flood)
            cancelled = asyncio.ensure_future(client.remote(target.wait, 30))
            await asyncio.sleep(0.05)
            cancelled.cancel()
            assert peak_kb(facts["parent"]) < 64 << 10
            file = log_dir / f"sandbox-{facts['id']}.log"
            await until(lambda: os.path.exists(f"{file}.1"))
            keeper.pause = 0
            await until(lambda: keeper.under("agentix.sandbox") != [])

    run(main())
    keeper.settle()
    assert sorted(slowest)[len(slowest) * 9 // 10] < 0.25
    texts = keeper.under("agentix.sandbox")
    assert 1 <= len(texts) <= 2 + (time.perf_counter() - begun) / 5  # once in five seconds, and at the end
    assert re.fullmatch(r"log buffer full: \d+ records of the sandbox were dropped, the oldest ones", texts[0])


def test_a_cut_link_loses_nothing(run: Any, worker_python: str, keeper: Keeper, log_dir: Path) -> None:
    async def main() -> None:
        async with serve(python=worker_python) as url:
            shim = Shim(url)
            async with shim.listening() as through, RuntimeClient(through) as client:
                for i in range(10):
                    await client.remote(target.log, 100, f"round {i}")
                    shim.cut()
                    await client.remote(target.print_text, f"round {i}")

    run(main())
    texts = keeper.under("agentix.sandbox.log_targets.mine")
    assert texts == [f"round {i} {k}" for i in range(10) for k in range(100)]
    assert keeper.out() == [f"round {i}" for i in range(10)]


def test_two_clients_of_one_runtime(run: Any, worker_python: str, keeper: Keeper, log_dir: Path) -> None:
    """Both hear everything, and this process is told of it once; also when one is closed, or comes, in between."""

    async def main() -> None:
        async with serve(python=worker_python) as url:
            async with RuntimeClient(url) as one, RuntimeClient(url) as two:
                await asyncio.gather(*(client.remote(target.log, 200, "both") for client in (one, two)))
                await one.remote(target.print_text, "said once")
                await one.close()
                await two.remote(target.print_text, "by the one that is left")
            async with RuntimeClient(url) as third:
                await third.remote(target.print_text, "to one that came later")

    run(main())
    texts = keeper.under("agentix.sandbox.log_targets.mine")
    assert sorted(texts) == sorted(f"both {i}" for i in range(200) for _ in range(2))
    assert keeper.out() == ["said once", "by the one that is left", "to one that came later"]
    assert keeper.under("agentix.sandbox") == []


def test_two_runtimes_in_one_process(run: Any, worker_python: str, keeper: Keeper, log_dir: Path) -> None:
    async def main() -> None:
        for _ in range(2):
            async with runtime(worker_python) as one, runtime(worker_python) as two:
                await asyncio.gather(*(client.remote(target.log, 50) for client in (one, two)))

    run(main())
    assert len(keeper.under("agentix.sandbox.log_targets.mine")) == 200


def test_a_respawned_worker(run: Any, worker_python: str, keeper: Keeper, log_dir: Path) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            for i in range(3):
                await client.remote(target.log, 3, f"life {i}")
                with pytest.raises(WorkerExited):
                    await client.remote(target.print_and_exit, f"end {i}")

    run(main())
    assert keeper.under("agentix.sandbox.log_targets.mine") == [f"life {i} {k}" for i in range(3) for k in range(3)]
    assert len(list(log_dir.iterdir())) == 3


def test_records_wait_for_a_host(
    run: Any, worker_python: str, keeper: Keeper, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTIX_LOG_BUFFER", "20")

    async def main() -> None:
        async with serve(python=worker_python) as url:
            first = RuntimeClient(url)
            async with first:
                await first.remote(target.background, "nobody hears", 0.3)
            await asyncio.sleep(0.6)
            async with RuntimeClient(url) as second:
                await until(lambda: keeper.out() == ["nobody hears"])
                await second.remote(target.log, 100)

    run(main())
    assert keeper.under("agentix.sandbox.log_targets.mine")[-1] == "record 99"
    dropped = [int(n) for text in keeper.under("agentix.sandbox") for n in re.findall(r"(\d+) records", text)]
    assert len(keeper.under("agentix.sandbox.log_targets.mine")) + sum(dropped) == 100


def test_no_directory(
    run: Any, worker_python: str, keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that cannot be written is said once, and tried again; an empty name means none."""
    path = tmp_path / "logs"
    path.symlink_to(tmp_path)
    monkeypatch.setenv("AGENTIX_LOG_DIR", str(path))

    async def main(then: Callable[[], object]) -> None:
        async with runtime(worker_python) as client:
            for i in range(3):
                await client.remote(target.print_text, f"before {i}")
                await asyncio.sleep(0.3)
            then()
            await asyncio.sleep(0.6)
            await client.remote(target.print_text, "after")

    run(main(path.unlink))
    told = keeper.under("agentix.sandbox.runtime")
    assert len(told) == 1
    assert "the log directory cannot be used" in told[0]
    assert keeper.out() == ["before 0", "before 1", "before 2", "after"]
    assert "stdout after" in written(path)
    monkeypatch.setenv("AGENTIX_LOG_DIR", "")
    keeper.records.clear()
    run(main(lambda: None))
    assert keeper.under("agentix.sandbox.runtime") == []


def test_contexts_and_formats(
    run: Any, worker_python: str, keeper: Keeper, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTIX_WORKER_LOG_CONTEXT", "box-{id}-{pid}-{other}")
    monkeypatch.setenv("AGENTIX_WORKER_LOG_FORMAT", "<<%(name)s|%(message)s>>")

    async def main() -> dict[str, Any]:
        async with runtime(worker_python) as client:
            await client.remote(target.log, 1)
            await client.remote(target.print_text, "printed")
            facts: dict[str, Any] = await client.remote(target.facts)
            return facts

    facts = run(main())
    context = f"box-{facts['id']}-{facts['pid']}-{{other}}"
    assert [getattr(r, "agentix_context", "") for r in keeper.records] == [context, context]
    assert "<<log_targets.mine|record 0>>\n" in written(log_dir)


@pytest.mark.parametrize("raised", [ConnectionError("no route"), SystemExit(3)], ids=repr)
def test_a_handler_that_raises_costs_nobody_else(
    run: Any, worker_python: str, keeper: Keeper, log_dir: Path, capsys: Any, raised: BaseException
) -> None:
    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() in ("first 0", "second 150"):
                raise raised

    async def main() -> None:
        raising = Raising()
        logging.getLogger().addHandler(raising)
        try:
            async with serve(python=worker_python) as url:
                for name in ("first", "second"):  # in a client of its own each
                    async with RuntimeClient(url) as client:
                        await client.remote(target.log, 300, name)
        finally:
            logging.getLogger().removeHandler(raising)

    run(main())
    said = [r.getMessage() for r in keeper.records if r.name.endswith("log_targets.mine")]
    assert said == [f"{name} {i}" for name in ("first", "second") for i in range(300)]
    assert capsys.readouterr().err.count("a logging handler raised") <= 1
