"""Targets that hold up a step of a transfer where a test wants it, to be cancelled there."""

import os
import threading
import time
from typing import Any

from agentix.files import _confine, _landing, _sandbox
from agentix.files._batch import FILE, checksum_of

PLACES: dict[str, tuple[Any, str]] = {
    "directories made": (_landing, "_file_at"),
    "file open": (_landing, "_hold"),
    "all ready": (_sandbox, "_keep"),
    "directory made": (_landing.TreeLanding, "_make_root"),
    "finishing": (_landing, "_give_to"),
    "closing": (_landing.FileLanding, "_close"),
    "dropping": (_confine.Place, "close"),
}

_stopped = threading.Event()
_go = threading.Event()


def hold_up(at: str) -> None:
    owner, name = PLACES[at]
    real = getattr(owner, name)

    def late(*args: Any) -> Any:
        value = real(*args) if at == "file open" else None
        if not _stopped.is_set():
            _stopped.set()
            while not _go.is_set():  # an exception that is set for this thread strikes here, if it may
                time.sleep(0.002)
        return value if at == "file open" else real(*args)

    setattr(owner, name, late)


def begin(root: str) -> None:
    _confine.ROOT = root


def has_stopped() -> bool:
    return _stopped.wait(30)


def go_on() -> None:
    _go.set()


def put_nothing(token: str) -> None:
    batch = [(FILE, b"", 0o644, 0, 0, b"")]
    _sandbox.put(token, checksum_of(batch), batch)


def held() -> tuple[list[str], int]:
    """What this process has open, and how many transfers."""
    found: list[str] = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:  # it was the listing's
            pass
    return sorted(found), len(_sandbox._sessions)
