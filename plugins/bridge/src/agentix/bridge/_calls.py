"""What is noted of one call while it passes through several clients."""

from __future__ import annotations

import uuid
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass
class Call:
    """The id that a call has everywhere, and the session of the gateway that took it."""

    request_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    gateway_session_id: str | None = None


#: Set by `Recorder` around a call, so that its row has the id that the model service saw.
current_call: ContextVar[Call | None] = ContextVar("agentix_bridge_call", default=None)


def this_call() -> Call:
    """Return the call that is being recorded, or a new one."""
    return current_call.get() or Call()
