"""Images: a file of the user's is used where it lies, anything else is pulled once into a cache."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import secrets
from collections.abc import AsyncGenerator
from pathlib import Path

from agentix import _core
from agentix.provider._drive import Driver

LOCK_PAUSE = 0.1
"""Seconds between two tries to get the lock of an image that another process pulls."""


async def locate(image: str, platform: str | None, cache: Path, binary: str, environ: list[str]) -> Path:
    """Return the file of an image. FileNotFoundError or RuntimeError says why there is none."""
    if image.startswith(("/", "./", "../", "~")) or image.endswith(".sif"):
        return _local(image)
    source = image if "://" in image else f"docker://{image}"
    arch = None if platform is None else platform.split("/")[1] if "/" in platform else platform
    path = cache / f"{hashlib.sha256(f'{source} {arch or os.uname().machine}'.encode()).hexdigest()[:32]}.sif"
    if not path.exists():
        await asyncio.to_thread(cache.mkdir, 0o700, True, True)
        async with _locked(path):
            if not path.exists():
                await _pull(source, arch, path, binary, environ)
    return path


def _local(image: str) -> Path:
    path = Path(image).expanduser().absolute()
    if not path.exists():
        raise FileNotFoundError(f"there is no image at {path}; a name like docker://busybox would be pulled")
    return path


@contextlib.asynccontextmanager
async def _locked(path: Path) -> AsyncGenerator[None]:
    """Let one of all processes pull an image."""
    fd = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(LOCK_PAUSE)
        yield
    finally:
        os.close(fd)


async def _pull(source: str, arch: str | None, path: Path, binary: str, environ: list[str]) -> None:
    for left in path.parent.glob(f".{path.name}.*"):  # by a killed process: nobody else pulls it now
        left.unlink(missing_ok=True)
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.sif")
    try:
        brain = _core.apptainer_image(binary=binary, host_env=environ, source=source, arch=arch, target=new)
        wish = await Driver(brain).drive()
        if wish["kind"] != "done":
            raise RuntimeError(wish["message"])
        if not new.exists():
            raise RuntimeError(f"pulling the image failed: {binary} pull made no file of {source}")
        await asyncio.to_thread(_keep, new, path)
    finally:
        new.unlink(missing_ok=True)


def _keep(new: Path, path: Path) -> None:
    """Give the image its name when it is on the disk."""
    with new.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(new, path)


def sweep(cache: Path) -> None:
    """Remove what killed processes left of pulls: another pull of the same image may never come."""
    for left in cache.glob(".*.sif"):
        with contextlib.suppress(OSError):
            fd = os.open(cache / f"{left.name[1:].partition('.')[0]}.lock", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()
            finally:
                os.close(fd)
