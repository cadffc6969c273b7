"""Bridge: server-sent events from pieces of any size."""

from __future__ import annotations

import re

import pytest
from agentix.bridge.clients._sse import Event, EventTooLong, SseReader
from hypothesis import example, given, settings
from hypothesis import strategies as st

TEXT = "日本語 😀"
STREAM = (
    f'event: message_start\ndata: {{"text":"{TEXT}"}}\n\n'
    ": a comment\n\n"
    "data: first\ndata: second\nid: 7\nretry: 10\n\n"
    "data\n\n"
    "event: ping\n\n"
    "data:  two blanks\n\n"
    "data: last\n\n"
).encode()
EVENTS = [
    Event("message_start", f'{{"text":"{TEXT}"}}'),
    Event("message", "first\nsecond"),
    Event("message", ""),
    Event("message", " two blanks"),
    Event("message", "last"),
]


def read(stream: bytes, size: int = 10**9, most: int = 10**6) -> list[Event]:
    reader = SseReader(most)
    found: list[Event] = []
    for start in range(0, len(stream), size):
        found += reader.feed(stream[start : start + size])
    return found + reader.end()


def by_the_book(stream: bytes) -> list[Event]:
    """The standard's algorithm over the whole text, and the last event without its empty line."""
    lines = re.split("\r\n|\n|\r", stream.decode(errors="replace").removeprefix("\ufeff"))
    found: list[Event] = []
    name, data = "", []
    for line in [*lines, ""]:
        field, colon, value = line.partition(":")
        if not line:
            if data:
                found.append(Event(name or "message", "\n".join(data)))
            name, data = "", []
        elif colon and not field:
            continue
        elif field == "data":
            data.append(value.removeprefix(" "))
        elif field == "event":
            name = value.removeprefix(" ")
    return found


FORMS = {
    "lf": STREAM,
    "crlf": STREAM.replace(b"\n", b"\r\n"),
    "cr": STREAM.replace(b"\n", b"\r"),
    "no blank": re.sub(rb"(data|event): (?! )", rb"\1:", STREAM),
    "comments": STREAM.replace(b"data: second", b":\ndata: second\n: x"),
    "not ended": STREAM.removesuffix(b"\n\n"),
    "half ended": STREAM.removesuffix(b"\n"),
    "bom": b"\xef\xbb\xbf" + STREAM,
}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10**9])
@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str, size: int) -> None:
    assert read(FORMS[form], size) == EVENTS


PARTS = st.sampled_from(
    [
        b"data",
        b"event",
        b":",
        b" ",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"x",
        b"\xef\xbb\xbf",
        "😀".encode(),
        b"\xff",
        b"\0",
    ]
)


@settings(max_examples=300, deadline=None)
@given(parts=st.lists(PARTS, max_size=40), cuts=st.lists(st.integers(1, 5), max_size=20))
@example(parts=[b"data", b":", b"\xef\xbb\xbf"], cuts=[1])
@example(parts=[b"\r", b"\n", b"\xef\xbb\xbf", b"data", b":"], cuts=[1, 1])
def test_any_stream_in_any_pieces(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(parts)
    reader, found, rest = SseReader(), [], stream
    for cut in cuts:
        found += reader.feed(rest[:cut])
        rest = rest[cut:]
    found += reader.feed(rest)
    found += reader.feed(b"")
    assert found + reader.end() == by_the_book(stream)


@settings(max_examples=100, deadline=None)
@given(stream=st.binary(max_size=300), size=st.integers(1, 20))
def test_any_bytes(stream: bytes, size: int) -> None:
    assert read(stream, size) == by_the_book(stream)


@pytest.mark.parametrize("endless", [b"data: x", b"data:\n", b"x", b"id: 1\n"])
def test_endless_event(endless: bytes) -> None:
    with pytest.raises(EventTooLong):
        read(endless * 20_000, len(endless), 10_000)


def test_endless_stream_of_short_ones() -> None:
    reader = SseReader(1000)
    for _ in range(10_000):
        assert reader.feed(b": keep alive\ndata: x\n\n") == [Event("message", "x")]
    for _ in range(10_000):
        assert reader.feed(b": keep alive\n") == []
