"""Ending a sandbox that another process of this user started: there is no handle of its server, only what it left."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

from ._drive import remove_tree

STEPS = ((signal.SIGTERM, 7.0), (signal.SIGKILL, 5.0))
"""What is sent, and the seconds that it is given to take effect; the server bounds its own end to 5 s."""


def end_foreign(pid: int, directory: Path, is_it: Callable[[int], bool]) -> None:
    """End the process and remove its directory; `is_it` tells whether the pid, held by then, still names it."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not is_it(pid):
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
