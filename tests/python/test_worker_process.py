"""The worker as a process: its descriptors, output, import path, signals, forks and end."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest
from worker_peer import TARGETS, worker

# ---- descriptors and output ----


def test_children_read_an_empty_stdin() -> None:
    with worker() as w:
        assert w.value("read_stdin") == (b"", "/dev/null")
        w.nothing_else()


def is_inherited(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:
        return False


def test_children_get_descriptors_0_to_2_only() -> None:
    with worker() as w:
        ours = {fd for fd in range(3, 64) if is_inherited(fd)}  # what the tests themselves were started with
        assert set(w.value("child_descriptors")) - ours == {0, 1, 2}
        assert w.value("forked_child_has", 3) is False
        assert w.value("forked_child_has", 2) is True
        w.nothing_else()


def test_output_goes_to_the_output_pipes_alone_and_comes_before_the_answer() -> None:
    with worker() as w:
        assert w.value("write_everywhere") == 42
        w.nothing_else()
        assert w.end() == 0
        for text in ("partial", "from C", "kid", "from Python"):
            assert text in w.stdout
        assert w.stderr == "and its errors\n"


@pytest.mark.parametrize("text", ["tail", "€😀 \ud800", "\x1b[2J"])
def test_output_without_a_newline_is_flushed(text: str) -> None:
    # The locale is not UTF-8; the output is.
    with worker(env={"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}) as w:
        w.value("say", text, "")
        w.socket.close()
        assert w.wait() == 0
        assert w.stdout == text.encode("utf-8", "backslashreplace").decode()


@pytest.mark.parametrize("how", ["close", "none", "object", "raise", "descriptor"])
def test_a_target_may_spoil_its_output(how: str) -> None:
    with worker() as w:
        w.start("spoil_stdout", how)
        w.answer(w.last)
        assert w.value("echo", 1) == 1
        assert w.error("fail", "TimeoutError")["message"] == "mine"
        w.nothing_else()


# ---- import path ----


def test_nothing_is_imported_from_the_current_directory(tmp_path: Path) -> None:
    (tmp_path / "agentix").mkdir()
    (tmp_path / "agentix" / "__init__.py").write_text("raise SystemExit('the wrong package')")
    (tmp_path / "local_module.py").write_text("x = 1")
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    with worker(cwd=tmp_path, env={"PYTHONPATH": ""}) as w:
        assert w.value("builtins::eval", "__import__('agentix').__file__").startswith(sys.prefix)
        assert w.error("local_module::x")["type"] == "ModuleNotFoundError"
    (tmp_path / "agentix" / "__init__.py").unlink()
    (tmp_path / "agentix").rmdir()
    entries = [str(tmp_path), str(link), ".", "", f"{tmp_path}/../{tmp_path.name}", str(TARGETS)]
    with worker(cwd=link, env={"PYTHONPATH": ":".join(entries)}) as w:
        path = w.value("builtins::eval", "__import__('sys').path")
        assert path[0] == str(TARGETS)
        assert all(Path(entry).is_absolute() for entry in path)
        assert w.error("local_module::x")["type"] == "ModuleNotFoundError"


def test_a_current_directory_that_is_gone(tmp_path: Path) -> None:
    place = tmp_path / "gone"
    place.mkdir()
    with worker(cwd=place) as w:
        place.rmdir()
        assert w.value("echo", 1) == 1


# ---- signals ----


@pytest.mark.parametrize("target", ["signal_self", "asignal_self"])
def test_an_interrupt_does_not_end_the_worker(target: str) -> None:
    with worker() as w:
        sleeper = w.start("asyncio::sleep", 0.3, "undisturbed")
        call = w.start(target, signal.SIGINT)
        answer = w.answer(call)  # its own error, or that of whatever the main thread did just then
        assert answer["type"] == "result" or answer["error"]["type"] == "KeyboardInterrupt"
        w.answer(sleeper)
        assert w.value("aecho", "lives") == "lives"
        w.nothing_else()


def test_an_interrupt_before_the_loop_has_begun_does_not_keep_it_from_beginning() -> None:
    for _ in range(10):
        with worker() as w:
            calls = [w.start("signal_self", signal.SIGINT), w.start("aecho", 1), w.start("signal_self", signal.SIGINT)]
            for call in calls:
                answer = w.answer(call)
                assert answer["type"] == "result" or answer["error"]["type"] == "KeyboardInterrupt"
            assert w.value("aecho", "lives") == "lives"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_deadly_signal_is_the_process_s_end(number: int) -> None:
    with worker() as w:
        w.start("signal_self", number)
        assert w.wait() == -number


def test_an_exit_code_is_passed_on() -> None:
    with worker() as w:
        w.value("say", "last words", "")
        w.start("os::_exit", 7)
        assert w.wait() == 7
        assert w.stdout == "last words"


def test_a_call_for_which_there_is_no_memory_ends_the_process_not_as_if_all_were_well() -> None:
    with worker() as w:
        w.value("limit_memory", 32 << 20)
        with contextlib.suppress(OSError):  # it ends before it has read all
            w.start("echo", b"x" * (96 << 20))
        assert w.wait() == 1
        assert "Cannot allocate memory" in w.stderr


def test_without_any_memory_a_call_is_answered_or_the_process_ends() -> None:
    with worker() as w:
        w.value("limit_memory", 32 << 20)
        w.start("eat_all_memory")
        try:
            w.answer(w.last)
        except (OSError, EOFError):
            assert w.wait() == 1
            assert "no memory is left" in w.stderr


# ---- the loop ----


@pytest.mark.parametrize("how", ["stop", "callback"])
def test_user_code_cannot_end_the_loop(how: str) -> None:
    with worker() as w:
        sleeper = w.start("asyncio::sleep", 0.2, "undisturbed")
        w.start("spoil_loop", how)
        assert w.decode(w.answer(w.last)) is None
        assert w.decode(w.answer(sleeper)) == "undisturbed"
        assert w.value("aecho", "lives") == "lives"
        w.nothing_else()


def test_a_task_factory_that_fails_costs_only_the_calls_it_is_asked_for() -> None:
    with worker() as w:
        assert w.value("spoil_loop", "factory") is None
        assert w.error("aecho", 1)["type"] == "RuntimeError"
        assert w.value("echo", "sync") == "sync"
        w.nothing_else()


def test_what_is_put_in_place_of_call_soon_stays_and_is_asked() -> None:
    with worker() as w:
        assert w.value("aecho", 1) == 1
        assert w.value("wrap_call_soon") is None
        for _ in range(3):
            w.value("asked_soon")
            n, stands = w.value("asked_soon")
            assert stands
            assert n >= 1 or sys.version_info >= (3, 12)  # where a task asks for its first step
        w.nothing_else()


def test_a_loop_that_is_closed_ends_the_worker() -> None:
    with worker() as w:
        w.start("spoil_loop", "close")
        assert w.wait() == 1
        assert "closed the event loop" in w.stderr


# ---- forks ----


@pytest.mark.parametrize("target", ["fork_and_return", "afork_and_return"])
def test_a_forked_copy_of_a_target_does_not_answer(target: str) -> None:
    with worker() as w:
        child = w.value(target)
        assert child > 0
        assert w.value("exit_code_of", child) == 0
        w.nothing_else()


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (None, 0), (3, 3), ("words", 1), ("error", 1)])
def test_the_exit_code_of_a_forked_copy(code: object, expected: int) -> None:
    with worker() as w:
        child = w.value("fork_and_raise", code)
        assert w.value("exit_code_of", child) == expected
        w.nothing_else()
        assert w.end() == 0
        assert w.stderr.count("in the child") == (2 if code == "error" else 0)
        assert w.stderr.startswith("words\n" if code == "words" else "")


def test_a_pool_of_forked_processes() -> None:
    with worker() as w:
        assert w.value("pool_of_processes", [1, 2, 3]) == [2, 3, 4]
        w.nothing_else()


# ---- the end ----


def test_exit_functions_run_but_cannot_hold_the_end_up() -> None:
    with worker() as w:
        w.value("at_exit", "never reached", 0)
        w.value("at_exit", "begun", 3600)
        w.value("at_exit", "first", 0)
        assert w.end() == 0
        assert w.stdout == "first\nbegun\n"


def test_a_peer_that_is_gone_is_no_reason_for_a_signal() -> None:
    with worker() as w:
        w.value("set_default_sigpipe")
        for _ in range(10):
            w.start("work", 2000, 1)
        w.socket.close()
        assert w.wait() == 1


@pytest.mark.parametrize("then", ["pass", "1 / 0"])
def test_a_worker_whose_descriptor_a_target_closed_ends_instead_of_leaving_the_call_open(then: str) -> None:
    with worker() as w:
        w.start("builtins::exec", f"import os; os.closerange(3, 64); {then}")
        assert w.wait() == 1
        assert "could not be sent: [Errno 9]" in w.stderr
