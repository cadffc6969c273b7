"""Here clients meet stand-in servers that know calls and nothing else, so they read no logs; `tests/e2e` has those."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentix import _feeds

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))


@pytest.fixture(autouse=True)
def no_feeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_feeds, "_makers", {})
