#!/usr/bin/env python3
"""Provide llhttp's generated C source and print the directory that holds it.

llhttp is written in another language and translated to C; the `httptools` source distribution
carries the translation. It is pinned by hash, fetched through pip (so whatever index the machine
is configured for is used), and kept in a cache outside the tree: a second run needs no network.
The cache is $AGENTIX_BUILD_CACHE, else ~/.cache/agentix/build.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PROJECT = "httptools"
VERSION = "0.9.0"
SHA256 = "d484ebb7e3a3f3597b0f645fbd1b85633674ca808c1f5ba11c2caf7c66f5c8b6"
PREFIX = f"{PROJECT}-{VERSION}/vendor/llhttp/"
FILES = ("include/llhttp.h", "src/api.c", "src/http.c", "src/llhttp.c", "LICENSE-MIT")


def cache_dir() -> Path:
    """The build cache: never inside the tree, shared by all build directories."""
    if configured := os.environ.get("AGENTIX_BUILD_CACHE"):
        return Path(configured)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "agentix" / "build"


def pip_command() -> list[str]:
    """The pip to download with: this interpreter's, else one that uv brings."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "--quiet", "--python", sys.executable, "pip"]
    raise SystemExit(f"fetch_llhttp: neither pip (in {sys.executable}) nor uv is here to download {PROJECT}")


def download(into: Path) -> Path:
    """Fetch the pinned source distribution into a directory; pip checks the hash, and so do we."""
    requirements = into / "requirements.txt"
    requirements.write_text(f"{PROJECT}=={VERSION} --hash=sha256:{SHA256}\n")
    command = [*pip_command(), "download", "--quiet", "--no-deps", "--no-binary", PROJECT]
    command += ["--require-hashes", "--requirement", str(requirements), "--dest", str(into)]
    print(f"fetch_llhttp: downloading {PROJECT} {VERSION} (source of llhttp)", file=sys.stderr)
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
        raise SystemExit(f"fetch_llhttp: pip could not download {PROJECT} {VERSION}")
    return into / f"{PROJECT}-{VERSION}.tar.gz"


def verify(archive: Path) -> None:
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != SHA256:
        raise SystemExit(f"fetch_llhttp: {archive.name} has sha256 {digest}, expected {SHA256}")


def extract(archive: Path, into: Path) -> None:
    """Write exactly the files we build from; nothing else of the archive touches the disk."""
    with tarfile.open(archive, "r:gz") as tar:
        for name in FILES:
            member = tar.extractfile(PREFIX + name)
            if member is None:
                raise SystemExit(f"fetch_llhttp: {archive.name} has no {PREFIX}{name}")
            target = into / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(member.read())


def provide() -> Path:
    """Return the directory with include/ and src/, filling the cache when it is empty."""
    cache = cache_dir()
    home = cache / f"llhttp-{SHA256[:16]}"
    if all((home / name).is_file() for name in FILES):
        return home
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        archive = download(Path(scratch))
        verify(archive)
        fresh = Path(scratch) / "llhttp"
        extract(archive, fresh)
        shutil.rmtree(home, ignore_errors=True)
        try:
            fresh.rename(home)
        except OSError:  # another build filled the cache meanwhile
            if not (home / FILES[0]).is_file():
                raise
    return home


if __name__ == "__main__":
    print(provide())
