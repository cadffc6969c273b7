"""Traces and spans in one process: ids, parents, errors, processors, files. What crosses from a sandbox: see e2e."""

import contextvars
import json
import logging
import re
import threading
import time
from collections.abc import Callable

import pytest
from fresh import python

from agentix import _ambient, trace
from agentix.runtime.shared import unpack
from agentix.utils.trace._forward import ITEM_MAX, Forwarder
from agentix.utils.trace._replay import Replayer

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


class Memory(trace.Processor):
    def __init__(self) -> None:
        self.told: list = []

    def on_trace_start(self, t):
        self.told.append(("on_trace_start", t))

    def on_trace_end(self, t):
        self.told.append(("on_trace_end", t))

    def on_span_start(self, s):
        self.told.append(("on_span_start", s))

    def on_span_end(self, s):
        self.told.append(("on_span_end", s))

    def kinds(self) -> list:
        return [kind for kind, _ in self.told]


@pytest.fixture
def memory():
    before = trace.get_processors()
    memory = Memory()
    trace.set_processors([memory])
    yield memory
    trace.set_processors(before)
    trace.set_tracing_disabled(False)


def test_ids_times_and_parents(memory: Memory) -> None:
    with trace.trace("rollout", seed=3) as whole:
        assert trace.get_current_trace() is whole
        with trace.span("outer", a=1) as outer, trace.span("inner") as inner:
            assert trace.get_current_span() is inner
            assert (trace.current_trace_id(), trace.current_span_id()) == (whole.trace_id, inner.span_id)
            inner.add_event("token", n=1)
            inner.set_attributes(b=2, c=3)
            inner.set_attribute("d", 4)
            inner.set_status("ok", "fine")
    assert re.fullmatch(r"trace_[0-9a-f]{32}", whole.trace_id)
    assert re.fullmatch(r"span_[0-9a-f]{24}", outer.span_id)
    assert (outer.parent_id, inner.parent_id) == (None, outer.span_id)
    assert {outer.trace_id, inner.trace_id} == {whole.trace_id}
    assert (outer.attrs, inner.attrs) == ({"a": 1}, {"b": 2, "c": 3, "d": 4})
    assert (inner.status, inner.status_description, outer.status) == ("ok", "fine", "unset")
    assert [(event.name, event.attributes) for event in inner.events] == [("token", {"n": 1})]
    for stamp in (whole.started_at, whole.ended_at, inner.started_at, inner.ended_at, inner.events[0].timestamp):
        assert TIME.fullmatch(stamp or "")
    assert memory.kinds() == [
        "on_trace_start",
        "on_span_start",
        "on_span_start",
        "on_span_end",
        "on_span_end",
        "on_trace_end",
    ]
    assert memory.told[0][1].metadata == {"seed": 3}
    assert trace.get_current_trace() is None
    assert trace.get_current_span() is None
    assert trace.current_trace_id() is None


def test_spans_outside_any_trace_share_an_id(memory: Memory) -> None:
    with trace.span("one") as one:
        pass
    with trace.span("two") as two:
        pass
    assert one.trace_id == two.trace_id == "trace_unbound"
    assert one.parent_id is None


def test_a_parent_that_is_given_wins(memory: Memory) -> None:
    with trace.trace("t"), trace.span("outer") as outer:
        pass
    with trace.trace("other"), trace.span("current"), trace.span("child", parent=outer) as child:
        pass
    assert (child.parent_id, child.trace_id) == (outer.span_id, outer.trace_id)
    found = []

    def elsewhere() -> None:
        with trace.span("thread", parent=outer) as span:
            found.append((span.parent_id, span.trace_id))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [(outer.span_id, outer.trace_id)]


def test_an_exception_marks_the_span_and_goes_on(memory: Memory) -> None:
    with pytest.raises(ValueError, match="bad"), trace.span("s") as span:
        raise ValueError("bad")
    assert (span.status, span.error.message, span.status_description) == ("error", "ValueError: bad", "ValueError: bad")
    with pytest.raises(SystemExit), trace.span("s") as span:
        raise SystemExit(3)
    assert span.status == "error"
    with pytest.raises(ValueError, match="not 'well'"), trace.span("s") as span:
        span.set_status("well")
    try:
        with trace.span("s") as span:
            span.set_error("no luck", code=5)
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert (span.error.message, span.error.data) == ("no luck", {"code": 5})


@pytest.mark.parametrize("raised", [RuntimeError("broken"), SystemExit(1)], ids=repr)
def test_a_processor_that_raises_harms_nobody(raised: BaseException, caplog) -> None:
    class Broken(trace.Processor):
        def on_trace_start(self, t):
            raise raised

        on_trace_end = on_span_start = on_span_end = on_trace_start

        def force_flush(self):
            raise raised

        shutdown = force_flush

    first, last = Memory(), Memory()
    before = trace.get_processors()
    trace.set_processors([first, Broken(), last])
    try:
        with (
            caplog.at_level(logging.ERROR, "agentix.utils.trace"),
            pytest.raises(ValueError, match="own"),
            trace.trace("t"),
            trace.span("s"),
        ):
            raise ValueError("own")
        trace.force_flush()
        trace.shutdown()
    finally:
        trace.set_processors(before)
    assert first.kinds() == last.kinds() == ["on_trace_start", "on_span_start", "on_span_end", "on_trace_end"]
    assert len(caplog.records) == 1
    assert "the trace processor Broken failed in on_trace_start" in caplog.text


def test_a_slow_processor_hides_nothing(memory: Memory) -> None:
    class Slow(trace.Processor):
        def on_span_start(self, s):
            time.sleep(0.05)

        on_span_end = on_span_start

    last = Memory()
    trace.set_processors([memory, Slow(), last])
    with pytest.raises(ValueError, match="own"), trace.span("s"):
        raise ValueError("own")
    assert memory.kinds() == last.kinds() == ["on_span_start", "on_span_end"]


def test_registry(memory: Memory) -> None:
    other = Memory()
    trace.add_processor(other)
    trace.add_processor(other)
    assert trace.get_processors() == [memory, other]
    trace.remove_processor(memory)
    trace.remove_processor(memory)
    assert trace.get_processors() == [other]
    trace.set_tracing_disabled(True)
    with trace.span("unseen"):
        pass
    assert other.told == []


WITHOUT = """
import logging; logging.basicConfig(format="%(name)s %(message)s")
from agentix import trace
{}
for _ in range(3):
    with trace.span("s"): pass
"""


def test_no_processor_is_said_once() -> None:
    said = python("-c", WITHOUT.format(""), stderr=True)
    assert said.count("no trace Processor is registered") == 1
    assert said.startswith("agentix.utils.trace ")
    assert python("-c", WITHOUT.format("trace.set_tracing_disabled(True)"), stderr=True) == ""


def test_exit_shuts_down() -> None:
    script = """
from agentix import trace
class P(trace.Processor):
    def shutdown(self): print("shut down")
trace.add_processor(P())
"""
    assert python("-c", script).split("\n")[0] == "shut down"


def lines_of(path) -> list:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_collect(memory: Memory, tmp_path) -> None:
    path = tmp_path / "a" / "b" / "t.jsonl"
    sink = trace.collect(path)
    circle: list = []
    circle.extend([circle] * 3)
    with trace.trace("rollout", seed=3), trace.span("s", text="x" * 5000, odd={1, 2}, circle=circle) as span:
        span.add_event("e", n=float("inf"))
    sink.shutdown()
    with trace.span("after"):
        pass
    span_line, trace_line = lines_of(path)
    assert (span_line["object"], trace_line["object"]) == ("span", "trace")
    assert span_line["trace_id"] == trace_line["id"]
    assert trace_line["metadata"] == {"seed": 3}
    assert span_line["attrs"]["text"] == "x" * 5000
    assert span_line["attrs"]["odd"] == "{1, 2}"
    trace.remove_processor(sink)


@pytest.mark.parametrize(("kept", "options"), [("span", {"traces": False}), ("trace", {"spans": False})])
def test_collect_one_kind(memory: Memory, tmp_path, kept: str, options: dict) -> None:
    sink = trace.collect(tmp_path / "t.jsonl", **options)
    with trace.trace("t"), trace.span("s"):
        pass
    sink.shutdown()
    trace.remove_processor(sink)
    assert [line["object"] for line in lines_of(tmp_path / "t.jsonl")] == [kept]


def test_batches(memory: Memory, caplog) -> None:
    class Kept(trace.Exporter):
        def __init__(self) -> None:
            self.batches: list = []
            self.down = 0

        def export(self, items):
            self.batches.append([item.name for item in items])
            if len(self.batches) == 1:
                raise OSError("no route")

        def shutdown(self):
            self.down += 1

    kept = Kept()
    batches = trace.BatchProcessor(kept, delay=60, max_batch=3)
    trace.add_processor(batches)
    for n in range(2):
        with trace.span(f"lost{n}"):
            pass
    with caplog.at_level(logging.ERROR):
        trace.force_flush()
    assert "2 spans or traces could not be exported and are lost" in caplog.text
    for n in range(7):
        with trace.span(f"s{n}"):
            pass
    batches.shutdown()
    batches.shutdown()
    assert [name for batch in kept.batches[1:] for name in batch] == [f"s{n}" for n in range(7)]
    assert max(map(len, kept.batches)) <= 3
    assert kept.down == 1


def test_a_batch_leaves_by_itself(memory: Memory) -> None:
    arrived = threading.Event()

    class Kept(trace.Exporter):
        def export(self, items):
            arrived.set()

    trace.add_processor(trace.BatchProcessor(Kept(), delay=0.01))
    with trace.span("s"):
        pass
    assert arrived.wait(5)


def test_a_full_queue_drops_the_oldest_and_says_so(memory: Memory, caplog) -> None:
    class Slow(trace.Exporter):
        def export(self, items):
            time.sleep(0)

    batches = trace.BatchProcessor(Slow(), delay=60, max_batch=100, max_queue=5)
    with caplog.at_level(logging.WARNING):
        for n in range(9):
            batches.on_span_end(trace.Span(f"span_{n}", "t", None, f"s{n}"))
    assert batches.dropped == 4
    assert caplog.text.count("buffer full") == 1


# ---- between host and sandbox ----


def test_what_is_open_goes_along(memory: Memory) -> None:
    import pickle

    assert _ambient.capture() is None
    with trace.trace("host", seed=1) as whole, trace.span("call") as opened:
        data = _ambient.capture()

    def target() -> tuple:
        _ambient.enter(pickle.loads(data))
        _ambient.current_call.set("c-1")
        current = trace.get_current_trace()
        with trace.span("inside") as inside:
            return current.trace_id, current.name, inside.trace_id, inside.parent_id, inside.attrs

    expected = (whole.trace_id, "host", whole.trace_id, opened.span_id, {"call_id": "c-1"})
    assert contextvars.Context().run(target) == expected


def test_forward_and_replay(memory: Memory) -> None:
    sent: list = []
    trace.set_processors([Forwarder(lambda stream, data: sent.append(unpack(data)))])
    try:
        with trace.trace("t", m=1), trace.span("s", big="x" * 3000, odd=object(), raw=b"\0") as span:
            span.add_event("e", a=[1, {2: 3}])
            raise KeyError("k")
    except KeyError:
        pass
    trace.set_processors([memory])
    replayer = Replayer()
    replayer.take_all(sent, 0)
    assert memory.kinds() == ["on_trace_start", "on_span_start", "on_span_end", "on_trace_end"]
    started, ended = memory.told[1][1], memory.told[2][1]
    assert started is ended
    assert (ended.span_id, ended.trace_id, ended.name) == (span.span_id, span.trace_id, "s")
    assert ended.attrs["big"] == "x" * 3000
    assert ended.attrs["odd"].startswith("<object object")
    assert ended.attrs["raw"] == b"\0"
    assert (ended.status, ended.error.message) == ("error", "KeyError: 'k'")
    assert [(event.name, event.attributes) for event in ended.events] == [("e", {"a": [1, {"2": 3}]})]
    assert memory.told[3][1].metadata == {"m": 1}
    assert not replayer._open


def sent_and_replayed(memory: Memory, make: Callable[[], None]) -> trace.Span:
    """The end of the one span that `make` makes, as the host's processors are told of it."""
    sent: list[bytes] = []
    trace.set_processors([Forwarder(lambda stream, data: sent.append(data))])
    make()
    trace.set_processors([memory])
    assert max(map(len, sent)) <= ITEM_MAX
    Replayer().take_all([unpack(data) for data in sent], 0)
    (_, start), (_, end) = memory.told
    assert start is end
    return end


def test_of_what_is_too_large_to_be_sent_the_largest_values_are_left_out(memory: Memory, caplog) -> None:
    small = {"call_id": "c-1", "a": 1, "b": [2, "3"], "text": "x" * 100_000}

    def make() -> None:
        with trace.span("bulky", big="x" * ITEM_MAX, **small) as span:
            span.add_event("e", small="s", large=b"l" * ITEM_MAX)
            span.set_error("e" * ITEM_MAX, why="w" * ITEM_MAX, code=7)

    with caplog.at_level(logging.WARNING):
        end = sent_and_replayed(memory, make)
    attrs = dict(end.attrs)
    assert re.fullmatch(r"<left out: 10485\d\d bytes>", attrs.pop("big"))
    assert attrs.pop("agentix.left_out") == 5  # message, description, an attribute of each of the three
    assert 5 * ITEM_MAX < attrs.pop("agentix.left_out_bytes") < 5.1 * ITEM_MAX
    assert attrs == small
    assert (end.name, end.status, end.error.data["code"]) == ("bulky", "error", 7)
    assert end.error.message.startswith("e" * 1000 + " <cut: ")
    assert [(event.name, event.attributes["small"]) for event in end.events] == [("e", "s")]
    assert end.events[0].attributes["large"].startswith("<left out: ")
    assert "the 5 largest of its values are left out" in caplog.text


def test_many_events_are_sent(memory: Memory) -> None:
    def make() -> None:
        with trace.span("s", **{f"a{i}": i for i in range(11_000)}) as span:
            for i in range(4000):
                span.add_event("e", i=i)
            span.set_error("wrong", why=1)

    end = sent_and_replayed(memory, make)
    assert [event.attributes["i"] for event in end.events] == list(range(4000))
    assert (len(end.attrs), end.error.data) == (11_000, {"why": 1})


def test_one_attribute_that_is_too_large_costs_no_other(memory: Memory) -> None:
    def make() -> None:
        with trace.span("s", call_id="c-1", n=5) as span:
            span.set_attribute("page", "p" * (3 << 20))

    attrs = sent_and_replayed(memory, make).attrs
    assert (attrs["call_id"], attrs["n"], attrs["agentix.left_out"]) == ("c-1", 5, 1)
    assert attrs["page"].startswith("<left out: 3145")


@pytest.mark.parametrize("n", [20_000, 200_000])
def test_very_many_small_values_are_left_out_together(memory: Memory, n: int) -> None:
    def make() -> None:
        with trace.span("s", call_id="c-1", **{"k" * 60 + str(i): i for i in range(n)}) as span:
            for _ in range(10):
                span.add_event("e", a=1)

    end = sent_and_replayed(memory, make)
    assert end.attrs["call_id"] == "c-1"
    assert end.attrs["agentix.left_out"] > n
    assert end.events == []


def test_what_is_no_event_is_said_once(memory: Memory, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        Replayer().take_all([5, {"kind": "x"}, {"kind": "on_span_end", "data": SPAN}], 7)
    assert memory.kinds() == ["on_span_end"]
    assert caplog.text.count("no trace event") == 1
    assert "buffer full: 7 events of the sandbox were dropped" in caplog.text


SPAN = {
    "id": "span_1",
    "trace_id": "trace_1",
    "parent_id": None,
    "name": "n",
    "attrs": {},
    "started_at": "t",
    "ended_at": None,
    "status": "ok",
    "status_description": None,
    "error": None,
    "events": [],
}


@pytest.mark.parametrize(
    ("kind", "exported"),
    [
        ("on_span_stop", SPAN),
        (None, SPAN),
        ("on_span_end", None),
        ("on_span_end", {**SPAN, "id": 5}),
        ("on_span_end", {**SPAN, "id": ""}),
        ("on_span_end", {**SPAN, "id": "x" * 257}),
        ("on_span_end", {**SPAN, "id": "\x1b[2J"}),
        ("on_span_end", {**SPAN, "parent_id": 5}),
        ("on_span_end", {**SPAN, "status": "fine"}),
        ("on_span_end", {**SPAN, "attrs": {5: 5}}),
        ("on_span_end", {**SPAN, "events": [5]}),
        ("on_span_end", {**SPAN, "events": {}}),
        ("on_span_end", {**SPAN, "error": "e"}),
        ("on_trace_end", SPAN),
    ],
)
def test_replay_refuses_what_is_no_event(memory: Memory, kind: object, exported: object) -> None:
    with pytest.raises(ValueError, match=r"trace event|status"):
        Replayer().take(kind, exported)
    assert memory.told == []


def test_replay_remembers_only_so_many(memory: Memory) -> None:
    replayer = Replayer()
    for n in range(10_050):
        replayer.take("on_span_start", {**SPAN, "id": f"span_{n}"})
    assert len(replayer._open) == 10_000
