"""Measure a Python call against what a call costs at least, and against what else one could use.

Prints one table: for every participant the ratio to the floor (two Python processes that exchange pickles over a
socketpair), as the median of the ratios of interleaved rounds. See README.md for what the rows mean.

    python bench/run.py                      five rounds of everything
    python bench/run.py --rounds 9           what a gate should use
    python bench/run.py --quick --only ours  one look at ours and the floor

Exit status: 0; 1 if the floor or ours has a missing row; 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import peers
import probe
import table

HERE = Path(__file__).resolve().parent
PARTICIPANTS = (table.FLOOR, "ours", *peers.PEERS)
SIDE_SECONDS = 600


def command(name: str, quick: bool) -> list[str]:
    """The argv that measures this participant; raises `peers.Unavailable` with the reason if there can be none."""
    mode = ["--quick"] if quick else []
    if name == table.FLOOR:
        return [sys.executable, str(HERE / "floor.py"), *mode]
    if name == "ours":
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
    with tempfile.TemporaryFile("w+") as errors:
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
            process.communicate()
            if isinstance(stopped, subprocess.TimeoutExpired):
                return failure(f"no result within {SIDE_SECONDS} s")
            raise
        errors.seek(0)
        if process.returncode:
            return failure(_last_line(errors.read()) or f"ended with status {process.returncode}")
    report: dict[str, Any] = json.loads(out)
    return report


def _kill_tree(root: int) -> None:
    """Everything below `root` and itself, also what has made a session of its own."""
    for pid in probe.children(root):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def failure(why: str) -> dict[str, Any]:
    return {"about": {}, "rows": {}, "failed": {"*": why}}


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


def run(names: list[str], rounds: int, quick: bool) -> table.Results:
    ready, absent = prepare(names, quick)
    results = table.Results(names)
    for turn in range(rounds):
        # Another one begins each round: none is always the first on a machine that has just been idle.
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            if sys.stderr.isatty():
                print(f"round {turn + 1} of {rounds}: {name}", file=sys.stderr)
            results.add(name, measure(ready[name]) if name in ready else failure(absent[name]))
    return results


def machine() -> dict[str, Any]:
    load = os.getloadavg()[0]
    return {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version(), "load": load}


def busy(before: dict[str, Any]) -> str | None:
    """What to say of a machine that was doing other work when the run began."""
    if before["load"] <= (before["cpus"] or 1) / 2:
        return None
    return f"note: the load was {before['load']:.1f} on {before['cpus']} cpus when this began: other work distorts it"


def about(results: table.Results) -> dict[str, dict[str, str]]:
    return {name: results.reports[name][-1]["about"] for name in results.names}


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
    parser.add_argument("--absolute", action="store_true", help="figures of this machine and run instead of ratios")
    args = parser.parse_args()
    args.rounds = args.rounds if args.rounds is not None else 3 if args.quick else 5
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    return args


def main() -> int:
    args = arguments()
    names = [n for n in PARTICIPANTS if not args.only or n == table.FLOOR or n in args.only]
    before = machine()
    results = run(names, args.rounds, args.quick)
    if args.format == "json":
        whole = {"rounds": args.rounds, "quick": args.quick, "machine": before, "about": about(results)}
        print(json.dumps({**whole, "rows": results.as_json(), "missing": results.missing()}, indent=1))
    else:
        kind = "figures" if args.absolute else "ratios to the floor"
        print(f"{kind}, median of {args.rounds} interleaved round{'s' if args.rounds > 1 else ''}")
        print(results.as_text(args.absolute))
    if note := busy(before):
        print(note, file=sys.stderr)
    return 1 if any(gap["participant"] in (table.FLOOR, "ours") for gap in results.missing()) else 0


if __name__ == "__main__":
    sys.exit(main())
