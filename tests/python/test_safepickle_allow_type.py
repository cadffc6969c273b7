"""Classes the host has admitted: rebuilt as that class, and by no other way than their own pickles use."""

import dataclasses
import enum
import pickle
import sys
import time
import typing

import pytest
from pickle_asm import MARKER, STATES, reduce, refuse, stack_global, text, unframed, whole

from agentix import RestrictedUnpickleError, _core
from agentix.runtime.shared import safepickle
from agentix.runtime.shared.safepickle import allow_type, restricted_loads

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


@pytest.fixture(autouse=True)
def no_admitted_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safepickle, "_allowed", {})


@dataclasses.dataclass
class Point:
    x: int
    y: list[int] = dataclasses.field(default_factory=list)

    class Inner:
        pass


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: int
    y: str = "a"


class Slotted:
    __slots__ = ("a", "b")


class Pair(typing.NamedTuple):
    left: object
    right: object = None


class Vector(tuple):  # type: ignore[type-arg]
    pass


class Colour(enum.Enum):
    RED = 1
    BLUE = "blue"


class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2


class Quota(Exception):
    def __init__(self, user: str, limit: int) -> None:
        super().__init__(user, limit)
        self.user = user


class Mapping(dict):  # type: ignore[type-arg]
    pass


class Listing(list):  # type: ignore[type-arg]
    pass


class Loud(dict):  # type: ignore[type-arg]
    def __setitem__(self, key: object, value: object) -> None:
        pytest.fail("called")


class Constructed:
    def __init__(self, *args: object) -> None:
        pytest.fail("called")


class Stated:
    def __getstate__(self) -> int:
        return 7

    def __setstate__(self, state: int) -> None:
        self.state = state


class Keywords:
    def __new__(cls, *, size: int) -> "Keywords":
        self = super().__new__(cls)
        self.size = size
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, int]]:
        return (), {"size": self.size}


class Single:
    only: "Single | None" = None

    def __new__(cls) -> "Single":
        if cls.only is None:
            cls.only = super().__new__(cls)
        return cls.only


def slotted() -> Slotted:
    value = Slotted()
    value.a, value.b = 1, [2]
    return value


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_admitted_classes(protocol: int) -> None:
    for cls in (Point, Pair, Vector, Colour, Level, Quota, Mapping, Listing, Stated):
        allow_type(cls)
    values = [Point(1, [2]), Quota("u", 3), Stated(), Colour.RED, Colour.BLUE, Level.LOW | Level.HIGH]
    if protocol >= 2:  # before, classes with a builtin base are rebuilt by calling that base
        values += [Pair(1, Pair(2)), Vector((1, 2)), Mapping(a=1), Listing([1, 2])]
    for value in values:
        got = restricted_loads(pickle.dumps(value, protocol))
        assert type(got) is type(value)
        if isinstance(value, Quota):
            assert (got.args, got.user) == (value.args, value.user)
        elif isinstance(value, Stated):
            assert got.state == 7
        else:
            assert got == value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_admitted_classes_with_slots_and_keywords(protocol: int) -> None:
    for cls in (Frozen, Slotted, Keywords):
        allow_type(cls)
    assert restricted_loads(pickle.dumps(Frozen(1, "b"), protocol)) == Frozen(1, "b")
    got = restricted_loads(pickle.dumps(slotted(), protocol))
    assert (got.a, got.b) == (1, [2])
    if protocol >= 4:
        value = Keywords(size=5)
        assert restricted_loads(pickle.dumps(value, protocol)).size == 5


def test_exactly_the_admitted_class() -> None:
    allow_type(Point)
    assert restricted_loads(pickle.dumps(Point(1))) == Point(1)
    refuse(pickle.dumps(Frozen(1)), f"{__name__}.Frozen")
    refuse(pickle.dumps(Point.Inner()), f"{__name__}.Point.Inner")
    allow_type(Point.Inner)
    assert type(restricted_loads(pickle.dumps(Point.Inner()))) is Point.Inner


def test_the_admitted_class_survives_a_rebinding(monkeypatch: pytest.MonkeyPatch) -> None:
    allow_type(Point)
    original = Point
    data = pickle.dumps(Point(1))
    monkeypatch.setattr(sys.modules[__name__], "Point", lambda *args: pytest.fail("called"))
    assert restricted_loads(data) == original(1)


@pytest.mark.parametrize("thing", [len, "os.system", None, lambda: None, sys, list[int], Point(1)])
def test_only_classes_can_be_admitted(thing: typing.Any) -> None:
    with pytest.raises(TypeError):
        allow_type(thing)


def test_no_metaclass_can_be_admitted() -> None:
    for cls in (type, enum.EnumMeta):
        with pytest.raises(TypeError, match="metaclass"):
            allow_type(cls)


def test_the_constructor_runs_only_for_classes_that_pickle_themselves() -> None:
    allow_type(Constructed)
    refuse(whole(reduce(stack_global(__name__, "Constructed"), text("a"))), f"{__name__}.Constructed")
    assert type(restricted_loads(whole(stack_global(__name__, "Constructed") + b")\x81"))) is Constructed


def test_items_go_past_no_method() -> None:
    allow_type(Loud)
    refuse(pickle.dumps(Loud(a=1)), f"{__name__}.Loud")
    allow_type(Mapping)
    refuse(whole(stack_global(__name__, "Mapping") + b")\x81K\x01a"), f"{__name__}.Mapping")


def test_state_goes_to_instances_of_this_load_only() -> None:
    for cls in (Point, Colour, Single):
        allow_type(cls)
    for state in STATES.values():
        refuse(whole(stack_global(__name__, "Point") + state + b"b"))
    refuse(whole(reduce(stack_global(__name__, "Colour"), b"K\x01") + MARKER + b"b"), "Enum")
    refuse(whole(stack_global(__name__, "Colour") + b")\x81"), "Enum")
    single = Single()
    assert restricted_loads(whole(stack_global(__name__, "Single") + b")\x81")) is single
    refuse(whole(stack_global(__name__, "Single") + b")\x81" + MARKER + b"b"), "in use elsewhere")
    for thing in (Point, Colour, Colour.RED, Single, single):
        assert not hasattr(thing, "agx_marker")


def test_special_attributes_are_no_state() -> None:
    allow_type(Slotted)
    made = stack_global(__name__, "Slotted") + b")\x81"
    for name in ("__class__", "__dict__", "__doc__"):
        refuse(whole(made + b"N}" + text(name) + stack_global("builtins", "int") + b"s\x86b"), f"{__name__}.Slotted")


def test_an_enum_has_only_its_members() -> None:
    allow_type(Colour)
    refuse(whole(reduce(stack_global(__name__, "Colour"), b"K\x07")), f"{__name__}.Colour")
    refuse(whole(reduce(stack_global(__name__, "Colour"), text("Other"), b"}")), f"{__name__}.Colour")


def test_errors_of_admitted_classes_are_wrapped() -> None:
    allow_type(Quota)
    with pytest.raises(RestrictedUnpickleError, match=r"Quota cannot be rebuilt.*TypeError") as caught:
        restricted_loads(whole(reduce(stack_global(__name__, "Quota"), text("u"))))
    assert isinstance(caught.value.__cause__, TypeError)


def test_deep_named_tuples() -> None:
    """Their hash recurses like that of tuples, wherever their items come from."""
    allow_type(Pair)
    allow_type(Vector)
    pair = stack_global(__name__, "Pair") + b"\x940"
    refuse(whole(pair + b"N" + b"q\x050h\x00h\x05\x85\x81" * 2_000), "nested too deep")
    vector = stack_global(__name__, "Vector") + b"\x940"
    step = b"q\x050h\x00]h\x05a\x85\x81"
    refuse(whole(vector + b")" + step * 2_000), "nested too deep")


@dataclasses.dataclass(frozen=True)
class Node:
    left: object
    right: object


def test_trees_of_admitted_instances_as_keys() -> None:
    allow_type(Node)
    tree: object = 300
    for _ in range(60):
        tree = Node(tree, tree)
    body = unframed(pickle.dumps(tree))[2:-1]
    started = time.process_time()
    refuse(whole(b"}" + body + b"Ns"), "hashing")
    assert time.process_time() - started < 2


def test_extra_is_a_dict_of_classes() -> None:
    assert _core.restricted_loads(pickle.dumps(1), extra=None) == 1
    with pytest.raises(TypeError):
        _core.restricted_loads(pickle.dumps(1), extra=[Point])  # type: ignore[arg-type]
    with pytest.raises(RestrictedUnpickleError, match="did not resolve to a type"):
        _core.restricted_loads(pickle.dumps(Point(1)), extra={(__name__, "Point"): lambda: 0})
