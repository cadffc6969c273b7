"""Our own distributions: which there are, and how they get into a virtual environment.

They are copied from the running installation, file by file as their RECORD lists them, and pinned by a constraints
file. So a sandbox runs the very code of its host, and no index is asked for a name that somebody else may own there.
"""

from __future__ import annotations

import json
import shutil
from importlib.metadata import Distribution, distributions
from pathlib import Path


def own_distributions() -> list[Distribution]:
    """Return what a sandbox needs of ours: the core and the run-time plugins, not the backends."""
    found: dict[str, Distribution] = {}
    for dist in distributions():
        name = dist.name.lower().replace("_", "-")
        if name == "agentix" or (name.startswith("agentix-") and not name.startswith("agentix-provider-")):
            found.setdefault(name, dist)
    if "agentix" not in found:
        raise RuntimeError(
            "the distribution 'agentix' is not installed, so it cannot be copied; install it, do not only import it"
        )
    return list(found.values())


def copy_into(venv: str) -> None:
    """Copy them into the site-packages of the virtual environment; OSError says what could not be copied."""
    target = next(Path(venv).glob("lib/python3.*/site-packages"))
    for dist in own_distributions():
        files = dist.files
        if files is None or _is_editable(dist):
            raise FileNotFoundError(
                f"{dist.name} {dist.version} is installed without copies of its files (in editable mode); "
                "install it properly (`uv sync --no-editable`, `pip install .`), or use reuse_venv="
            )
        for file in files:
            # Scripts stay where they are, byte code is made anew for the other interpreter, and where a
            # distribution once came from is nothing that the sandbox should know.
            if (
                ".." in file.parts
                or file.is_absolute()
                or "__pycache__" in file.parts
                or file.name == "direct_url.json"
            ):
                continue
            destination = target / file
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), destination)


def _is_editable(dist: Distribution) -> bool:
    try:
        return bool(json.loads(dist.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"))
    except (ValueError, AttributeError):
        return False


def constraints() -> str:
    """Return the lines that pin each of them to what is copied."""
    return "".join(f"{dist.name}=={dist.version}\n" for dist in own_distributions())
