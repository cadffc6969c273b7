"""Small streams that would take much memory, much time, or the C stack."""

import collections
import decimal
import fractions
import pickle
import struct
import time
import tracemalloc

import pytest
from pickle_asm import number, reduce, refuse, stack_global, text, whole

from agentix.runtime.shared.safepickle import restricted_loads


def bounded(data: bytes, seconds: float = 2.0) -> None:
    """The stream must be refused quickly, and without allocating much more than its own size."""
    tracemalloc.start()
    started = time.process_time()
    refuse(data)
    spent = time.process_time() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert spent < seconds
    assert peak < 4 * len(data) + (1 << 20)


BUFFER = "numpy._core.numeric", "_frombuffer"
DTYPE = reduce(stack_global("numpy", "dtype"), text("f8"), b"\x89", b"\x88")
RANGE = reduce(stack_global("builtins", "range"), number(10**9))
RECONSTRUCT = stack_global("numpy._core.multiarray", "_reconstruct")
NO_ARRAY = reduce(RECONSTRUCT, stack_global("numpy", "ndarray"), number(2**33) + b"\x85", b"C\x01b")
BOMBS = {
    "bytearray of a size": reduce(stack_global("builtins", "bytearray"), number(2**33)),
    "bytes of a size": reduce(stack_global("builtins", "bytes"), number(2**33)),
    "bytes of a size by NEWOBJ_EX": stack_global("builtins", "bytes") + number(2**33) + b"\x85}\x92",
    "list of a range": reduce(stack_global("builtins", "list"), RANGE),
    "set of a range": reduce(stack_global("builtins", "set"), RANGE),
    "bytearray of a range": reduce(stack_global("builtins", "bytearray"), RANGE),
    "fraction with an exponent": reduce(stack_global("fractions", "Fraction"), text("1e99999999")),
    "fraction with a negative one": reduce(stack_global("fractions", "Fraction"), text("1E-3000000")),
    "fraction with many digits": reduce(stack_global("fractions", "Fraction"), text("1" * 5000)),
    "fraction of large integers": reduce(stack_global("fractions", "Fraction"), number(2**200_000), number(3**120_000)),
    "integer with many digits": b"I" + b"9" * 200_000 + b"\n",
    "long with many digits": b"L" + b"9" * 200_000 + b"L\n",
    "float with many digits": b"F" + b"9" * 200_000 + b"\n",
    "integer of many bytes": b"\x8b" + struct.pack("<i", 2**21) + b"\x7f" * 2**21,
    "decimal with many digits": reduce(stack_global("decimal", "Decimal"), text("1" * 20_000)),
    "deque of a range": reduce(stack_global("collections", "deque"), RANGE, b"N"),
    "counter of a range": reduce(stack_global("collections", "Counter"), RANGE),
    "marks": b"(" * 200_000,
    "nested tuples": b")" + b"\x85" * 200_000,
    "array of a shape": reduce(stack_global(*BUFFER), b"C\x08aaaaaaaa", DTYPE, number(2**33) + b"\x85", text("C")),
    "array of an overflowing shape": reduce(
        stack_global(*BUFFER), b"C\x08aaaaaaaa", DTYPE, number(2**33) + number(2**33) + b"\x86", text("C")
    ),
    "no array with a shape": NO_ARRAY + b"(K\x01" + number(2**33) + b"\x85" + DTYPE + b"\x89C\x00tb",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str) -> None:
    bounded(whole(BOMBS[name]))


def test_the_honest_neighbours_of_bombs() -> None:
    assert restricted_loads(whole(reduce(stack_global("builtins", "bytearray"), b"C\x01x"))) == bytearray(b"x")
    assert restricted_loads(pickle.dumps(range(10**9))) == range(10**9)
    assert restricted_loads(pickle.dumps(fractions.Fraction(1, 3))) == fractions.Fraction(1, 3)
    assert restricted_loads(whole(reduce(stack_global("fractions", "Fraction"), text("-1/3")))) == fractions.Fraction(
        -1, 3
    )
    huge = restricted_loads(pickle.dumps(decimal.Decimal("1e999999999")))
    assert repr(huge) == str([huge])[1:-1] == "Decimal('1E+999999999')"


def test_copies_add_up() -> None:
    """One large thing, copied again and again by six bytes of the stream each time."""
    large = b"B" + struct.pack("<I", 100_000) + bytes(100_000) + b"\x94\x85\x940"
    again = b"h\x02h\x01R0"
    refuse(whole(large + stack_global("builtins", "bytearray") + b"\x940" + again * 10_000 + b"N"), "memory")


def test_many_large_empty_containers() -> None:
    refuse(whole(b"(" + b"\x8f" * 1_000_000 + b"t"), "memory")


def test_colliding_keys() -> None:
    """Multiples of the hash's modulus hash alike: a dict of them takes time with the square of their number."""
    keys = b"".join(number(i * (2**61 - 1)) + b"N" for i in range(150_000))
    started = time.process_time()
    refuse(whole(b"}(" + keys + b"u"), "takes too long")
    assert time.process_time() - started < 20


def shared_tree(depth: int, tail: bytes = b"") -> bytes:
    """2**depth leaves, made of `depth` tuples that hold the one before twice."""
    return b"I300\n" + b"2\x86" * depth + tail


@pytest.mark.parametrize(
    "body",
    [
        b"}" + shared_tree(64) + b"Ns",
        b"\x8f(" + shared_tree(64) + b"\x90",
        b"(" + shared_tree(64) + b"\x91",
        b"(" + shared_tree(64) + b"Nd",
        reduce(stack_global("builtins", "set"), b"]" + shared_tree(64) + b"a"),
        reduce(stack_global("collections", "OrderedDict")) + shared_tree(64) + b"Ns",
    ],
)
def test_trees_of_shared_tuples_as_keys(body: bytes) -> None:
    bounded(whole(body))


def test_trees_of_shared_tuples_as_values() -> None:
    got = restricted_loads(whole(shared_tree(64)))
    assert got[0] is got[1]


def test_a_large_key_again_and_again() -> None:
    """Equal keys of the same million bytes are compared byte by byte, each time one is stored."""
    one = b"\x8e" + struct.pack("<Q", 1_000_000) + bytes(1_000_000)
    stream = b"}" + one + b"Ns" + one + b"\x940" + b"h\x00Ns" * 200_000
    started = time.process_time()
    refuse(whole(stream), "takes too long")
    assert time.process_time() - started < 20


@pytest.mark.parametrize("depth", [4_000, 100_000])
def test_deep_lists_load_and_go(depth: int) -> None:
    got = restricted_loads(whole(b"]" * (depth + 1) + b"a" * depth))
    for _ in range(depth):
        (got,) = got
    assert got == []


def test_deep_tuples() -> None:
    assert restricted_loads(whole(b")" + b"\x85" * 900))
    refuse(whole(b")" + b"\x85" * 1_100), "nested too deep")
    hidden = b")" + b"\x85" * 900 + b"\x940" + b"h\x00" + b"\x85" * 900
    refuse(whole(hidden), "nested too deep")


DEQUE = stack_global("collections", "deque")
DEFAULT = stack_global("collections", "defaultdict")


@pytest.mark.parametrize("order", ["inwards", "outwards"])
@pytest.mark.parametrize(
    ("make", "store"),
    [(reduce(DEQUE), "{0}{1}a"), (reduce(DEFAULT), "{0}K\x01{1}s")],
    ids=["deque", "defaultdict"],
)
def test_chains_that_would_overflow_the_stack_when_freed(make: bytes, store: str, order: str) -> None:
    """Each is put into the next, starting at either end, so that no depth is seen while it is built."""
    count = 50_000

    def get(i: int) -> bytes:
        return b"j" + struct.pack("<I", i)

    made = b"".join(make + b"r" + struct.pack("<I", i) + b"0" for i in range(count))
    links = [(i, i + 1) for i in range(count - 1)]
    form = store.encode("latin1")
    joined = b"".join(
        form.replace(b"{0}", get(a)).replace(b"{1}", get(b)) + b"0"
        for a, b in (links if order == "inwards" else links[::-1])
    )
    refuse(whole(made + joined + get(0)), "nested too deep")


def test_honest_nesting_of_deques() -> None:
    value = collections.defaultdict(dict, {i: collections.deque([collections.deque([i])]) for i in range(400)})
    assert restricted_loads(pickle.dumps(value)) == value
    queues = collections.deque(collections.deque([i]) for i in range(20_000))
    assert restricted_loads(pickle.dumps(queues)) == queues


def test_slices_hold_no_containers() -> None:
    refuse(whole(reduce(stack_global("builtins", "slice"), b"]")), "builtins.slice")
    inner = reduce(stack_global("builtins", "slice"), b"N")
    refuse(whole(reduce(stack_global("builtins", "slice"), inner)), "builtins.slice")
