"""In a worker: hands what is traced to the host, as events of plain values. `_replay` is the other end."""

from collections.abc import Callable
from typing import Any

from agentix.utils._plain import plain

from ._model import Span, Trace
from ._processors import Processor


class Forwarder(Processor):
    """Gives each start and end to `emit(kind, exported)`, where `kind` is the name of the callback."""

    def __init__(self, emit: Callable[[str, dict[str, Any]], None]) -> None:
        self._emit = emit

    def on_trace_start(self, t: Trace) -> None:
        self._emit("on_trace_start", plain(t.export()))

    def on_trace_end(self, t: Trace) -> None:
        self._emit("on_trace_end", plain(t.export()))

    def on_span_start(self, s: Span) -> None:
        self._emit("on_span_start", plain(s.export()))

    def on_span_end(self, s: Span) -> None:
        self._emit("on_span_end", plain(s.export()))
