"""The executable `agentix` as a person would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

AGENTIX = str(Path(sysconfig.get_path("scripts")) / "agentix")

# What the terminal or the machine of whoever runs the tests would otherwise add.
_OURS = ("AGENTIX_", "XDG_", "NO_COLOR", "CLICOLOR", "TERM")


def environment(home: Path, **more: str) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return {**env, "HOME": str(home), "TERM": "dumb", **more}


class Cli:
    """Runs commands with a home of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.cache = home / ".cache/agentix/bundles"

    def run(self, *argv: str | Path, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [AGENTIX, *map(str, argv)],
            env=environment(self.home, **env),
            cwd=cwd or self.home,
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def start(self, *argv: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [AGENTIX, *map(str, argv)],
            env=environment(self.home),
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def json(self, *argv: str | Path, **env: str) -> Any:
        """Run with --format json; it must succeed and print one object."""
        done = self.run(*argv, "--format", "json", **env)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("\n")
        assert done.stdout.count("\n") == 1
        return json.loads(done.stdout)

    def error(self, *argv: str | Path, code: int = 1) -> str:
        """Run; it must fail with `code` and one line of error, in both formats. Return the message."""
        done = self.run(*argv)
        assert done.returncode == code, (done.stdout, done.stderr)
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        machine = self.run(*argv, "--format", "json")
        assert machine.returncode == code
        told = json.loads(machine.stderr.splitlines()[-1])["error"]
        assert told.keys() == {"kind", "message", "hint", "exit_code"}
        assert told["exit_code"] == code
        assert f"error: {told['message']}" == line
        return line.removeprefix("error: ")

    def entries(self) -> list[str]:
        """What lies in the cache, its lock and its memory of tars apart."""
        if not self.cache.is_dir():
            return []
        return sorted(path.name for path in self.cache.iterdir() if not path.name.startswith((".lock", ".seen-")))
