"""numpy arrays and scalars of plain dtypes, and states that would make numpy read too far."""

import math
import pickle
import sys

import numpy as np
import pytest
from pickle_asm import assert_same, reduce, refuse, stack_global, text, unframed, whole

from agentix.runtime.shared.safepickle import restricted_loads

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


BUFFER = "numpy._core.numeric", "_frombuffer"

ARRAYS = [
    np.arange(6),
    np.arange(6, dtype=">i2").reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(12.0).reshape(3, 4)[:, ::2],
    np.zeros((0, 3)),
    np.array(5),
    np.array([True, False]),
    np.array([1 + 2j], dtype="c8"),
    np.array(["ab", "é"]),
    np.array([b"ab", b""]),
    np.array(["2020-01-01", "NaT"], dtype="M8[D]"),
    np.array([1, 2], dtype="m8[25us]"),
    np.array([b"abcd"], dtype="V4"),
    np.float16([1.5]),
    np.longdouble([1.5]),
]
SCALARS = [
    *(np.float64(1.5), np.int8(-3), np.uint64(2**64 - 1), np.bool_(True), np.complex64(1j), np.str_("é"), np.str_("")),
    *(np.bytes_(b"a"), np.datetime64("2020-01-01"), np.timedelta64(3, "h"), np.longdouble(1.5)),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_arrays(protocol: int) -> None:
    for value in ARRAYS:
        data = pickle.dumps(value, protocol)
        got, stock = restricted_loads(data), pickle.loads(data)
        assert got.dtype == stock.dtype
        assert got.shape == stock.shape == value.shape
        assert got.tobytes() == stock.tobytes()
        assert (got.flags.f_contiguous, got.flags.writeable) == (stock.flags.f_contiguous, stock.flags.writeable)
    for scalar in SCALARS:
        assert_same(restricted_loads(pickle.dumps(scalar, protocol)), scalar)
    one, two = restricted_loads(pickle.dumps([ARRAYS[0], ARRAYS[0]], protocol))
    assert one is two


def test_arrays_of_numpy_1() -> None:
    for value in (ARRAYS[0], ARRAYS[3], SCALARS[0]):
        data = pickle.dumps(value, 4).replace(b"\x16numpy._core.multiarray", b"\x15numpy.core.multiarray")
        assert data != pickle.dumps(value, 4)
        assert np.array_equal(restricted_loads(unframed(data)), value)


def test_arrays_of_objects_and_records_are_refused() -> None:
    for value in (
        np.array([1, None], dtype=object),
        np.array([math.sin], dtype=object),
        np.zeros(2, dtype=[("a", "i4")]),
        np.zeros(2, dtype="i4,O"),
    ):
        for protocol in PROTOCOLS:
            refuse(pickle.dumps(value, protocol))


def test_numpy_is_found_and_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    data = [pickle.dumps(value) for value in (ARRAYS[0], ARRAYS[3], SCALARS[0])]
    monkeypatch.delitem(sys.modules, "numpy")
    for each in data:
        refuse(each, "numpy", "imported")
    assert "numpy" not in sys.modules


def dtype(name: str, *state: bytes) -> bytes:
    made = reduce(stack_global("numpy", "dtype"), text(name), b"\x89", b"\x88")
    return made + (b"(" + b"".join(state) + b"tb" if state else b"")


MINUS = b"J\xff\xff\xff\xff"
LITTLE = text("<")


@pytest.mark.parametrize(
    "body",
    [
        dtype("O"),
        dtype("O8"),
        dtype("i4,O"),
        dtype("f8\x00"),
        dtype("S"),
        dtype("U99999999999999"),
        dtype("(2,3)f8"),
        dtype("f8", b"K\x03", LITTLE, b"NNN", b"M\xe8\x03", b"K\x01", b"K\x00"),
        dtype("f8", b"K\x03", LITTLE, b"NNN", MINUS, MINUS, b"K\x01"),
        dtype("f8", b"K\x03", LITTLE, b"NNN", MINUS, MINUS, b"K\x3f"),
        dtype("f8", b"K\x03", text("x"), b"NNN", MINUS, MINUS, b"K\x00"),
        dtype("f8", b"K\x09", LITTLE, b"NNN", MINUS, MINUS, b"K\x00"),
        dtype("f8", b"K\x03", LITTLE, text("f8") + b"K\x02\x86NN", MINUS, MINUS, b"K\x00"),
        dtype("V8", b"K\x03", text("|"), b"N", text("a") + b"\x85", b"}", b"K\x08K\x01K\x10"),
        dtype("S4", b"K\x03", text("|"), b"NNN", b"K\x05K\x01K\x00"),
        dtype("U4", b"K\x03", LITTLE, b"NNN", b"K\x04K\x04K\x08"),
        dtype("f8", b"K\x04", LITTLE, b"NNN", MINUS, MINUS, b"K\x00", b"N(C\x01DK\x01K\x01K\x01t\x86"),
        dtype("U3", b"K\x04", LITTLE, b"NNN", b"K\x0cK\x04K\x08", b"N(C\x01DK\x01K\x01K\x01t\x86"),
        dtype("M8", b"K\x03", LITTLE, b"NNN", MINUS, MINUS, b"K\x00"),
        dtype("m8", b"K\x04", LITTLE, b"NNN", MINUS, MINUS, b"K\x00"),
        dtype("M8", b"K\x03", LITTLE, b"NNN", MINUS, MINUS, b"K\x00", b"N(C\x01DK\x01K\x01K\x01t\x86"),
        dtype("M8", b"K\x04", LITTLE, b"NNN", MINUS, MINUS, b"K\x00", b"NC\x01DK\x00K\x01K\x01(t\x86"),
        reduce(
            stack_global("numpy._core.multiarray", "_reconstruct"),
            stack_global("builtins", "list"),
            b"K\x00\x85",
            b"C\x01b",
        ),
        reduce(stack_global("numpy._core.multiarray", "scalar"), dtype("f8"), b"C\x07aaaaaaa"),
        reduce(stack_global("numpy._core.multiarray", "scalar"), text("f8"), b"C\x08aaaaaaaa"),
        reduce(stack_global(*BUFFER), b"C\x08aaaaaaaa", dtype("f8"), MINUS + b"\x85", text("C")),
        reduce(stack_global(*BUFFER), b"C\x08aaaaaaaa", dtype("f8"), b"K\x02\x85", text("C")),
        reduce(stack_global(*BUFFER), b"C\x08aaaaaaaa", dtype("f8"), b"K\x01\x85", text("K")),
        reduce(stack_global(*BUFFER), text("aaaaaaaa"), dtype("f8"), b"K\x01\x85", text("C")),
        reduce(stack_global(*BUFFER), b"C\x08aaaaaaaa", stack_global("numpy", "dtype"), b"K\x01\x85", text("C")),
    ],
)
def test_what_numpy_would_misread(body: bytes) -> None:
    refuse(whole(body), "numpy")
