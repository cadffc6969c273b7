"""The benchmark's table, ratios and rounds, and what becomes of a participant that fails. Speed is not tested here."""

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
MODULES = ("run", "table", "peers", "probe", "plot")


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


@pytest.mark.long
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


def row_of(results: Any, key: str) -> dict[str, Any]:
    return next(row for row in results.as_json() if row["row"] == key)


def test_ratio_is_the_median_of_the_rounds_own_ratios(bench: dict[str, ModuleType]) -> None:
    results = bench["table"].Results(["floor", "ours"])
    # The machine was slow in the second round: the quotient of the medians would say 4.5.
    for turn, (floor, ours) in enumerate(((10.0, 20.0), (40.0, 80.0), (20.0, 90.0))):
        results.add("floor", turn, report(sync_p50_us=floor))
        results.add("ours", turn, report(sync_p50_us=ours))
    row = row_of(results, "sync_p50_us")
    assert row["ratio"]["ours"] == 2.0
    assert row["ratio_range"]["ours"] == [2.0, 4.5]
    assert row["rounds"] == {"floor": 3, "ours": 3}
    assert [(g["basis"], g["value"], g["reached"], g["verdict"]) for g in row["goals"]] == [
        ("floor", 2.0, 2.0, "met"),
        ("execnet", 0.5, None, "MISSING"),
        ("reference", 0.025, None, "MISSING"),
    ]


def test_a_ratio_is_taken_only_within_a_round(bench: dict[str, ModuleType]) -> None:
    results = bench["table"].Results(["floor", "ours", "ray"])
    for turn, floor in enumerate((10.0, 20.0, 30.0)):
        results.add("floor", turn, report(respawn_ms=floor))
    results.add("ours", 1, report(respawn_ms=10.0))  # the last round was cut short, the first is not there
    results.add("ray", 2, report(respawn_ms=90.0))
    assert results.ratios("ours", "floor", "respawn_ms") == [0.5]
    assert results.ratios("ray", "floor", "respawn_ms") == [3.0]
    assert results.ratios("ours", "ray", "respawn_ms") == []


@pytest.mark.parametrize(("rate", "verdict"), [(350.0, "met"), (349.0, "near"), (305.0, "near"), (304.0, "SHORT")])
def test_where_more_is_better_a_goal_is_a_lower_bound(bench: dict[str, ModuleType], rate: float, verdict: str) -> None:
    results = bench["table"].Results(["floor", "ours", "execnet"])
    results.add("floor", 0, report(sync_c128_calls_s=1000.0))
    results.add("ours", 0, report(sync_c128_calls_s=rate))
    results.add("execnet", 0, report(sync_c128_calls_s=100.0))
    goal = row_of(results, "sync_c128_calls_s")["goals"][0]
    assert (goal["basis"], goal["value"], goal["verdict"]) == ("execnet", 3.5, verdict)
    assert f">= 3.50 x execnet: {verdict}" in results.as_text()


def test_a_goal_may_be_a_bound_or_look_at_another_row(bench: dict[str, ModuleType]) -> None:
    results = bench["table"].Results(["floor", "ours", "execnet"])
    results.add("ours", 0, report(respawn_ms=6.0, create_first_ms=70.0, server_ready_ms=3.4))
    results.add("execnet", 0, report(respawn_ms=90.0, create_first_ms=50.0))
    (respawn,) = row_of(results, "respawn_ms")["goals"]
    assert (respawn["basis_row"], respawn["reached"], respawn["verdict"]) == ("create_first_ms", 0.12, "met")
    (first,) = row_of(results, "create_first_ms")["goals"]
    assert (first["reached"], first["verdict"]) == (1.4, "SHORT")
    (ready,) = row_of(results, "server_ready_ms")["goals"]
    assert (ready["basis"], ready["reached"], ready["verdict"]) == ("absolute", 3.4, "near")
    assert "6.00" not in results.as_text()  # there is no floor, hence no ratio


def test_a_row_that_failed_in_one_round_is_missing_with_its_reason(bench: dict[str, ModuleType]) -> None:
    results = bench["table"].Results(["floor", "ours"])
    whole = {row.key: 1.0 for row in bench["table"].ROWS}
    results.add("floor", 0, report(**whole))
    results.add("floor", 1, report(**whole))
    rows = {key: value for key, value in whole.items() if key != "echo_10m_MB_s"}
    results.add("ours", 0, {"about": {}, "rows": rows, "failed": {"echo_10m_MB_s": "WorkerExited: gone"}})
    results.add("ours", 1, report(**whole))
    assert results.missing() == [{"participant": "ours", "row": "echo_10m_MB_s", "reason": "WorkerExited: gone"}]
    lines = results.as_text().splitlines()
    assert "MISSING" in next(line for line in lines if line.startswith("echo of 10 MiB"))
    assert "MISSING" not in next(line for line in lines if line.startswith("echo of 1 MiB"))
    assert lines[-1] == "MISSING ours, echo_10m_MB_s: WorkerExited: gone"


def test_a_row_that_is_not_asked_for_in_every_round_is_not_missing(bench: dict[str, ModuleType]) -> None:
    results = bench["table"].Results(["rpyc"])
    results.add("rpyc", 0, report(many_1_calls_s=1.0))
    results.add("rpyc", 1, report(sync_p50_us=1.0))
    assert results.why_missing("rpyc", "many_1_calls_s") == ""
    assert results.why_missing("rpyc", "async_p50_us") == "not measured"
    assert bench["table"].Results(["ours"]).why_missing("ours", "sync_p50_us") == "no round came to it"


def test_a_participant_that_cannot_start_is_missing_in_every_row(bench: dict[str, ModuleType]) -> None:
    results = bench["table"].Results(["floor", "rpyc"])
    results.add("floor", 0, report(**{row.key: 1.0 for row in bench["table"].ROWS}))
    results.add("rpyc", 0, bench["run"].measure([sys.executable, "-c", "raise SystemExit('no such thing')"]))
    assert results.as_text().splitlines()[-1] == "MISSING rpyc, every row: no such thing"


def test_every_goal_stands_on_a_participant_and_a_row_that_exist(bench: dict[str, ModuleType]) -> None:
    keys = [row.key for row in bench["table"].ROWS]
    assert len(keys) == len(set(keys))
    for row in bench["table"].ROWS:
        for goal in row.goals:
            assert goal.basis in (*bench["run"].PARTICIPANTS, "absolute")
            assert (goal.row or row.key) in keys


def test_rounds_begin_with_another_each_time_and_spare_the_slow(bench: dict[str, ModuleType]) -> None:
    plan = list(bench["run"].turns(list(bench["run"].PARTICIPANTS), 9))
    firsts = [next(name for turn, name, _ in plan if turn == n) for n in range(6)]
    assert len(set(firsts)) >= 5
    for name, whole, light in (("floor", 9, 0), ("ours", 9, 0), ("execnet", 2, 7), ("reference", 2, 7), ("ray", 2, 0)):
        hows = [how for _, who, how in plan if who == name]
        assert (hows.count("whole"), hows.count("light")) == (whole, light)


class Options:
    def __init__(self, save: Path, minutes: float) -> None:
        self.only, self.rounds, self.quick, self.absolute = ["ours"], 3, True, False
        self.save, self.minutes = str(save), minutes


@pytest.mark.parametrize("cut", ["interrupted", "time"])
def test_a_run_that_is_cut_short_gives_what_it_has(
    bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cut: str
) -> None:
    run = bench["run"]
    asked: list[list[str]] = []

    def measure(argv: list[str]) -> dict[str, Any]:
        asked.append(argv)
        if cut == "interrupted" and len(asked) == 4:
            raise KeyboardInterrupt
        return report(sync_p50_us=10.0 if argv[0] == "floor" else 15.0)

    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(run, "command", lambda name, quick: [name])
    played = run.Run(Options(tmp_path / "out", -1.0 if cut == "time" else 10.0))
    played.play()
    whole = json.loads((tmp_path / "out.json").read_text())
    row = next(r for r in whole["rows"] if r["row"] == "sync_p50_us")
    text = (tmp_path / "out.txt").read_text()
    if cut == "time":
        assert whole["ended"] == "the time of -1 minutes was over in round 1"
        assert row["ratio"]["ours"] is None
    else:
        assert (whole["ended"], row["ratio"]["ours"], row["rounds"]) == ("interrupted", 1.5, {"floor": 1, "ours": 2})
    assert f"note: {whole['ended']}" in text
    assert not list(tmp_path.glob("*.new"))


def test_lines_of_the_plots_come_from_the_medians(bench: dict[str, ModuleType]) -> None:
    results = bench["table"].Results(["floor", "ours"])
    results.add("floor", 0, report(sync_c1_calls_s=50000.0, echo_1k_MB_s=100.0))
    results.add("ours", 0, report(sync_c1_calls_s=25000.0, sync_c128_calls_s=64000.0))
    figures = bench["plot"].Figures({"rows": results.as_json()})
    assert figures.names == ["ours", "floor"]
    assert figures.rates("sync") == {"ours": [(1.0, 25000.0), (128.0, 64000.0)], "floor": [(1.0, 50000.0)]}
    assert figures.waits("sync")["ours"] == [(1.0, 40.0), (128.0, 2000.0)]
    assert figures.bandwidths() == {"ours": [], "floor": [(1024.0, 100.0)]}
    assert figures.echo_times()["floor"] == [(1024.0, 0.02048)]


def test_what_a_slow_participant_has_said_is_kept(bench: dict[str, ModuleType]) -> None:
    said = [json.dumps({"about": {}, "rows": {"x": n}, "failed": {"y": "why"}}) + "\n" for n in (1, 2)]
    outcome = bench["run"].failure("too slow", "".join(said))
    assert (outcome["rows"], outcome["failed"]) == ({"x": 2}, {"y": "why", "*": "too slow"})
    assert bench["run"].failure("too slow") == {"about": {}, "rows": {}, "failed": {"*": "too slow"}}


def test_a_participant_that_hangs_ends_with_everything_it_started(
    bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    note = tmp_path / "child"
    program = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],"
        " stdout=subprocess.DEVNULL, start_new_session=True)\n"
        f"pathlib.Path({str(note) + '.new'!r}).write_text(str(child.pid))\n"
        f"pathlib.Path({str(note) + '.new'!r}).rename({str(note)!r})\n"
        "time.sleep(60)\n"
    )
    for seconds in (1.5, 6.0, 24.0):  # a busy machine may take long to start it
        monkeypatch.setattr(bench["run"], "SIDE_SECONDS", seconds)
        outcome = bench["run"].measure([sys.executable, "-c", program])
        assert outcome["failed"] == {"*": f"no result within {seconds} s"}
        if note.exists():
            break
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
