"""The benchmark runs, its table has the promised shape, and what is missing says why. Speed is not tested here."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
MODULES = ("run", "table", "peers", "probe")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The modules of bench/, imported as its command imports them and forgotten afterwards."""
    monkeypatch.syspath_prepend(str(BENCH))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    loaded = {name: importlib.import_module(name) for name in MODULES}
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name)
    return loaded


def command(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCH / "run.py"), *args], capture_output=True, text=True, timeout=120, check=False
    )


def runs(pid: int) -> bool:
    """Whether the process is there and is not merely waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def report(**rows: float) -> dict[str, Any]:
    return {"about": {}, "rows": rows, "failed": {}}


def test_smoke_of_the_floor_prints_every_row(bench: dict[str, ModuleType]) -> None:
    done = command("--quick", "--rounds", "1", "--only", "floor", "--format", "json")
    assert done.returncode == 0, done.stderr
    whole = json.loads(done.stdout)
    assert (whole["rounds"], whole["quick"], whole["missing"]) == (1, True, [])
    assert [row["row"] for row in whole["rows"]] == [row.key for row in bench["table"].ROWS]
    for row in whole["rows"]:
        assert row["median"]["floor"] > 0
        assert row["ratio"]["floor"] == 1.0


def test_wrong_usage_is_status_2_and_leaves_stdout_empty() -> None:
    for args in (["--rounds", "0"], ["--only", "nobody"], ["--format", "xml"]):
        done = command(*args)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr


def test_ratio_is_the_median_of_the_rounds_own_ratios(bench: dict[str, ModuleType]) -> None:
    results = bench["table"].Results(["floor", "ours"])
    # The machine was slow in the second round: the quotient of the medians would say 4.5.
    for floor, ours in ((10.0, 20.0), (40.0, 80.0), (20.0, 90.0)):
        results.add("floor", report(sync_p50_us=floor))
        results.add("ours", report(sync_p50_us=ours))
    row = next(r for r in results.as_json() if r["row"] == "sync_p50_us")
    assert row["ratio"]["ours"] == 2.0
    assert row["ratio_range"]["ours"] == [2.0, 4.5]
    assert row["goals"] == [
        {"basis": "floor", "value": 2.0, "met": True},
        {"basis": "execnet", "value": 0.5, "met": None},
    ]


@pytest.mark.parametrize(("rate", "met"), [(350.0, True), (349.0, False)])
def test_where_more_is_better_a_goal_is_a_lower_bound(bench: dict[str, ModuleType], rate: float, met: bool) -> None:
    results = bench["table"].Results(["floor", "ours", "execnet"])
    results.add("floor", report(sync_c128_calls_s=1000.0))
    results.add("ours", report(sync_c128_calls_s=rate))
    results.add("execnet", report(sync_c128_calls_s=100.0))
    row = next(r for r in results.as_json() if r["row"] == "sync_c128_calls_s")
    assert row["goals"] == [{"basis": "execnet", "value": 3.5, "met": met}]
    assert ("met" if met else "SHORT") in results.as_text()


def test_a_row_that_failed_in_one_round_is_missing_with_its_reason(bench: dict[str, ModuleType]) -> None:
    results = bench["table"].Results(["floor", "ours"])
    whole = {row.key: 1.0 for row in bench["table"].ROWS}
    results.add("floor", report(**whole))
    results.add("floor", report(**whole))
    results.add("ours", report(**whole))
    rows = {key: value for key, value in whole.items() if key != "echo_10_MB_s"}
    results.add("ours", {"about": {}, "rows": rows, "failed": {"echo_10_MB_s": "WorkerExited: gone"}})
    assert results.missing() == [{"participant": "ours", "row": "echo_10_MB_s", "reason": "WorkerExited: gone"}]
    lines = results.as_text().splitlines()
    assert "MISSING" in next(line for line in lines if line.startswith("echo of 10 MiB"))
    assert "MISSING" not in next(line for line in lines if line.startswith("echo of 1 MiB"))
    assert lines[-1] == "MISSING ours, echo_10_MB_s: WorkerExited: gone"


def test_a_participant_that_cannot_start_is_missing_in_every_row(bench: dict[str, ModuleType]) -> None:
    results = bench["table"].Results(["floor", "rpyc"])
    results.add("floor", report(**{row.key: 1.0 for row in bench["table"].ROWS}))
    results.add("rpyc", bench["run"].measure([sys.executable, "-c", "raise SystemExit('no such thing')"]))
    assert results.as_text().splitlines()[-1] == "MISSING rpyc, every row: no such thing"


def test_a_participant_that_hangs_ends_with_everything_it_started(
    bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench["run"], "SIDE_SECONDS", 4)
    note = tmp_path / "child"
    program = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],"
        " stdout=subprocess.DEVNULL, start_new_session=True)\n"
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid))\n"
        "time.sleep(60)\n"
    )
    outcome = bench["run"].measure([sys.executable, "-c", program])
    assert outcome["failed"] == {"*": "no result within 4 s"}
    child = int(note.read_text())
    end = time.monotonic() + 20
    while runs(child) and time.monotonic() < end:
        time.sleep(0.01)
    assert not runs(child)


def test_an_environment_is_made_once_and_again_only_when_its_facts_change(
    bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    peers = bench["peers"]
    monkeypatch.setenv("AGENTIX_BENCH_DIR", str(tmp_path / "cache"))
    venv = peers.environment("ours")
    seen = subprocess.run(
        [peers.python_of(venv), "-I", "-c", "import bench_target; print(bench_target.add(1, 2))"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert seen.stdout == "3\n"
    mark = venv / "mark"
    mark.touch()
    assert peers.environment("ours") == venv
    assert mark.exists()
    (venv / "bench-stamp").write_text("other facts")
    peers.environment("ours")
    assert not mark.exists()


@pytest.mark.parametrize(("count", "expected"), [(1, 1.0), (50, 50.0), (100, 99.0), (101, 100.0), (1000, 990.0)])
def test_a_percentile_is_one_of_the_samples(bench: dict[str, ModuleType], count: int, expected: float) -> None:
    samples = [float(n) for n in range(count, 0, -1)]
    assert bench["probe"].percentile(samples, 99) == expected
