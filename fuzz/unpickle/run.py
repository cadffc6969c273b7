#!/usr/bin/env python3
"""Build machine.c with the restricted loader's sources and run it.

    fuzz/unpickle/run.py [--executions 100000000] [--seed 1] [--sanitize] [--seconds 0]

`--sanitize` builds with UBSan, which traps. Ends with 1 at the first stream that did anything but give a value or a
RestrictedUnpickleError; a crash ends it as crashes do. The seed of each batch is printed before it runs, so that any of
them can be run again.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import importlib.util
import os
import pathlib
import pickle
import subprocess
import sys
import sysconfig
import tempfile
import time
import types
import uuid
from typing import Any, NamedTuple

import numpy as np

from agentix import RestrictedUnpickleError
from agentix._declared import plans_of

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BATCH = 1_000_000


class Admitted:
    pass


class AdmittedList(list):  # type: ignore[type-arg]
    pass


class AdmittedDict(dict):  # type: ignore[type-arg]
    pass


@dataclasses.dataclass
class Point:
    x: Any
    y: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: Any


@dataclasses.dataclass
class Post:
    x: Any

    def __post_init__(self) -> None:
        raise AssertionError("called")


class Pair(NamedTuple):
    left: Any
    right: Any


class Colour(enum.Enum):
    RED = 1
    BLUE = "a"


def target() -> Point | Frozen | Pair | Colour | Post:
    """Is never called: what counts is what it declares to return."""


CLASSES: list[type] = [Admitted, AdmittedList, AdmittedDict, Point, Frozen, Post, Pair, Colour]
for _each in CLASSES:
    _each.__module__ = "fuzzed"
_fuzzed = sys.modules["fuzzed"] = types.ModuleType("fuzzed")
vars(_fuzzed).update({_each.__name__: _each for _each in CLASSES})


def seeds() -> list[bytes]:
    stack: list[Any] = [1]
    values: list[Any] = [
        (1, 2.5, "a", None, True, (2, ("b",))),
        {"a": [1, {2: "b"}], "c": (1, 2, 3, 4)},
        [stack, stack, {1, 2}, frozenset({3}), bytearray(b"x"), b"y" * 20],
        [dt.datetime(2024, 2, 29, tzinfo=dt.UTC), dt.date(1, 1, 1), dt.timedelta(1), dt.time(1, fold=1)],
        [decimal.Decimal("1.5"), fractions.Fraction(1, 3), uuid.UUID(int=5), 2**70, 1j, range(3), slice(1)],
        [collections.OrderedDict(a=1), collections.Counter("ab"), collections.deque([1], 2)],
        [collections.defaultdict(list, {1: [2]}), types.SimpleNamespace(a=1), pathlib.PurePosixPath("a/b")],
        [ValueError("a", 1), OSError(2, "b", "c"), ExceptionGroup("d", [KeyError(1)])],
        [np.arange(3), np.float64(1.5), np.asfortranarray(np.zeros((2, 2))), np.array(["a"]), np.datetime64("2020")],
        [Point(1, [2]), Pair(1, (2,)), Frozen("a"), Colour.RED, Colour.BLUE],
        [AdmittedList([1, 2]), AdmittedDict(a=1), Admitted()],
    ]
    made = [pickle.dumps(value, protocol) for value in values for protocol in range(6)]
    return [data[:2] + data[11:] if data[2:3] == b"\x95" else data for data in made]


def build(folder: str, sanitize: bool) -> Any:
    path = pathlib.Path(folder) / "machine.so"
    sources = [
        HERE / "machine.c",
        ROOT / "python/ext/scalars.c",
        ROOT / "python/ext/landed.c",
        ROOT / "python/ext/large.c",
        *sorted((ROOT / "python/ext").glob("unpickle*.c")),
    ]
    sources += [ROOT / "src/wire/pickle.c", *sorted((ROOT / "src/base").glob("*.c"))]
    includes = sysconfig.get_path("include"), ROOT / "python", ROOT / "python/ext", ROOT / "src"
    flags = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"] if sanitize else []
    subprocess.run(
        [
            *("gcc", "-std=gnu11", "-O1", "-g", "-fPIC", "-shared", "-DPy_LIMITED_API=0x030b0000", *flags),
            *(f"-I{path}" for path in includes),
            *("-o", path, *sources),
        ],
        check=True,
    )  # fmt: skip
    spec = importlib.util.spec_from_file_location("machine", path)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def state() -> tuple[Any, ...]:
    return set(sys.modules), dict(os.environ), [set(vars(cls)) - {"__slotnames__"} for cls in CLASSES], list(Colour)


def memory() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executions", type=int, default=100_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.0, help="end after so long, if it is not 0")
    parser.add_argument("--sanitize", action="store_true")
    args = parser.parse_args()
    extra = {("fuzzed", cls.__name__): cls for cls in (Admitted, AdmittedList, AdmittedDict)}
    with tempfile.TemporaryDirectory() as folder:
        machine = build(folder, args.sanitize)
        done = values = quick = 0
        honest, began, before = seeds(), time.monotonic(), None
        while done < args.executions and (not args.seconds or time.monotonic() - began < args.seconds):
            count = min(BATCH, args.executions - done)
            print(f"seed {args.seed + done}", end=" ", flush=True)
            try:
                made, loaded, plain = machine.run(
                    count, args.seed + done, honest, extra, lambda: plans_of(target), RestrictedUnpickleError
                )
            except AssertionError as exc:
                print(exc)
                return 1
            done, values, quick = done + made, values + loaded, quick + plain
            print(f"{done:,} streams, {values:,} values, {quick:,} plain, {memory()} MiB", flush=True)
            before = before or state()  # the first batch imports what the loader itself needs
            if state() != before:
                print("something of the host has changed")
                return 1
        print(f"{done:,} streams in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
