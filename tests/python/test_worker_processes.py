"""What a worker says and hears of processes, seen from the other end of its pair; no process is started here."""

from __future__ import annotations

import os
from typing import Any

import pytest
from worker_peer import Peer, worker

RUN = "agentix.bash::run"
ENV = {"PATH": "/usr/bin:/bin", "A": "x y"}


def begin(w: Peer, *args: object, **options: Any) -> tuple[str, dict[str, Any]]:
    """Start a call of `run`; its id, and the request for a process that it makes."""
    call = w.start(RUN, *args, **{"env": ENV, "executable": "/bin/sh", **options})
    frame = w.receive()
    assert frame["type"] == "proc_start"
    return call, frame


def out(w: Peer, frame: dict[str, Any], fd: int, data: bytes) -> None:
    w.send(type="proc_out", proc=frame["proc"], fd=fd, data=data)


def exit_(w: Peer, frame: dict[str, Any], **how: Any) -> None:
    w.send(
        **{
            "type": "proc_exit",
            "proc": frame["proc"],
            "code": 0,
            "signal": 0,
            "cause": "exited",
            "out": 0,
            "err": 0,
            **how,
        }
    )


def fields(result: Any) -> tuple[int, str, str]:
    return result.exit_code, result.stdout, result.stderr


def test_asks_for_what_the_command_needs() -> None:
    with worker() as w:
        call, frame = begin(w, "echo hi", cwd="/tmp", timeout=1.5, max_output=1000)
        assert frame.pop("proc") > 0
        assert frame == {
            "type": "proc_start",
            "call_id": call,
            "path": b"/bin/sh",
            "argv": b"/bin/sh\0-c\0echo hi\0",
            "env": b"PATH=/usr/bin:/bin\0A=x y\0",
            "cwd": b"/tmp",
            "stdin": 0,
            "n": 512 << 10,
            "limit": 1000,
            "timeout": 1500,
        }


def test_makes_a_result_of_what_it_hears() -> None:
    with worker() as w:
        call, frame = begin(w, "x", max_output=5)
        out(w, frame, 2, b"e")
        out(w, frame, 1, b"a\xe2")
        out(w, frame, 1, b"\x82\xac")
        exit_(w, frame, code=3, out=5, err=1)
        assert fields(w.decode(w.answer(call))) == (3, "a€", "e")
        call, frame = begin(w, "x", timeout=2, max_output=5)
        out(w, frame, 1, b"abcde")
        exit_(w, frame, signal=9, cause="timeout", out=6)
        assert fields(w.decode(w.answer(call))) == (
            -1,
            "abcde\n[truncated at 5 bytes]",
            "Command timed out after 2s",
        )
        call, frame = begin(w, "x")
        exit_(w, frame, signal=15)
        assert fields(w.decode(w.answer(call))) == (-15, "", "")
        w.nothing_else()


def test_processes_are_told_apart() -> None:
    with worker() as w:
        begun = [begin(w, "x") for _ in range(3)]
        assert len({frame["proc"] for _, frame in begun}) == 3
        for at, (_, frame) in enumerate(begun):
            out(w, frame, 1, f"{at}".encode())
        for call, frame in reversed(begun):
            exit_(w, frame, out=1)
            assert w.decode(w.answer(call)).stdout == f"{begun.index((call, frame))}"


@pytest.mark.parametrize(("code", "kind"), [(2, "FileNotFoundError"), (13, "PermissionError"), (24, "OSError")])
def test_raises_what_kept_it_from_starting(code: int, kind: str) -> None:
    with worker() as w:
        call, frame = begin(w, "x")
        error = {"type": "whatever", "message": "cannot: because", "traceback": None, "cancelled": False}
        w.send(type="proc_error", proc=frame["proc"], code=code, error=error)
        answer = w.answer(call)["error"]
        assert (answer["type"], answer["message"]) == (kind, f"[Errno {code}] cannot: because")
        w.nothing_else()


def test_gives_credit_for_what_it_has_taken() -> None:
    with worker() as w:
        call, frame = begin(w, "x")
        for _ in range(5):
            out(w, frame, 1, b"x" * (64 << 10))
        first = w.receive()
        assert first == {"type": "proc_credit", "proc": frame["proc"], "n": 128 << 10}
        assert w.receive() == first
        exit_(w, frame, out=320 << 10)
        assert len(w.decode(w.answer(call)).stdout) == 320 << 10


def test_feeds_no_more_input_than_there_is_room_for() -> None:
    with worker() as w:
        data = os.urandom(300 << 10)
        call, frame = begin(w, "x", stdin=data)
        assert frame["stdin"] == 1
        got = b"".join(w.receive()["data"] for _ in range(4))
        assert got == data[: 256 << 10]
        w.send(type="proc_credit", proc=frame["proc"], n=100 << 10)
        rest = w.receive()
        assert (rest["type"], rest["data"]) == ("proc_in", data[256 << 10 :])
        assert w.receive() == {"type": "proc_in", "proc": frame["proc"], "data": b""}
        exit_(w, frame)
        w.answer(call)
        w.nothing_else()


def test_no_input_is_none_and_an_empty_one_ends_at_once() -> None:
    with worker() as w:
        call, frame = begin(w, "x", stdin=b"")
        assert frame["stdin"] == 1
        assert w.receive() == {"type": "proc_in", "proc": frame["proc"], "data": b""}
        exit_(w, frame)
        w.answer(call)


def test_a_cancelled_call_is_answered_when_nothing_of_it_is_left() -> None:
    with worker() as w:
        call, frame = begin(w, "x")
        w.cancel(call)
        assert w.receive() == {"type": "proc_end", "proc": frame["proc"]}
        w.nothing_else()
        exit_(w, frame, signal=9, cause="cancelled")
        assert w.answer(call)["error"]["cancelled"] is True


def test_late_frames_and_strange_ones_are_passed_over() -> None:
    with worker() as w:
        for kind in ({"type": "proc_credit", "n": 1}, {"type": "proc_out", "fd": 1, "data": b"x"}):
            w.send(proc=77, **kind)  # the worker has not asked for any yet
        call, frame = begin(w, "x")
        out(w, {"proc": frame["proc"] + 1}, 1, b"another's")
        exit_(w, {"proc": frame["proc"] + 1}, code=9)
        exit_(w, frame)
        assert fields(w.decode(w.answer(call))) == (0, "", "")
        exit_(w, frame, code=4)
        out(w, frame, 1, b"late")
        w.nothing_else()


def test_a_stream_is_passed_on_as_it_comes() -> None:
    with worker() as w:
        w.send_raw(w.request("agentix.bash::run_stream", ("x",), {"env": ENV, "executable": "/bin/sh"}, stream=100))
        call, frame = w.last, w.receive()
        assert (frame["type"], frame["limit"]) == ("proc_start", 2**64 - 1)
        out(w, frame, 1, b"a\xe2")
        item = w.receive()
        assert (item["type"], item["seq"], item["call_id"]) == ("item", 0, call)
        out(w, frame, 2, b"b")
        assert w.receive()["seq"] == 1
        exit_(w, frame)
        assert [w.receive()["seq"] for _ in range(2)] == [2, 3], "what was left of a character, and the end"
        assert w.receive() == {"type": "result", "call_id": call, "value": None}


def test_a_stream_that_is_closed_ends_its_process() -> None:
    with worker() as w:
        w.send_raw(w.request("agentix.bash::run_stream", ("x",), {"env": ENV, "executable": "/bin/sh"}, stream=100))
        call, frame = w.last, w.receive()
        w.cancel(call)
        assert w.receive() == {"type": "proc_end", "proc": frame["proc"]}
        exit_(w, frame, signal=9, cause="cancelled")
        assert w.answer(call)["error"]["cancelled"] is True
