"""A large value is decoded in a thread: the host's event loop goes on, and the garbage collector leaves it alone."""

import asyncio
import gc
import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pickle_asm import refuse

from agentix.runtime.shared.safepickle import restricted_loads

LARGE = pickle.dumps([{"number": i, "text": [str(i)], "pair": (i, float(i))} for i in range(330_000)], 5)


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """Which generation each collection looks at."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


def test_no_collection_during_a_large_load(collections: list[int]) -> None:
    assert len(LARGE) > 13_000_000
    frozen = gc.get_freeze_count()  # Python 3.12 begins with some
    value = restricted_loads(LARGE)
    assert collections == []
    assert gc.isenabled()
    gc.collect(0)  # none of it is young any more
    assert gc.get_count()[0] < 1000
    assert gc.get_freeze_count() == frozen
    assert all(gc.is_tracked(value[i]["text"]) for i in (0, -1))
    value[0]["text"].append(value)  # and it is collected as anything else
    gone: list[Any] = []
    value[1]["text"].append(Sentinel(gone))
    del value
    gc.collect()
    assert gone == [True]


class Sentinel:
    def __init__(self, gone: list[Any]) -> None:
        self.gone = gone

    def __del__(self) -> None:
        self.gone.append(True)


def test_a_collector_that_is_off_stays_off(collections: list[int]) -> None:
    gc.disable()
    try:
        restricted_loads(LARGE)
        assert not gc.isenabled()
        refuse(LARGE[:-1])
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert collections == []


def test_the_collector_is_on_again_after_a_refusal() -> None:
    refuse(LARGE[:-1])
    assert gc.isenabled()


def test_what_the_host_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        restricted_loads(LARGE)
        assert gc.get_freeze_count() == frozen > 0
    finally:
        gc.unfreeze()


def test_loads_in_several_threads() -> None:
    data = pickle.dumps([[i] for i in range(100_000)])
    wrong: list[int] = []

    def work() -> None:
        for _ in range(5):
            if len(restricted_loads(data)) != 100_000:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert gc.isenabled()


def test_garbage_is_collected_all_the_same(collections: list[int]) -> None:
    """Many large loads in a row: now and then there is a full collection."""
    data = pickle.dumps(b"x" * (32 << 20))
    for _ in range(10):
        restricted_loads(data)
    assert 2 in collections


def test_the_loop_goes_on() -> None:
    """Turns of an event loop while 14 MB are decoded, and the longest time without one."""

    async def main() -> None:
        gaps: list[float] = []
        task = asyncio.create_task(asyncio.to_thread(restricted_loads, LARGE))
        last = time.perf_counter()
        while not task.done():
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now
        assert len(await task) == 330_000
        print(f"{len(gaps)} turns, the longest gap {max(gaps) * 1e3:.0f} ms")
        assert len(gaps) > 20  # a load that keeps the interpreter leaves one or two

    asyncio.run(main())
