"""Processors that write traces down: as JSON lines, for people, or in batches through an exporter."""

import json
import logging
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from pathlib import Path
from typing import Any, TextIO

from agentix.utils._plain import plain, shown

from ._model import Span, Trace
from ._processors import Processor, add_processor

_logger = logging.getLogger("agentix.utils.trace")


class Exporter(ABC):
    """Takes ended traces and spans somewhere, many at a time; see `BatchProcessor`."""

    @abstractmethod
    def export(self, items: list[Trace | Span]) -> None:
        """Take these away. May take its time, and may raise: then they are lost, which is logged."""

    def shutdown(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of files and connections."""


class ConsoleProcessor(Processor):
    """Writes a line for each ended span and trace to `stream`, by default standard error."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def on_span_end(self, s: Span) -> None:
        error = f" {s.error.message!r}" if s.error else ""
        self._write(f"span  {s.trace_id} {s.span_id} {s.name!r} {s.status}{error} {s.started_at} .. {s.ended_at}")

    def on_trace_end(self, t: Trace) -> None:
        self._write(f"trace {t.trace_id} {t.name!r} {t.started_at} .. {t.ended_at}")

    def _write(self, line: str) -> None:
        print(line, file=self._stream or sys.stderr, flush=True)


class JsonlProcessor(Processor):
    """Appends each ended span and trace to a file, as one line of JSON; see `Span.export` and `Trace.export`.

    Lines are written when they come, whole, in UTF-8. Values that JSON does not have are written as their `repr`.
    Raises OSError if the file cannot be opened.
    """

    def __init__(self, path: Any, *, spans: bool = True, traces: bool = True) -> None:
        self._path = Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._spans = spans
        self._traces = traces
        self._lock = threading.Lock()
        self._file: TextIO | None = self._path.open("a", encoding="utf-8", errors="backslashreplace")

    def on_span_end(self, s: Span) -> None:
        if self._spans:
            self._write(s.export())

    def on_trace_end(self, t: Trace) -> None:
        if self._traces:
            self._write(t.export())

    def force_flush(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.flush()

    def shutdown(self) -> None:
        """Close the file; what comes later is dropped."""
        with self._lock:
            file, self._file = self._file, None
        if file is not None:
            file.close()

    def _write(self, exported: dict[str, Any]) -> None:
        line = _line_of(exported)
        with self._lock:
            if self._file is not None:
                self._file.write(line)
                self._file.flush()


def _line_of(exported: dict[str, Any]) -> str:
    try:
        return json.dumps(exported, default=shown, allow_nan=False) + "\n"
    except (TypeError, ValueError, RecursionError):  # odd keys, infinities, circles
        return json.dumps(plain(exported, binary=False)) + "\n"


class BatchProcessor(Processor):
    """Hands ended traces and spans to an exporter, in a thread of its own, at most `delay` seconds after they ended.

    At most `max_queue` of them wait; more are dropped, oldest first, which is counted in `dropped` and logged once.
    """

    def __init__(self, exporter: Exporter, *, delay: float = 1.0, max_batch: int = 512, max_queue: int = 16384) -> None:
        self._exporter = exporter
        self._delay = delay
        self._max_batch = max_batch
        self._items: deque[Trace | Span] = deque(maxlen=max_queue)
        self._wake = threading.Condition()
        self._exporting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.dropped = 0

    def on_span_end(self, s: Span) -> None:
        self._put(s)

    def on_trace_end(self, t: Trace) -> None:
        self._put(t)

    def force_flush(self) -> None:
        """Export what waits, in the calling thread."""
        with self._exporting:
            while batch := self._take():
                try:
                    self._exporter.export(batch)
                except Exception:
                    _logger.exception("%d spans or traces could not be exported and are lost", len(batch))

    def shutdown(self) -> None:
        """Export what waits and shut the exporter down; what comes later is dropped."""
        with self._wake:
            already, self._closed = self._closed, True
            self._wake.notify_all()
        if not already:
            self.force_flush()
            self._exporter.shutdown()

    def _put(self, item: Trace | Span) -> None:
        with self._wake:
            if self._closed:
                return
            if len(self._items) == self._items.maxlen:
                self.dropped += 1
                if self.dropped == 1:
                    _logger.warning("spans come faster than they can be exported: buffer full, the oldest are dropped")
            self._items.append(item)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="agentix-trace-export", daemon=True)
                self._thread.start()
            if len(self._items) in (1, self._max_batch):
                self._wake.notify()

    def _take(self) -> list[Trace | Span]:
        with self._wake:
            return [self._items.popleft() for _ in range(min(len(self._items), self._max_batch))]

    def _run(self) -> None:
        while not self._closed:
            with self._wake:
                while not self._items and not self._closed:
                    self._wake.wait()
                if len(self._items) < self._max_batch and not self._closed:
                    self._wake.wait(self._delay)
            self.force_flush()


def collect(path: Any, *, spans: bool = True, traces: bool = True) -> JsonlProcessor:
    """Write spans and traces to `path` from now on, and return the processor, whose `shutdown()` closes the file."""
    sink = JsonlProcessor(path, spans=spans, traces=traces)
    add_processor(sink)
    return sink
