"""The failure classes: their tree, their texts, what is done to texts that a hostile sandbox made."""

import copy
import dataclasses
import pickle

import pytest

import agentix
from agentix import (
    CallCancelled,
    CallTimeout,
    RemoteCallError,
    RestrictedUnpickleError,
    RuntimeUnreachable,
    WorkerExited,
)
from agentix._failures import MAX_MESSAGE, MAX_TRACEBACK, MAX_TYPE, RemoteError, error_from_wire, failure_from

NAME = "app::run"


def test_tree() -> None:
    assert issubclass(RemoteCallError, RuntimeError)
    assert issubclass(CallCancelled, RemoteCallError)
    assert issubclass(WorkerExited, RemoteCallError)
    for cls in (CallTimeout, RuntimeUnreachable):
        assert issubclass(cls, RuntimeError)
        assert not issubclass(cls, RemoteCallError)
    assert issubclass(RestrictedUnpickleError, pickle.UnpicklingError)
    assert not issubclass(RestrictedUnpickleError, RuntimeError)


@pytest.mark.parametrize("name", agentix.__all__)
def test_tracebacks_show_the_public_name(name: str) -> None:
    value = getattr(agentix, name)
    if isinstance(value, type):
        assert value.__module__ == "agentix"


def test_text_without_traceback() -> None:
    exc = RemoteCallError(NAME, RemoteError("ValueError", "boom"))
    assert str(exc) == "app::run: ValueError: boom"
    assert "traceback" not in str(exc).lower()
    assert str(RemoteCallError(NAME, RemoteError("ValueError", "", ""))) == "app::run: ValueError: "


def test_text_with_traceback() -> None:
    trace = 'Traceback (most recent call last):\n  File "app.py", line 3, in run\nValueError: boom\n'
    exc = RemoteCallError(NAME, RemoteError("ValueError", "boom", trace))
    first, separator, rest = str(exc).split("\n", 2)
    assert first == "app::run: ValueError: boom"
    assert separator.startswith("---")
    assert rest == trace
    assert exc.error.traceback == trace
    assert exc.display_name == NAME


def test_which_class() -> None:
    assert type(failure_from(NAME, RemoteError("ValueError", "boom"))) is RemoteCallError
    assert type(failure_from(NAME, RemoteError("Cancelled", "was cancelled", cancelled=True))) is CallCancelled
    died = failure_from(NAME, RemoteError("WorkerDied", "killed by signal 9", returncode=-9))
    assert type(died) is WorkerExited
    assert died.returncode == -9
    assert died.error.returncode == -9


def test_remote_error_is_a_frozen_dataclass() -> None:
    error = RemoteError("T", "m")
    assert dataclasses.is_dataclass(error)
    assert error == RemoteError("T", "m", None, False, None, None)
    assert "message='m'" in repr(error)
    with pytest.raises(dataclasses.FrozenInstanceError):
        error.type = "U"  # type: ignore[misc]


@pytest.mark.parametrize(
    "exc",
    [
        RemoteCallError(NAME, RemoteError("ValueError", "boom", "trace")),
        CallCancelled(NAME, RemoteError("Cancelled", "x", cancelled=True)),
        WorkerExited(NAME, RemoteError("WorkerDied", "x", returncode=7)),
        CallTimeout("app::run exceeded deadline of 1s"),
        RuntimeUnreachable("http://127.0.0.1:1"),
        RestrictedUnpickleError("os.system"),
    ],
)
def test_copies(exc: Exception) -> None:
    exc.add_note("seen")
    for twin in (pickle.loads(pickle.dumps(exc)), copy.copy(exc), copy.deepcopy(exc)):
        assert type(twin) is type(exc)
        assert str(twin) == str(exc)
        assert twin.__dict__ == exc.__dict__
        assert twin.__notes__ == ["seen"]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\rb\x00\x7f", "a\\x0db\\x00\\x7f"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u2028b\u202e", "a\\u2028b\\u202e"),
        ("\udc80", "\\udc80"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("é 中 🙂 \\x1b", "é 中 🙂 \\x1b"),
    ],
)
def test_control_characters_are_escaped(raw: str, shown: str) -> None:
    exc = failure_from(NAME, RemoteError("T", raw, raw, reason=raw))
    assert exc.error.message == exc.error.traceback == exc.error.reason == shown
    assert str(exc).startswith(f"app::run: T: {shown}\n")
    str(exc).encode()


def test_the_type_stays_on_the_first_line() -> None:
    exc = failure_from("app::run\n", RemoteError("T\n: forged\t", "m"))
    assert str(exc) == "app::run\\x0a: T\\x0a: forged\\x09: m"


def test_sizes_are_capped() -> None:
    huge = "start" + "x" * 10_000_000 + "end"
    error = failure_from(NAME, RemoteError(huge, huge, huge)).error
    assert (len(error.type), len(error.message), len(error.traceback or "")) == (MAX_TYPE, MAX_MESSAGE, MAX_TRACEBACK)
    for text in (error.type, error.message, error.traceback or ""):
        assert text.startswith("start")
        assert text.endswith("end")
        assert "characters, cut" in text
    grown = failure_from(NAME, RemoteError("T", "\x1b" * MAX_MESSAGE)).error
    assert len(grown.message) == MAX_MESSAGE
    exact = "y" * MAX_MESSAGE
    assert failure_from(NAME, RemoteError("T", exact)).error.message is exact


def test_sanitising_twice_changes_nothing() -> None:
    once = failure_from(NAME, RemoteError("T\x00" * 500, "\x1b\n" * MAX_MESSAGE, "\x9b" * MAX_TRACEBACK)).error
    assert RemoteCallError(NAME, once).error == once


def test_error_from_wire() -> None:
    full = {"type": "T", "message": "m", "traceback": "t", "cancelled": True, "returncode": -9, "reason": "r"}
    assert error_from_wire(full) == RemoteError("T", "m", "t", True, -9, "r")
    assert error_from_wire({}) == RemoteError("UnknownError", "")
    nils = {"type": "T", "message": "m", "traceback": None, "cancelled": False, "returncode": None}
    assert error_from_wire(nils) == RemoteError("T", "m")


def test_error_from_wire_ignores_wrong_types() -> None:
    wrong = {"type": 3, "message": b"m", "traceback": "", "cancelled": 1, "returncode": True, "reason": ["r"], "x": 1}
    assert error_from_wire(wrong) == RemoteError("UnknownError", "")
