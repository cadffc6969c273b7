"""Here clients meet stand-in servers that know calls and nothing else, so they read no logs; `tests/e2e` has those."""

from __future__ import annotations

import pytest

from agentix import _feeds


@pytest.fixture(autouse=True)
def no_feeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_feeds, "_makers", {})
