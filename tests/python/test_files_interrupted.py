"""A step of a transfer that is cancelled at its worst moment, in a real worker: nothing is left open or lying about."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agentix.files._batch import DIRECTORY, FILE
from worker_peer import Peer, worker

FAR = "agentix.files._sandbox::"
HERE = "files_targets::"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def box(root: Path) -> Iterator[Peer]:
    """A worker that has done one transfer each way."""
    with worker() as w:
        w.value(HERE + "begin", str(root))
        (root / "f").write_bytes(b"")
        w.value(FAR + "begin_put", "0" * 32, "new/f", FILE, 0, 0o644)
        w.value(FAR + "begin_get", "1" * 32, "f")
        w.value(FAR + "abort", "0" * 32, "new/f")
        w.value(FAR + "end_get", "1" * 32)
        (root / "f").unlink()
        yield w


def cancelled_at(w: Peer, at: str, step: str, *args: Any) -> None:
    """Cancel a step while it is at that place, let it go on, and await its end."""
    w.value(HERE + "hold_up", at)
    call = w.start(FAR + step, *args)
    assert w.value(HERE + "has_stopped"), "it never came there"
    w.cancel(call)
    w.value(HERE + "go_on")  # the worker has read the cancel before
    error = w.answer(call)["error"]
    assert (error["type"], error["cancelled"]) == ("Cancelled", True)


def nothing_is_left(w: Peer, before: Any, token: str, target: str) -> None:
    w.value(FAR + "abort", token, target)
    assert w.value(HERE + "held") == before


@pytest.mark.parametrize("at", ["directories made", "file open", "all ready"])
def test_a_file_that_is_begun(box: Peer, root: Path, at: str) -> None:
    before = box.value(HERE + "held")
    cancelled_at(box, at, "begin_put", "a" * 32, "new/deep/f", FILE, 1000, 0o644)
    nothing_is_left(box, before, "a" * 32, "new/deep/f")
    assert os.listdir(root) == []


def test_an_abort_that_overtakes_the_beginning(box: Peer, root: Path) -> None:
    """It has ended when nothing more will be made."""
    before = box.value(HERE + "held")
    box.value(HERE + "hold_up", "directories made")
    begin = box.start(FAR + "begin_put", "a" * 32, "new/deep/f", FILE, 1000, 0o644)
    assert box.value(HERE + "has_stopped"), "it never came there"
    abort = box.start(FAR + "abort", "a" * 32, "new/deep/f")
    box.value(HERE + "go_on")
    assert box.decode(box.answer(abort)) is None
    assert os.listdir(root) == []
    assert "has ended" in box.answer(begin)["error"]["message"]
    assert box.value(HERE + "held") == before


@pytest.mark.parametrize("at", ["directory made", "all ready"])
def test_a_tree_that_is_begun(box: Peer, root: Path, at: str) -> None:
    before = box.value(HERE + "held")
    cancelled_at(box, at, "begin_put", "a" * 32, "new/deep/t", DIRECTORY, None, 0o755)
    nothing_is_left(box, before, "a" * 32, "new/deep/t")
    assert os.listdir(root) == []


def test_a_source_that_is_opened(box: Peer, root: Path) -> None:
    (root / "f").write_bytes(b"x")
    before = box.value(HERE + "held")
    cancelled_at(box, "all ready", "begin_get", "a" * 32, "f")
    nothing_is_left(box, before, "a" * 32, "f")


@pytest.mark.parametrize(
    ("step", "at"),
    [*(("end_put", at) for at in ("finishing", "closing", "dropping")), ("abort", "closing"), ("abort", "dropping")],
)
def test_the_end_of_a_file(box: Peer, root: Path, step: str, at: str) -> None:
    """Whole, or not at all."""
    (root / "f").write_bytes(b"before")
    before = box.value(HERE + "held")
    box.value(FAR + "begin_put", "a" * 32, "f", FILE, 0, 0o644)
    box.value(HERE + "put_nothing", "a" * 32)
    cancelled_at(box, at, step, *(("a" * 32, 1, 0) if step == "end_put" else ("a" * 32, "f")))
    nothing_is_left(box, before, "a" * 32, "f")
    assert os.listdir(root) == ["f"]
    assert (root / "f").read_bytes() in ((b"", b"before") if step == "end_put" else (b"before",))
