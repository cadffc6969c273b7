"""Long frames in pieces, both ways, and what goes between them."""

import itertools
import os
import pickle
import random
import signal
import socket
import struct
import time

import pytest
from worker_peer import Peer, pack, piece, pieces, worker

from agentix._core import dumps_plain

SIZES = ((256 << 10) - 200, 256 << 10, (256 << 10) + 1, 1 << 20, (5 << 20) + 3)


def call(w: Peer, target: str, *args: object) -> bytes:
    return w.request(target, args, arguments=dumps_plain(args, {}) or pickle.dumps((args, {})))


# ---- what the worker sends ----


def test_long_values_come_in_pieces_to_who_reads_them() -> None:
    with worker(reads_pieces=True) as w:
        assert w.value("os::environ.get", "AGENTIX_WORKER_FEATURES") is None  # no child of the worker should see it
        for size in SIZES:
            for target in ("big", "abig"):
                w.order.clear()
                assert w.value(target, size) == b"x" * size
                assert (w.order[-1][0] == "pieces") == (size >= 256 << 10), size
        w.nothing_else()


def test_no_pieces_are_sent_to_who_did_not_ask() -> None:
    with worker() as w:
        assert w.value("big", 3 << 20) == b"x" * (3 << 20)
        w.nothing_else()


def test_a_short_answer_does_not_wait_for_a_long_one() -> None:
    with worker(send_buffer=4096, reads_pieces=True) as w:
        for target in ("big", "abig"):
            long = w.start(target, 8 << 20)
            w.socket.recv(1, socket.MSG_PEEK)  # it is being sent
            short = [w.start("echo", i) for i in range(10)]
            w.order.clear()
            assert [w.decode(w.answer(call_id)) for call_id in short] == list(range(10))
            assert ("pieces", long) not in w.order
            assert w.decode(w.answer(long)) == b"x" * (8 << 20)
        w.nothing_else()


def test_long_answers_of_many_threads_come_one_after_the_other() -> None:
    with worker(send_buffer=4096, reads_pieces=True) as w:
        ids = {w.start(("big", "abig")[i % 2], (1 << 20) + i): (1 << 20) + i for i in range(12)}
        for call_id, size in ids.items():
            assert w.decode(w.answer(call_id)) == b"x" * size
        w.nothing_else()


# ---- what it reads ----


@pytest.mark.parametrize("target", ["all_of", "aall"])
def test_arguments_in_pieces_of_any_size_with_calls_between(target: str) -> None:
    dice = random.Random(7)
    big, other = dice.randbytes(1 << 20), dice.randbytes(300_001)
    with worker() as w:
        for args in [(big,), (1, other, None), (big, other), (bytearray(big),), (other, [b"y" * 2000])] * 2:
            data = w.request(target, args, arguments=dumps_plain(args, {}) or pickle.dumps((args, {}), 3))
            large, short = w.last, []
            sizes = (dice.choice([1, 100, 8000, 70_000, 260_000]) for _ in itertools.count())
            for part in pieces(data, sizes, stream=dice.randrange(1, 1 << 32)):
                w.send_raw(part)
                if len(short) < 20:
                    short.append((w.start("echo", len(short)), len(short)))
            for call_id, value in short:
                assert w.decode(w.answer(call_id)) == value
            assert w.decode(w.answer(large)) == (args, {})
        w.nothing_else()


def test_calls_between_two_pieces_are_answered_at_once() -> None:
    with worker() as w:
        big = random.Random(8).randbytes(1 << 20)
        parts = list(pieces(call(w, "echo", big), itertools.repeat(200_000)))
        large = w.last
        for part in parts:
            assert w.value("echo", "between") == "between"
            assert w.value("aecho", "between") == "between"
            w.send_raw(part)
        assert w.decode(w.answer(large)) == big
        w.nothing_else()


def test_a_call_whose_large_bytes_come_late_is_still_there_when_it_begins() -> None:
    """What was kept of its frame must live as long as its name is needed; freed memory is unmapped at once here."""
    args = (b"a" * 66_500, b"b" * (1 << 20))
    with worker(env={"MALLOC_MMAP_THRESHOLD_": "65536"}) as w:
        parts = pieces(call(w, "all_of", *args), itertools.chain([4_000], itertools.repeat(120_000)))
        large = w.last
        w.send_raw(next(parts))
        assert w.value("echo", "read") == "read"
        os.kill(w.pid, signal.SIGSTOP)
        w.send_raw(next(parts))  # of which as much is read at once as there is room for
        os.kill(w.pid, signal.SIGCONT)
        for part in parts:
            w.send_raw(part)
        assert w.decode(w.answer(large)) == (args, {})
        w.nothing_else()


def test_frames_that_are_cut_between_two_pieces() -> None:
    args, ids = (b"a" * 200_000, b"b" * (1 << 20)), []
    with worker(env={"MALLOC_MMAP_THRESHOLD_": "65536"}) as w:
        parts = pieces(call(w, "all_of", *args), itertools.repeat(100_000))
        large = w.last
        for part in parts:
            w.send_raw(part)
            small = w.request("echo", (len(ids),))
            ids.append(w.last)
            for half in (small[:20], small[20:]):
                w.send_raw(half)
                time.sleep(0.02)  # most likely they are read one by one, which must make no difference
        assert [w.decode(w.answer(call_id)) for call_id in ids] == list(range(len(ids)))
        assert w.decode(w.answer(large)) == (args, {})
        w.nothing_else()


def test_the_end_between_two_pieces_is_the_end_within_a_frame() -> None:
    with worker() as w:
        w.send_raw(next(pieces(call(w, "echo", bytes(1 << 20)), itertools.repeat(200_000))))
        assert w.value("echo", 1) == 1
        w.socket.shutdown(socket.SHUT_WR)
        assert w.wait() == 1
        assert "in the middle of a frame" in w.stderr


BEGUN = piece(5, b"x" * 100, total=1000)
ODD = {
    "of another frame": BEGUN + piece(6, b"x" * 100),
    "a second first": BEGUN + piece(5, b"x" * 100, total=1000),
    "more than announced": BEGUN + piece(5, b"x" * 1000, last=True),
    "an early last": BEGUN + piece(5, b"x" * 100, last=True),
    "none left and not the last": piece(5, b"", total=0) + piece(5, b""),
    "without a first": piece(5, b"x"),
    "of stream 0": piece(0, b"x" * 100, total=1000),
    "an empty one": BEGUN + piece(5, b""),
    "shorter than a head": struct.pack("<I", 0x80000007) + b"\4\2\2\0\5\0\0",
    "another kind": struct.pack("<I", 0x80000009) + b"\5\3\2\0\5\0\0\0x",
    "another lane": struct.pack("<I", 0x80000009) + b"\4\3\1\0\5\0\0\0x",
    "another flag": struct.pack("<I", 0x80000009) + b"\4\7\2\0\5\0\0\0x",
    "not a call": b"".join(pieces(pack([b"x" * 1000]), itertools.repeat(300))),
}


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
def test_odd_pieces_end_the_worker(data: bytes) -> None:
    with worker() as w:
        assert w.value("echo", 1) == 1
        w.send_raw(data)
        w.socket.shutdown(socket.SHUT_WR)
        assert w.wait() == 1
        assert "malformed" in w.stderr


def test_a_piece_or_a_frame_that_is_too_long_ends_the_worker() -> None:
    for data in (struct.pack("<I", 0x80000000 | (256 << 10) + 1), piece(5, b"x" * 100, total=(256 << 20) + 1)):
        with worker() as w:
            assert w.value("echo", 1) == 1
            w.send_raw(data)
            assert w.wait() == 1
            assert "above the limit" in w.stderr
