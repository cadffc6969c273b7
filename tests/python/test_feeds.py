"""What a process that has several clients of one runtime is told of its streams."""

from __future__ import annotations

import gc
import random
from typing import Any

import pytest

from agentix._feeds import _Told

A = ("address", "instance", "/log")


def batch(first: int, n: int) -> tuple[list[Any], int]:
    return list(range(first, first + n)), first + n - 1


@pytest.mark.parametrize(
    ("before", "items", "lost", "new", "new_lost"),
    [
        (0, batch(1, 3), 0, [1, 2, 3], 0),
        (0, batch(11, 3), 10, [11, 12, 13], 10),
        (5, batch(1, 5), 0, [], 0),
        (5, batch(3, 5), 0, [6, 7], 0),
        (5, batch(6, 2), 0, [6, 7], 0),
        (5, batch(9, 1), 7, [9], 3),  # 2 to 8 are gone, and 6 to 8 are news
        (5, batch(4, 1), 3, [], 0),
        (5, batch(9, 0), 8, [], 3),
        (5, batch(4, 0), 3, [], 0),
    ],
)
def test_news(before: int, items: tuple[list[Any], int], lost: int, new: list[int], new_lost: int) -> None:
    told = _Told()
    if before:
        told.news(A, *batch(1, before), 0)
    assert told.news(A, *items, lost) == (new, new_lost)


@pytest.mark.parametrize("seed", range(20))
def test_two_readers_with_losses_account_for_each_item_once(seed: int) -> None:
    draw, told = random.Random(seed), _Told()
    got: list[int] = []
    lost = 0
    at = [1, 1]
    while min(at) < 1000:
        reader = draw.randrange(2)
        gap, n = draw.choice([0, 0, 0, draw.randrange(40)]), draw.randrange(30)
        new, new_lost = told.news(A, *batch(at[reader] + gap, n), gap)
        at[reader] += gap + n
        got += new
        lost += new_lost
    assert got == sorted(set(got))
    assert len(got) + lost == max(at) - 1


def test_runtimes_are_told_apart() -> None:
    told = _Told()
    assert told.news(A, *batch(1, 5), 0) == ([1, 2, 3, 4, 5], 0)
    for other in (("address", "another", "/log"), ("elsewhere", "instance", "/log"), ("address", "instance", "/trace")):
        assert told.news(other, *batch(1, 5), 0) == ([1, 2, 3, 4, 5], 0)


def test_one_takes_for_all_as_long_as_it_lives() -> None:
    def make() -> Any:
        return lambda items, lost: None

    told, first, second = _Told(), make(), make()
    assert told.take_of(A, first) is first
    assert told.take_of(A, second) is first
    del first
    gc.collect()
    assert told.take_of(A, second) is second
