"""The example of a third party's backend, by the very command that its README names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import box_bundle
import pytest


@pytest.fixture
def short() -> Iterator[str]:
    """A directory whose name is short enough for a socket's path."""
    root = tempfile.mkdtemp(prefix="agx-")
    yield root
    shutil.rmtree(root)


@pytest.mark.parametrize("part", ["whole_life or what_create_returns", pytest.param("", marks=pytest.mark.long)])
def test_it_passes_the_suite(bundle: box_bundle.Bundle, short: str, tmp_path: Path, part: str) -> None:
    options = [
        "--pyargs",
        "agentix.testing.conformance",
        "--agentix-backend",
        "unshare",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        part,
    ]
    env = {**os.environ, "AGENTIX_BUNDLE": bundle.directory, "XDG_RUNTIME_DIR": short}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
    assert "unshare " in done.stdout.partition("time to first result")[2]
