"""The worker's frames, calls and failures, seen from the other end of its pair."""

import os
import pickle
import random
import socket
import struct
import time
from pathlib import Path

import pytest
from worker_peer import pack, worker

from agentix._core import dumps_plain

CALL = {"type": "call", "call_id": "x", "callable": "worker_targets::echo", "arguments": pickle.dumps(((1,), {}))}


# ---- calls ----


def test_sync_async_and_static_targets() -> None:
    with worker() as w:
        assert w.value("math::factorial", 5) == 120
        assert w.value("echo", "a", key="b") == (("a",), {"key": "b"})
        assert w.value("aecho", [1, 2]) == [1, 2]
        assert w.value("asyncio::sleep", 0, "slept") == "slept"
        assert w.value("K.m", 1) == 2
        assert w.value("K.Inner.m", 1) == 3
        assert w.value("later", "x") == "x"
        assert w.value("old_style", "y") == "y"
        assert w.value("awaitable") == "awaited"
        w.nothing_else()


def large_arguments() -> list[tuple[tuple[object, ...], dict[str, object]]]:
    """Some that are received where they stay, and some that look so for a while."""
    big, other = random.Random(1).randbytes(1 << 20), random.Random(2).randbytes(300_001)
    return [
        ((big,), {}),
        ((1, "a", other, None), {"k": b"z" * 100}),
        ((), {"a": True, "b": big}),
        ((big, other), {}),
        ((other, {1, 2}), {}),
        ((other, [b"y" * 2000]), {"x": big}),
        ((b"y" * 9000, big), {}),
        ((bytearray(big),), {}),
    ]


def plain_pickle(args: tuple[object, ...], kwargs: dict[str, object]) -> bytes:
    """One without frames, as ours are where that is possible."""
    return dumps_plain(args, kwargs) or pickle.dumps((args, kwargs), 3)


@pytest.mark.parametrize("target", ["all_of", "aall"])
def test_large_arguments_by_cuts(target: str) -> None:
    cuts = random.Random(3)
    with worker() as w:
        for args, kwargs in large_arguments() * 2:
            first = w.request("echo", (0,))
            frame = w.request(target, args, kwargs, arguments=plain_pickle(args, kwargs))
            data, large = first + frame, w.last
            ends = sorted(cuts.choices([*range(1, 400), *range(len(data) - 600, len(data)), *range(len(data))], k=6))
            for begin, end in zip([0, *ends], [*ends, len(data)], strict=True):
                w.send_raw(data[begin:end])
            follower = w.start("echo", 7)
            assert w.decode(w.answer(large)) == (args, kwargs)
            assert w.decode(w.answer(follower)) == 7
            w.answer(f"c{int(large[1:]) - 1}")
        w.nothing_else()


def test_large_arguments_of_a_call_that_is_cancelled_or_unknown() -> None:
    big = bytes(1 << 20)
    with worker() as w:
        frame = w.request("no_such_target", (big,), arguments=plain_pickle((big,), {}))
        w.send_raw(frame)
        assert w.answer(w.last)["type"] == "error"
        frame = w.request("asyncio::sleep", (60, big), arguments=plain_pickle((60, big), {}))
        w.send_raw(frame)
        w.cancel(w.last)
        assert w.answer(w.last)["error"]["cancelled"] is True
        frame = w.request("echo", (big,), arguments=plain_pickle((big,), {})[:-3] + b"\xff\xff.")
        w.send_raw(frame)
        assert w.answer(w.last)["error"]["type"] == "ArgumentsDecodeError"
        w.nothing_else()


def test_the_end_within_large_arguments() -> None:
    big = bytes(2 << 20)
    with worker() as w:
        w.send_raw(w.request("echo", (big,), arguments=plain_pickle((big,), {}))[: 1 << 20])
        w.socket.shutdown(socket.SHUT_WR)
        assert w.wait() == 1
        assert "in the middle of a frame" in w.stderr


def test_large_values_are_sent_from_where_they_lie() -> None:
    with worker() as w:
        for size in ((256 << 10) - 1, 256 << 10, 1 << 20, (5 << 20) + 3):
            for target in ("big", "abig"):
                assert w.value(target, size) == b"x" * size
        w.nothing_else()


def test_sync_targets_run_in_threads_and_async_ones_in_the_main_thread() -> None:
    with worker() as w:
        assert w.value("thread_name").startswith("agentix-call-")
        assert w.value("athread_is_main") is True


def test_asyncio_is_loaded_by_the_first_async_call_only() -> None:
    with worker() as w:
        for module in ("asyncio", "logging", "typing", "inspect", "ctypes"):
            assert w.value("builtins::eval", f"{module!r} in __import__('sys').modules") is False
        w.value("builtins::eval", "__import__('asyncio').sleep(0)")
        assert w.value("builtins::eval", "'asyncio' in __import__('sys').modules") is True


def test_calls_run_at_the_same_time() -> None:
    with worker() as w:
        # Each goes on when all are there.
        for call_id in [w.start(target) for target in ("meet", "ameet") for _ in range(100)]:
            assert w.decode(w.answer(call_id)) is None


def test_threads_are_given_back() -> None:
    with worker() as w:
        for call_id in [w.start("time::sleep", 0.3) for _ in range(100)]:
            w.answer(call_id)
        while w.value("count_threads") > 1 + 8 + 2:
            pass
        for _ in range(100):
            w.value("echo", 1)
        assert w.value("count_threads") <= 1 + 8 + 2


def test_more_sleepers_than_threads() -> None:
    with worker() as w:
        ids = [w.start("time::sleep", 0.5) for _ in range(1100)]
        for call_id in ids:
            assert w.decode(w.answer(call_id)) is None
        w.nothing_else()


def test_calls_are_read_while_nobody_takes_the_answers() -> None:
    with worker() as w:
        w.value("echo", 0)  # known and quick from here on
        ids = [w.start("echo", str(i) * 100) for i in range(1500)]
        for i, call_id in enumerate(ids):
            assert w.decode(w.answer(call_id)) == str(i) * 100
        w.nothing_else()


def test_a_long_call_does_not_keep_back_the_answers_to_those_before_it() -> None:
    with worker() as w:
        for _ in range(20):
            w.value("time::sleep", 0)  # known as quick
        frames, ids = bytearray(), list[str]()
        for seconds in (0, 0, 0, 60, 60, 60):
            frames += w.request("time::sleep", (seconds,))
            ids.append(w.last)
        w.send_raw(bytes(frames))
        for call_id in ids[:3]:
            assert w.decode(w.answer(call_id)) is None


def test_calls_wait_when_the_system_gives_no_more_threads() -> None:
    with worker() as w:
        assert w.value("limit_threads", 3) == 3
        ids = [w.start("time::sleep", 0.05) for _ in range(50)]
        for call_id in ids:
            assert w.decode(w.answer(call_id)) is None
        w.nothing_else()


def test_async_targets_run_in_a_task_of_the_main_thread_from_their_first_line() -> None:
    with worker() as w:
        for _ in range(10):  # the loop takes over reading in between
            assert w.value("inside") == ("MainThread", True, True, True)
        w.nothing_else()


def test_sync_and_async_calls_in_turn() -> None:
    with worker() as w:
        ids = [w.start("echo" if i % 5 < 2 else "aecho", i) for i in range(2000)]
        for i, call_id in enumerate(ids):
            assert w.decode(w.answer(call_id)) == i
        w.nothing_else()


def test_a_blocked_loop_that_reads_does_not_hold_up_sync_calls() -> None:
    with worker() as w:
        for _ in range(10):
            w.value("aecho", 1)  # the loop reads from here on
        blocker = w.start("block_loop")
        w.value_later("has_begun", "block_loop", expected=True)
        assert w.value("echo", 2) == 2
        w.value("unblock", 0)
        w.answer(blocker)
        for _ in range(10):
            assert w.value("aecho", 3) == 3
        w.nothing_else()


def test_a_loop_that_reads_and_then_is_blocked_by_something_else_does_not_hold_up_sync_calls() -> None:
    with worker() as w:
        for _ in range(10):
            w.value("aecho", 1)
        w.value("block_loop_later")
        time.sleep(0.05)  # now it is blocked, and no call is under way
        assert w.value("echo", 2) == 2
        assert w.value("echo", 3) == 3
        w.nothing_else()


# ---- frames ----


def test_several_frames_in_one_write_and_one_frame_in_many() -> None:
    with worker() as w:
        w.send_raw(b"".join(w.request("echo", (i,)) for i in range(50)))
        assert [w.decode(w.answer(f"c{i + 1}")) for i in range(50)] == list(range(50))
        for byte in w.request("echo", ("byte by byte",)):
            w.send_raw(bytes([byte]))
        assert w.decode(w.answer(w.last)) == "byte by byte"


def test_bytes_of_any_size_are_exact() -> None:
    with worker() as w:
        for size in (0, 1, 65_535, 65_536, 2 << 20, 8 << 20):
            value = os.urandom(size)
            assert w.value("echo", value) == value


def test_unknown_frames_are_warned_of_and_passed_over() -> None:
    with worker() as w:
        w.send(type="weird", call_id="x")
        w.send(call_id="x")
        w.send(type=7)
        w.send(type="result", call_id="x", value=b"")
        w.send_raw(struct.pack("<I", 0))
        w.send(type="cancel", call_id="nobody's")
        w.nothing_else()
        assert w.end() == 0
        assert w.stderr.count("unknown type") == 5
        assert "'weird'" in w.stderr


@pytest.mark.parametrize(
    ("data", "logged"),
    [
        (struct.pack("<I", (256 << 20) + 1), "above the limit of 268435456 bytes"),
        (struct.pack("<I", 0xFFFFFFFF), "above the limit"),
        (pack([1, 2]), "malformed"),
        (pack("text"), "malformed"),
        (pack({"type": "cancel"}), "malformed"),
        (pack(CALL)[:-1], "in the middle of a frame"),
        (b"\x01\x02", "in the middle of a frame"),
    ],
)
def test_a_stream_that_cannot_be_read_ends_the_worker(data: bytes, logged: str) -> None:
    with worker() as w:
        w.value("echo", 1)
        w.send_raw(data)
        w.socket.shutdown(1)
        assert w.wait() == 1
        assert logged in w.stderr
        assert "Traceback" not in w.stderr


def test_the_end_of_the_stream_and_shutdown_end_the_worker_whatever_runs() -> None:
    for how in ("eof", "shutdown"):
        with worker() as w:
            for target in ("time::sleep", "asyncio::sleep"):
                w.start(target, 600)
            w.start("spin", "spun")
            w.value("aecho", 1)
            if how == "shutdown":
                w.send(type="shutdown")
            else:
                w.socket.close()
            assert w.wait() == 0
            assert w.stderr == ""


def test_a_million_bytes_of_garbage_as_arguments_cost_only_that_call() -> None:
    with worker() as w:
        w.send(**{**CALL, "arguments": b"\x80\x05" + os.urandom(1 << 20)})
        assert w.answer("x")["error"]["type"] == "ArgumentsDecodeError"
        w.nothing_else()


# ---- failures ----


RAISED = {
    "SystemExit": "3",
    "KeyboardInterrupt": "mine",
    "GeneratorExit": "mine",
    "CancelledError": "mine",
    "Custom": "mine",
    "TimeoutError": "mine",
    "CallCancelledError": "mine",
    "QuotaError": "u1 is over 3",
    "ExceptionGroup": "many (2 sub-exceptions)",
}


@pytest.mark.parametrize("target", ["fail", "afail"])
def test_whatever_a_target_raises_is_its_calls_error(target: str) -> None:
    with worker() as w:
        sleepers = [w.start("asyncio::sleep", 0.5, "undisturbed"), w.start("nap", 0.5, "undisturbed")]
        for name, message in RAISED.items():
            error = w.error(target, name)
            assert (error["type"], error["message"]) == (name, message)
            assert error["cancelled"] is False
            assert error["returncode"] is None
            assert 'worker_targets.py", line' in error["traceback"]
            assert "_worker.py" not in error["traceback"]
        for sleeper in sleepers:
            assert w.decode(w.answer(sleeper)) == "undisturbed"
        w.nothing_else()


def test_stop_iteration_of_a_sync_target_is_its_error() -> None:
    with worker() as w:
        assert w.error("fail", "StopIteration")["type"] == "StopIteration"
        assert w.error("afail", "StopIteration")["type"] == "RuntimeError"  # as Python has it for coroutines


@pytest.mark.parametrize("target", ["fail", "afail"])
def test_an_exception_that_cannot_be_shown_is_still_an_error(target: str) -> None:
    with worker() as w:
        error = w.error(target, "Unspeakable")
        assert (error["type"], error["message"]) == ("Unspeakable", "<its text could not be made: RuntimeError>")
        assert w.error(target, "AnonymousError")["type"] == "AnonymousError"
        w.nothing_else()


def test_long_and_odd_error_texts_are_cut_and_escaped() -> None:
    with worker() as w:
        error = w.error("fail_with_text", "€" * 100_000)
        assert len(error["message"].encode()) <= 64 << 10
        assert error["message"].strip("€") == ""
        assert len(error["traceback"].encode()) <= 256 << 10
        assert w.error("fail_with_text", "lone \ud800 one")["message"] == "lone \\ud800 one"
        assert w.error("fail_with_text", "nul \0 in it")["message"] == "nul \0 in it"
        chain = w.error("fail_in_chain", 50)
        assert chain["message"] == "level 50"
        assert "level 0" in chain["traceback"]
        assert w.error("recurse")["type"] == "RecursionError"


def test_targets_that_cannot_be_found() -> None:
    with worker() as w:
        for reference, kind in {
            "no_such_module_here::x": "ModuleNotFoundError",
            "math::no_such_name": "AttributeError",
            "math::pi": "TypeError",
            "a::b::c": "ModuleNotFoundError",
            "::x": "ValueError",
        }.items():
            assert w.error(reference)["type"] == kind
        w.send(**{**CALL, "callable": "no separator"})
        assert w.answer("x")["error"]["type"] == "ValueError"
        w.nothing_else()


def test_wrong_arguments_are_a_type_error() -> None:
    with worker() as w:
        for target in ("K.m", "aecho"):
            assert w.error(target, 1, 2, 3)["type"] == "TypeError"


def test_arguments_that_cannot_be_decoded() -> None:
    unknown, explosive = (b"cworker_targets\n" + name + b"\n)R." for name in (b"missing", b"explode"))
    cut, no_pair, no_tuple = pickle.dumps(((1,), {}))[:-1], pickle.dumps(5), pickle.dumps((5, {}))
    with worker() as w:
        for data in (b"", b"garbage", cut, no_pair, no_tuple, unknown, explosive):
            w.send(**{**CALL, "arguments": data})
            error = w.answer("x")["error"]
            assert error["type"] == "ArgumentsDecodeError"
            assert error["traceback"] is None
            assert "could not be decoded" in error["message"]
        w.nothing_else()


def test_results_that_cannot_be_encoded() -> None:
    with worker() as w:
        for value, named in {
            "lambda": "function",
            "lock": "_thread.lock",
            "file": "_io.TextIOWrapper",
            "generators": "list",
            "generator": "generator",
            "deep": "list",
            "unpicklable": "worker_targets.Unpicklable",
        }.items():
            error = w.error("give", value)
            assert error["type"] == "ResultEncodeError"
            assert f"the return value of type {named} " in error["message"]
            assert ("RecursionError" in error["message"]) == (value == "deep")
            assert error["traceback"] is None
        w.nothing_else()


def test_unsendable_coroutines_and_generators_make_no_noise() -> None:
    with worker(env={"PYTHONWARNINGS": "always"}) as w:
        for target in ("give_coroutines", "agenerator"):
            assert w.error(target)["type"] == "ResultEncodeError"
        w.value("gc::collect")
        assert w.end() == 0
        assert w.stderr == ""


def test_a_result_that_refers_to_itself_comes_back() -> None:
    with worker() as w:
        loop = w.value("give", "loop")
        assert loop[0] is loop


def test_a_result_too_large_for_a_frame() -> None:
    with worker() as w:
        error = w.error("big", 257 << 20)
        assert error["type"] == "FrameTooLarge"
        assert "268435456" in error["message"]
        assert w.value("size_of", b"next") == 4
        w.nothing_else()


# ---- boot ----


def test_a_boot_that_fails_is_told(tmp_path: Path) -> None:
    from worker_peer import Peer

    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.stdout = object()\n")
    peer = Peer(env={"PYTHONPATH": str(tmp_path)})
    try:
        frame = peer.receive()
        assert frame["type"] == "boot_error"
        assert frame["error"]["type"] == "AttributeError"
        assert "reconfigure" in frame["error"]["message"]
        assert peer.wait() != 0
    finally:
        peer.close()


def test_a_descriptor_that_is_no_socket_is_refused(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = "import os; from agentix._worker import main; main(os.open(os.devnull, 0))"
    done = subprocess.run([sys.executable, "-sP", "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 1
    assert "is not a socket" in done.stderr


# ---- memory ----


def growth(rounds: int) -> int:
    """KiB by which the worker grows over so many calls, after as many to warm up."""
    with worker() as w:
        for _ in range(2):
            before = w.value("rss_kib")
            for start in range(0, rounds, 500):
                w.send_raw(b"".join(w.request("echo", (b"x" * 100,)) for _ in range(start, start + 500)))
                for _ in range(500):
                    assert w.receive()["type"] == "result"
        for _ in range(rounds // 100):
            w.error("fail", "QuotaError")
            w.error("afail", "SystemExit")
            w.cancel(w.start("aspin", "x"))
            assert w.answer(w.last)["error"]["cancelled"]
        return w.value("rss_kib") - before


def test_memory_does_not_grow_with_calls() -> None:
    assert growth(5_000) < 2048


@pytest.mark.long
def test_memory_does_not_grow_with_very_many_calls() -> None:
    assert growth(100_000) < 4096
