"""The worker under calls of all kinds at once: it reads on while nobody takes its answers, and ends each call once."""

import os
import pickle
import random
import select
import signal
import struct
import time
from typing import Any

import msgpack
import pytest
from worker_peer import PATIENCE, Peer, pack, worker

ITEMS_MAX = 6
CREDIT = 2
KINDS = {  # target, how often, whether a cancel may follow
    "echo": (30, True),
    "anow": (20, True),
    "aecho": (15, True),
    "builtins::int": (5, False),
    "afail": (5, False),
    "count": (4, False),
    "acount": (4, False),
    "big": (2, False),
    "nap": (3, True),
    "asyncio::sleep": (3, True),
    "hold_loop": (1, True),
    "spin": (3, True),
    "aspin": (3, True),
    "stubborn": (1, True),
}
FAILURES = {"builtins::int": "ValueError", "afail": "KeyError"}
ENDLESS = ("spin", "aspin", "stubborn")


class Crowd:
    """Calls at random, sent and answered by one thread that waits for neither the one nor the other."""

    def __init__(self, peer: Peer, rng: random.Random, calls: int) -> None:
        self.peer = peer
        self.rng = rng
        self.left = calls
        self.answered = 0
        self.calls: dict[str, tuple[str, Any, bool]] = {}
        self.items: dict[str, int] = {}
        self.out = bytearray()
        self.data = bytearray()
        self.endless: list[str] = []  # those that only a cancel ends
        self.endless_max = 8
        self.moved = time.monotonic()

    # ---- what is sent ----

    def _arguments(self, target: str) -> tuple[object, ...]:
        n = self.answered + len(self.calls)
        if target in ("count", "acount"):
            return (self.rng.randrange(ITEMS_MAX),)
        if target in ("asyncio::sleep", "nap"):
            return 0.001 * self.rng.random(), n
        if target == "hold_loop":
            return (0.004 * self.rng.random(),)
        if target == "big":
            return (self.rng.randrange(40000),)
        return ("neither a number nor a name",) if target in FAILURES else (n,)

    def add(self, *, credit: int) -> None:
        target = self.rng.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
        args = self._arguments(target)
        more: dict[str, Any] = {"stream": credit} if "count" in target else {}
        self.out += self.peer.request(target, args, **more)
        call_id = self.peer.last
        cancelled = KINDS[target][1] and self.rng.random() < 0.1
        self.calls[call_id] = (target, args, cancelled or target in ENDLESS)
        if "count" in target:
            self.items[call_id] = 0
        if cancelled:
            self.out += pack({"type": "cancel", "call_id": call_id})
        elif target in ENDLESS:
            self.endless.append(call_id)
        if len(self.endless) > self.endless_max:
            call_id = self.endless.pop(self.rng.randrange(len(self.endless)))
            self.out += pack({"type": "cancel", "call_id": call_id})
        self.left -= 1

    def end_endless(self) -> None:
        for call_id in self.endless:
            self.out += pack({"type": "cancel", "call_id": call_id})
        self.endless.clear()

    def write(self) -> None:
        try:
            n = self.peer.socket.send(self.out[: 1 << 16])
        except BlockingIOError:
            return
        del self.out[:n]
        self.moved = time.monotonic()

    # ---- what comes back ----

    def read(self) -> None:
        self.data += self.peer.socket.recv(1 << 18)
        self.moved = time.monotonic()
        at = 0
        while len(self.data) - at >= 4:
            (n,) = struct.unpack_from("<I", self.data, at)
            if len(self.data) - at - 4 < n:
                break
            self._take(msgpack.unpackb(memoryview(self.data)[at + 4 : at + 4 + n]))
            at += 4 + n
        del self.data[:at]

    def _take(self, frame: dict[str, Any]) -> None:
        call_id = frame["call_id"]
        if frame["type"] == "item":
            assert frame["seq"] == self.items[call_id] == pickle.loads(frame["value"])
            self.items[call_id] += 1
            self.out += pack({"type": "credit", "call_id": call_id, "n": 1})
            return
        assert call_id in self.calls, f"answered twice, or never asked: {frame}"
        self._check(frame, *self.calls.pop(call_id))
        self.answered += 1

    def _check(self, frame: dict[str, Any], target: str, args: tuple[Any, ...], cancelled: bool) -> None:
        if cancelled and frame["type"] == "error" and frame["error"]["cancelled"]:
            return
        if target in FAILURES:
            assert frame["error"]["type"] == FAILURES[target], frame
            return
        assert frame["type"] == "result", frame
        if "count" in target:
            assert frame.get("value") is None
            assert self.items.pop(frame["call_id"]) == args[0]
        elif target == "big":
            assert len(pickle.loads(frame["value"])) == args[0]
        else:
            assert target not in ENDLESS
            assert pickle.loads(frame["value"]) == (None if target == "hold_loop" else args[-1])

    # ---- turns ----

    def _turn(self, *, reads: bool) -> None:
        events = (select.POLLIN if reads else 0) | (select.POLLOUT if self.out else 0)
        poll = select.poll()
        poll.register(self.peer.socket, events)
        for _, event in poll.poll(PATIENCE * 1000):
            if event & select.POLLOUT:
                self.write()
            if event & ~select.POLLOUT:
                self.read()
        assert time.monotonic() - self.moved < PATIENCE, f"nothing moves; {len(self.calls)} calls are not answered"

    def send_unread(self, n: int) -> None:
        """Send `n` calls, and take no answer before the worker has read them all."""
        for _ in range(n):
            self.add(credit=ITEMS_MAX)
        self.end_endless()
        while self.out:
            self._turn(reads=False)

    def run(self, window: int) -> None:
        self.endless_max = min(8, window // 2)
        while self.left > 0 or self.calls or self.out:
            while self.left > 0 and len(self.calls) < window and len(self.out) < 1 << 16:
                self.add(credit=CREDIT)
            if self.left <= 0:
                self.end_endless()
            self._turn(reads=True)


def crowd(w: Peer, seed: int, calls: int) -> Crowd:
    w.socket.setblocking(False)
    return Crowd(w, random.Random(seed), calls)


def settle(w: Peer) -> None:
    w.socket.settimeout(PATIENCE)
    w.nothing_else()


def threads_and_rss(w: Peer) -> tuple[int, int]:
    while (threads := w.value("count_threads")) > 12:  # the idle ones, the main one, and this call's
        time.sleep(0.01)
    return threads, w.value("rss_kib")


@pytest.mark.parametrize("seed", range(4))
def test_reading_never_waits_for_answers_to_be_taken(seed: int) -> None:
    with worker(send_buffer=4096, reads_pieces=seed % 2 > 0) as w:
        for part in range(4):
            storm = crowd(w, 10 * seed + part, 600)
            storm.send_unread(600)
            storm.run(1)
            assert storm.answered == 600
            settle(w)


def test_a_loop_that_is_given_the_lead_and_cannot_answer_does_not_keep_it() -> None:
    with worker(send_buffer=4096) as w:
        for _ in range(20):
            ids = [w.start("echo" if i % 5 < 2 else "anow", i) for i in range(300)]
            for i, call_id in enumerate(ids):
                assert w.decode(w.answer(call_id)) == i
        w.nothing_else()


def test_calls_of_all_kinds_end_once() -> None:
    with worker() as w:
        storm = crowd(w, 1, 8000)
        storm.run(64)
        assert storm.answered == 8000
        settle(w)
        threads_and_rss(w)


@pytest.mark.long
def test_a_million_calls_of_all_kinds_end_once_and_leave_nothing_behind() -> None:
    total = int(os.environ.get("AGENTIX_TEST_CALLS", "1000000"))
    with worker() as w:
        crowd(w, 0, 20000).run(200)
        settle(w)
        _, before = threads_and_rss(w)
        done = 0
        for seed in range(1, 11):
            storm = crowd(w, seed, total // 10)
            storm.run((1, 8, 64, 400)[seed % 4])
            done += storm.answered
            settle(w)
        _, after = threads_and_rss(w)
        assert done == total // 10 * 10
        assert after < before + 8 * 1024, (before, after)


def test_interrupts_lose_no_call() -> None:
    """They strike the main thread, which reads and starts async calls: only what a target does may be interrupted."""
    with worker() as w:
        for _ in range(10):
            w.value("anow", 0)
        for i in range(60):
            frames, ids = bytearray(), []
            for n in range(200):
                frames += w.request("aecho" if n % 3 == i % 3 else "anow", (n,))
                ids.append(w.last)
            w.send_raw(frames)
            while not select.select([w.socket], [], [], 0)[0]:
                os.kill(w.pid, signal.SIGINT)
            for n, call_id in enumerate(ids):
                os.kill(w.pid, signal.SIGINT)
                answer = w.answer(call_id)
                if answer["type"] == "error":
                    assert answer["error"]["type"] == "KeyboardInterrupt"
                else:
                    assert w.decode(answer) == n
        w.nothing_else()
