"""On the host: what a sandbox says it traced, told to the processors here.

A sandbox may say anything: what is not of the form that `_forward` sends is refused with ValueError, and of what has
started and not ended only so much is remembered.
"""

import logging
from collections import OrderedDict
from typing import Any

from ._model import Span, SpanError, SpanEvent, Trace
from ._processors import tell

_logger = logging.getLogger("agentix.utils.trace")

_OPEN_MAX = 10_000
_ID_MAX = 256
_STATUS = ("unset", "ok", "error")


class Replayer:
    """The traces and spans of one sandbox."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[str, str], Trace | Span] = OrderedDict()
        self._complained = False

    def take_all(self, items: list[Any], lost: int) -> None:
        """Take what came on the stream `/trace`; what is no event is passed over, which is said once."""
        if lost:
            _logger.warning("trace buffer full: %d events of the sandbox were dropped, the oldest ones", lost)
        for item in items:
            try:
                event = _dict(item)
                self.take(event.get("kind"), event.get("data"))
            except ValueError as error:
                if not self._complained:
                    self._complained = True
                    _logger.warning("a sandbox sent something that is no trace event, and it was dropped: %s", error)

    def take(self, kind: Any, exported: Any) -> None:
        """Tell the processors of a start or an end. Raises ValueError if that is not what it is."""
        if kind in ("on_trace_start", "on_trace_end"):
            told = _trace_of(_dict(exported))
        elif kind in ("on_span_start", "on_span_end"):
            told = _span_of(_dict(exported))
        else:
            raise ValueError(f"not a kind of trace event: {str(kind)[:80]!r}")
        key = (kind[3:8], told.span_id if isinstance(told, Span) else told.trace_id)
        if kind.endswith("_start"):
            self._open[key] = told
            if len(self._open) > _OPEN_MAX:
                self._open.popitem(last=False)
        else:
            started = self._open.pop(key, None)
            if started is not None and type(started) is type(told):  # the very object that the start was told with
                started.__dict__.update(told.__dict__)
                told = started
        tell(kind, told)


def _trace_of(exported: dict[str, Any]) -> Trace:
    return Trace(
        trace_id=_id(exported.get("id")),
        name=_text(exported.get("name")),
        metadata=_dict(exported.get("metadata")),
        started_at=_text(exported.get("started_at")),
        ended_at=_text_or_none(exported.get("ended_at")),
    )


def _span_of(exported: dict[str, Any]) -> Span:
    parent, status, error = exported.get("parent_id"), exported.get("status"), exported.get("error")
    if status not in _STATUS:
        raise ValueError("a span's status is none of those there are")
    return Span(
        span_id=_id(exported.get("id")),
        trace_id=_id(exported.get("trace_id")),
        parent_id=None if parent is None else _id(parent),
        name=_text(exported.get("name")),
        attrs=_dict(exported.get("attrs")),
        started_at=_text(exported.get("started_at")),
        ended_at=_text_or_none(exported.get("ended_at")),
        status=status,
        status_description=_text_or_none(exported.get("status_description")),
        error=None if error is None else _error_of(_dict(error)),
        events=[_event_of(_dict(event)) for event in _list(exported.get("events"))],
    )


def _error_of(exported: dict[str, Any]) -> SpanError:
    return SpanError(_text(exported.get("message")), _dict(exported.get("data")))


def _event_of(exported: dict[str, Any]) -> SpanEvent:
    return SpanEvent(_text(exported.get("name")), _text(exported.get("timestamp")), _dict(exported.get("attributes")))


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):  # pyright: ignore[reportUnknownVariableType]
        raise ValueError("a part of a trace event is not a map with text keys")
    return value  # pyright: ignore[reportUnknownVariableType]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("a part of a trace event is not a list")
    return value  # pyright: ignore[reportUnknownVariableType]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a part of a trace event is not text")
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _id(value: Any) -> str:
    text = _text(value)
    if not 0 < len(text) <= _ID_MAX or not text.isprintable():
        raise ValueError("an id in a trace event is not one")
    return text
