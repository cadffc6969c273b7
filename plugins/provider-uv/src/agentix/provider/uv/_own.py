"""Our own distributions: which there are, and the wheels from which they get into a virtual environment.

The wheels are made from the running installation, so a sandbox runs the very code of its host. uv is told where they
lie, so that it asks no index for a name that somebody else may own there.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import secrets
import zipfile
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_OF_THE_INSTALLATION = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json"}
"""What an installer adds to a distribution; where it once came from is nothing that a sandbox should know."""


class OwnWheel(NamedTuple):
    """A distribution of ours and its wheel."""

    name: str
    version: str
    path: Path

    def requirement(self) -> str:
        """Return the requirement that names this very file."""
        return f"{self.name} @ {self.path.as_uri()}"


def own_distributions() -> list[Distribution]:
    """Return what a sandbox may need of ours, the core first; the backends are of no use there."""
    found: dict[str, Distribution] = {}
    for dist in distributions():
        name = dist.name.lower().replace("_", "-")
        if name == "agentix" or (name.startswith("agentix-") and not name.startswith("agentix-provider-")):
            found.setdefault(name, dist)
    if "agentix" not in found:
        raise RuntimeError("the distribution 'agentix' is not installed here; install it, do not only import it")
    return [found.pop("agentix"), *found.values()]


def make_wheels(where: Path) -> list[OwnWheel]:
    """Make the wheels in a directory, unless they are there; the core comes first. RuntimeError says what is amiss."""
    return [_wheel(dist, where) for dist in own_distributions()]


def _wheel(dist: Distribution, where: Path) -> OwnWheel:
    content = _content(dist)
    tag = next(line.partition(":")[2].strip() for line in _metadata(dist, "WHEEL").splitlines() if line[:4] == "Tag:")
    name, version = dist.name.lower().replace("-", "_"), dist.version
    data = _zip(content, next(path for path in content if path.endswith(".dist-info/METADATA")))
    directory = where / hashlib.sha256(data).hexdigest()[:16]
    path = directory / f"{name}-{version}-{tag}.whl"
    directory.mkdir(parents=True, exist_ok=True)
    os.utime(directory)  # it is in use
    if not path.exists():
        new = directory / f".{secrets.token_hex(6)}"
        new.write_bytes(data)
        os.replace(new, path)
    return OwnWheel(dist.name, version, path)


def _metadata(dist: Distribution, name: str) -> str:
    text = dist.read_text(name)
    if text is None:
        raise RuntimeError(f"{dist.name} {dist.version} has no {name}: it was not installed from a wheel; reinstall it")
    return text


def _content(dist: Distribution) -> dict[str, bytes]:
    """Return the files by their paths in the wheel. Scripts stay where they are, byte code is made anew."""
    if _is_editable(dist):
        raise RuntimeError(
            f"{dist.name} {dist.version} is installed in editable mode, so its files cannot be taken along; "
            "install it properly (`uv sync --no-editable`, `pip install .`), or use reuse_venv="
        )
    content: dict[str, bytes] = {}
    for file in dist.files or ():
        path = PurePosixPath(file)
        if path.is_absolute() or not {"..", "__pycache__"}.isdisjoint(path.parts):
            continue
        if not (path.parts[0].endswith(".dist-info") and path.name in _OF_THE_INSTALLATION):
            content[str(path)] = Path(str(file.locate())).read_bytes()
    if not any(path.endswith(".dist-info/METADATA") for path in content):
        raise RuntimeError(f"{dist.name} {dist.version} has no list of its files; reinstall it")
    return content


def _is_editable(dist: Distribution) -> bool:
    try:
        return bool(json.loads(dist.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"))
    except (ValueError, AttributeError):
        return False


def _zip(content: dict[str, bytes], metadata: str) -> bytes:
    """Return the wheel; the same content gives the same bytes."""
    record = metadata.removesuffix("METADATA") + "RECORD"
    lines = [f'"{path}",sha256={_digest(data)},{len(data)}\n' for path, data in sorted(content.items())]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as wheel:
        for path, data in [*sorted(content.items()), (record, "".join([*lines, f"{record},,\n"]).encode())]:
            wheel.writestr(zipfile.ZipInfo(path), data, zipfile.ZIP_STORED)
    return out.getvalue()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
