"""A small repository with a history, and an instance of SWE-bench made of it.

The base commit has a bug in `calc.add`. The test patch adds a test to one file, renames one, brings a new one and
deletes one; the gold patch mends the bug.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

FILES = {
    "setup.py": "from setuptools import setup\n\nsetup(name='calc', version='1', packages=['calc'])\n",
    "calc/__init__.py": '"""Sums."""\n\n\ndef add(a, b):\n    return a - b\n\n\ndef mul(a, b):\n    return a * b\n',
    "tests/test_calc.py": "import calc\n\n\ndef test_mul():\n    assert calc.mul(2, 3) == 6\n",
    "tests/test_old_names.py": "import calc\n\n\ndef test_name():\n    assert calc.add\n\n\nX = 1\nY = 2\n",
    "tests/test_gone.py": "def test_gone():\n    pass\n",
    ".gitignore": "__pycache__/\n*.log\n*.egg-info/\nbuild/\n.pytest_cache/\n",
}
MENDED = FILES["calc/__init__.py"].replace("a - b", "a + b")
TESTS_AFTER = {
    "tests/test_calc.py": FILES["tests/test_calc.py"] + "\n\ndef test_add():\n    assert calc.add(2, 3) == 5\n",
    "tests/test_names.py": FILES["tests/test_old_names.py"].replace("Y = 2", "Y = 3"),
    "tests/test_new.py": "import calc\n\n\ndef test_sum():\n    assert calc.add(calc.add(1, 1), 1) == 3\n",
    "tests/test_old_names.py": None,
    "tests/test_gone.py": None,
}
FAIL_TO_PASS = ["tests/test_calc.py::test_add", "tests/test_new.py::test_sum"]
PASS_TO_PASS = ["tests/test_calc.py::test_mul", "tests/test_names.py::test_name"]


def git(repo: Path, *words: str) -> str:
    environ = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        **{f"GIT_{who}_{what}": f"{what}@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    done = subprocess.run(
        ["git", *words], cwd=repo, env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write(repo: Path, files: dict[str, Any]) -> None:
    for name, text in files.items():
        path = repo / name
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode() if isinstance(text, str) else text)


def diff(repo: Path, changes: dict[str, Any]) -> str:
    """The patch that makes `changes` to the last commit; the work tree is put back."""
    write(repo, changes)
    git(repo, "add", "-A", "-f")
    patch = git(repo, "diff", "--cached", "--binary", "-M")
    git(repo, "reset", "-q", "--hard")
    git(repo, "clean", "-ffdxq")
    return patch


def make(
    repo: Path,
    *,
    key: tuple[str, str] = ("pytest-dev/pytest", "7.2"),
    files: dict[str, Any] | None = None,
    tests: dict[str, Any] | None = None,
    fail_to_pass: list[str] = FAIL_TO_PASS,
    pass_to_pass: list[str] = PASS_TO_PASS,
) -> dict[str, Any]:
    """Make the repository at `repo`, and return the instance."""
    repo.mkdir(parents=True, exist_ok=True)
    git(repo, "init", "-q", "-b", "main")
    write(repo, FILES | (files or {}))
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "base")
    return {
        "instance_id": "calc__calc-1",
        "repo": key[0],
        "version": key[1],
        "base_commit": git(repo, "rev-parse", "HEAD").strip(),
        "patch": diff(repo, {"calc/__init__.py": MENDED}),
        "test_patch": diff(repo, TESTS_AFTER if tests is None else tests),
        "problem_statement": "add() subtracts",
        "FAIL_TO_PASS": fail_to_pass,
        "PASS_TO_PASS": pass_to_pass,
    }
