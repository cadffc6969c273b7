"""The host's end of a tunnel on links that break at any moment, against a runtime as the wire page has it (section 5).

Each run is drawn from its seed. What one end says lies on the link in order until the other takes it; a cut loses what
lies there, and the host may notice it late. A judge counts what handlers were asked and what agents were given. The
same storm finds faults that are planted into the host's end.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import Counter, deque
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agentix.bridge import AbridgeError, ClientResponse, Request
from agentix.bridge._routes import raw_handler
from agentix.bridge._tunnel import Abridge, Exchange, Tunnel

CHUNK, CREDIT = 60, 150
REQUESTS = 8
STEPS, STEPS_MAX = 250, 6000


class Verdict(Exception):
    """What the judge says."""


def text(index: int, size: int, reply: bool) -> bytes:
    return bytes((at * 7 + at // 13 + index * 31 + 100 * reply) % 256 for at in range(size))


class Asked:
    """One exchange at the runtime."""

    def __init__(self, number: int, index: int, draw: random.Random) -> None:
        self.id, self.index = number, index
        body = text(index, draw.choice([0, 30, 400, 2000]), False)
        cuts = [body[at : at + CHUNK] for at in range(0, len(body), CHUNK)] or [b""]
        self.records = [(n, piece, n == len(cuts) - 1) for n, piece in enumerate(cuts)]
        self.consumed = self.unsaid = self.told = 0
        self.known = False
        self.next = self.acked = 0
        self.since = 0
        self.reply = b""
        self.replied = self.ended = False
        self.end = ""


class Storm(Abridge):
    """The host's namespace, and beside it everything that it talks to."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.draw = random.Random(seed)
        self.to_runtime: deque[tuple[str, Any]] = deque()
        self.to_host: deque[tuple[str, Any]] = deque()
        self.up = True
        self.unnoticed = False
        self.bound = False  # this link is the tunnel's
        self.asked: dict[int, Asked] = {}
        self.over: list[Asked] = []
        self.runs: Counter[int] = Counter()
        self.sizes = [self.draw.choice([0, 20, 500, 3000]) for _ in range(REQUESTS)]
        self.kinds = [self.draw.choice(["whole", "stream", "error", "early"]) for _ in range(REQUESTS)]
        self.begun = 0

    # ---- the link, as the host sees it ----

    async def emit(self, event: str, data: Any = None) -> None:
        if self.up:
            self.to_runtime.append((event, data))

    # ---- the handler ----

    async def handle(self, request: Request) -> ClientResponse:
        index = int(request.query)
        self.runs[index] += 1
        if self.runs[index] > 1:
            raise Verdict("handled twice")
        if self.kinds[index] != "early":
            heard = request.raw if isinstance(request.raw, bytes) else b"".join([piece async for piece in request.raw])
            if heard != text(index, len(heard), False) or len(heard) not in (0, 30, 400, 2000):
                raise Verdict("not the bytes of the request")
        await self.pause()
        if self.kinds[index] == "error":
            raise AbridgeError("no", status_code=429)
        body = text(index, self.sizes[index], True)
        return ClientResponse(self.pieces(body) if self.kinds[index] != "whole" else body)

    async def pieces(self, body: bytes) -> AsyncIterator[bytes]:
        for at in range(0, len(body), 100):
            yield body[at : at + 100]
            await self.pause()

    async def pause(self) -> None:
        for _ in range(self.draw.randrange(12)):
            await asyncio.sleep(0)

    # ---- the runtime ----

    def finish(self, one: Asked, end: str) -> None:
        one.end = end
        self.over.append(self.asked.pop(one.id))
        whole = text(one.index, self.sizes[one.index], True)
        if not whole.startswith(one.reply) and end != "429":
            raise Verdict("not the bytes of the reply")
        if end == "answered" and (one.reply != whole or self.runs[one.index] != 1):
            raise Verdict("an answer that is not whole, or was never asked for")
        if one.known and self.bound:
            self.to_host.append(("gone", {"request_id": one.id}))

    def hear(self, event: str, data: Any) -> None:
        self.bound = self.bound or event in ("open", "attach")
        if event == "open":
            value = {"tunnel": 1, "port": 4711, "chunk": CHUNK, "credit": CREDIT}
            self.to_host.append(("open:result", {"request_id": data["request_id"], "value": value}))
            return
        if event == "attach":
            self.attach(data)
            return
        one = self.asked.get(data["request_id"])
        if one is None:
            self.to_host.append(("gone", {"request_id": data["request_id"]}))
        elif event == "ack":
            one.consumed = max(one.consumed, min(data["seq"], one.told))
            one.unsaid = max(one.unsaid, one.consumed)
        elif not one.ended and data["seq"] == one.next:
            one.next += 1
            one.consumed = max(one.consumed, 1)
            one.unsaid = max(one.unsaid, 1)
            if event.endswith(":error") or "error" in data:
                self.finish(one, "error")
                return
            one.ended = event.endswith(":result") or bool(data.get("last"))
            status = data.get("value", {}).get("status_code", 200)
            if status == 429:
                self.finish(one, "429")
                return
            one.replied = True
            piece = data.get("value", {}).get("body", b"") or data.get("data", b"")
            one.reply += piece
            one.since += len(piece)

    def attach(self, data: Any) -> None:
        live = set(data["data"]["live"])
        self.to_host.append(("attach:result", {"request_id": data["request_id"], "value": {}}))
        for number in live - self.asked.keys():
            self.to_host.append(("gone", {"request_id": number}))
        for one in list(self.asked.values()):
            one.known = one.id in live
            if not one.known and (one.replied or one.consumed):
                self.finish(one, "lost")
                continue
            one.unsaid = one.consumed
            if one.known and one.acked:
                self.to_host.append(("ack", {"request_id": one.id, "seq": one.acked}))

    def say(self) -> None:
        ready = [one for one in self.asked.values() if one.unsaid < len(one.records)]
        firsts = [one.id for one in ready if not one.unsaid]  # they begin in rising order
        ready = [one for one in ready if one.unsaid or one.id == min(firsts)]
        if not ready:
            return
        one = self.draw.choice(ready)
        if (one.unsaid - one.consumed) * CHUNK >= CREDIT or (self.up and not self.bound):
            return
        seq, piece, last = one.records[one.unsaid]
        one.unsaid += 1
        one.told = max(one.told, one.unsaid)
        one.known = True
        if not self.up:
            return
        if seq:
            self.to_host.append(("chunk", {"request_id": one.id, "seq": seq, "data": piece, "last": last}))
            return
        asked = {"tunnel": 1, "path": "/m", "method": "POST", "query": str(one.index), "headers": []}
        self.to_host.append(("/m", {"request_id": one.id, "data": {**asked, "body": piece, "last": last}}))

    # ---- agents, and what breaks ----

    def act(self, calm: bool) -> None:
        if self.begun < REQUESTS and self.draw.random() < 0.15:
            self.begun += 1
            self.asked[self.begun] = Asked(self.begun, self.begun - 1, self.draw)
        if not self.asked:
            return
        one = self.draw.choice(list(self.asked.values()))
        if not calm and self.draw.random() < 0.01:
            self.finish(one, "left")
        elif one.ended:
            self.finish(one, "answered")
        elif one.since >= CREDIT // 4:  # its client has taken it
            one.since, one.acked = 0, one.next
            if self.bound:
                self.to_host.append(("ack", {"request_id": one.id, "seq": one.next}))

    def link(self, calm: bool) -> None:
        if self.unnoticed and self.draw.random() < 0.2:
            self.unnoticed = False
            self.on_disconnect()
        if self.up and not calm and self.draw.random() < 0.03:
            self.up = self.bound = False
            self.unnoticed = True
            self.to_host.clear()
            self.to_runtime.clear()
        elif not self.up and not self.unnoticed and self.draw.random() < 0.3:
            self.up = True
            self.on_connect()

    def step(self, calm: bool) -> None:
        self.link(calm)
        self.act(calm)
        self.say()
        for _ in range(self.draw.randrange(4)):
            if self.up and self.to_host:
                event, data = self.to_host.popleft()
                getattr(self, f"on_{event}")(data)
        for _ in range(self.draw.randrange(4)):
            if self.up and self.to_runtime:
                self.hear(*self.to_runtime.popleft())
        if not self.up:
            self.to_host.clear()


async def run(seed: int) -> list[str]:
    """One run: how each request ended. Raises Verdict."""
    storm = Storm(seed)

    async def handler(request: Request) -> ClientResponse:
        return await storm.handle(request)

    opening = asyncio.ensure_future(storm.open({"/m": raw_handler(handler)}, 60, contextvars.copy_context()))
    for _ in range(3):
        await asyncio.sleep(0)
        while storm.to_runtime:
            storm.hear(*storm.to_runtime.popleft())
        while storm.to_host:
            event, data = storm.to_host.popleft()
            getattr(storm, f"on_{event}")(data)
    tunnel = await opening
    for n in range(STEPS + STEPS_MAX):
        storm.step(n >= STEPS)
        await asyncio.sleep(0)
        if max(storm.runs.values(), default=0) > 1:
            raise Verdict("handled twice")
        if len(storm.over) == REQUESTS and not tunnel.live:
            break
    else:
        raise Verdict("never answered, or the host never told")
    return [one.end for one in storm.over]


def storms(seeds: range) -> Counter[str]:
    ends: Counter[str] = Counter()

    async def main() -> None:
        for seed in seeds:
            try:
                async with asyncio.timeout(60):
                    ends.update(await run(seed))
            except Verdict as verdict:
                raise Verdict(f"seed {seed}: {verdict}") from None

    asyncio.run(main())
    return ends


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "agentix.bridge")


def test_each_is_handled_once_and_answered_once() -> None:
    ends = storms(range(60))
    assert ends["answered"] > 100
    assert min(ends["429"], ends["left"]) > 10
    assert ends["error"] == 0, "what the handler has to say is said"


def begins_anew(self: Tunnel, request_id: int, asked: dict[str, Any]) -> None:
    exchange = Exchange(self, request_id, asked)
    self.live[request_id] = exchange
    exchange.start()


def goes_on_where_it_was(self: Exchange) -> None:
    asyncio.get_running_loop().create_task(self._say_again())


PLANTS = {
    "a request that is said again is handled again": (Tunnel, "begin", begins_anew),
    "what was lost with a link is not said again": (Exchange, "say_again", goes_on_where_it_was),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_planted_faults_are_found(monkeypatch: pytest.MonkeyPatch, plant: str) -> None:
    where, name, fault = PLANTS[plant]
    monkeypatch.setattr(where, name, fault)
    with pytest.raises(Verdict, match="twice" if name == "begin" else "never answered"):
        storms(range(60))
