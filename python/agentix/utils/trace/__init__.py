"""Traces and spans, on the host and in the sandbox, told to processors.

    from agentix import trace

    with trace.trace("rollout"):
        with trace.span("agent.step") as span:
            span.add_event("first_token")

Spans that are opened in a sandbox reach the processors on the host, as children of what was open there when the call
was made. Other distributions may add exporters here (`agentix.utils.trace.otel`).
"""

from agentix._lazy import exporter as _exporter
from agentix._lazy import extend_path as _extend_path

__path__ = _extend_path(__path__, __name__)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._current import current_span_id, current_trace_id, get_current_span, get_current_trace, span, trace
    from ._export import BatchProcessor, ConsoleProcessor, Exporter, JsonlProcessor, collect
    from ._model import Span, SpanError, SpanEvent, SpanStatus, Trace, gen_span_id, gen_trace_id
    from ._processors import (
        Processor,
        add_processor,
        force_flush,
        get_processors,
        remove_processor,
        set_processors,
        set_tracing_disabled,
        shutdown,
    )

__all__ = [
    "trace",
    "span",
    "Trace",
    "Span",
    "SpanEvent",
    "SpanError",
    "SpanStatus",
    "get_current_trace",
    "get_current_span",
    "current_trace_id",
    "current_span_id",
    "gen_trace_id",
    "gen_span_id",
    "Processor",
    "Exporter",
    "BatchProcessor",
    "ConsoleProcessor",
    "JsonlProcessor",
    "collect",
    "add_processor",
    "remove_processor",
    "set_processors",
    "get_processors",
    "set_tracing_disabled",
    "force_flush",
    "shutdown",
]

__getattr__, __dir__ = _exporter(
    __name__,
    {
        "agentix.utils.trace._current": [
            "current_span_id",
            "current_trace_id",
            "get_current_span",
            "get_current_trace",
            "span",
            "trace",
        ],
        "agentix.utils.trace._export": ["BatchProcessor", "ConsoleProcessor", "Exporter", "JsonlProcessor", "collect"],
        "agentix.utils.trace._model": [
            "Span",
            "SpanError",
            "SpanEvent",
            "SpanStatus",
            "Trace",
            "gen_span_id",
            "gen_trace_id",
        ],
        "agentix.utils.trace._processors": [
            "Processor",
            "add_processor",
            "force_flush",
            "get_processors",
            "remove_processor",
            "set_processors",
            "set_tracing_disabled",
            "shutdown",
        ],
    },
)
