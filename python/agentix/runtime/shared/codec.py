"""msgpack, as side channels speak it: plain values, numpy arrays and pydantic models.

The format itself is C (`agentix._core.pack`, `unpack`). Two extension types are ours: 1 is a numpy array, as
`dtype.str|shape`, a NUL and its bytes in C order; 2 is a pydantic model, as its dumped map, which is decoded as a dict.
What comes from a sandbox is not trusted: header, dtype, shape and size are checked before the bytes are looked at,
and nothing is imported but numpy, and only when an array comes.
"""

import sys
from typing import Any, NamedTuple

from agentix._core import pack as _pack
from agentix._core import unpack as _unpack

__all__ = ["ExtDecodeError", "ExtType", "pack", "unpack"]

_ARRAY = 1
_MODEL = 2
_HEADER_MAX = 512
_DIMENSIONS_MAX = 32
_SIZE_MAX = 1 << 40
_MODELS_DEEP_MAX = 16
_KINDS = frozenset("biufcmMSU")


class ExtDecodeError(ValueError):
    """An extension value in a message is malformed, or of a kind that is not taken."""


class ExtType(NamedTuple):
    """An extension value of a code that is not ours."""

    code: int
    data: bytes


def pack(obj: Any) -> bytes:
    """Return `obj` as msgpack.

    Takes None, bool, int of 64 bits, float, str, bytes-likes, lists, tuples, dicts, `ExtType`, numpy arrays and scalars
    of plain types, and pydantic models. Raises TypeError for anything else, object and structured arrays included,
    OverflowError for an integer that is too large, ValueError for what is nested more than 64 deep, `FrameTooLarge` for
    a message above `MAX_MESSAGE_BYTES`.
    """
    try:
        return _pack(obj, _stand_in)
    except OverflowError as exc:
        if "larger than" not in str(exc):
            raise
        from .framing import FrameTooLarge

        raise FrameTooLarge(str(exc)) from None


def unpack(data: bytes | bytearray | memoryview) -> Any:
    """Return the value that `data` holds. Raises ValueError if it is malformed, `ExtDecodeError` if an extension is."""
    return _unpack(data, _Decoder().decode)


def _stand_in(obj: Any) -> Any:
    numpy: Any = sys.modules.get("numpy")
    kind: Any = type(obj)  # pyright: ignore[reportUnknownVariableType]
    if numpy is not None:
        if isinstance(obj, numpy.ndarray):
            return _from_array(obj)
        if isinstance(obj, numpy.generic):
            if obj.dtype.kind in "biufSU":
                return obj.item()
            return _from_array(numpy.asarray(obj))
    dump = getattr(kind, "model_dump", None)
    if dump is not None and hasattr(kind, "model_fields"):
        return ExtType(_MODEL, pack(dump(obj)))
    raise TypeError(f"a value of type {kind.__module__}.{kind.__qualname__} cannot be packed")


def _from_array(array: Any) -> ExtType:
    if array.dtype.kind not in _KINDS or array.dtype.names is not None:
        raise TypeError(f"an array of dtype {array.dtype} cannot be packed")
    header = f"{array.dtype.str}|{','.join(map(str, array.shape))}".encode("ascii")
    return ExtType(_ARRAY, header + b"\0" + array.tobytes())


class _Decoder:
    """Of one message: it counts how deep models lie in models."""

    def __init__(self) -> None:
        self._deep = 0

    def decode(self, code: int, data: bytes) -> Any:
        if code == _ARRAY:
            return _to_array(data)
        if code == _MODEL:
            return self._to_dict(data)
        return ExtType(code, data)

    def _to_dict(self, data: bytes) -> Any:
        if self._deep >= _MODELS_DEEP_MAX:
            raise ExtDecodeError(f"models are nested more than {_MODELS_DEEP_MAX} deep")
        self._deep += 1
        try:
            value = _unpack(data, self.decode)
        except ExtDecodeError:
            raise
        except (ValueError, TypeError, RecursionError) as exc:
            raise ExtDecodeError(f"a malformed model: {type(exc).__name__}: {exc}") from exc
        finally:
            self._deep -= 1
        if not isinstance(value, dict):
            raise ExtDecodeError(f"a malformed model: {type(value).__name__} instead of a map")
        return value  # pyright: ignore[reportUnknownVariableType]


def _to_array(data: bytes) -> Any:
    end = data.find(b"\0", 0, _HEADER_MAX)
    if end < 0:
        raise ExtDecodeError("an array without a NUL behind its header")
    try:
        header = data[:end].decode("ascii")
    except UnicodeDecodeError:
        raise ExtDecodeError("an array whose header is not ASCII") from None
    name, separator, dimensions = header.rpartition("|")
    if not separator:
        raise ExtDecodeError("an array whose header has no '|'")
    dtype = _dtype(name)
    shape = _shape(dimensions)
    size = dtype.itemsize
    for n in shape:
        size *= n
    if size != len(data) - end - 1:
        raise ExtDecodeError(f"an array of shape {shape} and dtype {name!r} with {len(data) - end - 1} bytes")
    import numpy

    return numpy.frombuffer(data, dtype, offset=end + 1).reshape(shape).copy() if size else numpy.empty(shape, dtype)


def _dtype(name: str) -> Any:
    # What `dtype.str` gives, and nothing that numpy would read as a list of fields or a nested type.
    if not name or name[0] not in "<>|=" or not name[1:2].isalpha() or name[1] not in _KINDS or len(name) > 32:
        raise ExtDecodeError(f"an array of dtype {name[:40]!r}, which is not taken")
    import numpy

    try:
        dtype = numpy.dtype(name)
    except Exception as exc:  # numpy raises what it likes
        raise ExtDecodeError(f"an array of dtype {name[:40]!r}: {type(exc).__name__}") from exc
    if dtype.kind not in _KINDS or dtype.hasobject or dtype.names or dtype.subdtype or not dtype.itemsize:
        raise ExtDecodeError(f"an array of dtype {name[:40]!r}, which is not taken")
    return dtype


def _shape(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    parts = text.split(",")
    if len(parts) > _DIMENSIONS_MAX:
        raise ExtDecodeError(f"an array of {len(parts)} dimensions")
    if not all(part.isascii() and part.isdigit() and len(part) < 16 for part in parts):
        raise ExtDecodeError(f"an array of shape {text[:40]!r}")
    shape = tuple(map(int, parts))
    total = 1
    for n in shape:
        total *= n or 1
        if total > _SIZE_MAX:
            raise ExtDecodeError(f"an array of shape {text[:40]!r}")
    return shape


for _cls in (ExtDecodeError, ExtType):
    _cls.__module__ = "agentix.runtime.shared"
