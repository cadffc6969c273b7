"""Bridge: which client answers which path, and what is said of errors and tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from agentix.bridge import AbridgeError, Budget, ClientResponse, Handler, Request, on
from agentix.bridge._errors import failure_response
from agentix.bridge._routes import raw_handler, routes_of, takes_raw
from agentix.bridge._usage import UsageReader


class Base:
    @on("/first")
    async def first(self, request: Request) -> ClientResponse:
        return ClientResponse.json({"by": "base"})

    @on("/second")
    async def second(self, request: Request) -> ClientResponse:
        return ClientResponse.json({"by": "base"})


class Unmarked(Base):
    async def first(self, request: Request) -> ClientResponse:
        return ClientResponse.json({"by": "override"})


class Moved(Base):
    @on("/moved")
    async def second(self, request: Request) -> ClientResponse:
        return ClientResponse.json({"by": "override"})


class Without(Base):
    second = None  # type: ignore[assignment]


class Dynamic:
    def __init__(self) -> None:
        self.asked = 0

    def abridge_routes(self) -> Mapping[str, Handler]:
        self.asked += 1
        return {"/dynamic": raw_handler(self.answer)} if self.asked else {}

    answer = staticmethod(lambda request: None)


def test_order_and_overrides() -> None:
    assert list(routes_of([Base(), Dynamic()])) == ["/first", "/second", "/dynamic"]
    unmarked = Unmarked()
    assert routes_of([unmarked])["/first"] == unmarked.first
    assert list(routes_of([Moved()])) == ["/first", "/moved"]
    assert list(routes_of([Without()])) == ["/first"]


def test_errors() -> None:
    with pytest.raises(ValueError, match="no clients"):
        routes_of([])
    with pytest.raises(ValueError, match="no handlers"):
        routes_of([object()])
    with pytest.raises(ValueError, match="two handlers for '/first'"):
        routes_of([Base(), Unmarked()])
    with pytest.raises(ValueError, match="starts with '/'"):
        on("v1/messages")


def test_raw_handlers_say_so() -> None:
    routes = routes_of([Base(), Dynamic()])
    assert [takes_raw(handler) for handler in routes.values()] == [False, False, True]


def test_failures_have_a_form_that_both_vendors_read() -> None:
    reply = failure_response(AbridgeError("slow down", status_code=429))
    assert reply.status_code == 429
    said = json.loads(bytes(reply.body))  # type: ignore[arg-type]
    assert said["error"]["message"] == "slow down"
    assert (said["type"], said["error"]["type"]) == ("error", "rate_limit_error")
    reply = failure_response(KeyError("x"))
    assert reply.status_code == 502
    assert json.loads(bytes(reply.body))["error"]["message"] == "KeyError: 'x'"  # type: ignore[arg-type]


def test_budget_bounds() -> None:
    assert Budget(requests=0, seconds=0.5).tokens is None
    with pytest.raises(ValueError, match="tokens of a budget is -1"):
        Budget(tokens=-1)


EVENTS = (
    b'event: message_start\r\ndata: {"type":"message_start","message":{"usage":{"input_tokens":7,'
    b'"cache_read_input_tokens":5,"output_tokens":1}}}\r\n\r\ndata: {"delta":{"text":"usage"}}\r\n\r\n'
    b'data: {"type":"message_delta","usage":{"output_tokens":30}}\r\n\r\n'
)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_usage_of_a_stream(size: int) -> None:
    reader = UsageReader("text/event-stream; charset=utf-8")
    for start in range(0, len(EVENTS), size):
        reader.feed(EVENTS[start : start + size])
    usage = reader.end()
    assert (usage.input_tokens, usage.output_tokens, usage.total) == (12, 30, 42)


def test_usage_of_a_reply() -> None:
    reader = UsageReader("application/json")
    reader.feed(b'{"usage": {"prompt_tokens": 3, "comp')
    reader.feed(b'letion_tokens": 4}}')
    assert reader.end().total == 7
    assert UsageReader("application/json").end().total == 0
