"""Traces by OTLP: what a receiver of its own, made of the protocol's definitions, gets."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from agentix.utils.trace.otel import OtelProcessor
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agentix import trace


class Receiver:
    """Takes `POST /v1/traces` as a collector does."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], ExportTraceServiceRequest]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # noqa: N802
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                ok = self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
                if ok:
                    headers = {key.lower(): value for key, value in self.headers.items()}
                    receiver.requests.append((headers, ExportTraceServiceRequest.FromString(body)))
                self.send_response(200 if ok else 400)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1/traces"

    def spans(self) -> dict[str, Any]:
        spans = [
            span
            for _, request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        assert len({span.name for span in spans}) == len(spans)
        return {span.name: span for span in spans}

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    before = trace.get_processors()
    yield receiver
    trace.set_processors(before)
    receiver.close()


def attributes_of(span: Any) -> dict[str, Any]:
    def value(any_value: Any) -> Any:
        kind = any_value.WhichOneof("value")
        got = getattr(any_value, kind)
        return [value(item) for item in got.values] if kind == "array_value" else got

    return {pair.key: value(pair.value) for pair in span.attributes}


def test_a_tree_arrives_whole(receiver: Receiver) -> None:
    processor = OtelProcessor(endpoint=receiver.url, headers={"x-key": "k"}, service_name="rollouts")
    trace.set_processors([processor])
    try:
        with trace.trace("rollout", seed=3) as whole, trace.span("outer", big="x" * 5000) as outer:
            with trace.span("inner", n=1, f=0.5, b=True, l=["a", "b"], odd={"k": [1, None]}, huge=1 << 80) as inner:
                inner.add_event("token", at=2)
                inner.set_status("ok")
            with trace.span("bad"):
                raise ValueError("no")
    except ValueError:
        pass
    trace.force_flush()
    processor.shutdown()
    spans = receiver.spans()
    assert set(spans) == {"rollout", "outer", "inner", "bad"}
    assert {span.trace_id.hex() for span in spans.values()} == {whole.trace_id.removeprefix("trace_")}
    assert spans["outer"].span_id.hex() == outer.span_id[-16:]
    assert spans["rollout"].parent_span_id == b""
    assert spans["outer"].parent_span_id == spans["rollout"].span_id
    assert spans["inner"].parent_span_id == spans["bad"].parent_span_id == spans["outer"].span_id
    assert attributes_of(spans["rollout"]) == {"seed": 3}
    assert attributes_of(spans["outer"]) == {"big": "x" * 5000}
    assert attributes_of(spans["inner"]) == {
        "n": 1,
        "f": 0.5,
        "b": True,
        "l": ["a", "b"],
        "odd": '{"k": [1, null]}',
        "huge": f'"{1 << 80}"',
    }
    assert [(event.name, attributes_of(event)) for event in spans["inner"].events] == [("token", {"at": 2})]
    assert (spans["inner"].status.code, spans["outer"].status.code) == (1, 2)
    assert (spans["bad"].status.code, spans["bad"].status.message) == (2, "ValueError: no")
    assert attributes_of(spans["bad"].events[0]) == {"exception.message": "ValueError: no"}
    for span in spans.values():
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    headers, request = receiver.requests[0]
    assert headers["x-key"] == "k"
    assert attributes_of(request.resource_spans[0].resource)["service.name"] == "rollouts"


def test_foreign_ids_and_times(receiver: Receiver) -> None:
    processor = OtelProcessor(endpoint=receiver.url)
    ids = [("own", "s-1", None), ("own", "s-2", "s-1"), ("trace_unbound", "s-3", None)]
    for number, (trace_id, span_id, parent) in enumerate(ids):
        span = trace.Span(span_id, trace_id, parent, f"span{number}", started_at="yesterday", ended_at="9" * 400)
        processor.on_span_end(span)
    processor.shutdown()
    spans = receiver.spans()
    assert spans["span0"].trace_id == spans["span1"].trace_id != spans["span2"].trace_id
    assert spans["span1"].parent_span_id == spans["span0"].span_id
    assert all(len(span.trace_id) == 16 and len(span.span_id) == 8 for span in spans.values())


def test_a_receiver_that_is_not_there_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    processor = OtelProcessor(endpoint="http://127.0.0.1:9/v1/traces")
    before = trace.get_processors()
    trace.set_processors([processor])
    try:
        with trace.span("lost"):
            pass
    finally:
        trace.set_processors(before)
        processor.shutdown()


def test_an_exporter_of_ones_own() -> None:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    processor = OtelProcessor(exporter)
    processor.on_span_end(trace.Span("span_" + "1" * 24, "trace_" + "2" * 32, None, "s", {"a": 1}))
    processor.force_flush()
    assert [(span.name, dict(span.attributes or {})) for span in exporter.get_finished_spans()] == [("s", {"a": 1})]
    processor.shutdown()
    with pytest.raises(ValueError, match="configure your own exporter"):
        OtelProcessor(exporter, endpoint="http://127.0.0.1:9")
