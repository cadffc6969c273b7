"""The host's side of transfers: `upload_path` and `download_path`.

Content goes as arguments and values of calls, a few of them under way at a time, and so has what calls have: each is
carried out once whatever happens to the connection, others are not held up, and memory is bounded by their number.
"""

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from ._batch import DIRECTORY, FILE, IN_FLIGHT, Batch, checked, checksum_of, keep_memory
from ._confine import Place, enter_or_make
from ._landing import FileLanding, Landing, TreeLanding
from ._result import TransferError, UploadResult
from ._sandbox import abort, begin_get, begin_put, end_get, end_put, put, take
from ._source import Source

__all__ = ["download_path", "upload_path"]

T = TypeVar("T")
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
    event loop with bytes of content; `total` is None for a directory.

    Returns where it is and how many bytes of content it has. Raises OSError for what cannot be read here,
    `TransferError` if it changes meanwhile, PermissionError for what is no file (a device, a fifo, a socket, `/proc`),
    and what `remote` raises, in which the sandbox's errors are. After any of these, or a cancellation, nothing is left
    in the sandbox, unless that cannot be reached any more.
    """
    token = secrets.token_hex(16)
    keep_memory()
    origin = await _in_thread(Source.at, os.fspath(source), undo=Source.close)
    try:
        path = await sandbox.remote(begin_put, token, target, origin.kind, origin.size, origin.mode)
        shown = _Shown(progress, origin.size)

        async def push() -> None:
            while True:
                batch, checksum = await asyncio.to_thread(_take, origin)
                if not batch:
                    return
                await sandbox.remote(put, token, checksum, batch)
                shown.add(batch)

        await _several(push)
        await sandbox.remote(end_put, token, origin.entries, origin.bytes)
        shown.end()
    except BaseException as exc:
        await _to_the_end(_abort(sandbox, token, target, exc))
        raise
    finally:
        await _to_the_end(asyncio.to_thread(origin.close))
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
    they are an error. `progress(done, total)` is called on the event loop with bytes of content; `total` is None for a
    directory.

    Returns where it is and how many bytes of content it has. Raises `TransferError` for more than `max_bytes` or
    `max_entries`, for a name or a link that is refused, for a wrong checksum and for a source that changes meanwhile;
    PermissionError if `target` is a symlink; OSError if it cannot be written; and what `remote` raises, in which the
    sandbox's errors are. After any of these, or a cancellation, nothing is left here.
    """
    token = secrets.token_hex(16)
    keep_memory()
    place = _local(os.fspath(target))
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

        await _several(pull)
        match await sandbox.remote(end_get, token):
            case (int() as entries, int() as total):
                await _in_thread(landing.finish, entries, total)
            case _:
                raise TransferError("the sandbox did not say how much it sent")
        shown.end()
    except BaseException as exc:
        await _to_the_end(_abort(sandbox, token, None, exc))
        raise
    finally:
        await _to_the_end(asyncio.to_thread(_leave, landing, place))
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

    def end(self) -> None:
        """All is done."""
        self._say()

    def _say(self) -> None:
        if self._progress is not None:
            self._progress(self.done, self._total)


def _take(source: Source) -> tuple[Batch, int]:
    batch = source.take()
    return batch, checksum_of(batch)


def _land(landing: Landing, answer: Any) -> Batch:
    batch = checked(answer)
    landing.accept(batch)
    return batch


def _leave(landing: Landing | None, place: Place) -> None:
    if landing is not None:
        landing.abort()
    else:
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


# ---- tasks ----


async def _several(job: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do the same job several times at once. The first exception is raised when the others have been cancelled."""
    tasks = [asyncio.ensure_future(job()) for _ in range(IN_FLIGHT)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _in_thread(work: Callable[..., T], *arguments: Any, undo: Callable[[T], object] | None = None) -> T:
    """Run `work` beside the loop, to its end even if this is cancelled; then what it gave is undone."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _to_the_end(asyncio.wait([task]))
        if undo is not None and not task.cancelled() and task.exception() is None:
            undo(task.result())
        raise


async def _to_the_end(work: Coroutine[Any, Any, object]) -> None:
    """Await `work` to its end; a cancellation that comes meanwhile is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None:
        raise cancelled
    task.result()


async def _abort(sandbox: Callee, token: str, target: str | None, why: BaseException) -> None:
    """Have the sandbox drop a transfer, if it can be reached."""
    try:
        async with asyncio.timeout(ABORT_SECONDS):
            await sandbox.remote(abort, token, target)
    except Exception as exc:
        why.add_note(f"the sandbox was not told to drop what it had of this transfer: {type(exc).__name__}: {exc}")
