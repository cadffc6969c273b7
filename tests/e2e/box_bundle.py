"""The bundle of `tests/e2e/box`, built and deployed as its users would do it, and bundles that misbehave."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

BOX = Path(__file__).parent / "box"


class Bundle:
    """A bundle's tar, and the directory that it was deployed to."""

    def __init__(self, tar: Path, directory: str) -> None:
        self.tar = tar
        self.directory = directory


def agentix(*args: str) -> str:
    """Run our program; its output."""
    program = os.path.join(sysconfig.get_path("scripts"), "agentix")
    done = subprocess.run([program, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"agentix {args}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def build(root: Path, project: Path = BOX) -> Bundle:
    tar = root / f"{project.name}.bundle.tar"
    agentix("build", str(project), "--output", str(tar))
    answer = json.loads(
        agentix("deploy", "docker", str(tar), "--bundle-cache-dir", str(root / "cache"), "--format", "json")
    )
    return Bundle(tar, answer["bundle"])


def shared(factory: Any) -> Bundle:
    """The bundle that all tests of a run share; `factory` is pytest's tmp_path_factory."""
    if not _built:
        _built.append(build(factory.mktemp("box")))
    return _built[0]


def build_plain(root: Path) -> Path:
    """A bundle of the box's targets without what they depend on."""
    project = root / "box"
    shutil.copytree(BOX, project)
    text = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(re.sub(r"^dependencies = .*$", "dependencies = []", text, flags=re.M))
    agentix("build", str(project), "--output", str(root / "box.bundle.tar"))
    return root / "box.bundle.tar"


_built: list[Bundle] = []


def with_bootstrap(root: Path, script: str) -> str:
    """A bundle whose entry point is this shell script, run by a static busybox."""
    runtime = root / "nix" / "runtime"
    runtime.mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "nix" / "busybox")
    bootstrap = runtime / "bootstrap.sh"
    bootstrap.write_text(f"#!/nix/busybox sh\n{script}\n")
    bootstrap.chmod(0o755)
    return str(root)
