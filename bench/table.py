"""The rows, their goals, and the one table: ratios to the floor, as medians over the rounds.

A ratio is taken inside a round, between runs a few seconds apart; the median of those is what the table shows. A
quotient of two medians would mix rounds in which the machine was in different states.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

FLOOR = "floor"
OURS = "ours"
MISSING = "MISSING"
NEAR = 0.15  # a goal missed by less than this share is a note, not a failure


@dataclass(frozen=True)
class Goal:
    """What ours should reach: at most (or, where more is better, at least) `value` times what `basis` has."""

    basis: str  # a participant, or "absolute": then `value` is in the row's unit
    value: float
    row: str = ""  # the basis's row, if it is not the same one


@dataclass(frozen=True)
class Row:
    key: str
    title: str
    unit: str
    more_is_better: bool = False
    goals: tuple[Goal, ...] = ()


def _flights(kind: str, goals: tuple[Goal, ...]) -> list[Row]:
    rows = [Row(f"{kind}_c{n}_calls_s", f"calls, {kind}, {n} in flight", "/s", True) for n in (1, 8, 32)]
    return [*rows, Row(f"{kind}_c128_calls_s", f"calls, {kind}, 128 in flight", "/s", True, goals)]


def _besides() -> list[Row]:
    titles = {
        "cpu": "a CPU-bound call",
        "echo": "echoes of 100 MiB",
        "flood": "a flood of lines",
        "all": "all three",
    }
    return [
        Row(f"beside_{kind}_{part}_us", f"small call beside {title}, {part}", "us", goals=(Goal("absolute", most),))
        for kind, title in titles.items()
        for part, most in (("p50", 1000.0), ("p99", 10000.0))
    ]


ROWS = (
    Row(
        "sync_p50_us",
        "sequential call, sync, p50",
        "us",
        goals=(Goal(FLOOR, 2.0), Goal("execnet", 0.5), Goal("reference", 0.025)),
    ),
    Row("sync_p99_us", "sequential call, sync, p99", "us", goals=(Goal(FLOOR, 2.5),)),
    Row("async_p50_us", "sequential call, async, p50", "us", goals=(Goal(FLOOR, 2.5),)),
    Row("async_p99_us", "sequential call, async, p99", "us"),
    *_flights("sync", (Goal("execnet", 3.5), Goal("reference", 100.0))),
    *_flights("async", (Goal("execnet", 3.5),)),
    Row("echo_1k_MB_s", "echo of 1 KiB", "MB/s", True),
    Row("echo_16k_MB_s", "echo of 16 KiB", "MB/s", True),
    Row("echo_256k_MB_s", "echo of 256 KiB", "MB/s", True),
    Row("echo_1m_MB_s", "echo of 1 MiB", "MB/s", True),
    Row("echo_10m_MB_s", "echo of 10 MiB", "MB/s", True, (Goal(FLOOR, 2.5),)),
    Row("echo_100m_MB_s", "echo of 100 MiB", "MB/s", True, (Goal(FLOOR, 2.0),)),
    Row("create_ready_ms", "create to ready", "ms"),
    Row("create_first_ms", "create to first result", "ms", goals=(Goal("execnet", 0.8),)),
    Row("respawn_ms", "worker's end to next result", "ms", goals=(Goal("execnet", 0.15, "create_first_ms"),)),
    Row("server_ready_ms", "server: exec to ready signal", "ms", goals=(Goal("absolute", 3.0),)),
    Row("server_rss_ready_MiB", "server: VmRSS when ready", "MiB", goals=(Goal("absolute", 3.0),)),
    Row("server_rss_MiB", "server: VmRSS when idle", "MiB", goals=(Goal("absolute", 3.0),)),
    Row("server_pss_MiB", "server: PSS when idle", "MiB"),
    Row("tree_pss_MiB", "server and worker: PSS after calls", "MiB", goals=(Goal("reference", 1 / 6),)),
    *_besides(),
    Row("many_1_calls_s", "128 in flight over 1 sandbox", "/s", True),
    Row("many_10_calls_s", "128 in flight over 10 sandboxes", "/s", True, (Goal(FLOOR, 0.5),)),
    Row("many_100_calls_s", "128 in flight over 100 sandboxes", "/s", True, (Goal(FLOOR, 0.5),)),
    Row("many_client_kB", "host's memory per idle client", "kB", goals=(Goal("absolute", 200.0),)),
)


@dataclass
class Results:
    """Reports by participant and round; a report is {"about", "rows", "failed"}.

    A participant need not be asked in every round, nor for every row when it is: a row is missing if it failed in any
    round, or if it was never measured.
    """

    names: list[str]
    reports: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)

    def add(self, name: str, turn: int, report: dict[str, Any]) -> None:
        self.reports.setdefault(name, {})[turn] = report

    def _rows(self, name: str, key: str) -> dict[int, float]:
        return {turn: r["rows"][key] for turn, r in self.reports.get(name, {}).items() if key in r["rows"]}

    def values(self, name: str, key: str) -> list[float]:
        return list(self._rows(name, key).values())

    def ratios(self, name: str, basis: str, key: str, basis_key: str = "") -> list[float]:
        """One for each round in which both were measured."""
        against = self._rows(basis, basis_key or key)
        return [value / against[turn] for turn, value in self._rows(name, key).items() if against.get(turn)]

    def why_missing(self, name: str, key: str) -> str:
        """Why this row has no figure: the last reason given; empty if it has one."""
        reports = list(self.reports.get(name, {}).values())
        for report in reversed(reports):
            if key not in report["rows"] and (why := report["failed"].get(key) or report["failed"].get("*")):
                return why
        if not reports:
            return "no round came to it"
        return "" if self.values(name, key) else "not measured"

    def missing(self) -> list[dict[str, str]]:
        gaps = [(name, row, self.why_missing(name, row.key)) for name in self.names for row in ROWS]
        return [{"participant": name, "row": row.key, "reason": why} for name, row, why in gaps if why]

    def reached(self, row: Row, goal: Goal) -> float | None:
        """What ours has of what the goal speaks of: a median of ratios, or of figures; None if it was not measured."""
        absolute = goal.basis == "absolute"
        if self.why_missing(OURS, row.key) or (not absolute and self.why_missing(goal.basis, goal.row or row.key)):
            return None
        found = self.values(OURS, row.key) if absolute else self.ratios(OURS, goal.basis, row.key, goal.row)
        return statistics.median(found) if found else None

    def verdict(self, row: Row, goal: Goal) -> str:
        """met, near (missed by less than NEAR), SHORT, or MISSING."""
        reached = self.reached(row, goal)
        if reached is None:
            return MISSING
        over = goal.value / reached if row.more_is_better and reached else reached / goal.value
        return "met" if over <= 1 else "near" if over < 1 + NEAR else "SHORT"

    def as_json(self) -> list[dict[str, Any]]:
        return [self._row_json(row) for row in ROWS]

    def _row_json(self, row: Row) -> dict[str, Any]:
        entry: dict[str, Any] = {"row": row.key, "title": row.title, "unit": row.unit}
        entry["better"] = "more" if row.more_is_better else "less"
        entry["median"], entry["ratio"], entry["ratio_range"], entry["rounds"] = {}, {}, {}, {}
        for name in self.names:
            values = [] if self.why_missing(name, row.key) else self.values(name, row.key)
            ratios = self.ratios(name, FLOOR, row.key) if values else []
            entry["median"][name] = statistics.median(values) if values else None
            entry["ratio"][name] = statistics.median(ratios) if ratios else None
            entry["ratio_range"][name] = [min(ratios), max(ratios)] if ratios else None
            entry["rounds"][name] = len(values)
        entry["goals"] = [
            {
                "basis": g.basis,
                "basis_row": g.row or row.key,
                "value": g.value,
                "reached": self.reached(row, g),
                "verdict": self.verdict(row, g),
            }
            for g in row.goals
        ]
        return entry

    def as_text(self, absolute: bool = False) -> str:
        header = ["row", "better", f"{FLOOR} is", *(n for n in self.names if absolute or n != FLOOR), "goal for ours"]
        lines = [header, *(self._row_text(row, absolute) for row in ROWS)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
        left = (0, 1, len(header) - 1)
        text = [
            "  ".join(
                c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        return "\n".join(line.rstrip() for line in [*text, "", self._summary(), *self._notes()])

    def _row_text(self, row: Row, absolute: bool) -> list[str]:
        floor = self.values(FLOOR, row.key)
        cells = [row.title, "more" if row.more_is_better else "less"]
        cells.append(f"{number(statistics.median(floor))} {row.unit}" if floor else MISSING)
        for name in self.names:
            if name == FLOOR and not absolute:
                continue
            values = self.values(name, row.key) if absolute else self.ratios(name, FLOOR, row.key)
            usable = values and not self.why_missing(name, row.key)
            cells.append(number(statistics.median(values)) if usable else MISSING)
        return [*cells, ", ".join(self._goal_text(row, goal) for goal in row.goals if self._asked(goal))]

    def _asked(self, goal: Goal) -> bool:
        return OURS in self.names and (goal.basis == "absolute" or goal.basis in self.names)

    def _goal_text(self, row: Row, goal: Goal) -> str:
        sign = ">=" if row.more_is_better else "<="
        what = row.unit if goal.basis == "absolute" else f"x {goal.basis}"
        if goal.row:
            what += f"'s {goal.row}"
        reached = self.reached(row, goal)
        is_now = "" if reached is None else f"{number(reached)} "
        return f"{is_now}{sign} {number(goal.value)} {what}: {self.verdict(row, goal)}"

    def _summary(self) -> str:
        verdicts = [self.verdict(row, goal) for row in ROWS for goal in row.goals if self._asked(goal)]
        words = {"met": "met", "near": f"missed by less than {NEAR:.0%}", "SHORT": "missed", MISSING: "not measured"}
        counts = [f"{verdicts.count(key)} {word}" for key, word in words.items() if key in verdicts]
        return f"goals: {', '.join(counts) or 'none asked about'}"

    def _notes(self) -> list[str]:
        """One line for each participant and reason, naming the rows it covers."""
        covered: dict[tuple[str, str], list[str]] = {}
        for gap in self.missing():
            covered.setdefault((gap["participant"], gap["reason"]), []).append(gap["row"])
        lines = [
            f"{MISSING} {name}, {'every row' if len(rows) == len(ROWS) else ', '.join(rows)}: {why}"
            for (name, why), rows in covered.items()
        ]
        return ["", *lines] if lines else []


def number(value: float) -> str:
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"
