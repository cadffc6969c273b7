"""Paths in a sandbox, confined to one directory as if it were the root of the file system.

Nothing here looks at a path and opens it afterwards. The walk holds a descriptor of each directory it is in, reads
links itself and opens names without following them, so what somebody swaps meanwhile is an error at worst.

A transfer that fails removes the directories that it made and that are empty, and a file without a name leaves its
directory so. Therefore whoever is about to write in a directory has a shared lock on it, and who removes it an
exclusive one.
"""

import errno
import fcntl
import os
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType

__all__ = ["ROOT", "Place", "enter", "enter_or_make", "held", "locate", "naming"]

ROOT = os.environ.get("AGENTIX_UPLOAD_ROOT") or "/workspace"
"""Read at import."""

HOPS_MAX = 40
_TRIES = 100
_PAUSE_SECONDS = 0.005
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Place:
    """A name in an open directory; "." if it is that directory. `path` is where that is, for people.

    `made` are the directories that were made to get there, each as a name in an open directory.
    """

    def __init__(self, parent: int, name: str, path: str, made: list[tuple[int, str]]) -> None:
        self.parent = parent
        self.name = name
        self.path = path
        self._made = made

    def hold(self) -> bool:
        """Keep others from removing the directory until this is closed. False if one has just done so."""
        return _lock(self.parent, fcntl.LOCK_SH) and os.fstat(self.parent).st_nlink > 0

    def unmake(self) -> None:
        """Remove the directories that were made, if nothing is in them and nobody else holds them."""
        if self._made:
            _lock(self.parent, fcntl.LOCK_UN)
        _unmake(self._made)

    def close(self) -> None:
        """Close the directories; a second call does nothing."""
        fds, self.parent = [self.parent, *(fd for fd, _ in self._made)], -1
        self._made = []
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    @contextmanager
    def or_nothing(self) -> Generator[None]:
        """Unmake and close what there is if something fails within."""
        try:
            yield
        except BaseException:
            self.unmake()
            self.close()
            raise

    def stat(self) -> os.stat_result | None:
        """Return what stands there, of a link the link, or None."""
        try:
            return os.stat(self.name, dir_fd=self.parent, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def __enter__(self) -> "Place":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def enter(parent: int, name: str | bytes) -> int:
    """Open the directory `name`, which must not be a link."""
    return os.open(name, _DIRECTORY, dir_fd=parent)


def enter_or_make(parent: int, name: str, made: list[tuple[int, str]]) -> int:
    """Open a directory that is made if it is missing, and noted then."""
    try:
        return enter(parent, name)
    except FileNotFoundError:
        pass
    above = os.dup(parent)
    try:
        os.mkdir(name, 0o777, dir_fd=parent)
    except BaseException as exc:
        os.close(above)
        if not isinstance(exc, FileExistsError):
            raise
    else:
        made.append((above, name))
    return enter(parent, name)


def locate(path: str, *, make: bool = False, root: str | None = None) -> Place:
    """Find `path` below the root, with links followed as after `chroot`; `make` makes the directories it needs.

    Raises PermissionError for a path that is not below the root or goes through too many links, FileNotFoundError,
    NotADirectoryError.
    """
    top = ROOT if root is None else root
    names = _below(path, top)

    def walked() -> Place:
        walk = _Walk(path, top, make)
        try:
            return walk.to_the_end(names)
        except BaseException:
            walk.unmake()
            raise
        finally:
            walk.close()

    with naming(path):
        return held(walked) if make else walked()


def held(find: Callable[[], Place]) -> Place:
    """Find a place and hold it; again if another transfer removes a directory on the way there meanwhile."""
    for _ in range(_TRIES):
        try:
            place = find()
        except FileNotFoundError:
            pass
        else:
            if place.hold():
                return place
            place.unmake()
            place.close()
        time.sleep(_PAUSE_SECONDS)
    return find()


@contextmanager
def naming(path: str) -> Generator[None]:
    """Let errors of the system name what was asked for, not the part of it that failed."""
    try:
        yield
    except OSError as exc:
        if exc.filename is None:  # said by us
            raise
        raise type(exc)(exc.errno, exc.strerror, path) from None


class _Walk:
    def __init__(self, path: str, root: str, make: bool) -> None:
        self._path = path
        self._root = root
        self._make = make
        if make:
            os.makedirs(root, exist_ok=True)
        self._fds = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        self._names: list[str] = []  # of all but the first
        self._made: list[tuple[int, str]] = []

    def close(self) -> None:
        for fd in (*self._fds, *(fd for fd, _ in self._made)):
            os.close(fd)

    def unmake(self) -> None:
        _unmake(self._made)

    def to_the_end(self, names: list[str]) -> Place:
        ahead = deque(names)
        hops = 0
        while ahead:
            name = ahead.popleft()
            if name == "..":
                self._up()
                continue
            link = self._link(name)
            if link is not None:
                hops += 1
                if hops > HOPS_MAX:
                    raise PermissionError(
                        f"{self._path}: goes through more than {HOPS_MAX} symlinks, or a cycle of them"
                    )
                while link.startswith("/") and self._names:
                    self._up()
                ahead.extendleft(reversed(_split(link)))
            elif ahead:
                fd = self._fds[-1]
                self._fds.append(enter_or_make(fd, name, self._made) if self._make else enter(fd, name))
                self._names.append(name)
            else:
                return self._place(name)
        name = self._names[-1] if self._names else "."
        self._up()
        return self._place(name)

    def _up(self) -> None:
        if self._names:
            self._names.pop()
            os.close(self._fds.pop())

    def _link(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self._fds[-1])
        except OSError as exc:
            if exc.errno in (errno.EINVAL, errno.ENOENT):  # something else, or nothing yet
                return None
            raise

    def _place(self, name: str) -> Place:
        path = os.path.normpath(os.path.join(self._root, *self._names, name))
        parent = os.dup(self._fds[-1])
        made, self._made = self._made, []
        return Place(parent, name, path, made)


def _unmake(made: list[tuple[int, str]]) -> None:
    for parent, name in reversed(made):
        try:
            fd = enter(parent, name)
        except OSError:
            continue
        try:
            if _lock(fd, fcntl.LOCK_EX):
                os.rmdir(name, dir_fd=parent)
        except OSError:
            pass
        finally:
            os.close(fd)


def _lock(fd: int, how: int) -> bool:
    """Whether a directory is locked now, or cannot be here."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _split(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _below(path: str, root: str) -> list[str]:
    """Return the names of `path` from the root on."""
    if "\0" in path:
        raise ValueError("a path cannot hold a null character")
    if not path.startswith("/"):
        return _never_above(_split(path), path, root)
    for top in (root, os.path.realpath(root)):
        above, names = _split(os.path.abspath(top)), _split(path)
        if names[: len(above)] == above:
            return _never_above(names[len(above) :], path, root)
    raise _outside(path, root)


def _never_above(names: list[str], path: str, root: str) -> list[str]:
    depth = 0
    for name in names:
        depth += -1 if name == ".." else 1
        if depth < 0:
            raise _outside(path, root)
    return names


def _outside(path: str, root: str) -> PermissionError:
    return PermissionError(f"{path}: outside allowed root {root}")
