"""Spans of the sandbox in the host's tree, once each, whatever happens to the link."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
import trace_targets as t
from test_roads import Shim, runtime

from agentix import RemoteCallError, RuntimeClient, trace
from agentix.testing import serve


class Memory(trace.Processor):
    def __init__(self) -> None:
        self.starts: list[trace.Span] = []
        self.ends: list[trace.Span] = []
        self.traces: list[trace.Trace] = []

    def on_span_start(self, s: trace.Span) -> None:
        self.starts.append(s)

    def on_span_end(self, s: trace.Span) -> None:
        self.ends.append(s)

    def on_trace_end(self, t: trace.Trace) -> None:
        self.traces.append(t)

    def ended(self, name: str) -> trace.Span:
        (found,) = [span for span in self.ends if span.name == name]
        return found

    async def wait(self, n: int) -> None:
        deadline = time.monotonic() + 20
        while len(self.ends) < n:
            assert time.monotonic() < deadline, [span.name for span in self.ends]
            await asyncio.sleep(0.01)


@pytest.fixture
def memory() -> Iterator[Memory]:
    before = trace.get_processors()
    memory = Memory()
    trace.set_processors([memory])
    yield memory
    trace.set_processors(before)


def test_spans_join_the_tree_of_the_host(run: Any, worker_python: str, memory: Memory) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            with trace.trace("rollout", seed=3) as whole, trace.span("host") as host:
                inner = await client.remote(t.one_span, "inside", big="x" * 3000)
                seen = await client.remote(t.nested_spans, 2)
                assert await client.remote(t.where) == (whole.trace_id, host.span_id, "rollout")
        assert {span.name for span in memory.ends} == {"host", "inside", "outer", "inner0", "inner1"}
        inside = memory.ended("inside")
        assert (inside.span_id, inside.parent_id, inside.trace_id) == (inner, host.span_id, whole.trace_id)
        assert inside.attrs["big"] == "x" * 3000
        assert [(event.name, event.attributes) for event in inside.events] == [("happened", {"at": 1})]
        assert [(span_id, parent) for span_id, parent in seen] == [
            (memory.ended("outer").span_id, host.span_id),
            (memory.ended("inner0").span_id, memory.ended("outer").span_id),
            (memory.ended("inner1").span_id, memory.ended("outer").span_id),
        ]
        calls = {span.attrs["call_id"] for span in memory.ends if span is not host}
        assert len(calls) == 2
        assert memory.ended("outer").attrs["call_id"] == memory.ended("inner0").attrs["call_id"]
        assert all(start is end for start, end in zip(memory.starts[1:2], [inside], strict=True))
        assert [trace.name for trace in memory.traces] == ["rollout"]

    run(main())


def test_with_nothing_open_on_the_host(run: Any, worker_python: str, memory: Memory) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            await client.remote(t.one_span, "alone")
            assert await client.remote(t.where) == (None, None, None)
            trace_id = await client.remote(t.own_trace, "of the sandbox")
            assert [x async for x in client.remote(t.streamed_spans, 3)] == [0, 1, 2]
            with pytest.raises(RemoteCallError):
                await client.remote(t.failing_span)
        alone, own = memory.ended("alone"), memory.ended("in own trace")
        assert (alone.parent_id, alone.trace_id) == (None, "trace_unbound")
        assert (own.parent_id, own.trace_id) == (None, trace_id)
        assert [(tr.trace_id, tr.name, tr.metadata) for tr in memory.traces] == [
            (trace_id, "of the sandbox", {"kind": "own"})
        ]
        assert memory.ended("stream").status == "unset"
        failing = memory.ended("failing")
        assert failing.error is not None
        assert (failing.status, failing.error.message) == ("error", "KeyError: 'k'")

    run(main())


def test_odd_values_and_own_processors(run: Any, worker_python: str, memory: Memory) -> None:
    async def main() -> None:
        async with runtime(worker_python) as client:
            await client.remote(t.odd_values)
            await client.remote(t.set_own_processors)
        odd = memory.ended("odd")
        assert odd.attrs["lock"].startswith("<unlocked _thread.lock")
        assert odd.attrs["raw"] == b"\0\xff"
        assert odd.attrs["surrogate"] == "\\ud800"
        assert memory.ended("still seen")

    run(main())


def test_two_clients_of_one_runtime(run: Any, worker_python: str, memory: Memory) -> None:
    async def main() -> None:
        async with serve(python=worker_python) as url, RuntimeClient(url) as one, RuntimeClient(url) as two:
            await asyncio.gather(*(client.remote(t.many_spans, 300) for client in (one, two)))
            await memory.wait(600)
            await one.close()
            await two.remote(t.one_span, "last")

    run(main())
    assert len(memory.starts) == len(memory.ends) == 601
    assert len({span.span_id for span in memory.ends}) == 601
    ends = {span.span_id: span for span in memory.ends}
    assert all(ends[span.span_id] is span for span in memory.starts)


def test_nothing_is_lost_or_told_twice_when_the_link_is_cut(run: Any, worker_python: str, memory: Memory) -> None:
    async def main() -> None:
        async with serve(python=worker_python) as url:
            shim = Shim(url)
            async with (
                shim.listening() as shimmed,
                RuntimeClient(shimmed, reconnection_delay=0.01, reconnection_attempts=0) as client,
            ):
                for _ in range(20):
                    call = asyncio.create_task(client.remote(t.many_spans, 100))
                    await asyncio.sleep(0.03)
                    shim.cut()
                    await call
                await memory.wait(2000)
        ids = [span.span_id for span in memory.ends]
        assert len(ids) == len(set(ids)) == 2000
        assert len(memory.starts) == 2000

    run(main())
