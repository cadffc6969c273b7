"""What travels: batches of entries, each batch with a digest of its own.

A tree is a series of entries, a file a tree of one. An entry is a directory, a link, or a piece of a file that says all
about itself, so batches may overtake each other: whoever takes a piece makes the directories above it, and a file is
whole when as many bytes have come as its size. Directories come at least for the sake of their modes. There is no word
for devices, hard links or anything else.
"""

import hashlib
from typing import Any, TypeAlias, cast

from ._result import TransferError

__all__ = ["DIRECTORY", "FILE", "LINK", "Batch", "Entry", "checked", "digest_of"]

DIRECTORY, FILE, LINK = "d", "f", "l"

CHUNK = 512 << 10
"""Bytes of content in a batch."""
ENTRIES_MAX = 256
"""Entries in a batch."""
IN_FLIGHT = 4
"""Batches under way at a time. What a transfer costs in memory is a few times CHUNK * IN_FLIGHT, on each side."""
PATH_MAX = 4096
NAME_MAX = 255
DEPTH_MAX = 200
"""Directories inside each other."""

Entry: TypeAlias = tuple[str, bytes, int, int, int, bytes]
"""Kind, path below the target with "/" between names, mode, size of the file, offset, bytes (of a link: its text)."""
Batch: TypeAlias = list[Entry]

_TYPES = [str, bytes, int, int, int, bytes]


def digest_of(batch: Batch) -> bytes:
    """Return the SHA-256 of a batch, contents and descriptions."""
    whole = hashlib.sha256()
    for *about, data in batch:
        whole.update(ascii((*about, len(data))).encode())
        whole.update(data)
    return whole.digest()


def checked(answer: Any) -> Batch:
    """Return the batch of a pair of digest and batch, whoever sent it. Raises TransferError if it is none."""
    if type(answer) is not tuple:
        raise TransferError("what came is not a batch of files")
    digest, batch = _pair(cast("tuple[Any, ...]", answer))
    if digest_of(batch) != digest:
        raise TransferError("the checksum of a batch is wrong: it was altered on its way")
    return batch


def _pair(answer: tuple[Any, ...]) -> tuple[bytes, Batch]:
    if len(answer) == 2 and type(answer[0]) is bytes and type(answer[1]) is list:
        entries = cast("list[Any]", answer[1])
        if len(entries) <= ENTRIES_MAX and all(type(entry) is tuple and _is_entry(entry) for entry in entries):
            return answer[0], entries
    raise TransferError("what came is not a batch of files, or holds a name that leads elsewhere")


def _is_entry(entry: tuple[Any, ...]) -> bool:
    if [*map(type, entry)] != _TYPES:
        return False
    kind, path, mode, size, offset, data = cast("Entry", entry)
    if mode < 0 or size < 0 or offset < 0 or not _is_path(path, kind == FILE):
        return False
    if kind == FILE:
        return offset + len(data) <= size and (bool(data) or size == 0)
    if kind == LINK:
        return 0 < len(data) <= PATH_MAX and b"\0" not in data
    return kind == DIRECTORY and not data


def _is_path(path: bytes, may_be_empty: bool) -> bool:
    """Whether these are plain names that lead downwards. The empty path is the file that is the whole transfer."""
    if not path:
        return may_be_empty
    names = path.split(b"/")
    return (
        len(path) <= PATH_MAX
        and len(names) <= DEPTH_MAX
        and b"\0" not in path
        and all(0 < len(name) <= NAME_MAX and name not in (b".", b"..") for name in names)
    )
