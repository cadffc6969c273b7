"""Log records on the host: how they are shown, and what a hostile sandbox can make of them."""

from __future__ import annotations

import getpass
import io
import logging
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from agentix import _log_replay, configure_logging


class Keeper(logging.Handler):
    def __init__(self) -> None:
        super().__init__(0)
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger without handlers; it is as before afterwards."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers = []
    yield root
    root.handlers, root.level = before


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    keeper, logger = Keeper(), logging.getLogger("agentix.sandbox")
    logger.addHandler(keeper)
    logger.setLevel(1)
    yield keeper
    logger.removeHandler(keeper)
    logger.setLevel(logging.NOTSET)


# ---- configure_logging ----


def shown(monkeypatch: pytest.MonkeyPatch, **environ: str) -> str:
    for name in ("LEVEL", "FORMAT", "CONTEXT"):
        monkeypatch.delenv(f"AGENTIX_LOG_{name}", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(f"AGENTIX_LOG_{name}", value)
    stream = io.StringIO()
    configure_logging(stream=stream)
    for level in (logging.DEBUG, logging.INFO, logging.ERROR):
        logging.getLogger("some.logger").log(level, "at %d", level)
    return stream.getvalue()


def test_defaults(root: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch).splitlines()
    assert [line.partition(" [")[2] for line in lines] == ["host] some.logger: at 20", "host] some.logger: at 40"]


def test_variables(root: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, LEVEL="debug", FORMAT="%(agentix_context)s %(message)s", CONTEXT="{pid}-{other}-{id}")
    context = f"{os.getpid()}-{{other}}-{os.getpid():08x}"
    assert text == f"{context} at 10\n{context} at 20\n{context} at 40\n"
    assert shown(monkeypatch, LEVEL="35", FORMAT="%(message)s") == "at 40\n"
    assert shown(monkeypatch, LEVEL="nonsense", FORMAT="%(message)s") == "at 20\nat 40\n"
    assert "at 20" in shown(monkeypatch, FORMAT="%(nonsense")
    text = shown(monkeypatch, CONTEXT="{uname}@{hostname}", FORMAT="%(agentix_context)s")
    assert text.splitlines()[0] == f"{getpass.getuser()}@{socket.gethostname()}"


def test_a_second_call_changes_and_adds_nothing(root: logging.Logger) -> None:
    other = Keeper()
    root.addHandler(other)
    first, second = io.StringIO(), io.StringIO()
    configure_logging(default_context="one", stream=first)
    configure_logging(default_context="two")
    logging.getLogger("test_log.shown").info("here")
    configure_logging(stream=second)
    logging.getLogger("test_log.shown").info("there")
    assert "[two] test_log.shown: here" in first.getvalue()
    assert "there" not in first.getvalue()
    assert "[host] test_log.shown: there" in second.getvalue()
    assert [r.getMessage() for r in other.records] == ["here", "there"]
    configure_logging(force=True)
    assert other not in root.handlers
    assert len(root.handlers) == 1


# ---- records of a sandbox ----


def replay(**item: Any) -> None:
    _log_replay.take([{"name": "test_log.replayed", "message": "m", **item}], 0)


def test_a_whole_record(keeper: Keeper) -> None:
    replay(
        name="tests.replayed",
        level="NOTICE",
        levelno=25,
        message="100 %d",
        created=1e9 + 0.25,
        pathname="/a/b.py",
        lineno=7,
        funcName="f",
        module="b",
        exc_text="Traceback",
        stack_info="Stack",
        agentix_context="sandbox-1-worker-2",
        extras={"colour": "red"},
    )
    (record,) = keeper.records
    assert (record.name, record.levelname, record.levelno) == ("agentix.sandbox.tests.replayed", "NOTICE", 25)
    assert (record.getMessage(), record.created, record.msecs) == ("100 %d", 1e9 + 0.25, 250)
    assert (record.pathname, record.filename, record.lineno, record.funcName) == ("/a/b.py", "b.py", 7, "f")
    assert (record.module, record.exc_text, record.stack_info) == ("b", "Traceback", "Stack")
    assert (record.agentix_context, record.colour) == ("sandbox-1-worker-2", "red")


def test_levels_are_clamped_and_asked_for(keeper: Keeper) -> None:
    for level in (99, -7, 10**30, "high", None, 1):
        replay(levelno=level)
    logging.getLogger("agentix.sandbox").setLevel(logging.WARNING)
    replay(levelno=logging.INFO)
    assert [record.levelno for record in keeper.records] == [50, 50, 20, 20, 1]  # 0 is below the logger's level


def test_attributes_that_mean_something_are_not_the_sandboxes(keeper: Keeper) -> None:
    names = ["name", "msg", "args", "exc_info", "message", "__class__", "__dict__", "getMessage", "not an identifier"]
    replay(extras=dict.fromkeys([*names, "agentix_sandbox", "agentix_context", "fine"], "bad") | {1: "bad"})
    (record,) = keeper.records
    assert type(record) is logging.LogRecord
    assert [key for key, value in record.__dict__.items() if value == "bad"] == ["fine"]
    replay(extras={f"key{i}": i for i in range(10_000)})
    assert len(keeper.records[1].__dict__) < 200


@pytest.mark.parametrize(
    "item",
    [
        None,
        "text",
        {},
        {"name": 1, "message": b"raw", "created": "now", "lineno": "x", "extras": []},
        {"name": "x" * 10**6, "message": "m" * 10**7, "exc_text": ["no"], "created": float("nan")},
        {"name": "a\nb\x1b[2J", "level": "\r\n" * 1000, "agentix_context": "\x1b]0;title\x07"},
    ],
    ids=str,
)
def test_odd_items(keeper: Keeper, item: Any) -> None:
    _log_replay.take([item], 0)
    for record in keeper.records:
        assert len(record.getMessage()) < 300_000
        assert len(record.name) <= 1000
        for text in (record.name, record.levelname, record.agentix_context):
            assert text.isprintable()


def test_names_are_the_hosts_or_few(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_log_replay, "_made", set[str]())
    known = logging.getLogger("test_log.known")
    known.addHandler(keeper)
    replay(name="test_log.known", levelno=30)
    replay(name="test_log.unknown")
    before = len(logging.root.manager.loggerDict)
    for i in range(3000):
        replay(name=f"test_log.many.{i}")
    known.removeHandler(keeper)
    assert [record.name for record in keeper.records[:2]] == ["test_log.known", "agentix.sandbox.test_log.unknown"]
    assert len(logging.root.manager.loggerDict) - before < 1100
    assert {record.name for record in keeper.records[-1000:]} == {"agentix.sandbox.other"}
    assert len(keeper.records) == 3002


def test_losses_are_told(keeper: Keeper) -> None:
    _log_replay.take([], 5)
    assert [r.getMessage() for r in keeper.records] == [
        "log buffer full: 5 records of the sandbox were dropped, the oldest ones"
    ]
