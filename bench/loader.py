#!/usr/bin/env python3
"""The restricted loader beside the stock C loader, both in this process: ratios of CPU time, below 1 is quicker.

    bench/loader.py [--rounds 15 | --quick]

Each round loads the same pickle by both, one after the other, the order changing; the figure is the ratio of the
medians. The garbage collector is as Python has it: for large values the restricted loader lets it rest.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from agentix.runtime.shared.safepickle import ReturnLoader


@dataclass
class Row:
    number: int
    name: str
    scores: list[float]


class Pair(NamedTuple):
    left: int
    right: str


def target() -> Row | Pair:
    """Is never called: what counts is what it declares to return."""


CASES: dict[str, Any] = {
    "one small dict": {"id": 1, "name": "a", "tags": ["x", "y"]},
    "dicts, 1,000 records": [{"id": i, "name": str(i), "tags": [str(i), "y"], "ok": True} for i in range(1_000)],
    "dicts, 100,000 records": [{"id": i, "name": str(i), "tags": [str(i), "y"]} for i in range(100_000)],
    "one dict of 100,000": {f"key {i}": i for i in range(100_000)},
    "list of 1,000 ints": list(range(1_000)),
    "list of 500,000 ints": list(range(500_000)),
    "list of 200,000 floats": [i / 7 for i in range(200_000)],
    "lists in lists": [[[i], [i, i]] for i in range(50_000)],
    "strs, 100,000": [f"text {i}" for i in range(100_000)],
    "tuples, 100,000": [(i, str(i)) for i in range(100_000)],
    "large ints, 50,000": [i << 100 for i in range(50_000)],
    "dataclasses, 1,000": [Row(i, str(i), [1.5]) for i in range(1_000)],
    "dataclasses, 50,000": [Row(i, str(i), [1.5]) for i in range(50_000)],
    "NamedTuples, 50,000": [Pair(i, str(i)) for i in range(50_000)],
    "array of 8 MB": np.arange(1_000_000),
    "small arrays, 5,000": [np.arange(i % 20) for i in range(5_000)],
    "bytes of 32 MB": b"x" * (32 << 20),
    "str of 8 MB": "x" * (8 << 20),
}


def timed(load: Callable[[bytes], Any], data: bytes, count: int) -> float:
    value = None
    began = time.process_time()
    for _ in range(count):
        value = load(data)
    spent = time.process_time() - began
    del value
    return spent / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="five rounds")
    options = parser.parse_args()
    rounds = 5 if options.quick else options.rounds
    ours = ReturnLoader(target)
    for name, value in CASES.items():
        data = pickle.dumps(value, 5)
        count = max(1, round(0.01 / max(timed(pickle.loads, data, 1), 1e-6)))
        times: dict[Callable[[bytes], Any], list[float]] = {ours: [], pickle.loads: []}
        for i in range(rounds):
            for load in (ours, pickle.loads)[:: 1 if i % 2 else -1]:
                times[load].append(timed(load, data, count))
        one, two = (statistics.median(times[load]) for load in (ours, pickle.loads))
        print(f"{name:24} {len(data):>10,} bytes  {one * 1e6:>9,.0f} us  {two * 1e6:>9,.0f} us  {one / two:5.2f} x")


if __name__ == "__main__":
    main()
