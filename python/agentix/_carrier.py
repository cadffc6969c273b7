"""The worker's end of side channels: what leaves it, and whether it may.

Kept apart from `agentix.sio`, which imports asyncio, so that a worker without namespaces pays nothing for them.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from typing import Any

    from ._worker import Worker
else:
    from _collections import deque


class Carrier:
    """Between the namespaces of a worker and its channel. Every verb may be called from any thread."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.stopped = False  # hosts read too slowly: emit later
        self._inbox: deque[tuple[str, str, bytes]] = deque()
        self._lock = allocate_lock()  # whoever holds it hands out what has come, in order
        worker.channel.inbox = self._inbox

    def open(self, namespace: str) -> None:
        self.worker.channel.send_open(namespace)

    def emit(self, namespace: str, event: str, data: bytes) -> None:
        """Send packed data. Raises OverflowError if it does not fit a frame, OSError when the server is gone."""
        self.worker.channel.send_emit(namespace, event, data)

    def item(self, stream: str, data: bytes) -> None:
        """Append one packed value to a reliable stream, `/log` or `/trace`: hosts get it once, whatever happens."""
        self.worker.channel.send_emit(stream, "item", data)

    def flow(self, go: bool) -> None:
        self.stopped = not go

    def deliver(self) -> None:
        """Hand out the events that have come."""
        sio: Any = sys.modules.get("agentix.sio")
        with self._lock:
            while self._inbox:
                namespace, event, data = self._inbox.popleft()
                if sio is not None:
                    sio.deliver(self.worker.event_loop, namespace, event, data)


carrier: Carrier | None = None


def attach(worker: Worker) -> Carrier:
    """Make this process a worker's: what was registered before is opened now."""
    global carrier
    carrier = Carrier(worker)
    sio: Any = sys.modules.get("agentix.sio")
    if sio is not None:
        sio.open_all(carrier)
    return carrier
