"""What the restricted decoder gives back, and the two ways in which a host widens it."""

import builtins
import collections
import datetime as dt
import decimal
import fractions
import math
import pathlib
import pickle
import threading
import time
import types
import typing
import uuid
from collections.abc import Callable, Iterator

import pytest
from pickle_asm import (
    assert_same,
    no_stock_loader,
    reduce,
    refuse,
    stack_global,
    text,
    whole,
)

from agentix.runtime.shared.safepickle import restricted_loads

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


@pytest.fixture(autouse=True)
def no_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTIX_PICKLE_TRUST", raising=False)


# --- what comes back --------------------------------------------------------------------------------------------------

UTC = dt.UTC

VALUES: list[object] = [
    None,
    True,
    False,
    *(sign * n for n in (0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**63, 2**64, 10**1000) for sign in (1, -1)),
    *(1.5, -0.0, 1e308, 5e-324, math.inf, -math.inf, math.nan),
    *("", "a", "é\U0001f600\n\\u0041\x00", "x" * 70_000),
    *(b"", b"a\x00\xff", b"x" * 70_000),
    *(bytearray(), bytearray(b"a\xff"), bytearray(70_000)),
    *([], [1, [2, []]], list(range(3000))),
    *((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ((((),),),)),
    *({}, {1: {"a": [2]}}, {i: str(i) for i in range(3000)}),
    {None: 1, True: 2, 2.5: 3, b"b": 4, (1, ("a", None)): 5, frozenset({(1,)}): 6, 2**100: 7},
    *(set(), {1, "a", (2,)}, set(range(3000))),
    *(frozenset(), frozenset({1, frozenset({2})}), frozenset(range(3000))),
    *(1j, complex(math.inf, -0.0)),
    *(range(3), range(5, -5, -2), range(2**70)),
    *(slice(None), slice(1, 2, 3), slice("a", None)),
    *(..., NotImplemented),
    *(dt.date.min, dt.date.max, dt.date(2024, 2, 29)),
    *(dt.time(), dt.time(23, 59, 59, 999999, tzinfo=UTC), dt.time(1, fold=1)),
    *(
        dt.datetime.min,
        dt.datetime.max,
        dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC),
        dt.datetime(2020, 1, 1, fold=1),
    ),
    *(dt.timedelta(), dt.timedelta.min, dt.timedelta.max, dt.timedelta(1, 2, 3)),
    *(UTC, dt.timezone(dt.timedelta(hours=-5)), dt.timezone(dt.timedelta(minutes=90), "somewhere")),
    *map(decimal.Decimal, ("1.50", "-0", "1E+999999999", "1E-999999999", "Infinity", "-Infinity", "NaN", "sNaN12")),
    *(fractions.Fraction(1, 3), fractions.Fraction(-(10**1000), 7), fractions.Fraction(0)),
    *(uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.uuid4(), uuid.uuid1()),
    *(pathlib.PurePosixPath("/a/b"), pathlib.PurePosixPath(), pathlib.Path("a"), pathlib.PureWindowsPath("c:/x")),
    *(collections.OrderedDict(), collections.OrderedDict(b=1, a=2)),
    *(collections.Counter(), collections.Counter("abca")),
    *(collections.deque(), collections.deque([1, 2]), collections.deque([1, 2], 2), collections.deque(maxlen=0)),
    *(collections.defaultdict(int), collections.defaultdict(list, a=[1]), collections.defaultdict(None, a=1)),
    *(collections.defaultdict(f) for f in (dict, set, frozenset, float, str, bytes, bool, tuple)),
    types.SimpleNamespace(a=1, b=[2]),
    [int, str, ValueError, dt.datetime],
]


def with_notes() -> Exception:
    error = ValueError("a", 1)
    error.add_note("a note")
    error.detail = {"b": 2}  # type: ignore[attr-defined]
    return error


def builtin_exceptions() -> Iterator[BaseException]:
    for name in sorted(dir(builtins)):
        cls = getattr(builtins, name)
        if not isinstance(cls, type) or not issubclass(cls, BaseException) or name.startswith("_"):
            continue
        if issubclass(cls, BaseExceptionGroup):
            yield cls("two", [ValueError(1), KeyError("k")])
        elif issubclass(cls, UnicodeDecodeError):
            yield cls("utf-8", b"\xff", 0, 1, "bad")
        elif issubclass(cls, UnicodeEncodeError):
            yield cls("ascii", "é", 0, 1, "bad")
        elif issubclass(cls, UnicodeTranslateError):
            yield cls("é", 0, 1, "bad")
        elif issubclass(cls, SyntaxError):
            yield cls("bad", ("f.py", 1, 2, "text", 1, 3))
        else:
            yield cls()
            yield cls("a", {"b": (1, None)})


EXCEPTIONS: list[BaseException] = [
    *builtin_exceptions(),
    OSError(2, "gone", "a.txt"),
    OSError(2, "gone", pathlib.Path("a.txt"), None, b"b.txt"),
    BlockingIOError(11, "again", 3),
    ImportError("no", name="n", path="p"),
    ModuleNotFoundError("no", name="n"),
    with_notes(),
    ExceptionGroup("outer", [ExceptionGroup("inner", [OSError(1, "x")])]),
]


def test_integers_of_every_length() -> None:
    """At the edges of each number of bytes, above and below zero, one and many in a row."""
    edges = [sign * (1 << bits) + d for bits in range(1, 2200) for sign in (1, -1) for d in (-1, 0, 1)]
    for protocol in (2, 5):
        assert_same(restricted_loads(pickle.dumps(edges, protocol)), edges)
    for number in edges[::7]:
        assert_same(restricted_loads(pickle.dumps(number)), number)


def test_integers_are_the_interpreters_own() -> None:
    """Small ones are the very ones it keeps, also when they are written at length."""
    for number in (-5, 0, 7, 256):
        written = number.to_bytes(12, "little", signed=True)
        loaded = restricted_loads(b"\x80\x04\x8a" + bytes([len(written)]) + written + b".")
        assert loaded is number


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_round_trips(protocol: int) -> None:
    for value in VALUES:
        data = pickle.dumps(value, protocol)
        # Before protocol 4, times lose their fold.
        assert_same(restricted_loads(data), value if protocol >= 4 else pickle.loads(data))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_exceptions_keep_type_and_args(protocol: int) -> None:
    for value in EXCEPTIONS:
        data = pickle.dumps(value, protocol)
        assert_same(restricted_loads(data), pickle.loads(data))


def test_stock_loaders_are_not_used() -> None:
    for value in VALUES:
        data = pickle.dumps(value)
        with no_stock_loader():
            got = restricted_loads(data)
        assert_same(got, value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_shared_and_cyclic_containers(protocol: int) -> None:
    shared: list[object] = [1]
    one, two, inside = restricted_loads(pickle.dumps([shared, shared, {"a": (shared,)}], protocol))
    assert one is two is inside["a"][0]

    cyclic: list[object] = []
    cyclic += [cyclic, {"me": cyclic}, (cyclic,)]
    got = restricted_loads(pickle.dumps(cyclic, protocol))
    assert got[0] is got
    assert got[1]["me"] is got
    assert got[2][0] is got

    tuples: list[object] = []
    cycle = (tuples, 1, 2, 3, 4)
    tuples.append(cycle)
    got = restricted_loads(pickle.dumps(cycle, protocol))
    assert got[0][0] is got

    queue: collections.deque[object] = collections.deque()
    queue.append([queue])
    got = restricted_loads(pickle.dumps(queue, protocol))
    assert got[0][0] is got


def test_large_batches_are_whole() -> None:
    value = {"list": list(range(10_000)), "dict": {f"k{i}": i for i in range(10_000)}, "set": set(range(10_000))}
    assert restricted_loads(pickle.dumps(value)) == value


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview], ids=lambda t: t.__name__)
def test_takes_any_bytes_like_object(make: Callable[[bytes], bytes]) -> None:
    assert restricted_loads(make(pickle.dumps([1, 2]))) == [1, 2]


@pytest.mark.parametrize("data", ["", None, 1, [1]])
def test_takes_nothing_else(data: typing.Any) -> None:
    with pytest.raises(TypeError):
        restricted_loads(data)


@pytest.mark.parametrize(
    "data",
    [
        b"I1\n.",
        b"I-17\n.",
        b"L5L\n.",
        b"L5\n.",
        b"L-12345678901234567890L\n.",
        b"F1.5\n.",
        b"F-inf\n.",
        b"Fnan\n.",
        b"S'ab c'\n.",
        b'S"x"\n.',
        b"U\x02hi.",
        b"T\x02\x00\x00\x00hi.",
        b"Vh\\u00e9\n.",
        b"(I1\nI2\nl.",
        b"(I1\nI2\nd.",
        b"I01\n.",
        b"I00\n.",
        b"(K\x01K\x020t.",
        b"K\x01(1.",
        b"K\x012\x86.",
        b"(0K\x01.",
        b"\x96\x01\x00\x00\x00\x00\x00\x00\x00a.",
        b"K\x01p0\n0g0\n.",
        b"K\x01r\x00\x00\x00\x000j\x00\x00\x00\x00.",
        b"X\x01\x00\x00\x00a.",
        b"\x8b\x00\x00\x00\x00.",
        b"\x8a\x00.",
    ],
)
def test_knows_the_old_opcodes(data: bytes) -> None:
    assert_same(restricted_loads(data), pickle.loads(data))


# --- paths of Python 3.13 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["PosixPath", "PurePosixPath", "PureWindowsPath"])
@pytest.mark.parametrize("module", ["pathlib", "pathlib._local"])
def test_paths_of_another_python(module: str, name: str) -> None:
    got = restricted_loads(whole(reduce(stack_global(module, name), text("/a/b"))))
    assert_same(got, getattr(pathlib, name)("/a/b"))


@pytest.mark.parametrize("name", ["Path", "os.mkdir", "_local.PosixPath", "PosixPath.mkdir"])
def test_no_more_of_pathlib_than_that(name: str) -> None:
    for module in ("pathlib", "pathlib._local", "pathlib._abc"):
        refuse(whole(reduce(stack_global(module, name), text("/a"))))


# --- trust ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["1", "true", "yes", "TRUE", " Yes "])
def test_trust(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTIX_PICKLE_TRUST", word)
    assert restricted_loads(pickle.dumps(math.sin)) is math.sin


@pytest.mark.parametrize("word", ["", "0", "false", "no", "2", "on"])
def test_no_trust(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTIX_PICKLE_TRUST", word)
    refuse(pickle.dumps(math.sin), "math.sin")


def test_other_threads_run_during_a_large_load() -> None:
    data = pickle.dumps([{"number": i, "text": [str(i)]} for i in range(400_000)], 5)
    began = threading.Event()
    done = threading.Event()

    def load() -> None:
        began.set()
        restricted_loads(data)
        done.set()

    thread = threading.Thread(target=load)
    thread.start()
    began.wait()
    turns = 0
    while not done.is_set():
        time.sleep(0)
        turns += 1
    thread.join()
    assert turns > 4  # a load that keeps the interpreter leaves one or two
