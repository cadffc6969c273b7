"""A fresh interpreter for tests about imports."""

import os
import subprocess
import sys
from pathlib import Path

import agentix

PACKAGE_ROOT = str(Path(agentix.__path__[0]).parent)


def python(*args: str, cwd: Path | None = None, path: str = "", stdin: str | None = None, stderr: bool = False) -> str:
    """Run this Python with `args`, the package importable and warnings as errors; return what it printed
    (or, with `stderr`, what it said there)."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [path, PACKAGE_ROOT]))}
    done = subprocess.run(
        [sys.executable, "-W", "error", *args],
        cwd=cwd,
        env=env,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return (done.stderr if stderr else done.stdout).strip()
