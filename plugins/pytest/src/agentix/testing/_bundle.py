"""The bundle of a test run: built from a project by `agentix build`, brought to the backend by the backend itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from agentix import BundleDeployer, SandboxProvider

from ._loop import Loop

_BUILD_SECONDS = 1200.0
_DEPLOY_SECONDS = 600.0

_EMPTY = """\
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = "nothing-else"
version = "0"
requires-python = ">=3.11,<3.14"
"""


def takes_bundle(provider: SandboxProvider | type[SandboxProvider]) -> bool:
    """Tell whether the backend has any use for a bundle: it says so itself if not."""
    return bool(getattr(provider, "takes_bundle", True))


def build(project: Path, into: Path) -> Path:
    """Build a project's bundle; RuntimeError holds what `agentix build` said."""
    if not (project / "pyproject.toml").is_file():
        raise RuntimeError(
            f"there is no pyproject.toml in {project}, so no bundle can be built from it; choose a project by "
            "--agentix-project, or a bundle that is there by --agentix-bundle"
        )
    target = into / "test.bundle.tar"
    command = [_program(), "build", "--format=json", f"--output={target}", "--", str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_BUILD_SECONDS)
    if done.returncode:
        raise RuntimeError(f"the bundle of {project} was not built:\n{_said(done.stdout, done.stderr)}")
    return target


def build_empty(into: Path) -> Path:
    """Build a bundle that holds nothing but Agentix."""
    project = into / "project"
    (project / "src" / "nothing_else").mkdir(parents=True)
    (project / "src" / "nothing_else" / "__init__.py").touch()
    (project / "pyproject.toml").write_text(_EMPTY)
    return build(project, into)


def deploy(tar: Path, provider: SandboxProvider, loop: Loop) -> str:
    """Bring the bundle to the backend, if that is how it takes bundles; return what a `SandboxConfig` says."""
    if not isinstance(provider, BundleDeployer):
        return str(tar)
    return loop.run(provider.deploy_bundle(tar), _DEPLOY_SECONDS).bundle


def _said(out: str, err: str) -> str:
    try:
        return str(json.loads(err or out)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return (err or out).strip()[-4096:]


def _program() -> str:
    beside = os.path.join(sysconfig.get_path("scripts"), "agentix")
    found = beside if os.access(beside, os.X_OK) else shutil.which("agentix")
    if found is None:
        raise RuntimeError("the agentix program was not found beside this interpreter or on PATH; reinstall agentix")
    return found
