"""The rows, their goals, and the one table: ratios to the floor, as medians over the rounds.

A ratio is taken inside a round, between runs a few seconds apart; the median of those is what the table shows. A
quotient of two medians would mix rounds in which the machine was in different states.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

FLOOR = "floor"
MISSING = "MISSING"


@dataclass(frozen=True)
class Goal:
    """What ours should reach: at most (or, where more is better, at least) `value` times what `basis` has."""

    basis: str  # a participant, or "absolute": then `value` is in the row's unit
    value: float


@dataclass(frozen=True)
class Row:
    key: str
    title: str
    unit: str
    more_is_better: bool = False
    goals: tuple[Goal, ...] = ()


ROWS = (
    Row("sync_p50_us", "sequential call, sync, p50", "us", goals=(Goal(FLOOR, 2.0), Goal("execnet", 0.5))),
    Row("sync_p99_us", "sequential call, sync, p99", "us", goals=(Goal(FLOOR, 2.5),)),
    Row("async_p50_us", "sequential call, async, p50", "us", goals=(Goal(FLOOR, 2.5),)),
    Row("sync_c16_calls_s", "calls, sync, 16 in flight", "/s", True),
    Row("sync_c128_calls_s", "calls, sync, 128 in flight", "/s", True, (Goal("execnet", 3.5),)),
    Row("async_c16_calls_s", "calls, async, 16 in flight", "/s", True),
    Row("async_c128_calls_s", "calls, async, 128 in flight", "/s", True, (Goal("execnet", 3.5),)),
    Row("echo_1_MB_s", "echo of 1 MiB", "MB/s", True),
    Row("echo_10_MB_s", "echo of 10 MiB", "MB/s", True, (Goal(FLOOR, 2.5),)),
    Row("echo_100_MB_s", "echo of 100 MiB", "MB/s", True, (Goal(FLOOR, 2.0),)),
    Row("create_ready_ms", "create to ready", "ms"),
    Row("create_first_ms", "create to first result", "ms", goals=(Goal("execnet", 0.8),)),
    Row("server_ready_ms", "server: exec to ready signal", "ms", goals=(Goal("absolute", 3.0),)),
    Row("server_rss_ready_MiB", "server: VmRSS when ready", "MiB", goals=(Goal("absolute", 3.0),)),
    Row("server_rss_MiB", "server: VmRSS 1 s later", "MiB", goals=(Goal("absolute", 3.0),)),
    Row("server_pss_MiB", "server: PSS 1 s later", "MiB"),
    Row("tree_pss_MiB", "server and worker: PSS after calls", "MiB"),
)


@dataclass
class Results:
    """Reports by participant, one per round; a report is {"about", "rows", "failed"}."""

    names: list[str]
    reports: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, name: str, report: dict[str, Any]) -> None:
        self.reports.setdefault(name, []).append(report)

    def values(self, name: str, key: str) -> list[float]:
        return [r["rows"][key] for r in self.reports.get(name, []) if key in r["rows"]]

    def ratios(self, name: str, basis: str, key: str) -> list[float]:
        pairs = zip(self.reports.get(name, []), self.reports.get(basis, []), strict=False)
        return [a["rows"][key] / b["rows"][key] for a, b in pairs if key in a["rows"] and b["rows"].get(key)]

    def why_missing(self, name: str, key: str) -> str:
        """Why not every round has this row: the last reason given."""
        for report in reversed(self.reports.get(name, [])):
            if key not in report["rows"]:
                return report["failed"].get(key) or report["failed"].get("*") or "not measured"
        return ""

    def missing(self) -> list[dict[str, str]]:
        gaps = [(name, row, self.why_missing(name, row.key)) for name in self.names for row in ROWS]
        return [{"participant": name, "row": row.key, "reason": why} for name, row, why in gaps if why]

    def verdict(self, row: Row, goal: Goal) -> bool | None:
        """Whether ours meets the goal; None if it was not measured."""
        ours = self.values("ours", row.key) if goal.basis == "absolute" else self.ratios("ours", goal.basis, row.key)
        if not ours or self.why_missing("ours", row.key):
            return None
        return statistics.median(ours) >= goal.value if row.more_is_better else statistics.median(ours) <= goal.value

    def as_json(self) -> list[dict[str, Any]]:
        return [self._row_json(row) for row in ROWS]

    def _row_json(self, row: Row) -> dict[str, Any]:
        entry: dict[str, Any] = {"row": row.key, "title": row.title, "unit": row.unit}
        entry["better"] = "more" if row.more_is_better else "less"
        entry["median"], entry["ratio"], entry["ratio_range"] = {}, {}, {}
        for name in self.names:
            complete = not self.why_missing(name, row.key)
            ratios = self.ratios(name, FLOOR, row.key) if complete else []
            entry["median"][name] = statistics.median(self.values(name, row.key)) if complete else None
            entry["ratio"][name] = statistics.median(ratios) if ratios else None
            entry["ratio_range"][name] = [min(ratios), max(ratios)] if ratios else None
        entry["goals"] = [{"basis": g.basis, "value": g.value, "met": self.verdict(row, g)} for g in row.goals]
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
        return "\n".join(line.rstrip() for line in text + self._notes())

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
        return [*cells, ", ".join(self._goal_text(row, goal) for goal in row.goals)]

    def _goal_text(self, row: Row, goal: Goal) -> str:
        sign = ">=" if row.more_is_better else "<="
        what = row.unit if goal.basis == "absolute" else f"x {goal.basis}"
        word = {True: ": met", False: ": SHORT", None: ""}[self.verdict(row, goal)]
        return f"{sign} {goal.value:g} {what}{word}"

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
