"""What backends of sandbox services share: a bundle as one file to upload, the commands that unpack and start it over
there, the wait for the runtime's answer, and creating without a leak.

The services differ in how a file and a command get into a sandbox; all else is the same for each of them, so it is
here. No service is known by name, and nothing of any SDK is imported.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import shutil
import stat
import tarfile
import tempfile
import traceback
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from . import _program
from ._drive import Probe
from .base import SandboxConfig, to_the_end

T = TypeVar("T")

PORT = 8000
"""Where the runtime listens, in a sandbox that has a network of its own."""
ROOT = "/run/agentix"
"""The directory in the sandbox that holds the token and what the runtime says before it is ready."""
TOKEN = f"{ROOT}/token"
UNDO_TRIES = 5
UNDO_PAUSE = 0.5
"""Seconds before what failed is tried again; doubled each time."""
PACK_LEVEL = 1
"""Of gzip: a third of the size for a second or two, and every image can read it."""

_RESERVED = ("AGENTIX_BIND_HOST", "AGENTIX_BIND_SOCKET", "AGENTIX_TOKEN_FILE", "AGENTIX_ENV_FILE", "AGENTIX_LEASE")


# ---- the bundle ----


@dataclass(frozen=True)
class Bundle:
    """What is known of a bundle on this machine; `digest` is that of its content, as it was computed."""

    path: Path
    digest: str
    platform: str
    label: str

    def key(self, *more: str) -> str:
        """Return a name for this content, and for whatever else decides about the outcome."""
        return hashlib.sha256("\n".join([self.digest, *more]).encode()).hexdigest()[:24]


async def look(bundle: str | Path, platform: str | None = None) -> Bundle:
    """Read and verify a bundle, a tar or a deployed directory.

    FileNotFoundError if there is none, RuntimeError if it is damaged, none at all, or for another platform.
    """
    path = _existing(bundle)
    failed = f"the bundle {bundle} cannot be used"
    verified = await _program.answer(failed, "bundle", "verify", "--format=json", "--", str(path))
    found = await _program.answer(failed, "bundle", "inspect", "--format=json", "--", str(path))
    if platform is not None and found["platform"] != platform:
        raise RuntimeError(f"{failed}: it is for {found['platform']}, not for {platform}; build one with --platform")
    return Bundle(path, verified["computed"], found["platform"], f"{found['name']}:{found['tag']}")


def _existing(bundle: str | Path) -> Path:
    path = Path(bundle).absolute()
    if not path.exists():
        raise FileNotFoundError(f"there is no bundle at {str(bundle)!r}; make one with `agentix build`")
    return path


@contextlib.asynccontextmanager
async def packed(bundle: Bundle) -> AsyncGenerator[Path]:
    """Make a gzipped tar of the bundle, which any image can unpack; it is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="agentix-", ignore_cleanup_errors=True) as directory:
        target = Path(directory) / "bundle.tar.gz"
        source = bundle.path
        if not source.is_dir() and not _is_plain(source):
            failed = f"the bundle {source} was not unpacked"
            cache = f"--bundle-cache-dir={directory}/cache"
            answer = await _program.answer(failed, "deploy", "docker", "--format=json", cache, "--", str(source))
            source = Path(answer["bundle"])
        await whole(asyncio.to_thread(_pack, source, target), lambda _: None)
        yield target


def _is_plain(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(512)[257:262] == b"ustar"


def _pack(source: Path, target: Path) -> None:
    with gzip.open(target, "wb", compresslevel=PACK_LEVEL) as file:
        if source.is_dir():
            with tarfile.open(fileobj=file, mode="w|") as tar:
                tar.add(source / "nix", "nix", filter=_of_root)
        else:
            with source.open("rb") as tar:
                shutil.copyfileobj(tar, file, 1 << 20)


def _of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


class Deployed:
    """Where the bundles that this process deployed went: who comes while one is on its way waits for it."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], str] = {}
        self._locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    async def get(self, bundle: str, deploy: Callable[[], Awaitable[str]]) -> str:
        """Return what `deploy` returned for this file as it is now."""
        path = _existing(bundle)
        info = path.stat()
        changes = () if stat.S_ISDIR(info.st_mode) else (info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        key = (str(path), info.st_dev, info.st_ino, *changes)
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if key not in self._known:
                self._known[key] = await deploy()
            return self._known[key]

    def forget(self, place: str) -> None:
        """It is not there any more."""
        for key in [key for key, known in self._known.items() if known == place]:
            del self._known[key]


# ---- commands for the sandbox ----


def unpack_command(archive: str) -> str:
    """Return the shell command that puts an uploaded bundle where it belongs, or says why that cannot be."""
    return (
        "set -e; as=; test -w / || as='sudo -n'; "
        f"$as tar -xzof {archive} -C / nix; "
        "test -x /nix/runtime/bootstrap.sh || { echo 'there is no /nix/runtime/bootstrap.sh in it'; exit 1; }"
    )


def start_command(root: str = ROOT) -> str:
    """Return the shell command that is the runtime; when that ends, it prints its last output and ends as it did."""
    log = f"{root}/log"
    return (
        f"chmod 700 {root} && chmod 400 {root}/token && cd / || exit; "
        f"/nix/runtime/bootstrap.sh </dev/null >{log} 2>&1; code=$?; tail -c 8192 {log}; exit $code"
    )


def environment(config: SandboxConfig, root: str = ROOT) -> dict[str, str]:
    """Return the runtime's environment: the user's, without what the backend says itself."""
    env = {name: value for name, value in (config.env or {}).items() if name not in _RESERVED}
    env.setdefault("AGENTIX_BIND_PORT", str(PORT))
    return {**env, "AGENTIX_BIND_HOST": "0.0.0.0", "AGENTIX_TOKEN_FILE": f"{root}/token"}  # the proxy is outside


# ---- waiting ----


async def until_ready(
    url: str, token: str, headers: Mapping[str, str], timeout: float, ended: Callable[[], Coroutine[Any, Any, str]]
) -> None:
    """Wait for the runtime's answer.

    `ended` returns, when the runtime has ended, how; RuntimeError says that, or that `timeout` seconds have passed.
    """
    probe = asyncio.ensure_future(Probe(url, token, headers).event(timeout))
    end = asyncio.ensure_future(ended())
    try:
        await asyncio.wait([probe, end], return_when=asyncio.FIRST_COMPLETED)
        if not probe.done():
            raise RuntimeError(f"starting the sandbox failed: the runtime ended before it was ready: {end.result()}")
        kind, _, text = probe.result()
        if kind != "ready":
            why = text.decode(errors="replace")
            raise RuntimeError(f"starting the sandbox failed: the runtime was not ready after {timeout:.1f} s\n{why}")
    finally:
        for task in (probe, end):
            task.cancel()
        await asyncio.wait([probe, end])
        if not end.cancelled():
            end.exception()  # it is taken note of


async def whole(work: Coroutine[Any, Any, T], keep: Callable[[T], object], grace: float | None = None) -> None:
    """Await `work` and give its result to `keep`, even if this task is cancelled meanwhile; that is raised then.

    After a cancellation it goes on for `grace` seconds at most (None: however long it takes) and is then cancelled too.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        await to_the_end(_let_finish(task, keep, grace))
        raise
    keep(task.result())


async def _let_finish(task: asyncio.Task[T], keep: Callable[[T], object], grace: float | None) -> None:
    await asyncio.wait([task], timeout=grace)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        keep(task.result())


@contextlib.asynccontextmanager
async def undoing(undo: Callable[[BaseException], Coroutine[Any, Any, None]]) -> AsyncGenerator[None]:
    """If the block fails or is cancelled, do `undo`, a few times if need be, and raise what the block raised."""
    try:
        with true_cancellation():
            yield
    except BaseException as error:
        reason = error
        failure = await to_the_end(_undo(lambda: undo(reason)))
        if failure is not None:
            error.add_note(f"cleaning up then failed: {type(failure).__name__}: {failure}")
        raise


@contextlib.contextmanager
def told(doing: str, secret: str) -> Generator[None]:
    """Turn what an SDK raises, which nobody should have to know, into a RuntimeError that says what was done.

    Neither its text nor what a traceback shows of its cause has the secret in it.
    """
    try:
        with true_cancellation():
            yield
    except (RuntimeError, KeyError):
        raise  # ours
    except Exception as error:
        said = str(error).replace(secret, "<redacted>") or type(error).__name__
        failure = RuntimeError(f"{doing} failed: {said}")
        if secret in "".join(traceback.format_exception(error)):
            raise failure from None
        raise failure from error


def reason_of(error: BaseException) -> BaseException | None:
    """Return what the SDK raised, if it was turned into this error."""
    return error.__cause__ or error.__context__


@contextlib.contextmanager
def true_cancellation() -> Generator[None]:
    """Raise `CancelledError` where a library made an error of its own of the one that it was given."""
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    except Exception as error:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise


async def _undo(undo: Callable[[], Coroutine[Any, Any, None]]) -> None:
    for tried in range(1, UNDO_TRIES + 1):
        try:
            await undo()
            return
        except Exception as error:
            if tried == UNDO_TRIES:
                # Said here as well, because whoever cancels seldom reads the notes of an exception.
                import logging

                logging.getLogger("agentix.provider").warning("a sandbox may be left behind: %s", error)
                raise
            await asyncio.sleep(UNDO_PAUSE * 2 ** (tried - 1))
