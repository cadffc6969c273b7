"""The host's side of transfers: `upload_path` and `download_path`.

Content goes as arguments and values of calls, a few of them under way at a time, and so has what calls have: each is
carried out once whatever happens to the connection, others are not held up, and memory is bounded by their number. One
large file goes over a connection of its own where there can be one (`_straight.py`), the rest of it by calls.
"""

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, Protocol

from ._batch import DIRECTORY, FILE, IN_FLIGHT, Batch, checked, checksum_of, keep_memory
from ._confine import Place, enter_or_make, held
from ._landing import FileLanding, Landing, TreeLanding
from ._result import TransferError, UploadResult
from ._sandbox import abort, begin_get, begin_put, end_get, end_put, put, rest, take
from ._source import Source
from ._straight import straight_down, straight_up
from ._tasks import in_thread, several, to_the_end

__all__ = ["download_path", "upload_path"]

Progress = Callable[[int, int | None], None]

ENTRIES_MAX = 1_000_000
ABORT_SECONDS = 10.0


class Callee(Protocol):
    """A `Sandbox` or a `RuntimeClient`."""

    def remote(self, fn: Callable[..., Any], /, *args: Any) -> Awaitable[Any]:
        """Call a function in the sandbox."""
        ...


async def upload_path(
    sandbox: Callee, source: str | Path, target: str, *, progress: Progress | None = None
) -> UploadResult:
    """Copy a file or a directory of this machine's into the sandbox: any size, constant memory.

    `target` is the name it gets there, a path as `upload` takes. A file replaces one that is there; a directory is
    merged into one that is there. Either appears under its name when all of it has come. Permission bits are kept, and
    links within a directory stay links, wherever they lead; none is followed. `progress(done, total)` is called on the
    event loop with bytes of content, the last time before the target has its name; `total` is None for a directory.

    Returns where it is and how many bytes of content it has. Raises OSError for what cannot be read here,
    `TransferError` if it changes meanwhile, PermissionError for what is no file (a device, a fifo, a socket, `/proc`),
    and what `remote` raises, in which the sandbox's errors are. After any of these, or a cancellation, nothing is left
    in the sandbox, unless that cannot be reached any more.
    """
    token = secrets.token_hex(16)
    keep_memory()
    origin = await in_thread(Source.at, os.fspath(source), undo=Source.close)
    try:
        path = await sandbox.remote(begin_put, token, target, origin.kind, origin.size, origin.mode)
        shown = _Shown(progress, origin.size)

        await straight_up(sandbox, token, origin, shown.at)

        async def push() -> None:
            while True:
                batch, checksum = await asyncio.to_thread(_take, origin)
                if not batch:
                    return
                await sandbox.remote(put, token, checksum, batch)
                shown.add(batch)

        await several(IN_FLIGHT, push)
        shown.end()
        await sandbox.remote(end_put, token, origin.entries, origin.bytes)
    except BaseException as exc:
        await to_the_end(_abort(sandbox, token, target, exc))
        raise
    finally:
        await to_the_end(asyncio.to_thread(origin.close))
    if not isinstance(path, str):
        raise TransferError("the sandbox did not say where it put the files")
    return UploadResult(path, origin.bytes)


async def download_path(
    sandbox: Callee,
    source: str,
    target: str | Path,
    *,
    progress: Progress | None = None,
    max_bytes: int | None = None,
    max_entries: int = ENTRIES_MAX,
    outside_links: Literal["refuse", "skip"] = "refuse",
) -> UploadResult:
    """Copy a file or a directory of the sandbox's to this machine: any size, constant memory.

    `source` is a path as `download` takes, `target` the name that the copy gets. A file replaces one that is there; a
    directory is merged into one that is there. Either appears under its name when all of it has come. Nothing is
    written elsewhere, whatever the sandbox says; permission bits are kept but for set-id, and links within a directory
    stay links, if they lead to a place in it by any road. With `outside_links="skip"` the others are left out, else
    they are an error. `progress(done, total)` is called on the event loop with bytes of content, the last time before
    the target has its name; `total` is None for a directory.

    Returns where it is and how many bytes of content it has. Raises `TransferError` for more than `max_bytes` or
    `max_entries`, for a name or a link that is refused, for a wrong checksum and for a source that changes meanwhile;
    PermissionError if `target` is a symlink; OSError if it cannot be written; and what `remote` raises, in which the
    sandbox's errors are. After any of these, or a cancellation, nothing is left here.
    """
    token = secrets.token_hex(16)
    keep_memory()
    place = await in_thread(_local, os.fspath(target), undo=_give_back)
    landing: Landing | None = None
    try:
        offer = await sandbox.remote(begin_get, token, source)
        kind, size, mode = _checked_offer(offer)
        landing = (
            TreeLanding(place, token, mode, outside_links=outside_links, max_bytes=max_bytes, max_entries=max_entries)
            if kind == DIRECTORY
            else FileLanding(place, token, size or 0, mode, max_bytes=max_bytes)
        )
        shown = _Shown(progress, size)

        async def pull(landing: Landing = landing) -> None:
            while True:
                batch = await asyncio.to_thread(_land, landing, await sandbox.remote(take, token))
                if not batch:
                    return
                shown.add(batch)

        if await _is_missing_some(sandbox, token, landing, shown):
            await several(IN_FLIGHT, pull)
        match await sandbox.remote(end_get, token):
            case (int() as entries, int() as total):
                shown.end()
                await in_thread(landing.finish, entries, total)
            case _:
                raise TransferError("the sandbox did not say how much it sent")
    except BaseException as exc:
        await to_the_end(_abort(sandbox, token, None, exc))
        raise
    finally:
        await to_the_end(asyncio.to_thread(_leave, landing, place))
    return UploadResult(place.path, shown.done)


class _Shown:
    """Tells whoever wants to know how far a transfer is."""

    def __init__(self, progress: Progress | None, total: int | None) -> None:
        self._progress = progress
        self._total = total
        self.done = 0
        self._say()

    def add(self, batch: Batch) -> None:
        """A batch has been taken over."""
        self.done += sum(len(entry[5]) for entry in batch if entry[0] == FILE)
        if self.done != self._total:  # that is said at the end
            self._say()

    def at(self, done: int) -> None:
        """So much of a file has gone; if some went twice, it is not said twice."""
        if done > self.done:
            self.done = done
            if done != self._total:
                self._say()

    def end(self) -> None:
        """All has come and is about to get its name."""
        self._say()

    def _say(self) -> None:
        if self._progress is not None:
            self._progress(self.done, self._total)


async def _is_missing_some(sandbox: Callee, token: str, landing: Landing, shown: "_Shown") -> bool:
    """Take what goes over a connection of its own; whether anything is left for batches."""
    if not isinstance(landing, FileLanding):
        return True
    await straight_down(sandbox, token, landing, shown.at)
    if landing.bytes:
        await sandbox.remote(rest, token, landing.bytes)
    return landing.bytes < landing.size or not landing.size


def _take(source: Source) -> tuple[Batch, int]:
    batch = source.take()
    return batch, checksum_of(batch)


def _land(landing: Landing, answer: Any) -> Batch:
    batch = checked(answer)
    landing.accept(batch)
    return batch


def _leave(landing: Landing | None, place: Place) -> None:
    if landing is None:
        _give_back(place)
    else:
        landing.abort()
        place.close()


def _give_back(place: Place) -> None:
    place.unmake()
    place.close()


def _checked_offer(offer: Any) -> tuple[str, int | None, int]:
    match offer:
        case (str() as kind, size, int() as mode) if kind in (DIRECTORY, FILE) and 0 <= mode <= 0o777:
            if (type(size) is int and size >= 0) if kind == FILE else size is None:
                return kind, size, mode
        case _:
            pass
    raise TransferError("the sandbox offers what is neither a file nor a directory")


def _local(path: str) -> Place:
    """Return a place of this machine's, as its user names it: links above it are followed, and directories made."""
    return held(lambda: _find_local(path))


def _find_local(path: str) -> Place:
    path = os.path.join(os.getcwd(), path).rstrip("/")
    if os.path.basename(path) in ("", ".", ".."):
        path = os.path.realpath(path)
    above, name = os.path.split(path)
    missing: list[str] = []
    made: list[tuple[int, str]] = []
    while True:
        try:
            fd = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            break
        except FileNotFoundError:
            above, last = os.path.split(above)
            missing.append(last)
    try:
        while missing:
            below = enter_or_make(fd, missing.pop(), made)
            os.close(fd)
            fd = below
    except BaseException:
        failed = Place(fd, name, path, made)
        failed.unmake()
        failed.close()
        raise
    return Place(fd, name or ".", path or "/", made)


async def _abort(sandbox: Callee, token: str, target: str | None, why: BaseException) -> None:
    """Have the sandbox drop a transfer, if it can be reached."""
    try:
        async with asyncio.timeout(ABORT_SECONDS):
            await sandbox.remote(abort, token, target)
    except Exception as exc:
        why.add_note(f"the sandbox was not told to drop what it had of this transfer: {type(exc).__name__}: {exc}")
