"""Our own distributions: which there are, and how they get into a virtual environment.

They are copied from the running installation, file by file as their RECORD lists them, and pinned by a constraints
file. So a sandbox runs the very code of its host, and an index is never asked for a name that somebody else may own there.
"""

from __future__ import annotations

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
        raise RuntimeError("the distribution 'agentix' is not installed, so it cannot be copied; install it, do not only import it")
    return list(found.values())


def copy_into(venv: str) -> None:
    """Copy them into the site-packages of the virtual environment; OSError says which file failed."""
    target = next(Path(venv).glob("lib/python3.*/site-packages"))
    for dist in own_distributions():
        files = dist.files
        if files is None:
            raise FileNotFoundError(f"{dist.name} {dist.version} has no RECORD, so its files are not known; reinstall it")
        for file in files:
            if ".." in file.parts or file.is_absolute() or "__pycache__" in file.parts:
                continue  # scripts stay where they are; byte code is made anew for the other interpreter
            destination = target / file
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), destination)


def constraints() -> str:
    """Return the lines that pin each of them to what is copied."""
    return "".join(f"{dist.name}=={dist.version}\n" for dist in own_distributions())
