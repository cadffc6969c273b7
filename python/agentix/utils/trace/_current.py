"""Which trace and span the running code is in, and how it enters new ones.

Both are context variables, so that tasks and threads started with a copied context are in what their parent was in. In
a sandbox, what is open on the host is the outermost parent: it is known there only by its ids.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from agentix import _ambient

from ._model import UNBOUND, Span, Trace, gen_span_id, gen_trace_id, now
from ._processors import tell


@dataclass(frozen=True)
class Remote:
    """What was open on the host when it made the call that runs now."""

    trace: Trace | None
    span_id: str | None
    trace_id: str


_trace: ContextVar[Trace | None] = ContextVar("agentix.trace", default=None)
_span: ContextVar[Span | None] = ContextVar("agentix.span", default=None)
_remote: ContextVar[Remote | None] = ContextVar("agentix.trace.remote", default=None)


@contextmanager
def trace(name: str, *, trace_id: str | None = None, **metadata: Any) -> Generator[Trace]:
    """Open a trace for the body of a `with` statement; spans opened in there belong to it.

    Gives the `Trace`. Its id is made up unless it is given.
    """
    opened = Trace(trace_id or gen_trace_id(), name, metadata)
    trace_token, span_token, remote_token = _trace.set(opened), _span.set(None), _remote.set(None)
    tell("on_trace_start", opened)
    try:
        yield opened
    finally:
        _reset(_remote, remote_token)
        _reset(_span, span_token)
        _reset(_trace, trace_token)
        opened.ended_at = now()
        tell("on_trace_end", opened)


@contextmanager
def span(name: str, *, span_id: str | None = None, parent: Span | None = None, **attrs: Any) -> Generator[Span]:
    """Open a span for the body of a `with` statement.

    Its parent is `parent`, or else the span that the code is in, also if that was opened on the host. An exception
    that leaves the body makes the status "error" and goes on. Gives the `Span`.
    """
    trace_id, parent_id = _place(parent)
    call_id = _ambient.current_call.get()
    if call_id is not None:
        attrs = {"call_id": call_id, **attrs}
    opened = Span(span_id or gen_span_id(), trace_id, parent_id, name, attrs)
    token = _span.set(opened)
    tell("on_span_start", opened)
    try:
        yield opened
    except BaseException as error:
        if opened.error is None:
            opened.set_error(_text_of(error))
        opened.status = "error"
        raise
    finally:
        _reset(_span, token)
        opened.ended_at = now()
        tell("on_span_end", opened)


def get_current_trace() -> Trace | None:
    """Return the trace that the code is in; in a sandbox also the host's, with its id and name alone."""
    current, remote = _trace.get(), _remote.get()
    return current if current is not None or remote is None else remote.trace


def get_current_span() -> Span | None:
    """Return the span that the code is in, or None; one that was opened on the host is not to be had in a sandbox."""
    return _span.get()


def current_trace_id() -> str | None:
    """Return the id of the trace that a span opened now would belong to, or None outside any."""
    current, remote = _trace.get(), _remote.get()
    if current is not None:
        return current.trace_id
    opened = _span.get()
    if opened is not None:
        return opened.trace_id
    return None if remote is None else remote.trace_id


def current_span_id() -> str | None:
    """Return the id of the span that would be the parent of one opened now, or None."""
    opened, remote = _span.get(), _remote.get()
    if opened is not None:
        return opened.span_id
    return None if remote is None else remote.span_id


def _place(parent: Span | None) -> tuple[str, str | None]:
    """The trace and the parent of a span that is opened now."""
    if parent is None:
        parent = _span.get()
    if parent is not None:
        return parent.trace_id, parent.span_id
    return current_trace_id() or UNBOUND, current_span_id()


def _reset(variable: ContextVar[Any], token: Any) -> None:
    try:
        variable.reset(token)
    except ValueError:  # a generator that is closed in another context than it was opened in: nothing is set there
        pass


def _text_of(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # its __str__ is user code
        return type(error).__name__


# ---- what goes along with a call ----


def capture() -> dict[str, Any] | None:
    """Return what is open here, for a call's context."""
    trace_id = current_trace_id()
    if trace_id is None:
        return None
    current = get_current_trace()
    return {"trace_id": trace_id, "span_id": current_span_id(), "name": None if current is None else current.name}


def enter(carried: dict[str, Any]) -> None:
    """Make what was open on the host the parent of what is opened in this context."""
    name = carried["name"]
    opened = None if name is None else Trace(carried["trace_id"], name)
    _remote.set(Remote(opened, carried["span_id"], carried["trace_id"]))


_ambient.register("agentix.trace", capture)
