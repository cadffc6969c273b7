"""Measure a Python call against what a call costs at least, and against what else one could use.

Prints one table: for every participant the ratio to the floor (two Python processes that exchange pickles over a
socketpair), as the median of the ratios of interleaved rounds. See README.md for what the rows mean.

    python bench/run.py                      five rounds of everything
    python bench/run.py --rounds 9           what a gate should use
    python bench/run.py --quick --only ours  one look at ours and the floor
    python bench/run.py --save DIR/NAME      also write NAME.json and NAME.txt, anew after every participant's turn

Interrupted (SIGINT, SIGTERM) or out of time, it gives what it has. Exit status: 0; 1 if the floor or ours
has a missing row; 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peers
import probe
import table

HERE = Path(__file__).resolve().parent
PARTICIPANTS = (table.FLOOR, table.OURS, *peers.PEERS)
SIDE_SECONDS = 120
STRAYS_SECONDS = 10
WHOLE_EVERY = 5  # a peer's slowest rows are measured in the first round, and again after so many
SELDOM = ("ray",)  # and these take part in no other
WHOLE, LIGHT = "whole", "light"


def command(name: str, quick: bool) -> list[str]:
    """The argv that measures this participant; raises `peers.Unavailable` with the reason if there can be none."""
    mode = ["--quick"] if quick else []
    if name == table.FLOOR:
        return [sys.executable, str(HERE / "floor.py"), *mode]
    if name == table.OURS:
        _importable("agentix.provider.uv")
        venv = peers.environment(name)
        return [sys.executable, str(HERE / "side.py"), "ours", *mode, "--venv", str(venv)]
    python = peers.python_of(peers.environment(name))
    script = ["side.py", "reference"] if name == "reference" else [f"{name}_side.py"]
    return [python, str(HERE / script[0]), *script[1:], *mode]


def _importable(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import {module}"], capture_output=True, text=True, cwd=tempfile.gettempdir()
    )
    if done.returncode:
        raise peers.Unavailable(_last_line(done.stderr) or f"{module} cannot be imported")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def measure(argv: list[str]) -> dict[str, Any]:
    """One run of one participant; nothing it started outlives a time-out or an interruption."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with (
        tempfile.TemporaryFile("w+") as errors,
        tempfile.TemporaryDirectory(prefix="agx-b-", ignore_cleanup_errors=True) as scratch,
    ):
        env["TMPDIR"] = scratch  # what a participant that had to be killed has left goes with it
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        try:
            out, _ = process.communicate(timeout=SIDE_SECONDS)
        except BaseException as stopped:
            _kill_tree(process.pid)
            out, _ = process.communicate()
            if isinstance(stopped, subprocess.TimeoutExpired):
                return failure(f"no result within {SIDE_SECONDS} s", out)
            raise
        errors.seek(0)
        if process.returncode:
            return failure(_last_line(errors.read()) or f"ended with status {process.returncode}", out)
    return _last_report(out)


def _kill_tree(root: int) -> None:
    """Everything below `root` and itself, also what has made a session of its own."""
    for pid in probe.children(root):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


def adopt_orphans() -> None:
    """Become the parent of whatever a participant's processes leave behind, as init would; see end_strays()."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_strays() -> None:
    """End what outlived a participant's turn: a worker that spins without its server would slow down all that follows.

    Everything below this process is meant, so only for a program of its own that has adopted the orphans.
    """
    end = time.monotonic() + STRAYS_SECONDS
    while (strays := probe.children(os.getpid())[os.getpid()]) and time.monotonic() < end:
        for pid in strays:
            _kill_tree(pid)
        for pid in strays:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def failure(why: str, said: str = "") -> dict[str, Any]:
    """The report of a participant that came to no end: what it has said is kept, the rest has this reason."""
    report = _last_report(said)
    report["failed"]["*"] = why
    return report


def _last_report(said: str) -> dict[str, Any]:
    lines = said.splitlines()
    report: dict[str, Any] = json.loads(lines[-1]) if lines else {"about": {}, "rows": {}, "failed": {}}
    return report


def prepare(names: list[str], quick: bool) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The argv of each participant that can run, and the reason of each that cannot."""
    ready: dict[str, list[str]] = {}
    absent: dict[str, str] = {}
    for name in names:
        try:
            ready[name] = command(name, quick)
        except (peers.Unavailable, OSError) as error:
            absent[name] = str(error)
    return ready, absent


def turns(names: list[str], rounds: int) -> Iterator[tuple[int, str, str]]:
    """Who is measured when, and how: (round, name, WHOLE or LIGHT)."""
    for turn in range(rounds):
        # Another one begins each round: none is always the first on a machine that has just been idle.
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            if turn % WHOLE_EVERY == 0 or name in (table.FLOOR, table.OURS):
                yield turn, name, WHOLE
            elif name not in SELDOM:
                yield turn, name, LIGHT


class Run:
    """The rounds, and what is known of them at any time."""

    def __init__(self, args: argparse.Namespace, after_turn: Callable[[], None] | None = None) -> None:
        self._args = args
        self._after_turn = after_turn or (lambda: None)
        self._names = [n for n in PARTICIPANTS if not args.only or n == table.FLOOR or n in args.only]
        self._before = machine()
        self._begun = time.monotonic()
        self._ended = ""  # why before its time
        self.results = table.Results(self._names)

    def play(self) -> None:
        ready, absent = prepare(self._names, self._args.quick)
        self._begun = time.monotonic()
        try:
            for turn, name, how in turns(self._names, self._args.rounds):
                if self._minutes() > self._args.minutes:
                    self._ended = f"the time of {self._args.minutes:g} minutes was over in round {turn + 1}"
                    break
                if sys.stderr.isatty():
                    print(f"round {turn + 1} of {self._args.rounds}: {name}", file=sys.stderr)
                mode = ["--light"] if how == LIGHT else []
                report = measure([*ready[name], *mode]) if name in ready else failure(absent[name])
                self._after_turn()
                self.results.add(name, turn, report)
                self.save()
        except KeyboardInterrupt:
            self._ended = "interrupted"
        self.save()

    def _minutes(self) -> float:
        return (time.monotonic() - self._begun) / 60

    def save(self) -> None:
        if self._args.save is None:
            return
        for ending, content in ((".json", self.as_json()), (".txt", self.as_text())):
            target = Path(f"{self._args.save}{ending}")
            beside = target.with_name(target.name + ".new")
            beside.write_text(content + "\n")
            beside.replace(target)

    def as_json(self) -> str:
        whole = {
            "rounds": self._args.rounds,
            "quick": self._args.quick,
            "minutes": round(self._minutes(), 1),
            "ended": self._ended or "after all rounds",
            "machine": self._before,
            "about": about(self.results),
            "rows": self.results.as_json(),
            "missing": self.results.missing(),
        }
        return json.dumps(whole, indent=1)

    def as_text(self) -> str:
        kind = "figures" if self._args.absolute else "ratios to the floor"
        rounds = self._args.rounds
        lines = [f"{kind}, median of {rounds} interleaved round{'s' if rounds > 1 else ''}"]
        lines.append(self.results.as_text(self._args.absolute))
        lines += [f"note: {self._ended}" if self._ended else "", busy(self._before) or ""]
        return "\n".join(line for line in lines if line)


def machine() -> dict[str, Any]:
    load = os.getloadavg()[0]
    return {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version(), "load": load}


def busy(before: dict[str, Any]) -> str | None:
    """What to say of a machine that was doing other work when the run began."""
    if before["load"] <= (before["cpus"] or 1) / 2:
        return None
    return f"note: the load was {before['load']:.1f} on {before['cpus']} cpus when this began: other work distorts it"


def about(results: table.Results) -> dict[str, dict[str, str]]:
    return {name: list(reports.values())[-1]["about"] for name, reports in results.reports.items()}


def arguments() -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, help="interleaved rounds (5; with --quick 3)")
    parser.add_argument("--quick", action="store_true", help="short loops: a look, not a verdict")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument(
        "--only",
        action="append",
        choices=PARTICIPANTS,
        metavar="NAME",
        help=f"measure only this one and the floor; may be repeated ({', '.join(PARTICIPANTS)})",
    )
    parser.add_argument(
        "--minutes", type=float, default=11.0, help="nobody's turn begins later than this; less may be measured (11)"
    )
    parser.add_argument("--save", metavar="DIR/NAME", help="also write NAME.json and NAME.txt there, after every turn")
    parser.add_argument("--absolute", action="store_true", help="figures of this machine and run instead of ratios")
    args = parser.parse_args()
    args.rounds = args.rounds if args.rounds is not None else 3 if args.quick else 5
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    return args


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    args = arguments()
    signal.signal(signal.SIGINT, _interrupt)  # also if the caller's shell had it ignored
    signal.signal(signal.SIGTERM, _interrupt)
    adopt_orphans()
    run = Run(args, after_turn=end_strays)
    run.play()
    print(run.as_json() if args.format == "json" else run.as_text())
    return 1 if any(gap["participant"] in (table.FLOOR, table.OURS) for gap in run.results.missing()) else 0


if __name__ == "__main__":
    sys.exit(main())
