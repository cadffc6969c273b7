"""Who is told of traces and spans: at once, in order, and none of them able to harm the code that is traced."""

import atexit
import logging
import threading
from typing import Any

from ._model import Span, Trace

_logger = logging.getLogger("agentix.utils.trace")


class Processor:
    """Is told of each trace and span when it starts and ends. Subclass it and override what is wanted.

    It is called in the thread that runs the traced code, and must return soon. What it raises is logged, once per
    processor, and otherwise passed over.
    """

    def on_trace_start(self, t: Trace) -> None:
        """A trace was opened."""

    def on_trace_end(self, t: Trace) -> None:
        """A trace was closed."""

    def on_span_start(self, s: Span) -> None:
        """A span was opened."""

    def on_span_end(self, s: Span) -> None:
        """A span was closed: all that it will ever hold is in it."""

    def force_flush(self) -> None:
        """Pass on whatever is held back."""

    def shutdown(self) -> None:
        """Pass on whatever is held back, and let go of files and connections."""


class _Registry:
    """The processors of this process. The tuple is replaced, never changed, so that it is walked without the lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.processors: tuple[Processor, ...] = ()
        self.forwarder: Processor | None = None  # in a worker: what tells the host, whatever user code registers
        self.failed: set[int] = set()
        self.disabled = False
        self.warned = False
        self.at_exit = False

    def replace(self, processors: tuple[Processor, ...]) -> None:
        self.processors = processors
        self.failed &= {id(processor) for processor in processors}
        if processors and not self.at_exit:
            self.at_exit = True
            atexit.register(shutdown)


_registry = _Registry()


def add_processor(p: Processor) -> None:
    """Let `p` be told of what is traced from now on, after those that are there. A second time does nothing."""
    with _registry.lock:
        if not any(known is p for known in _registry.processors):
            _registry.replace((*_registry.processors, p))


def remove_processor(p: Processor) -> None:
    """Let `p` be told no more; it is not shut down. Nothing is done if it is not there."""
    with _registry.lock:
        _registry.replace(tuple(known for known in _registry.processors if known is not p))


def set_processors(ps: list[Processor]) -> None:
    """Let these, in this order, be told, and no others."""
    with _registry.lock:
        _registry.replace(tuple(ps))


def get_processors() -> list[Processor]:
    """Return the processors, in their order."""
    return list(_registry.processors)


def set_tracing_disabled(disabled: bool) -> None:
    """Say whether nobody is told of anything; traces and spans can be opened all the same."""
    _registry.disabled = disabled


def force_flush() -> None:
    """Let each processor pass on what it holds back."""
    _each("force_flush", _registry.processors)


def shutdown() -> None:
    """Shut each processor down, as the end of the process does."""
    _each("shutdown", _registry.processors)


def tell(callback: str, what: Trace | Span) -> None:
    """Call each processor's `callback` with a trace or span."""
    if _registry.disabled:
        return
    processors, forwarder = _registry.processors, _registry.forwarder
    if forwarder is not None:
        processors = (*processors, forwarder)
    elif not processors and callback == "on_span_end":
        _warn_once()
    _each(callback, processors, what)


def forward_with(forwarder: Processor | None) -> None:
    """Let `forwarder` be told of everything, after the processors and apart from them."""
    _registry.forwarder = forwarder


def _each(callback: str, processors: tuple[Processor, ...], *args: Any) -> None:
    for processor in processors:
        try:
            getattr(processor, callback)(*args)
        except KeyboardInterrupt:  # it is the user's, and not about the processor
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit too: a processor may not end what it looks at
            _log_once(processor, callback, error)


def _log_once(processor: Processor, callback: str, error: BaseException) -> None:
    with _registry.lock:
        if id(processor) in _registry.failed:
            return
        _registry.failed.add(id(processor))
    _logger.error(
        "the trace processor %s failed in %s and was passed over; further failures of it are not logged",
        type(processor).__name__,
        callback,
        exc_info=error,
    )


def _warn_once() -> None:
    if not _registry.warned:
        _registry.warned = True
        _logger.warning(
            "a span ended but no trace Processor is registered, so it was dropped; register one with "
            "agentix.trace.add_processor(...), or silence this with agentix.trace.set_tracing_disabled(True)"
        )


def _forward_if_worker() -> None:
    from agentix import _carrier

    if _carrier.carrier is not None:
        from ._forward import Forwarder

        forward_with(Forwarder(_carrier.carrier.item))


_forward_if_worker()
