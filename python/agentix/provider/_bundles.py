"""Where a bundle lies: a deployed directory as it is; a tar is deployed to the cache by the `agentix` program."""

from __future__ import annotations

import asyncio
import os
import stat
import weakref
from pathlib import Path
from typing import Any

from . import _program
from .base import DeployedBundle

BOOTSTRAP = "nix/runtime/bootstrap.sh"


_deployed: dict[tuple[Any, ...], Path] = {}
"""Where the tars that this process has deployed went: the same file is not read again for each sandbox."""
_locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()
"""One for each loop: who comes while a tar is being deployed waits for it instead of doing it again."""


async def locate(bundle: str, backend: str, cache_dir: str | None) -> Path:
    """Return the `nix` directory of a bundle. RuntimeError or FileNotFoundError says why there is none."""
    path, info = _look(bundle)
    if stat.S_ISDIR(info.st_mode):
        return _nix_of(path)
    key = (str(path), info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, cache_dir)
    async with _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        if key not in _deployed or not _is_bundle(_deployed[key]):
            _deployed[key] = Path((await deploy(path, backend, cache_dir)).bundle)
    return _nix_of(_deployed[key])


def _look(bundle: str) -> tuple[Path, os.stat_result]:
    path = Path(bundle).absolute()
    try:
        return path, path.stat()
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no bundle at {bundle!r}; make one with `agentix build`") from None


def _is_bundle(path: Path) -> bool:
    return os.path.lexists(path / BOOTSTRAP)


def _nix_of(path: Path) -> Path:
    if not _is_bundle(path):
        raise RuntimeError(f"{path} is no deployed bundle, as it has no {BOOTSTRAP}; deploy one with `agentix deploy`")
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
    failed = f"the bundle {bundle} was not deployed"
    answer = await _program.answer(failed, "deploy", backend, "--format=json", *given, "--", str(bundle))
    return DeployedBundle(
        bundle=answer["bundle"],
        platform=answer.get("platform"),
        metadata=answer.get("metadata") or {},
        hints=answer.get("hints") or {},
    )
