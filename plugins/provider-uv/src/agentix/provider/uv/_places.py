"""Where sandboxes and environments of this backend lie: private directories of the user, one for each of them.

A sandbox's server locks a file of its own, `lock`, beside the host's. What nobody locks any more was left by a killed
process and is removed by whichever provider starts next.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from pathlib import Path
from typing import Any

from agentix.provider import _places as shared
from agentix.provider._drive import remove_tree
from agentix.provider._places import SOCKET_PATH_MAX, base, describe

__all__ = ["SOCKET_PATH_MAX", "base", "describe"]

ID_PATTERN = re.compile(r"uv-[0-9a-f]{12}")
OURS_PATTERN = re.compile(r"(uv|venv|host)-[0-9a-f]{12}")
WHEEL_AGE = 30 * 24 * 3600.0
"""Seconds after which a wheel that no environment was made from is removed."""


def environments() -> Path:
    """Return the user's directory for environments, where uv has its cache and can link from it instead of copying."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    path = Path(root) if os.path.isabs(root) else Path.home() / ".cache"
    try:
        path.mkdir(exist_ok=True)
        return shared.private(path / "agentix-uv")
    except (OSError, RuntimeError):
        return base()  # a home that is missing, read-only or somebody else's


def wheels() -> Path:
    """Return the directory for wheels of our own distributions, one directory for each content."""
    return shared.private(environments() / "wheels")


def make_sandbox() -> Path:
    """Make a sandbox's directory, named by its id, with its token and its working directory."""
    path = shared.make(base(), f"uv-{secrets.token_hex(6)}")
    (path / "work").mkdir(mode=0o700)
    shared.write_token(path / "token")
    return path


def make_environment() -> Path:
    """Make the directory of a virtual environment."""
    return shared.make(environments(), f"venv-{secrets.token_hex(6)}")


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody else may read."""
    shared.write_new(path, text)


def find(sandbox_id: str) -> dict[str, Any] | None:
    """Return what is known of a sandbox, with its token, if its server is alive."""
    if not ID_PATTERN.fullmatch(sandbox_id) or not shared.is_locked(base() / sandbox_id / "lock"):
        return None
    return shared.facts_of(base() / sandbox_id)


def sweep() -> None:
    """Remove what killed processes left."""
    for where in {base(), environments()}:
        for path in where.iterdir():
            with contextlib.suppress(OSError):
                if OURS_PATTERN.fullmatch(path.name) and _is_left(path):
                    path.unlink() if path.name.startswith("host-") else remove_tree(path)
    for path in wheels().iterdir():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > WHEEL_AGE:
                remove_tree(path)


def _is_left(path: Path) -> bool:
    return shared.is_left(path) and not (path.is_dir() and shared.is_locked(path / "lock"))
