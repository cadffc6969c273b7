"""The codec of side channels: round trips, what is refused on either side, and the two extension types."""

from __future__ import annotations

import math
import struct
from typing import Any, ClassVar

import msgpack
import numpy
import pytest
from fresh import python

from agentix.runtime.shared import (
    MAX_MESSAGE_BYTES,
    ExtDecodeError,
    ExtType,
    FrameTooLarge,
    pack,
    pack_frame,
    unpack,
)

VALUES: list[Any] = [
    None,
    True,
    False,
    *[sign * (1 << bits) + d for bits in (0, 5, 7, 8, 15, 16, 31, 32, 62) for sign in (1, -1) for d in (-1, 0, 1)],
    (1 << 64) - 1,
    -(1 << 63),
    0.0,
    -1.5,
    math.inf,
    "",
    "a" * 31,
    "a" * 32,
    "é€😀" * 100,
    "x" * 70000,
    b"",
    b"\x00\xff" * 300,
    b"y" * 70000,
    [],
    [1, [2, [3, {"k": [None]}]]],
    list(range(70000)),
    {},
    {"a": 1, 2: "b", b"c": None, None: 3.5, True: 4},
    {str(i): i for i in range(70000)},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: repr(v)[:30])
def test_round_trip_and_the_other_library(value: Any) -> None:
    data = pack(value)
    assert unpack(data) == value
    assert msgpack.unpackb(data, strict_map_key=False) == value
    assert unpack(msgpack.packb(value)) == value


def test_what_becomes_something_else() -> None:
    assert unpack(pack((1, (2,)))) == [1, [2]]
    assert unpack(pack([bytearray(b"a"), memoryview(b"b")])) == [b"a", b"b"]
    assert math.isnan(unpack(pack(math.nan)))


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (1 << 64, OverflowError),
        (-(1 << 63) - 1, OverflowError),
        (object(), TypeError),
        ({1, 2}, TypeError),
        ("\ud800", UnicodeEncodeError),
        (1j, TypeError),
    ],
)
def test_what_cannot_be_packed(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        pack([value])


def deep(n: int) -> Any:
    value: Any = None
    for _ in range(n):
        value = [value]
    return value


def test_nesting_has_one_bound_both_ways() -> None:
    assert unpack(pack(deep(64))) == deep(64)
    with pytest.raises(ValueError, match="64 deep"):
        pack(deep(65))
    with pytest.raises(ValueError, match="64 deep"):
        unpack(b"\x91" * 65 + b"\xc0")
    with pytest.raises(ValueError, match="malformed"):
        unpack(b"\x91" * 100_000)
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    with pytest.raises(ValueError, match="64 deep"):
        pack(cyclic)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x92\x01",
        b"\xc0\xc0",
        b"\xa2a",
        b"\xa1\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\x81\x90\x01",
        b"\x81\x01",
    ],
)
def test_malformed(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"malformed|codec|utf-8"):
        unpack(data)


def test_memory_is_bounded_by_the_bytes() -> None:
    with pytest.raises(ValueError, match="memory"):
        unpack(b"\xdd" + struct.pack(">I", 1 << 20) + b"\x80" * (1 << 20))
    assert len(unpack(b"\xdd" + struct.pack(">I", 1 << 20) + b"\x01" * (1 << 20))) == 1 << 20


# ---- arrays ----

ARRAYS = [
    numpy.arange(6, dtype="<f8").reshape(2, 3),
    numpy.arange(6, dtype="<i4")[::2],
    numpy.array([True, False]),
    numpy.array([-1, 1], dtype="int8"),
    numpy.array([b"ab", b"cdefg"], dtype="S5"),
    numpy.array(["ab", "€€€€"], dtype="<U4"),
    numpy.array(3.5),
    numpy.zeros((0, 5), dtype="<f4"),
    numpy.array(["2020-01-01"], dtype="datetime64[D]"),
    numpy.arange(4, dtype=">i2"),
    numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype.str}{a.shape}")
def test_arrays(array: Any) -> None:
    data = pack({"a": array})
    back = unpack(data)["a"]
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert (back == array).all()
    assert back.flags.writeable
    ext = msgpack.unpackb(data)["a"]
    header, _, raw = ext.data.partition(b"\0")
    assert ext.code == 1
    assert header.decode() == f"{array.dtype.str}|{','.join(map(str, array.shape))}"
    assert raw == array.tobytes()


def test_numpy_scalars_become_plain() -> None:
    assert unpack(pack([numpy.int64(3), numpy.float32(0.5), numpy.bool_(True), numpy.str_("a")])) == [3, 0.5, True, "a"]


@pytest.mark.parametrize("array", [numpy.array([object()]), numpy.zeros(2, dtype=[("a", "i4")])], ids=["O", "V"])
def test_arrays_that_are_refused_by_the_sender(array: Any) -> None:
    with pytest.raises(TypeError):
        pack(array)


@pytest.mark.parametrize(
    "data",
    [
        b"<f8|1",
        b"\xff|1\0" + b"x" * 8,
        b"<f8\0",
        b"nonsense|1\0x",
        b"|O|1\0" + b"x" * 8,
        b"|V8|1\0" + b"x" * 8,
        b"2<i4|1\0" + b"x" * 8,
        b"(2,)<i4|1\0" + b"x" * 8,
        b"|S0|1\0",
        b"i4,i4|1\0" + b"x" * 8,
        b"<f8|1.5\0" + b"x" * 8,
        b"<f8|-1\0" + b"x" * 8,
        b"<f8|2\0" + b"x" * 8,
        b"<f8|\0",
        b"<f8|" + b"1," * 40 + b"1\0" + b"x" * 8,
        b"<f8|99999999999999,0\0",
        b"<f8|" + b"9" * 400 + b"\0",
        b"<f9|1\0x",
    ],
)
def test_arrays_that_are_refused_by_the_receiver(data: bytes) -> None:
    with pytest.raises(ExtDecodeError):
        unpack(msgpack.packb(msgpack.ExtType(1, data)))


# ---- models ----


class Model:
    """What is needed of a pydantic model."""

    model_fields: ClassVar[dict[str, Any]] = {}

    def __init__(self, **values: Any) -> None:
        self.values = values

    def model_dump(self) -> dict[str, Any]:
        return self.values


def nested(n: int) -> bytes:
    data = pack({"x": 1})
    for _ in range(n):
        data = pack({"x": ExtType(2, data)})
    return data


def test_models_become_dicts() -> None:
    back = unpack(pack([Model(a=1, m=Model(b=numpy.arange(3)))]))
    assert back[0]["a"] == 1
    assert back[0]["m"]["b"].tolist() == [0, 1, 2]
    assert unpack(nested(8))


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x01", b"\x81\x01"])
def test_malformed_models(data: bytes) -> None:
    with pytest.raises(ExtDecodeError, match=r"malformed model: (ValueError|int)"):
        unpack(msgpack.packb(msgpack.ExtType(2, data)))
    with pytest.raises(ExtDecodeError, match="16 deep"):
        unpack(nested(17))


def test_other_extensions_pass() -> None:
    assert unpack(pack(ExtType(5, b"abc"))) == ExtType(5, b"abc") == (5, b"abc")
    for n in (0, 1, 2, 3, 4, 8, 16, 17, 255, 256, 70000):
        data = pack(ExtType(-3, b"z" * n))
        assert unpack(data) == (-3, b"z" * n)
        assert msgpack.unpackb(pack(ExtType(3, b"z" * n))) == msgpack.ExtType(3, b"z" * n)
    with pytest.raises(ValueError, match="-128 to 127"):
        pack(ExtType(200, b""))
    assert issubclass(ExtDecodeError, ValueError)


def test_numpy_is_imported_for_arrays_only() -> None:
    script = (
        "import sys; from agentix.runtime.shared import pack, unpack, ExtType\n"
        "assert unpack(pack({'a': [1, 'x', b'y']})) == {'a': [1, 'x', b'y']}\n"
        "print('numpy' in sys.modules, 'pydantic' in sys.modules)\n"
        "unpack(pack(ExtType(1, b'<i4|1\\0abcd'))); print('numpy' in sys.modules)"
    )
    assert python("-c", script).split() == ["False", "False", "True"]


# ---- frames ----


def test_frames() -> None:
    frame = pack_frame({"type": "ready"})
    assert frame == struct.pack("<I", len(frame) - 4) + pack({"type": "ready"})
    with pytest.raises(FrameTooLarge, match=str(MAX_MESSAGE_BYTES)):
        pack_frame({"type": "result", "value": bytes(MAX_MESSAGE_BYTES)})
