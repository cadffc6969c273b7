"""Spans and traces of Agentix as finished spans of the OpenTelemetry SDK."""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from agentix.utils._plain import plain
from agentix.utils.trace import Span, Trace

from . import _ids

_SCOPE = InstrumentationScope("agentix")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STATUS = {"unset": StatusCode.UNSET, "ok": StatusCode.OK, "error": StatusCode.ERROR}
_NS_MAX = 1 << 63


def of_span(span: Span, resource: Resource, *, under_root: bool) -> ReadableSpan:
    """Return an ended span; without a parent it is put below the span of its trace if there is one (`under_root`)."""
    trace_id = _ids.trace_id(span.trace_id)
    parent = None
    if span.parent_id is not None:
        parent = _context(trace_id, _ids.span_id(span.parent_id))
    elif under_root:
        parent = _context(trace_id, _ids.root_id(span.trace_id))
    events = [Event(e.name, _attributes(e.attributes), _nanoseconds(e.timestamp)) for e in span.events]
    if span.error is not None:
        what = {"exception.message": span.error.message, **span.error.data}
        events.append(Event("exception", _attributes(what), _nanoseconds(span.ended_at)))
    description = span.status_description if span.status == "error" else None
    return _readable(
        span.name,
        _context(trace_id, _ids.span_id(span.span_id)),
        parent,
        resource,
        _attributes(span.attrs),
        events,
        Status(_STATUS[span.status], description),
        span.started_at,
        span.ended_at,
    )


def of_trace(trace: Trace, resource: Resource) -> ReadableSpan:
    """Return the span that stands for an ended trace."""
    return _readable(
        trace.name,
        _context(_ids.trace_id(trace.trace_id), _ids.root_id(trace.trace_id)),
        None,
        resource,
        _attributes(trace.metadata),
        [],
        Status(StatusCode.UNSET),
        trace.started_at,
        trace.ended_at,
    )


def _readable(
    name: str,
    context: SpanContext,
    parent: SpanContext | None,
    resource: Resource,
    attributes: Mapping[str, Any],
    events: list[Event],
    status: Status,
    started_at: str,
    ended_at: str | None,
) -> ReadableSpan:
    start = _nanoseconds(started_at)
    return ReadableSpan(
        name=name,
        context=context,
        parent=parent,
        resource=resource,
        attributes=attributes,
        events=events,
        kind=SpanKind.INTERNAL,
        instrumentation_scope=_SCOPE,
        status=status,
        start_time=start,
        end_time=max(start, _nanoseconds(ended_at)),
    )


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _nanoseconds(text: str | None) -> int:
    """A time as nanoseconds since 1970; now for what is none, or lies where OpenTelemetry has no number for it."""
    try:
        since = datetime.fromisoformat(text or "") - _EPOCH
    except (TypeError, ValueError, OverflowError):
        return time.time_ns()
    ns = since // timedelta(microseconds=1) * 1000
    return ns if 0 <= ns < _NS_MAX else time.time_ns()


def _attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key): _attribute(value) for key, value in values.items() if value is not None}


def _attribute(value: Any) -> Any:
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, int) and -_NS_MAX <= value < _NS_MAX:
        return value
    if isinstance(value, float):
        return value
    if isinstance(value, (list, tuple)) and value and _is_uniform(value):  # pyright: ignore[reportUnknownArgumentType]
        return tuple(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return json.dumps(plain(value, binary=False), ensure_ascii=False)


def _is_uniform(values: "list[Any] | tuple[Any, ...]") -> bool:
    kinds = set(map(type, values))
    if len(kinds) != 1 or not kinds <= {bool, str, int, float}:
        return False
    return int not in kinds or all(-_NS_MAX <= value < _NS_MAX for value in values)
