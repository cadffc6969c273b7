"""The side that files leave: reads a file or a tree, follows no link, and says if what it reads changes meanwhile."""

import os
import stat
import threading
from collections.abc import Generator, Iterator

from ._batch import CHUNK, DEPTH_MAX, DIRECTORY, ENTRIES_MAX, FILE, LINK, PATH_MAX, Batch
from ._confine import Place
from ._result import TransferError

__all__ = ["Source", "open_regular", "read_exactly"]

# Without O_NONBLOCK the opening of a fifo would wait for somebody who writes.
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Source:
    """What is to be transferred, opened. `kind` is DIRECTORY or FILE, `size` that of a file, or None.

    `entries` and `bytes` count what was taken. May be used by several threads.
    """

    def __init__(self, fd: int, path: str, *also: str) -> None:
        """Take over a descriptor; `also` are other names of what it is, in full.

        Raises PermissionError for what is neither a regular file nor a directory.
        """
        self._fd = fd
        self._path = path
        self._tops = {os.fsencode(top).rstrip(b"/") + b"/" for top in (path, *also)}
        self._lock = threading.Lock()
        self.entries = 0
        self.bytes = 0
        try:
            self._begin()
        except BaseException:
            os.close(fd)
            raise

    def _begin(self) -> None:
        about = os.fstat(self._fd)
        self.mode = about.st_mode & 0o777
        self.size: int | None = None
        if stat.S_ISDIR(about.st_mode):
            self.kind = DIRECTORY
            self._batches = self._tree()
        else:
            _must_be_regular(about, self._path)
            self.kind = FILE
            self.size = about.st_size
            self._about = about
            self._batches = self._file(self._fd, b"", about)

    @classmethod
    def at(cls, path: str) -> "Source":
        """Open a path of this machine's; a link at its end is followed, since whoever gave the path meant that.

        How it is spelt makes no difference to what is sent.
        """
        whole, real = os.path.abspath(path), os.path.realpath(path)
        return cls(os.open(path, _OPEN), whole, real)

    @classmethod
    def of(cls, place: Place) -> "Source":
        """Open a place that was located; what has become a link meanwhile is refused."""
        return cls(os.open(place.name, _OPEN | os.O_NOFOLLOW, dir_fd=place.parent), place.path)

    def take(self) -> Batch:
        """Return the next batch, or an empty one at the end. Raises TransferError if what is read changed meanwhile."""
        with self._lock:
            if self._fd < 0:
                raise TransferError(f"{self._path}: the transfer has ended")
            batch = next(self._batches, None) or []
            self.bytes += sum(len(entry[5]) for entry in batch if entry[0] == FILE)
            self.entries += sum(entry[0] != FILE or entry[4] == 0 for entry in batch)  # a file: its first piece
            return batch

    def close(self) -> None:
        """Close everything; a second call does nothing."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                self._batches.close()
                os.close(fd)

    # ---- a file by itself ----

    def seek(self, at: int) -> None:
        """Go on with the batches of a file from an offset; what is before it was taken in another way."""
        with self._lock:
            if self._fd < 0:
                raise TransferError(f"{self._path}: the transfer has ended")
            self._batches.close()
            self.entries, self.bytes = int(at > 0), at
            self._batches = self._file(self._fd, b"", self._about, at)

    def read(self, into: memoryview, offset: int) -> None:
        """Fill a buffer from a file. Raises TransferError if there is not so much of it any more."""
        with self._lock:
            if self._fd < 0:
                raise TransferError(f"{self._path}: the transfer has ended")
            while into:
                n = os.preadv(self._fd, [into], offset)
                if not n:
                    raise TransferError(f"{self._path}: became shorter while it was read")
                into, offset = into[n:], offset + n

    def must_be_as_before(self) -> None:
        """Raise TransferError if a file has changed since it was opened."""
        with self._lock:
            if self._fd < 0:
                raise TransferError(f"{self._path}: the transfer has ended")
            must_be_as_before(self._fd, self._about, self._path)

    # ---- reading ----

    def _file(self, fd: int, path: bytes, about: os.stat_result, at: int = 0) -> Generator[Batch, None, None]:
        """Pieces of one file from an offset on, each a batch."""
        mode, size = about.st_mode & 0o777, about.st_size
        offset = at
        while offset < size or not offset:
            data = read_exactly(fd, min(CHUNK, size - offset), offset, self._shown(path))
            yield [(FILE, path, mode, size, offset, data)]
            offset += len(data)
            if offset >= size:
                break
        must_be_as_before(fd, about, self._shown(path))

    def _tree(self) -> Generator[Batch, None, None]:
        batch: Batch = []
        room = CHUNK
        for directory, name, path, about in self._walk():
            mode = about.st_mode & 0o777
            if stat.S_ISDIR(about.st_mode):
                batch.append((DIRECTORY, path, mode, 0, 0, b""))
            elif stat.S_ISLNK(about.st_mode):
                batch.append((LINK, path, mode, 0, 0, self._text_of_link(directory, name, path)))
            else:
                with _Closing(os.open(name, _OPEN | os.O_NOFOLLOW, dir_fd=directory)) as fd:
                    about = os.fstat(fd)
                    _must_be_regular(about, self._shown(path))
                    size = about.st_size
                    if batch and size > room:
                        yield batch
                        batch, room = [], CHUNK
                    if size > CHUNK:
                        yield from self._file(fd, path, about)
                        continue
                    data = read_exactly(fd, size, 0, self._shown(path))
                    must_be_as_before(fd, about, self._shown(path))
                batch.append((FILE, path, about.st_mode & 0o777, size, 0, data))
                room -= size
            if len(batch) == ENTRIES_MAX:
                yield batch
                batch, room = [], CHUNK
        if batch:
            yield batch

    def _walk(self) -> Iterator[tuple[int, str, bytes, os.stat_result]]:
        """Everything below: an open directory, a name in it, its path, and what it is."""
        levels = [_Level(os.dup(self._fd), b"")]
        try:
            while levels:
                level = levels[-1]
                entry = next(level.entries, None)
                if entry is None:
                    levels.pop().close()
                    continue
                about = entry.stat(follow_symlinks=False)
                path = level.path + os.fsencode(entry.name)
                if len(path) > PATH_MAX or len(levels) > DEPTH_MAX:
                    raise TransferError(f"{self._shown(path)[:200]}...: too deep or too long a path")
                yield level.fd, entry.name, path, about
                if stat.S_ISDIR(about.st_mode):
                    fd = os.open(entry.name, _OPEN | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=level.fd)
                    levels.append(_Level(fd, path + b"/"))
        finally:
            for level in levels:
                level.close()

    def _text_of_link(self, directory: int, name: str, path: bytes) -> bytes:
        """Where a link leads; one that names a place in this tree in full gets a text that is valid elsewhere."""
        text = os.fsencode(os.readlink(name, dir_fd=directory))
        for top in self._tops:
            inside = text.removeprefix(top)
            if inside != text and text.startswith(b"/") and b".." not in inside.split(b"/"):
                return b"../" * path.count(b"/") + inside
        return text

    def _shown(self, path: bytes) -> str:
        return os.path.join(self._path, os.fsdecode(path)) if path else self._path


class _Level:
    """A directory whose entries are read."""

    def __init__(self, fd: int, path: bytes) -> None:
        self.fd = fd
        self.path = path  # with "/" at its end
        self.entries = os.scandir(fd)

    def close(self) -> None:
        self.entries.close()
        os.close(self.fd)


class _Closing:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)


def open_regular(place: Place) -> tuple[int, os.stat_result]:
    """Open a regular file, and say what it is."""
    fd = os.open(place.name, _OPEN | os.O_NOFOLLOW, dir_fd=place.parent)
    try:
        about = os.fstat(fd)
        _must_be_regular(about, place.path)
    except BaseException:
        os.close(fd)
        raise
    return fd, about


def read_exactly(fd: int, size: int, offset: int, shown: str) -> bytes:
    """Read so many bytes. Raises TransferError if there are fewer."""
    data = os.pread(fd, size, offset)
    while len(data) < size:
        more = os.pread(fd, size - len(data), offset + len(data))
        if not more:
            raise TransferError(f"{shown}: became shorter while it was read")
        data += more
    return data


def must_be_as_before(fd: int, before: os.stat_result, shown: str) -> None:
    """Raise TransferError if a file has changed since. What the kernel makes up has more than its size says."""
    after = os.fstat(fd)
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns) or os.pread(fd, 1, before.st_size):
        raise TransferError(f"{shown}: changed while it was read")


def _must_be_regular(about: os.stat_result, shown: str) -> None:
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(f"{shown}: is a directory")
    if not stat.S_ISREG(about.st_mode):
        raise PermissionError(f"{shown}: is not a regular file, it may have no end")
    if about.st_dev in _made_up():
        raise PermissionError(f"{shown}: is made up by the kernel, it may have no end")


def _made_up() -> set[int]:
    """The file systems whose files are no files."""
    found: set[int] = set()
    for path in ("/proc", "/sys"):
        try:
            found.add(os.stat(path).st_dev)
        except OSError:
            pass
    return found - {os.stat("/").st_dev}
