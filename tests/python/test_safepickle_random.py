"""Random honest values: what the restricted loader makes of their pickles is what the stock loader makes of them.

Equal is what has the same types, values, order and sharing of whatever can change.
"""

import collections
import datetime as dt
import decimal
import enum
import fractions
import os
import pathlib
import pickle
import random
import struct
import types
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

from agentix._core import loads_plain
from agentix.runtime.shared.safepickle import ReturnLoader


@dataclass
class Point:
    x: Any
    y: Any = None
    tags: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    a: Any
    b: Any


class Pair(NamedTuple):
    left: Any
    right: Any


class Colour(enum.Enum):
    RED = 1
    BLUE = "blue"


def target() -> Point | Frozen | Pair | Colour:
    raise NotImplementedError


load = ReturnLoader(target)

Make = Callable[[random.Random, int], Any]


def integer(r: random.Random, _: int) -> int:
    return r.choice((1, -1)) * r.getrandbits(r.choice((1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130, 2100)))


def real(r: random.Random, _: int) -> float:
    return r.choice((r.random(), r.gauss(0, 1e9), 0.0, -0.0, float("inf"), 5e-324))


def string(r: random.Random, _: int) -> str:
    alphabet = r.choice(("ab\n\\'\"\x00", "é\xff\x80", "αβ\u2028", "\U0001f600\U0010ffff", "a\udc80\udcff"))
    return "".join(r.choices(alphabet, k=r.choice((0, 1, 2, 5, 20, 300))))


def octets(r: random.Random, _: int) -> bytes:
    return r.randbytes(r.choice((0, 1, 2, 30, 300)))


def key(r: random.Random, depth: int) -> Any:
    make = r.choice((integer, real, string, octets, lambda r, d: None, date, frozen_set, key_tuple, number))
    return make(r, depth + 2)


def key_tuple(r: random.Random, depth: int) -> tuple[Any, ...]:
    return tuple(key(r, depth) for _ in range(r.randrange(4))) if depth < 6 else ()


def frozen_set(r: random.Random, depth: int) -> frozenset[Any]:
    return frozenset(key(r, depth) for _ in range(r.randrange(3))) if depth < 6 else frozenset()


def number(r: random.Random, _: int) -> Any:
    return r.choice(
        (
            True,
            complex(r.random(), -0.0),
            fractions.Fraction(r.randrange(-99, 99), r.randrange(1, 99)),
            decimal.Decimal(r.randrange(-(10**9), 10**9)).scaleb(r.randrange(-9, 9)),
            uuid.UUID(int=r.getrandbits(128)),
            range(r.randrange(9), r.randrange(-9, 99), r.choice((1, -2, 3))),
            dt.timedelta(r.randrange(-999, 999), r.randrange(86400), r.randrange(10**6)),
            pathlib.PurePosixPath(f"/a/{r.random()}"),
        )
    )


def date(r: random.Random, _: int) -> Any:
    zone = r.choice((None, dt.UTC, dt.timezone(dt.timedelta(minutes=r.randrange(-700, 700)))))
    moment = dt.datetime(
        r.randrange(1, 9999), r.randrange(1, 13), r.randrange(1, 29), r.randrange(24), fold=r.randrange(2), tzinfo=zone
    )
    return r.choice((moment, moment.date(), moment.timetz()))


def array(r: random.Random, _: int) -> Any:
    dtype = r.choice(("i1", ">i2", "f4", "f8", "c8", "b1", "U3", "S2", "M8[s]"))
    made = np.zeros(tuple(r.randrange(4) for _ in range(r.randrange(4))), dtype=dtype)
    return r.choice((made, made.T, np.float64(r.random()), np.int32(7)))


def items(r: random.Random, depth: int) -> list[Any]:
    return [value(r, depth + 1) for _ in range(r.choice((0, 1, 2, 3, 6)) if depth < 5 else 0)]


def pairs(r: random.Random, depth: int) -> dict[Any, Any]:
    return {key(r, depth): value(r, depth + 1) for _ in range(r.choice((0, 1, 3)) if depth < 5 else 0)}


def error(r: random.Random, depth: int) -> Any:
    made = r.choice((ValueError, KeyError, RuntimeError, OSError))(*items(r, depth + 3)[:2])
    made.add_note("a note")
    return made


def shared(r: random.Random, depth: int) -> Any:
    one = items(r, depth)
    made: Any = r.choice(([one, one], (one, {"a": one}), {"one": one, "two": one}))
    if r.random() < 0.3:
        one.append(made)  # a cycle
    return made


MAKES: list[Make] = [
    *(integer, integer, real, string, string, octets, number, date, array, error, shared, key_tuple, frozen_set),
    lambda r, d: r.choice((None, True, False, ..., NotImplemented, int, ValueError)),
    items,
    items,
    lambda r, d: tuple(items(r, d)),
    pairs,
    pairs,
    lambda r, d: set(key_tuple(r, d)),
    lambda r, d: bytearray(octets(r, d)),
    lambda r, d: collections.OrderedDict(pairs(r, d)),
    lambda r, d: collections.Counter(string(r, d)),
    lambda r, d: collections.deque(items(r, d), r.choice((None, 3))),
    lambda r, d: collections.defaultdict(r.choice((list, int, None)), pairs(r, d)),
    lambda r, d: types.SimpleNamespace(a=value(r, d + 1)),
    lambda r, d: Point(*[value(r, d + 2) for _ in range(2)], items(r, d + 1)),
    lambda r, d: Frozen(value(r, d + 2), value(r, d + 2)),
    lambda r, d: Pair(value(r, d + 2), value(r, d + 2)),
    lambda r, d: r.choice(list(Colour)),
]


def value(r: random.Random, depth: int = 0) -> Any:
    return r.choice(MAKES if depth < 5 else MAKES[:8])(r, depth)


def parts(one: Any) -> list[Any]:
    """What a value holds, after what tells it from others of its type; in order, if it has one."""
    if isinstance(one, set | frozenset):
        return [len(one), *sorted(one, key=repr)]
    if isinstance(one, dict):
        factory = one.default_factory if isinstance(one, collections.defaultdict) else None
        return [factory, *one.keys(), *one.values()]
    if isinstance(one, collections.deque):
        return [one.maxlen, *one]
    if isinstance(one, list | tuple):
        return list(one)
    if isinstance(one, BaseException):
        return [one.args, vars(one)]
    if isinstance(one, Point | types.SimpleNamespace):
        return [vars(one)]
    if isinstance(one, Frozen):
        return [one.a, one.b]
    if isinstance(one, np.ndarray):
        return [one.dtype.str, one.shape, one.flags.f_contiguous, one.flags.writeable, one.tobytes()]
    return []


MUTABLE = (list, dict, set, collections.deque, bytearray, Point, types.SimpleNamespace, BaseException, np.ndarray)


def same(one: Any, two: Any, met: dict[int, int]) -> bool:
    if type(one) is not type(two):
        return False
    if isinstance(one, MUTABLE):
        if id(one) in met:
            return met[id(one)] == id(two)
        met[id(one)] = id(two)
    elif one is two:
        return True
    inner, other = parts(one), parts(two)
    if inner or other or isinstance(one, MUTABLE[:-1]):
        plain = one == two if isinstance(one, bytearray) else True
        return plain and len(inner) == len(other) and all(map(same, inner, other, [met] * len(inner)))
    return repr(one) == repr(two)


def compare(seed: int, count: int) -> None:
    r = random.Random(seed)
    for i in range(count):
        protocol = r.choice((2, 3, 4, 5, 5, 5))
        data = pickle.dumps(value(r), protocol)
        got, stock = load(data), pickle.loads(data)
        assert same(got, stock, {}), (seed, i)


@pytest.mark.parametrize("seed", range(4))
def test_random_values(seed: int) -> None:
    compare(seed, 5_000)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 150))
def test_a_million_random_values(seed: int) -> None:
    compare(seed, 20_000)


# ---- the quick reader of plain pickles ----

PIECES = [
    *(
        b"N",
        b"\x88",
        b"\x89",
        b"K\x07",
        b"M\x01\x02",
        b"J\xff\xff\xff\xff",
        b"G" + struct.pack(">d", 1.5),
        b"\x8c\x01a",
    ),
    *(b"\x8c\x00", b"\x8c\x02\xc3\xa9", b"\x8c\x03\xed\xb2\x80", b")", b"\x85", b"\x86", b"\x87", b"(", b"t", b"}"),
    *(b"s", b"u", b"\x94", b"0", b"1", b"2", b"h\x00", b"]", b"a", b"e", b".", b"\x80\x04", b"C\x01a", b"\x8f"),
    *(b"\x95" + struct.pack("<Q", n) for n in (0, 1, 2, 5, 2**63)),
]


def plain_streams(seed: int, count: int) -> int:
    """What the quick reader accepts, the restricted loader accepts and the stock loader too, with the same value."""
    r = random.Random(seed)
    accepted = 0
    for _ in range(count):
        if r.random() < 0.3:  # an honest one, with a byte changed
            data = bytearray(pickle.dumps((key_tuple(r, 0), {"a": integer(r, 0)}, string(r, 0)), r.choice((4, 5))))
            if r.random() < 0.9:
                data[r.randrange(len(data))] = r.choice((r.randrange(256), *b"().N\x94\x85\x95}us"))
        else:
            body = b"".join(r.choices(PIECES, k=r.randrange(9)))
            frame = b"\x95" + struct.pack("<Q", len(body) + r.choice((0, 1, 1, 1, 2))) if r.random() < 0.3 else b""
            data = bytearray(r.choice((b"\x80\x04", b"\x80\x05")) + frame + body + b".")
        got = loads_plain(bytes(data))
        if got is NotImplemented:
            continue
        accepted += 1
        full, stock = load(data), pickle.loads(data)
        assert repr(got) == repr(full) == repr(stock), bytes(data)
    return accepted


def test_the_quick_reader_widens_nothing() -> None:
    assert plain_streams(1, 60_000) > 2_000


@pytest.mark.long
def test_the_quick_reader_widens_nothing_at_length() -> None:
    assert sum(plain_streams(seed, 200_000) for seed in range(2, 22)) > 100_000


def test_names_that_are_not_utf8() -> None:
    for name in (os.fsdecode(b"\xff\xfe/a"), "\udc80", "é\udcff\U0001f600"):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert load(pickle.dumps([name, pathlib.PurePosixPath(name)], protocol)) == [
                name,
                pathlib.PurePosixPath(name),
            ]
