"""Judges what happened to calls, from what the host noted and from what their targets wrote. It knows only keys.

The host notes one `Outcome` per call; a target appends "start <key>" and "end <key>" to a file, each on disk before it
goes on. The kinds of outcome: value, target-error, cancelled (here, by the caller), deadline, worker-died, unknown
(lost with its server), unreachable, never-started. It imports nothing of what it judges.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

KINDS = ("value", "target-error", "cancelled", "deadline", "worker-died", "unknown", "unreachable", "never-started")
SLACK_SECONDS = 5.0


@dataclass
class Outcome:
    key: str
    kind: str
    seconds: float
    deadline: float
    detail: str = ""


def judge(calls: list[str], outcomes: list[Outcome], journal: Path) -> list[str]:
    """What is wrong; nothing if all is well. `calls`: the keys of all calls that were begun."""
    starts, ends, complaints = _read(journal)
    told = Counter(outcome.key for outcome in outcomes)
    complaints += [f"{key}: {told[key]} outcomes" for key in calls if told[key] != 1]
    complaints += [f"{key}: an outcome of no call" for key in told.keys() - set(calls)]
    complaints += [f"{key}: run, and never called" for key in starts.keys() - set(calls)]
    complaints += [f"{key}: run {n} times" for key, n in starts.items() if n > 1]
    complaints += [f"{key}: {n} ends of {starts[key]} starts" for key, n in ends.items() if n > starts[key]]
    for outcome in outcomes:
        complaints += [f"{outcome.key}: {what}" for what in _of_one(outcome, starts, ends)]
    return complaints


def _of_one(outcome: Outcome, starts: Counter[str], ends: Counter[str]) -> list[str]:
    wrong: list[str] = []
    started, ended = starts[outcome.key], ends[outcome.key]
    if outcome.kind not in KINDS:
        wrong.append(f"ended as nothing that a call may end as: {outcome.kind} {outcome.detail}")
    if outcome.kind in ("value", "target-error") and (started, ended) != (1, 1):
        wrong.append(f"{outcome.kind} after {started} starts and {ended} ends")
    if outcome.kind == "never-started" and started:
        wrong.append(f"said never to have started, and it had: {outcome.detail}")
    if outcome.seconds > outcome.deadline + SLACK_SECONDS:
        wrong.append(f"{outcome.kind} after {outcome.seconds:.1f} s, its deadline was {outcome.deadline} s")
    return wrong


def _read(journal: Path) -> tuple[Counter[str], Counter[str], list[str]]:
    starts: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    for line in journal.read_text().splitlines() if journal.exists() else []:
        what, _, key = line.strip().partition(" ")
        if what == "start":
            starts[key] += 1
        elif what == "end":
            ends[key] += 1
        else:
            wrong.append(f"an odd line: {line!r}")
    return starts, ends, wrong
