"""What travels: batches of entries, each batch with a checksum of its own.

A tree is a series of entries, a file a tree of one. An entry is a directory, a link, or a piece of a file that says all
about itself, so batches may overtake each other: whoever takes a piece makes the directories above it, and a file is
whole when as many bytes have come as its size. Directories come at least for the sake of their modes. There is no word
for devices, hard links or anything else.

The checksum is against what breaks, not against who lies: whoever could alter a batch could alter its checksum, too. A
cryptographic one would cost more than all the rest of a transfer.
"""

from typing import Any, TypeAlias, cast
from zlib import crc32

from ._result import TransferError

__all__ = ["DIRECTORY", "FILE", "LINK", "Batch", "Entry", "checked", "checksum_of", "keep_memory"]

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


def keep_memory() -> None:
    """Have the allocator keep buffers of a batch's size, instead of giving each back to the system.

    The C library learns from the largest block that was freed what sizes to keep. Fresh pages for every batch would
    take longer than to fill them. This block itself is never touched, so it costs no memory.
    """
    bytes(4 * CHUNK)


def checksum_of(batch: Batch) -> int:
    """Return the CRC-32 of a batch, descriptions and contents."""
    about = [(*entry[:5], len(entry[5])) for entry in batch]
    whole = crc32(ascii(about).encode())
    for entry in batch:
        whole = crc32(entry[5], whole)
    return whole


def checked(answer: Any) -> Batch:
    """Return the batch of a pair of checksum and batch, whoever sent it. Raises TransferError if it is none."""
    if type(answer) is not tuple:
        raise TransferError("what came is not a batch of files")
    checksum, batch = _pair(cast("tuple[Any, ...]", answer))
    if checksum_of(batch) != checksum:
        raise TransferError("the checksum of a batch is wrong: it was altered on its way")
    return batch


def _pair(answer: tuple[Any, ...]) -> tuple[int, Batch]:
    if len(answer) == 2 and type(answer[0]) is int and type(answer[1]) is list:
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
