"""What a trace consists of: traces, spans, and the words and ids in them."""

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

SpanStatus = Literal["unset", "ok", "error"]

UNBOUND = "trace_unbound"
"""The trace id of spans that are opened outside any trace."""


def gen_trace_id() -> str:
    """Return a new random trace id, `trace_` and 32 hexadecimal digits."""
    return f"trace_{secrets.token_hex(16)}"


def gen_span_id() -> str:
    """Return a new random span id, `span_` and 24 hexadecimal digits."""
    return f"span_{secrets.token_hex(12)}"


def now() -> str:
    """Return the time as traces state it: UTC, ISO 8601 with microseconds and a `Z`."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass
class SpanEvent:
    """Something that happened within a span, at `timestamp` (UTC, ISO 8601)."""

    name: str
    timestamp: str
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class SpanError:
    """What went wrong in a span."""

    message: str
    data: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class Trace:
    """A piece of work as a whole, to which spans belong by its `trace_id`."""

    trace_id: str
    name: str
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    started_at: str = field(default_factory=now)
    ended_at: str | None = None

    def export(self) -> dict[str, Any]:
        """Return it as one flat dict, with `object` "trace" and its id as `id`."""
        return {
            "object": "trace",
            "id": self.trace_id,
            "name": self.name,
            "metadata": dict(self.metadata),
            "started_at": self.started_at,
            "ended_at": self.ended_at,
        }


@dataclass
class Span:
    """A step of a piece of work. Times are UTC in ISO 8601; `ended_at` is None while it runs."""

    span_id: str
    trace_id: str
    parent_id: str | None
    name: str
    attrs: dict[str, Any] = field(default_factory=dict[str, Any])
    started_at: str = field(default_factory=now)
    ended_at: str | None = None
    status: SpanStatus = "unset"
    status_description: str | None = None
    error: SpanError | None = None
    events: list[SpanEvent] = field(default_factory=list[SpanEvent])

    def set_attribute(self, key: str, value: Any) -> None:
        """Set one attribute; values are kept whole."""
        self.attrs[key] = value

    def set_attributes(self, **kw: Any) -> None:
        """Set several attributes."""
        self.attrs.update(kw)

    def set_status(self, status: SpanStatus, description: str | None = None) -> None:
        """Say how it went. Raises ValueError unless `status` is "unset", "ok" or "error"."""
        if status not in ("unset", "ok", "error"):
            raise ValueError(f"a span's status is 'unset', 'ok' or 'error', not {status!r}")
        self.status = status
        self.status_description = description

    def set_error(self, message: str, **data: Any) -> None:
        """Say what went wrong, which makes the status "error"."""
        self.error = SpanError(message, data)
        self.set_status("error", message)

    def add_event(self, name: str, **attributes: Any) -> None:
        """Note that something happened now."""
        self.events.append(SpanEvent(name, now(), attributes))

    def export(self) -> dict[str, Any]:
        """Return it as one dict, with `object` "span" and its own id as `id`."""
        return {
            "object": "span",
            "id": self.span_id,
            "trace_id": self.trace_id,
            "parent_id": self.parent_id,
            "name": self.name,
            "attrs": dict(self.attrs),
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "status": self.status,
            "status_description": self.status_description,
            "error": None if self.error is None else {"message": self.error.message, "data": dict(self.error.data)},
            "events": [
                {"name": event.name, "timestamp": event.timestamp, "attributes": dict(event.attributes)}
                for event in self.events
            ],
        }
