"""The examples, run as their READMEs say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(path: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_two_sided() -> None:
    done = run("two-sided/host.py")
    # 97 is above the limit and dropped, 31 is asked about too and kept
    assert done.stdout == "9 fields kept, 48.22 on average; asked about [5, 7]\n"
    assert "[##############################] 10/10\n" in done.stderr


def test_coding_agent() -> None:
    done = run("coding-agent/host.py")
    assert done.stdout == (
        "$ cat answer.txt\n$ echo 42 > answer.txt\n$ cat answer.txt\nThe answer is 42 now.\n"
        "exit code 0, answer.txt: 42\n"
    )
