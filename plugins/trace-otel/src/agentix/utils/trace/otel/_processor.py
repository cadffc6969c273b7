"""The processor: what has ended is converted and handed to the SDK, which batches and sends it."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from agentix.utils.trace import Processor, Span, Trace

from . import _convert

_TRACES_KNOWN = 10_000
_FLUSH_MS = 30_000


class OtelProcessor(Processor):
    """Sends ended spans and traces to an OpenTelemetry exporter, in batches and in a thread of the SDK's.

    `exporter` is one of the SDK's span exporters; by default OTLP over HTTP, to `endpoint` (a whole URL, such as
    `http://localhost:4318/v1/traces`) with `headers`, or else to where the SDK's variables say
    (`OTEL_EXPORTER_OTLP_ENDPOINT`, ...). `service_name` and `attributes` describe this process in what is sent.
    Raises ValueError if both an exporter and an endpoint or headers are given.
    """

    def __init__(
        self,
        exporter: SpanExporter | None = None,
        *,
        endpoint: str | None = None,
        headers: Mapping[str, str] | None = None,
        service_name: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        if exporter is not None and (endpoint is not None or headers is not None):
            raise ValueError("endpoint and headers are for the exporter made here; configure your own exporter itself")
        described = dict(attributes or {})
        if service_name is not None:
            described[SERVICE_NAME] = service_name
        self._resource = Resource.create(described)
        self._sender = BatchSpanProcessor(
            exporter or OTLPSpanExporter(endpoint, headers=None if headers is None else dict(headers))
        )
        self._traces: OrderedDict[str, None] = OrderedDict()  # those that have, or will have, a span of their own

    def on_trace_start(self, t: Trace) -> None:
        self._traces[t.trace_id] = None
        if len(self._traces) > _TRACES_KNOWN:
            self._traces.popitem(last=False)

    def on_trace_end(self, t: Trace) -> None:
        self._sender.on_end(_convert.of_trace(t, self._resource))

    def on_span_end(self, s: Span) -> None:
        self._sender.on_end(_convert.of_span(s, self._resource, under_root=s.trace_id in self._traces))

    def force_flush(self) -> None:
        """Send what waits, within 30 seconds."""
        self._sender.force_flush(_FLUSH_MS)

    def shutdown(self) -> None:
        """Send what waits, and let go of the exporter."""
        self._sender.shutdown()
