"""The side that files reach: everything is written under another name, and takes its own when it is whole.

Names come from whoever sends, and are used in directories that this module made and holds open, one name at a time and
never through a link. A name that comes twice is refused, so nothing can be made to lead elsewhere halfway.
"""

import errno
import fcntl
import os
import re
import shutil
import stat
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal

from agentix._core import uninterrupted

from ._batch import DIRECTORY, FILE, Batch, Entry
from ._confine import Place, enter
from ._result import TransferError

__all__ = ["FileLanding", "Landing", "TreeLanding", "discard"]

OutsideLinks = Literal["keep", "skip", "refuse"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_DIRECTORIES = 32
_PARTIAL_MAX = 16
_HIDDEN = re.compile(r"\.agentix-[0-9a-f]{32}")
_TRIES = 100
_PAUSE_SECONDS = 0.02
_DIRECTORY_MODE = 0o755


def hidden(token: str) -> str:
    """Return the name under which a transfer is written."""
    return f".agentix-{token}"


def _hold(fd: int) -> bool:
    """Lock what a living transfer writes. False if somebody has just taken it for left behind."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # there are no locks here, so nobody takes it for anything
        pass
    return os.fstat(fd).st_nlink > 0


def _made(make: Callable[[], int], path: str) -> int:
    """Return what was made and is held. Raises FileExistsError if its name is taken, OSError (EBUSY) if it never holds.

    Between the making and the lock another transfer may take it for left behind: it has it locked then, and removes it
    in a moment, in which the name is still there.
    """
    for again in range(_TRIES):
        try:
            fd = make()
        except FileExistsError:
            if again == 0:
                raise
        except FileNotFoundError:  # it was removed before it was open
            pass
        else:
            if _hold(fd):
                return fd
            os.close(fd)
        time.sleep(_PAUSE_SECONDS)
    raise OSError(errno.EBUSY, "what is written there is removed again and again", path)


def _sweep(directory: int) -> None:
    """Remove what transfers into this directory have left whose processes were killed: nobody holds a lock on it."""
    for name in os.listdir(directory):
        if not _HIDDEN.fullmatch(name):
            continue
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = os.fstat(fd)
            if found.st_nlink == 0:  # somebody else has removed it, and what has its name now is another transfer's
                continue
            if stat.S_ISDIR(found.st_mode):
                shutil.rmtree(name, ignore_errors=True, dir_fd=directory)
            else:
                os.unlink(name, dir_fd=directory)
        except OSError:  # it is in use, or gone by now
            pass
        finally:
            os.close(fd)


def discard(place: Place, token: str) -> None:
    """Remove what a transfer to this place has left behind whose process was killed."""
    name = hidden(token)
    try:
        os.unlink(name, dir_fd=place.parent)
    except IsADirectoryError:
        shutil.rmtree(name, ignore_errors=True, dir_fd=place.parent)
    except OSError:
        pass
    try:
        inside = enter(place.parent, place.name)
    except OSError:
        return
    try:
        shutil.rmtree(name, ignore_errors=True, dir_fd=inside)
    finally:
        os.close(inside)


class Landing(ABC):
    """Where a transfer arrives, over `place`. `entries` and `bytes` count what came; several threads may use it."""

    def __init__(self, place: Place, max_bytes: int | None = None, max_entries: int | None = None) -> None:
        self.place = place
        self.entries = 0
        self.bytes = 0
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._lock = threading.Lock()
        self._over = False

    def accept(self, batch: Batch) -> None:
        """Write a batch. Raises TransferError for an entry that is refused, OSError if it cannot be written."""
        with self._lock:
            if self._over:
                raise TransferError(f"{self.place.path}: the transfer has ended")
            for entry in batch:
                self._count(entry)
                self._write(entry)

    def finish(self, entries: int, size: int) -> None:
        """Put what came under its name, if it is so many entries and bytes."""
        with self._lock:
            if self._over:
                raise TransferError(f"{self.place.path}: the transfer has ended")
            if (entries, size) != (self.entries, self.bytes):
                raise self._refused(f"{self.entries} entries and {self.bytes} bytes came of {entries} and {size}")
            self._finish()
            uninterrupted(self._leave)

    def abort(self) -> None:
        """Remove what was written, unless it is finished; a second call does nothing."""
        with self._lock:
            if not self._over:
                try:
                    self._remove()
                finally:
                    uninterrupted(self._leave, True)

    def _leave(self, in_vain: bool = False) -> None:
        self._over = True
        try:
            self._close()
        finally:
            if in_vain:
                self.place.unmake()

    def _count(self, entry: Entry) -> None:
        self.entries += entry[0] != FILE or entry[4] == 0
        self.bytes += len(entry[5]) if entry[0] == FILE else 0
        if self._max_bytes is not None and self.bytes > self._max_bytes:
            raise self._refused(f"it is more than {self._max_bytes} bytes")
        if self._max_entries is not None and self.entries > self._max_entries:
            raise self._refused(f"it has more than {self._max_entries} entries")

    def _refused(self, why: str, path: bytes = b"") -> TransferError:
        where = os.path.join(self.place.path, os.fsdecode(path)) if path else self.place.path
        return TransferError(f"{where}: refused: {why}")

    @abstractmethod
    def _write(self, entry: Entry) -> None: ...

    @abstractmethod
    def _finish(self) -> None: ...

    @abstractmethod
    def _remove(self) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...


class FileLanding(Landing):
    """One file, of a size and with a mode; with None that of the file it replaces, or that of any new one.

    Raises IsADirectoryError, PermissionError if something else than a file stands there, and OSError (ENOSPC) if there
    is no room for it.
    """

    def __init__(self, place: Place, token: str, size: int, mode: int | None, *, max_bytes: int | None = None) -> None:
        super().__init__(place, max_bytes)
        self.size = size
        self._before = _file_at(place)
        if max_bytes is not None and size > max_bytes:
            raise self._refused(f"it is {size} bytes, more than {max_bytes}")
        _must_fit(place.parent, size, place.path)
        self._mode = mode if mode is not None or self._before is None else self._before.st_mode & 0o777
        self._name = hidden(token)
        self._named = False
        self._fd = self._open()

    def _open(self) -> int:
        """A file without a name, if there can be one: nothing is left of it even if this process is killed."""
        try:
            fd = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=self.place.parent)
        except OSError as exc:
            if exc.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
                raise
        else:
            if os.path.exists(f"/proc/self/fd/{fd}"):  # by which it gets its name
                _hold(fd)
                return fd
            os.close(fd)
        _sweep(self.place.parent)
        fd = _made(lambda: os.open(self._name, _NEW, 0o666, dir_fd=self.place.parent), self.place.path)
        self._named = True
        return fd

    def write(self, data: bytes | memoryview, offset: int) -> None:
        """Write a part of it."""
        _write_all(self._fd, data, offset)

    def take(self, data: memoryview, offset: int) -> None:
        """Write the next part of a file that comes in order: what was before the offset is there."""
        with self._lock:
            if self._over:
                raise TransferError(f"{self.place.path}: the transfer has ended")
            self.write(data, offset)
            self.entries, self.bytes = 1, offset + len(data)

    def _write(self, entry: Entry) -> None:
        kind, path, _, size, offset, data = entry
        if kind != FILE or path or size != self.size:
            raise self._refused("it is not the one file that was announced", path)
        self.write(data, offset)

    def _finish(self) -> None:
        uninterrupted(self._take_name)

    def _take_name(self) -> None:
        if self.bytes != self.size:
            raise self._refused(f"{self.bytes} bytes came of {self.size}")
        if self._before is not None:
            _give_to(self._fd, self._before)
        if self._mode is not None:
            os.fchmod(self._fd, self._mode)
        parent = self.place.parent
        if not self._named:
            os.link(f"/proc/self/fd/{self._fd}", self._name, dst_dir_fd=parent, follow_symlinks=True)
            self._named = True
        os.rename(self._name, self.place.name, src_dir_fd=parent, dst_dir_fd=parent)
        self._named = False

    def _remove(self) -> None:
        if self._named:
            os.unlink(self._name, dir_fd=self.place.parent)

    def _close(self) -> None:
        os.close(self._fd)


class _Partial:
    """A file of a tree that comes in pieces."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.came = 0


class TreeLanding(Landing):
    """A directory: a new one, or one that is there, whose other entries stay.

    A link that may lead out of the tree is written as it is, left out, or refused, as `outside_links` says. Raises
    NotADirectoryError if something else stands there.
    """

    def __init__(
        self,
        place: Place,
        token: str,
        mode: int,
        *,
        outside_links: OutsideLinks,
        max_bytes: int | None = None,
        max_entries: int | None = None,
    ) -> None:
        super().__init__(place, max_bytes, max_entries)
        self._mode = mode & 0o777
        self._outside_links = outside_links
        self._modes: dict[bytes, int] = {}  # of directories that get another one than they are made with
        self._partial: dict[bytes, _Partial] = {}
        self._directories: OrderedDict[bytes, int] = OrderedDict()
        self._name = hidden(token)
        self._target = _directory_at(place)  # None: there is none yet
        # Within a directory that is there, since something else may be mounted on it.
        self._home = os.dup(place.parent) if self._target is None else os.dup(self._target)
        self._root = -1
        try:
            self._make_home()
        except BaseException:
            self._close()
            raise

    def _make_home(self) -> None:
        _sweep(self.place.parent)
        if self._target is not None:
            _sweep(self._target)
        self._root = _made(self._make_root, self.place.path)

    def _make_root(self) -> int:
        os.mkdir(self._name, 0o700, dir_fd=self._home)
        return enter(self._home, self._name)

    # ---- entries ----

    def _write(self, entry: Entry) -> None:
        kind, path, mode, _, _, data = entry
        above, _, name = path.rpartition(b"/")
        if not name:
            raise self._refused("it has no name")
        try:
            if kind == DIRECTORY:
                self._make_directory(path, mode & 0o777)
            elif kind == FILE:
                self._write_file(self._directory(above), name, entry)
            else:
                self._write_link(self._directory(above), name, path, data)
        except (FileExistsError, NotADirectoryError) as exc:
            raise self._refused("its name came twice, or leads through what is no directory", path) from exc

    def _make_directory(self, path: bytes, mode: int) -> None:
        self._directory(path)
        if mode != _DIRECTORY_MODE:
            self._modes[path] = mode

    def _directory(self, path: bytes) -> int:
        """Return the descriptor of a directory of ours, which stays open for a while."""
        names: list[bytes] = []
        while path and path not in self._directories:
            path, _, name = path.rpartition(b"/")
            names.append(name)
        fd = self._directories[path] if path else self._root
        while names:
            name = names.pop()
            fd = self._enter(fd, name)
            path = path + b"/" + name if path else name
            self._directories[path] = fd
        if len(self._directories) > _OPEN_DIRECTORIES + 1:
            self._forget(fd)
        return fd

    def _enter(self, fd: int, name: bytes) -> int:
        try:
            os.mkdir(name, 0o700, dir_fd=fd)
        except FileExistsError:
            return enter(fd, name)
        made = enter(fd, name)
        os.fchmod(made, _DIRECTORY_MODE)  # whatever the umask says
        return made

    def _forget(self, but: int) -> None:
        """Close the directories that were opened first."""
        while len(self._directories) > _OPEN_DIRECTORIES // 2:
            path, fd = self._directories.popitem(last=False)
            if fd == but:
                self._directories[path] = fd
            else:
                os.close(fd)

    def _write_file(self, parent: int, name: bytes, entry: Entry) -> None:
        _, path, mode, size, offset, data = entry
        part = self._partial.get(path)
        if part is None:
            if len(self._partial) == _PARTIAL_MAX:
                raise self._refused("too many files at a time", path)
            part = self._partial[path] = _Partial(os.open(name, _NEW, 0o600, dir_fd=parent))
        _write_all(part.fd, data, offset)
        part.came += len(data)
        if part.came >= size:
            del self._partial[path]
            try:
                os.fchmod(part.fd, mode & 0o777)
            finally:
                os.close(part.fd)

    def _write_link(self, parent: int, name: bytes, path: bytes, text: bytes) -> None:
        if self._outside_links != "keep" and not _stays_inside(text, path.count(b"/")):
            if self._outside_links == "skip":
                return
            raise self._refused(f"it is a link that may lead out of the tree: {os.fsdecode(text)}", path)
        os.symlink(text, name, dir_fd=parent)

    # ---- the end ----

    def _finish(self) -> None:
        if self._partial:
            raise self._refused("it is not whole", next(iter(self._partial)))
        if self._target is None and self._take_name():
            return
        if self._target is None:  # somebody else was quicker
            self._target = enter(self.place.parent, self.place.name)
        _check_merge(self._root, self._target, self.place.path)
        _merge(self._root, self._target)
        self._set_modes(self._target)
        os.rmdir(self._name, dir_fd=self._home)

    def _take_name(self) -> bool:
        """Become what stands at the place. False, and nothing has changed, if there is a directory by now."""
        self._set_modes(self._root)
        os.fchmod(self._root, self._mode)
        try:
            os.rename(self._name, self.place.name, src_dir_fd=self._home, dst_dir_fd=self._home)
        except OSError as exc:
            if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return True
        os.fchmod(self._root, 0o700)
        self._set_modes(self._root, back=True)
        return False

    def _set_modes(self, top: int, *, back: bool = False) -> None:
        # The deepest first: the new mode of one may not let us into those below. Back again it is the other way round.
        for path, mode in sorted(self._modes.items(), key=lambda item: item[0].count(b"/"), reverse=not back):
            uninterrupted(_set_mode, top, path, _DIRECTORY_MODE if back else mode)

    def _remove(self) -> None:
        shutil.rmtree(self._name, ignore_errors=True, dir_fd=self._home)

    def _close(self) -> None:
        fds = [self._root, self._home, self._target, *self._directories.values()]
        fds += [part.fd for part in self._partial.values()]
        self._directories.clear()
        self._partial.clear()
        for fd in fds:
            if fd is not None and fd >= 0:
                os.close(fd)


def _set_mode(top: int, path: bytes, mode: int) -> None:
    fd = os.dup(top)
    for name in path.split(b"/"):
        above, fd = fd, -1
        try:
            fd = enter(above, name)
        finally:
            os.close(above)
    try:
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def _stays_inside(text: bytes, depth: int) -> bool:
    """Whether a link, so many directories below the top of its tree, leads into the tree by any road.

    Going up is only allowed at the start, where it means the directories that the link is in. After a name it would
    start from wherever that name leads.
    """
    if text.startswith(b"/"):
        return False
    names = [name for name in text.split(b"/") if name not in (b"", b".")]
    ups = 0
    while ups < len(names) and names[ups] == b"..":
        ups += 1
    return ups <= depth and b".." not in names[ups:]


def _file_at(place: Place) -> os.stat_result | None:
    about = place.stat()
    if about is None or stat.S_ISREG(about.st_mode):
        return about
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(f"{place.path}: is a directory; name the file in it")
    if stat.S_ISLNK(about.st_mode):
        raise PermissionError(f"{place.path}: is a symlink; name the place that it leads to")
    raise PermissionError(f"{place.path}: is neither a file nor a directory")


def _directory_at(place: Place) -> int | None:
    about = place.stat()
    if about is None:
        return None
    if stat.S_ISLNK(about.st_mode):
        raise PermissionError(f"{place.path}: is a symlink; name the place that it leads to")
    if not stat.S_ISDIR(about.st_mode):
        raise NotADirectoryError(f"{place.path}: is no directory")
    return enter(place.parent, place.name)


def _must_fit(directory: int, size: int, shown: str) -> None:
    """Say at once that a disk is too small, and not when it is full."""
    room = os.statvfs(directory)
    if room.f_blocks and size > room.f_bavail * room.f_frsize:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {size} bytes", shown)


def _give_to(fd: int, before: os.stat_result) -> None:
    """Let the file that replaces another one have its owner, as far as we may say so."""
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) != (before.st_uid, before.st_gid):
        try:
            os.fchown(fd, before.st_uid, before.st_gid)
        except PermissionError:
            pass


def _write_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    while view:
        n = os.pwrite(fd, view, offset)
        view, offset = view[n:], offset + n


def _is_directory(name: str, parent: int) -> bool | None:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return None


def _check_merge(source: int, target: int, shown: str) -> None:
    """Raise FileExistsError if a directory is to stand where something else does, or the other way round."""
    if os.fstat(source).st_dev != os.fstat(target).st_dev:
        raise OSError(errno.EXDEV, "another file system is mounted there; transfer to it by itself", shown)
    for name in os.listdir(source):
        new, old = _is_directory(name, source), _is_directory(name, target)
        path = os.path.join(shown, name)
        if old is not None and new != old:
            raise FileExistsError(errno.EEXIST, "a directory and something else of this name", path)
        if new and old:
            with uninterrupted(_Both, name, source, target) as (below, onto):
                _check_merge(below, onto, path)


def _merge(source: int, target: int) -> None:
    """Move what is in one directory into another one; directories that both have are merged."""
    for name in os.listdir(source):
        both = _is_directory(name, source) and _is_directory(name, target)
        if not both:
            try:
                os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
            except OSError as exc:
                if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                both = True  # another transfer was quicker
        if both:
            with uninterrupted(_Both, name, source, target) as (below, onto):
                _merge(below, onto)
            os.rmdir(name, dir_fd=source)


class _Both:
    """The directories of one name in two others."""

    def __init__(self, name: str, first: int, second: int) -> None:
        self._fds = [enter(first, name)]
        try:
            self._fds.append(enter(second, name))
        except BaseException:
            os.close(self._fds[0])
            raise

    def __enter__(self) -> list[int]:
        return self._fds

    def __exit__(self, *exc: object) -> None:
        fds, self._fds = self._fds, []
        for fd in fds:
            os.close(fd)

    __del__ = __exit__  # in case of a cancellation between its making and its use
