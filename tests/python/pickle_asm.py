"""Pickles put together by hand, one function per opcode or two, and the check that one is refused."""

import contextlib
import pickle
import struct
import typing
from collections.abc import Iterator

import pytest

from agentix import RestrictedUnpickleError
from agentix.runtime.shared.safepickle import restricted_loads


def text(value: str) -> bytes:
    data = value.encode()
    return b"\x8c" + bytes([len(data)]) + data if len(data) < 256 else b"X" + struct.pack("<I", len(data)) + data


def stack_global(module: str, name: str) -> bytes:
    return text(module) + text(name) + b"\x93"


def line_global(module: str, name: str) -> bytes:
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def reduce(callable_: bytes, *args: bytes) -> bytes:
    return callable_ + b"(" + b"".join(args) + b"tR"


def number(value: int) -> bytes:
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8b" + struct.pack("<i", len(data)) + data


def whole(body: bytes, protocol: int = 4) -> bytes:
    return b"\x80" + bytes([protocol]) + body + b"."


def unframed(data: bytes) -> bytes:
    """A pickle of protocol 4 or 5 that fits one frame, without it."""
    assert data[2:3] == b"\x95"
    return data[:2] + data[11:]


def refuse(data: bytes, *words: str) -> str:
    """The stream must be refused, with these words."""
    with pytest.raises(RestrictedUnpickleError) as caught:
        restricted_loads(data)
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)


MARKER = b"}" + text("agx_marker") + b"K\x01s"
STATES = {"dict": MARKER, "slots": b"N" + MARKER + b"\x86", "both": MARKER + MARKER + b"\x86"}


def assert_same(got: object, expected: object) -> None:
    """Equal in type, value and all that an exception keeps. repr() tells NaN, -0.0 and nested types apart."""
    assert type(got) is type(expected)
    if isinstance(expected, BaseException):
        assert isinstance(got, BaseException)
        assert repr(got) == repr(expected)
        assert got.__dict__ == expected.__dict__
        assert str(got) == str(expected)
        for name in ("filename", "filename2", "errno", "name", "path", "characters_written", "lineno"):
            assert getattr(got, name, None) == getattr(expected, name, None), name
    elif isinstance(expected, set | frozenset | dict):
        assert got == expected
    else:
        assert repr(got) == repr(expected)


@contextlib.contextmanager
def no_stock_loader() -> Iterator[None]:
    """Both of Python's own loaders fail inside."""
    import _pickle

    def fail(*args: object, **kwargs: object) -> typing.NoReturn:
        raise AssertionError("a stock loader was used")

    with pytest.MonkeyPatch.context() as patch:
        for module in (pickle, _pickle):
            for name in ("load", "loads", "Unpickler", "_load", "_loads", "_Unpickler"):
                patch.setattr(module, name, fail, raising=False)
        yield
