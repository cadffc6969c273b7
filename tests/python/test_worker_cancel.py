"""Cancelling in the worker: each call ends once, and an exception meant for one call strikes no other."""

import random
import time

import pytest
from worker_peer import Peer, pack, worker

from agentix._core import uninterrupted

CANCELLED = {
    "type": "Cancelled",
    "message": "the remote call was cancelled",
    "traceback": None,
    "cancelled": True,
    "returncode": None,
}


def cancel_frame(call_id: str) -> bytes:
    return pack({"type": "cancel", "call_id": call_id})


@pytest.mark.parametrize("target", ["spin", "aspin", "stubborn", "astubborn"])
def test_a_running_call_is_cancelled_and_its_finally_has_run(target: str) -> None:
    with worker() as w:
        call = w.start(target, "ended")
        w.value("echo", "it has begun, or is about to")
        w.cancel(call)
        assert w.answer(call)["error"] == CANCELLED
        notes = w.value("notes")
        assert not notes or notes[0].startswith("ended")
        w.nothing_else()


@pytest.mark.parametrize("target", ["spin", "aspin"])
def test_a_call_that_has_surely_begun_cleans_up(target: str) -> None:
    with worker() as w:
        call = w.start(target, "ended")
        w.value_later("has_begun", "ended", expected=True)
        w.cancel(call)
        assert w.answer(call)["error"] == CANCELLED
        assert w.value("notes") == ["ended"]


def test_stray_cancels_are_passed_over() -> None:
    with worker() as w:
        done = w.start("echo", 1)
        w.answer(done)
        running = w.start("aspin", "once")
        for call in (done, "nobody's", running, running, done):
            w.cancel(call)
        assert w.answer(running)["error"] == CANCELLED
        w.cancel(running)
        w.nothing_else()
        assert w.end() == 0
        assert w.stderr == ""


@pytest.mark.parametrize("target", ["note", "anote"])
def test_a_cancel_right_behind_its_call_is_never_lost(target: str) -> None:
    """In one write, so that the cancel may be read while the call is being started."""
    with worker() as w:
        outcomes = {"result": 0, "error": 0}
        for _ in range(300):
            frame = w.request(target, ("ran",))
            call = w.last
            w.send_raw(frame + cancel_frame(call))
            outcomes[w.answer(call)["type"]] += 1
        w.nothing_else()
        # What was confirmed as cancelled may have run, but nothing runs afterwards.
        ran = len(w.value("notes"))
        assert outcomes["result"] <= ran <= 300
        assert len(w.value("notes")) == ran


@pytest.mark.parametrize("target", ["aecho", "later"])
def test_a_task_that_is_cancelled_before_it_has_begun_is_answered(target: str) -> None:
    with worker(env={"PYTHONWARNINGS": "always"}) as w:
        w.value("set_task_factory")  # else the first step comes at once
        blocker = w.start("block_loop")
        w.value_later("has_begun", "block_loop", expected=True)
        killer, victim = w.start("cancel_all_tasks"), w.start(target, 1)
        w.value("unblock", 2)
        assert w.decode(w.answer(killer)) == 1
        error = w.answer(victim)["error"]
        assert (error["type"], error["cancelled"]) == ("CancelledError", False)
        w.answer(blocker)
        w.nothing_else()
        assert w.end() == 0
        assert w.stderr == ""


def test_a_cancel_right_behind_a_call_that_never_ends_ends_it() -> None:
    with worker() as w:
        for target in ("spin", "aspin") * 100:
            frame = w.request(target, ("x",))
            call = w.last
            w.send_raw(frame + cancel_frame(call))
            assert w.answer(call)["error"] == CANCELLED
        w.nothing_else()


def test_a_call_that_waits_for_a_thread_is_cancelled_at_once() -> None:
    with worker() as w:
        for _ in range(1050):
            w.start("time::sleep", 600)
        last = w.last
        w.cancel(last)
        assert w.receive() == {"type": "error", "call_id": last, "error": CANCELLED}
        assert w.end() == 0


def test_a_sync_target_in_c_code_is_cancelled_when_it_returns() -> None:
    with worker() as w:
        call = w.start("time::sleep", 0.3)
        w.cancel(call)
        assert w.answer(call)["error"] == CANCELLED
        w.nothing_else()


# ---- what cannot be interrupted ----


@pytest.mark.parametrize("target", ["whole", "whole_within", "whole_that_raises"])
def test_what_is_done_whole_is_cancelled_behind_it(target: str) -> None:
    with worker() as w:
        call = w.start(target, "a")
        w.value_later("has_begun", "a", expected=True)
        w.cancel(call)
        assert w.value("notes") == []
        w.value("release", "a")
        assert w.answer(call)["error"] == CANCELLED
        assert w.value("notes") == (["a", "gone on"] if target == "whole_within" else ["a"])
        w.value("release", "b")
        if target != "whole_that_raises":
            assert w.value(target, "b") == "b"
        w.nothing_else()


def test_what_is_done_whole_when_a_target_was_cancelled() -> None:
    with worker() as w:
        call = w.start("whole_at_the_end", "a")
        w.value_later("has_begun", "a", expected=True)
        w.cancel(call)
        assert w.answer(call)["error"] == CANCELLED
        assert w.value("notes") == ["a", "closed"]
        w.nothing_else()


def test_what_is_done_whole_where_no_call_runs() -> None:
    assert uninterrupted(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        uninterrupted(divmod, 7, 0)
    with pytest.raises(TypeError, match="needs a function"):
        uninterrupted()  # type: ignore[call-arg]


# ---- storms ----


def storm(w: Peer, targets: tuple[str, ...], seconds: float, seed: int) -> dict[str, int]:
    """Keep calls in flight and cancel half of them at random moments; count how they end.

    A call that is not cancelled must give its own value, another one that or Cancelled.
    """
    dice = random.Random(seed)
    outcomes = {"value": 0, "late": 0, "cancelled": 0}
    flying: dict[str, tuple[str, bool]] = {}
    deadline = time.monotonic() + seconds
    while flying or time.monotonic() < deadline:
        while len(flying) < 24 and time.monotonic() < deadline:
            value = f"value {dice.random()}"
            flying[w.start(dice.choice(targets), dice.choice((1, 10, 100, 1000)), value)] = value, False
        for call, (value, cancelled) in flying.items():
            if not cancelled and dice.random() < 0.05:
                flying[call] = value, True
                w.cancel(call)
        frame = w.receive()
        value, cancelled = flying.pop(frame["call_id"])
        if frame["type"] == "result":
            assert w.decode(frame) == value
            outcomes["late" if cancelled else "value"] += 1
        else:
            assert frame["error"] == CANCELLED
            assert cancelled
            outcomes["cancelled"] += 1
    w.nothing_else()
    return outcomes


@pytest.mark.parametrize("targets", [("work",), ("awork",), ("work", "awork", "later_work")])
def test_a_storm_of_cancels(targets: tuple[str, ...]) -> None:
    with worker() as w:
        outcomes = storm(w, targets, 1.5, 1)
        assert outcomes["value"]
        assert outcomes["cancelled"]
        assert w.end() == 0
        assert w.stderr == ""


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_a_long_storm_of_cancels(seed: int) -> None:
    with worker() as w:
        storm(w, ("work", "work", "awork", "later_work"), 10, seed)
        assert w.end() == 0
        assert w.stderr == ""
