"""Calls to async targets that the loop reads itself: each is a task like any, though its first step comes at once."""

import signal

from worker_peer import Peer, worker


def begin_loop(w: Peer) -> None:
    """Calls in a row, after which the loop reads."""
    for n in range(4):
        assert w.value("aecho", n) == n


def together(w: Peer, *calls: tuple[str, object]) -> list[str]:
    frames, ids = bytearray(), []
    for target, argument in calls:
        frames += w.request(target, () if argument is None else (argument,))
        ids.append(w.last)
    w.send_raw(frames)
    return ids


def test_each_call_has_a_task_of_its_own() -> None:
    with worker() as w:
        begin_loop(w)
        for _ in range(3):
            ids = together(w, *(("own_task", n % 3) for n in range(100)))
            for n, call in enumerate(ids):
                assert w.decode(w.answer(call)) == (True, True, True, True, n % 3 > 0)
        w.nothing_else()


def test_what_a_target_comes_to_is_its_call_s_alone() -> None:
    with worker() as w:
        begin_loop(w)
        for _ in range(3):
            failing = {
                "time_out": (None, "TimeoutError"),
                "cancel_self": (None, "CancelledError"),
                "asignal_later": (signal.SIGINT, "KeyboardInterrupt"),
                "asignal_self": (None, "TypeError"),
                "give_generator": (None, "ResultEncodeError"),
            }
            ids = together(w, *((name, argument) for name, (argument, _) in failing.items()), ("give_object", None))
            fine = together(w, *(("aecho", n) for n in range(20)))
            for call, (name, (_, kind)) in zip(ids, failing.items(), strict=False):
                answer = w.answer(call)
                assert answer["type"] == "error", (name, answer)
                assert answer["error"]["type"] == kind, (name, answer)
            assert w.decode(w.answer(ids[-1])) == {1, 2}
            assert [w.decode(w.answer(call)) for call in fine] == list(range(20))
        w.nothing_else()


def test_calls_of_both_kinds_are_answered_in_one_stretch() -> None:
    with worker() as w:
        begin_loop(w)
        ids = together(w, *(("echo" if n % 7 == 3 else "aecho", n) for n in range(500)))
        assert [w.decode(w.answer(call)) for call in ids] == list(range(500))
        w.nothing_else()
