"""Where a bundle lies: a deployed directory as it is; a tar is deployed to the cache by the `agentix` program."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Any

from agentix.provider.base import DeployedBundle

BOOTSTRAP = "nix/runtime/bootstrap.sh"


async def locate(bundle: str, backend: str, cache_dir: str | None) -> Path:
    """Return the `nix` directory of a bundle. RuntimeError or FileNotFoundError says why there is none."""
    path, is_directory = _look(bundle)
    if not is_directory:
        path = Path((await deploy(path, backend, cache_dir)).bundle)
    return _nix_of(path)


def _look(bundle: str) -> tuple[Path, bool]:
    path = Path(bundle).absolute()
    if not path.exists():
        raise FileNotFoundError(f"there is no bundle at {bundle!r}; make one with `agentix build`")
    return path, path.is_dir()


def _nix_of(path: Path) -> Path:
    if not os.path.lexists(path / BOOTSTRAP):
        raise RuntimeError(
            f"{path} is not a deployed bundle, as it has no {BOOTSTRAP}; deploy it with `agentix deploy`"
        )
    return path / "nix"


async def deploy(
    bundle: Path,
    backend: str,
    cache_dir: str | None,
    *,
    engine: str | None = None,
    name: str | None = None,
    platform: str | None = None,
) -> DeployedBundle:
    """Deploy a bundle to the cache. RuntimeError holds what `agentix deploy` said."""
    options = {"name": name, "platform": platform, "container-engine": engine, "bundle-cache-dir": cache_dir}
    given = [f"--{option}={value}" for option, value in options.items() if value is not None]
    code, out, err = await _run([_program(), "deploy", backend, "--format=json", *given, "--", str(bundle)])
    if code:
        raise RuntimeError(f"the bundle {bundle} was not deployed: {err.decode(errors='replace').strip()[-4096:]}")
    answer: Any = json.loads(out)
    return DeployedBundle(
        bundle=answer["bundle"],
        platform=answer.get("platform"),
        metadata=answer.get("metadata") or {},
        hints=answer.get("hints") or {},
    )


async def _run(argv: list[str]) -> tuple[int, bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate()
    except BaseException:
        if process.returncode is None:
            process.kill()  # it leaves nothing that is half done
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode, out, err


def _program() -> str:
    """Find `agentix` where this installation put its scripts, else on PATH."""
    beside = os.path.join(sysconfig.get_path("scripts"), "agentix")
    found = beside if os.access(beside, os.X_OK) else shutil.which("agentix")
    if found is None:
        raise RuntimeError("the agentix program was not found beside this interpreter or on PATH; reinstall agentix")
    return found
