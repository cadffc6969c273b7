"""The short cut for pickles of plain values: it takes what pickle would make of it, and leaves all else alone."""

import math
import pickle
import random
import struct

import pytest

from agentix._core import dumps_parts, dumps_plain, loads_plain

PLAIN = [None, True, False, 0, 1, 255, 256, 65535, 65536, -1, 2**31 - 1, -(2**31), 0.0, -0.0, 1.5, math.inf]
PLAIN += ["", "a", "\u20ac", "x" * 80, "\0", b"", b"x", b"\x00" * 64, b"y" * 65]
OTHERS = [
    2**31,
    -(2**31) - 1,
    2**70,
    "x" * 256,
    "\ud800",
    bytearray(b"zz"),
    [],
    [1],
    {1},
    1j,
    (1, (2,)),
    tuple(range(100)),
]


class Int(int):
    pass


class Text(str):
    pass


def same(a: object, b: object) -> bool:
    return type(a) is type(b) and (a == b or a != a) and repr(a) == repr(b)


def copy_of(value: object) -> object:
    """The same value, in another object if it is one of those that pickle writes but once."""
    return (
        bytes(bytearray(value))
        if isinstance(value, bytes)
        else value.encode().decode()
        if isinstance(value, str)
        else value
    )


@pytest.mark.parametrize(
    "value", [b"a", b"ab", b"y" * 100, bytes(1 << 20), "text", "\u20ac"], ids=lambda v: repr(v[:5])
)
def test_what_is_there_twice_is_left_to_pickle(value: str | bytes) -> None:
    """There it arrives as one object, and travels once; here it would be two."""
    for args, kwargs in [((value, value), {}), ((value,), {"a": value}), ((), {"a": value, "b": value})]:
        assert dumps_plain(args, kwargs) is None
    alike = dumps_plain((value, copy_of(value)), {})
    assert alike is not None
    first, second = pickle.loads(alike)[0]
    assert first is not second


def test_of_the_shortest_there_is_one_each() -> None:
    data = dumps_plain((b"", b"", "", "", "a", "a"), {})
    assert data is not None
    values = pickle.loads(data)[0]
    assert all(a is b for a, b in zip(values[::2], values[1::2], strict=True))


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_arguments_are_those_that_pickle_reads(value: object) -> None:
    again = [copy_of(value) for _ in range(5)]
    for args, kwargs in [((value,), {}), ((), {"key": value}), (tuple(again), {"a": value, "b": None})]:
        data = dumps_plain(args, kwargs)
        assert data is not None
        assert same(pickle.loads(data), (args, kwargs))
        assert same(loads_plain(data), (args, kwargs))


@pytest.mark.parametrize("size", [64, 65, 255, 256, 65536, (1 << 20) - 1, 1 << 20, (5 << 20) + 3])
def test_bytes_of_any_size(size: int) -> None:
    value = random.Random(size).randbytes(size)
    for args, kwargs in [((value,), {}), ((1, value, b"", copy_of(value)), {"a": copy_of(value), "b": 2})]:
        data = dumps_plain(args, kwargs)
        assert data is not None
        assert pickle.loads(data) == (args, kwargs) == loads_plain(data)
        assert loads_plain(data[:-2] + b".") is NotImplemented
    for protocol in (4, 5):
        assert loads_plain(pickle.dumps(((value,), {}), protocol)) in (NotImplemented, ((value,), {}))


class Bytes(bytes):
    pass


@pytest.mark.parametrize("value", [*OTHERS, Int(1), Bytes(b"x"), Text("x"), object()], ids=repr)
def test_other_arguments_are_left_alone(value: object) -> None:
    assert dumps_plain((value,), {}) is None
    assert dumps_plain((), {"key": value}) is None


@pytest.mark.parametrize("protocol", [4, 5])
@pytest.mark.parametrize("value", [*PLAIN, *OTHERS], ids=repr)
def test_what_pickle_writes_is_read_alike_or_left_alone(value: object, protocol: int) -> None:
    for shape in (
        value,
        (value,),
        (value, value, 1),
        ((value, 1, 2, 3), {"a": value}),
        {"a": value, "b": {"c": value}},
    ):
        found = loads_plain(pickle.dumps(shape, protocol))
        assert found is NotImplemented or same(found, shape)
    if value in PLAIN:
        assert same(loads_plain(pickle.dumps(((value,), {"k": 1}), protocol)), ((value,), {"k": 1}))


@pytest.mark.parametrize("protocol", range(4))
def test_old_protocols_are_left_alone(protocol: int) -> None:
    assert loads_plain(pickle.dumps((1, 2), protocol)) is NotImplemented


def test_damaged_ones_are_read_as_pickle_reads_them_or_left_alone() -> None:
    rng = random.Random(7)
    seeds = [
        pickle.dumps(((1, 2.5, "ab", None), {"k": True, "l": (1,)})),
        b"\x80\x05K\x01K\x02\x86}\x86.",
        b"\x80\x05(}(u.",
        b"\x80\x05C\x02ab\x85}\x86.",
    ]
    for _ in range(100_000):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 3)):
            where = rng.randrange(len(data))
            if rng.random() < 0.3:
                del data[where]
            elif rng.random() < 0.5:
                data.insert(where, rng.choice(b"(t}su)\x85\x86\x87\x94KN\x88."))
            else:
                data[where] = rng.choice(b"(t}su)\x85\x86\x87\x94KN\x88.")
            if not data:
                break
        found = loads_plain(bytes(data))
        if found is not NotImplemented:
            try:
                expected = pickle.loads(bytes(data))
            except (pickle.UnpicklingError, struct.error, EOFError, UnicodeDecodeError, OverflowError, ValueError):
                continue  # a frame that pickle finds too long: the bytes behind it are what counts
            assert same(found, expected)


@pytest.mark.parametrize("size", [256 << 10, (1 << 20) + 1])
def test_large_bytes_are_left_out(size: int) -> None:
    value = random.Random(size).randbytes(size)
    for args, kwargs in [((value,), {}), ((1, "a", value, None), {"k": 2}), ((), {"a": True, "b": value})]:
        parts = dumps_parts(args, kwargs)
        assert type(parts) is tuple
        assert parts[1] is value
        assert b"".join(parts) == dumps_plain(args, kwargs)


def test_what_has_no_part_to_leave_out() -> None:
    big, middle = bytes(300 << 10), bytes(1000)
    for args in [(), (1,), (middle,), (bytes((256 << 10) - 1),), (big, middle), (big, big)]:
        assert dumps_parts(args, {}) == dumps_plain(args, {})
    assert dumps_parts(([big],), {}) is None
