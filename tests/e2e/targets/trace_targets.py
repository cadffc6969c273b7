"""What the end-to-end tests of tracing call in the sandbox."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

from agentix import trace


def one_span(name: str, **attrs: Any) -> str:
    with trace.span(name, **attrs) as span:
        span.add_event("happened", at=1)
        return span.span_id


async def nested_spans(n: int) -> list[tuple[str, str | None]]:
    seen = []
    with trace.span("outer") as outer:
        seen.append((outer.span_id, outer.parent_id))
        for i in range(n):
            with trace.span(f"inner{i}") as inner:
                await asyncio.sleep(0)
                seen.append((inner.span_id, inner.parent_id))
    return seen


def own_trace(name: str) -> str:
    with trace.trace(name, kind="own") as opened, trace.span("in own trace"):
        return opened.trace_id


def failing_span() -> None:
    with trace.span("failing"):
        raise KeyError("k")


def where() -> tuple[Any, Any, Any]:
    current = trace.get_current_trace()
    return trace.current_trace_id(), trace.current_span_id(), current and current.name


def odd_values() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    with trace.span("odd", lock=threading.Lock(), circle=circle, deep=deep, raw=b"\0\xff", surrogate="\ud800"):
        pass


def streamed_spans(n: int) -> Iterator[int]:
    with trace.span("stream"):
        yield from range(n)


def set_own_processors() -> None:
    trace.set_processors([])
    with trace.span("still seen"):
        pass


def many_spans(n: int) -> None:
    for i in range(n):
        with trace.span(f"s{i}"):
            pass
