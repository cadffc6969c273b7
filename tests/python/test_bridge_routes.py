"""Bridge: which client answers which path, and what is said of errors and tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any

import pytest
from agentix.bridge import AbridgeError, Budget, ClientResponse, Handler, Request, on
from agentix.bridge._errors import failure_response
from agentix.bridge._proxy import _Spending, _within  # pyright: ignore[reportPrivateUsage]
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


@pytest.mark.parametrize(("status", "error"), [(99, ValueError), (1000, ValueError), ("x", TypeError)])
def test_a_status_that_no_reply_has(status: Any, error: type[Exception]) -> None:
    for make in (
        lambda: AbridgeError("x", status_code=status),
        lambda: ClientResponse(b"", status_code=status),
        lambda: ClientResponse.json({}, status_code=status),
        lambda: ClientResponse.sse(b"", status_code=status),
    ):
        with pytest.raises(error, match="status_code is"):
            make()


@pytest.mark.parametrize("status", [200.0, True, None])
def test_a_status_is_an_int(status: Any) -> None:
    with pytest.raises(TypeError, match="give an int"):
        AbridgeError("x", status_code=status)
    assert AbridgeError("x", status_code=HTTPStatus.TOO_MANY_REQUESTS).status_code == 429


def test_failures_that_cannot_be_told_as_they_are() -> None:
    odd = AbridgeError("odd", status_code=429)
    odd.status_code = 1000
    unsaid = AbridgeError("unsaid", status_code=429)
    unsaid.detail = {"x": object()}
    for failure in (odd, unsaid):
        reply = failure_response(failure)
        assert reply.status_code == 502
        assert "AbridgeError, which cannot be told" in json.loads(bytes(reply.body))["error"]["message"]  # type: ignore[arg-type]
    reply = failure_response(KeyError("\ud83d"))
    assert "\\ud83d" in json.loads(bytes(reply.body))["error"]["message"]  # type: ignore[arg-type]


def test_json_has_no_lone_surrogates() -> None:
    with pytest.raises(ValueError, match="lone surrogate"):
        ClientResponse.json({"text": "a\ud83d"})
    assert ClientResponse.json("\U0001f600").body == b'"\xf0\x9f\x98\x80"'


class Pieces:
    """A body that notes its end; nothing was read of it yet."""

    closed = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.closed += 1


def test_a_counted_body_is_closed_before_it_began() -> None:
    pieces = Pieces()

    async def handler(request: Request) -> ClientResponse:
        return ClientResponse.sse(pieces)

    async def main() -> None:
        spent = _Spending(Budget(tokens=5))
        response = await _within(spent, handler)(Request("/", {}))
        await response.body.aclose()  # type: ignore[union-attr]
        assert pieces.closed == 1

    asyncio.run(main())


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
