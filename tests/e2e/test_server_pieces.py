"""Frames in pieces between the server and a worker that reads them: what goes between, what overtakes, what is odd."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_server_raw import Connection, Reply, Server, gone, nothing_stays_behind, serving  # noqa: F401 - a fixture among them

PIECES = {"FAKE_BOOT": "pieces"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path, env=PIECES) as s:
        yield s


def ended(c: Connection, call_id: str) -> Reply:
    """The reply to a call that was accepted, asked for again and again."""
    by = time.monotonic() + 60
    while True:
        c.start("length", id=call_id)
        reply = c.reply()
        if reply.status != 202:
            return reply
        assert time.monotonic() < by, "it does not end"
        time.sleep(0.05)


def test_long_calls_and_values_of_every_size(server: Server) -> None:
    dice = os.urandom(1 << 20)
    with contextlib.closing(server.connect(60)) as c:
        for size in [*range((256 << 10) - 90, (256 << 10) + 30, 7), 1 << 20, 3 << 20, (20 << 20) + 1]:
            value = (dice * (size // len(dice) + 1))[:size]
            assert c.call("echo", value).value == value
            assert c.call("in_pieces", str(size).encode()).value == b"\xa5" * size


def test_what_comes_between_two_pieces_is_answered(server: Server) -> None:
    waiting = [server.connect() for _ in range(3)]
    for c in waiting:
        c.start("wait")
    assert server.call("echo", b"they wait").value == b"they wait"
    assert server.call("in_pieces", b"3000000").value == b"\xa5" * 3000000
    for c in waiting:
        assert c.reply().value == b"between"


def test_a_small_call_overtakes_a_long_one(server: Server) -> None:
    pid = int(server.call("pid").value)
    with contextlib.closing(server.connect(60)) as large, contextlib.closing(server.connect()) as small:
        os.kill(pid, signal.SIGSTOP)
        try:
            ids = [large.start("length", bytes(9 << 20), Prefer="wait=0") for _ in range(3)]
            for _ in ids:
                assert large.reply().status == 202
            small.start("order")
            assert server.call("echo", b"", Prefer="wait=0").status == 202  # so the server has read what came before it
        finally:
            os.kill(pid, signal.SIGCONT)
        assert small.reply().value == b"1"  # after the call for its number
        for call_id in ids:
            assert ended(large, call_id).value == str(9 << 20).encode()


@pytest.mark.parametrize(
    ("callable", "arguments", "returncode", "words"),
    [
        ("half_in_pieces", b"7", 7, "exit code 7"),
        ("odd_piece", b"", -9, "malformed frame"),
        ("long_piece", b"", -9, "frame above the limit"),
    ],
)
def test_a_frame_that_stops_half_way(
    server: Server, callable: str, arguments: bytes, returncode: int, words: str
) -> None:
    old = server.call("pid").value
    error = server.call(callable, arguments).error
    assert (error["type"], error["returncode"]) == ("WorkerDied", returncode)
    assert words in error["message"]
    assert gone(int(old))
    assert server.call("in_pieces", b"3000000").value == b"\xa5" * 3000000


def test_a_death_while_a_long_call_is_on_its_way(server: Server) -> None:
    pid = int(server.call("pid").value)
    with contextlib.closing(server.connect(60)) as c:
        os.kill(pid, signal.SIGSTOP)
        ids = [c.start("length", bytes(9 << 20), Prefer="wait=0") for _ in range(2)]
        for _ in ids:
            assert c.reply().status == 202
        os.kill(pid, signal.SIGKILL)
        assert ended(c, ids[0]).error["type"] == "WorkerDied"
        assert ended(c, ids[1]).value == str(9 << 20).encode()  # nothing of it had gone there: the next worker gets it


def test_what_was_on_its_way_to_a_dead_worker_goes_with_it(server: Server) -> None:
    pid = int(server.call("pid").value)
    orphan = int(server.call("orphan").value)  # it keeps the worker's output open
    try:
        with contextlib.closing(server.connect(60)) as c:
            os.kill(pid, signal.SIGSTOP)
            call_id = c.start("length", bytes(100 << 20), Prefer="wait=0")
            assert c.reply().status == 202
            os.kill(pid, signal.SIGKILL)
            assert ended(c, call_id).error["type"] == "WorkerDied"
        by = time.monotonic() + 60
        while server.rss_mb() > 50:  # some memory is kept for a second
            assert time.monotonic() < by, server.rss_mb()
            time.sleep(0.1)
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_memory_for_long_frames_is_given_back(server: Server) -> None:
    with contextlib.closing(server.connect(60)) as c:
        assert c.call("in_pieces", str(100 << 20).encode()).value == b"\xa5" * (100 << 20)
        assert c.call("length", bytes(100 << 20)).value == str(100 << 20).encode()
        assert server.rss_mb("VmHWM") < 3 * 100 + 16
