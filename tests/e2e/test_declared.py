"""Values of classes that the passed function's return annotation names, from a real runtime and by both roads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import declared_targets as d
import pytest
from test_roads import runtime

from agentix import RestrictedUnpickleError

ROADS = pytest.mark.parametrize("http_sync_ms", [None, 1000])


@ROADS
def test_declared_values(run: Any, worker_python: str, http_sync_ms: int | None) -> None:
    async def main() -> None:
        async with runtime(worker_python, http_sync_ms=http_sync_ms) as client:
            assert await client.remote(d.drawing, 3) == d.drawing(3)
            got = await client.remote(d.line)
            assert (type(got), got) == (d.Line, await d.line())
            assert got.colour is d.Colour.RED
            assert await client.remote(d.order, 7) == d.order(7)
            large = await client.remote(d.drawing, 200_000)  # decoded in a thread
            assert (len(large.lines), large.lines[-1].end.x) == (200_000, 200_000)

    run(main())


@ROADS
def test_declared_items(run: Any, worker_python: str, http_sync_ms: int | None) -> None:
    async def main() -> None:
        async with runtime(worker_python, http_sync_ms=http_sync_ms) as client:
            assert [x async for x in client.remote(d.points, 300)] == list(d.points(300))
            assert [x async for x in await client.remote(d.points, 2)] == list(d.points(2))
            assert [x async for x in client.remote(d.lines, 5)] == [x async for x in d.lines(5)]
            assert [x async for x in client.remote(d.points, 0)] == []

    run(main())


@ROADS
def test_what_is_not_declared(
    run: Any, worker_python: str, http_sync_ms: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "trap"
    monkeypatch.setenv("AGX_TRAP", str(trap))

    async def main() -> None:
        async with runtime(worker_python, http_sync_ms=http_sync_ms) as client:
            with pytest.raises(RestrictedUnpickleError, match=r"declared_targets\.Foreign is not on the allowlist"):
                await client.remote(d.lies)
            with pytest.raises(RestrictedUnpickleError, match=f"{os.name}.mkdir is not on the allowlist"):
                await client.remote(d.trap)
            with pytest.raises(RestrictedUnpickleError, match=r"declared_targets\.Point"):
                await client.remote(d.says_nothing)
            assert await client.remote(d.order, 1) == d.order(1)

    run(main())
    assert not trap.exists()
