"""Ending a sandbox that another process of this user started: there is no handle of its server, only what it left."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

from agentix.provider._drive import remove_tree

STEPS = ((signal.SIGTERM, 7.0), (signal.SIGKILL, 5.0))
"""What is sent, and the seconds that it is given to take effect; the server bounds its own end to 5 s."""


def end_foreign(pid: int, directory: Path) -> None:
    """End the server and remove its directory."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not _is_server_of(pid, directory):
            return
        for number, seconds in STEPS:
            signal.pidfd_send_signal(pidfd, number)
            if select.select([pidfd], [], [], seconds)[0]:
                break
    except ProcessLookupError:
        pass  # it has just ended by itself
    finally:
        os.close(pidfd)
    remove_tree(directory)


def _is_server_of(pid: int, directory: Path) -> bool:
    """A recorded pid may have been given to another process since: its command line must name the directory."""
    try:
        return os.fsencode(directory) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
