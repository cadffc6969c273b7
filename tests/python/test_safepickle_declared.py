"""Classes that a function's return annotation admits: which ones, and that none of their own code runs."""

import collections
import dataclasses
import enum
import functools
import pickle
import sys
import typing
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar

import pydantic
import pytest
from pickle_asm import MARKER, reduce, stack_global, text, whole

from agentix import RestrictedUnpickleError
from agentix._declared import plans_of
from agentix.runtime.shared import safepickle
from agentix.runtime.shared.safepickle import ReturnLoader, allow_type

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


@pytest.fixture(autouse=True)
def no_admitted_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safepickle, "_allowed", {})
    monkeypatch.delenv("AGENTIX_PICKLE_TRUST", raising=False)


def returning(annotation: Any) -> ReturnLoader:
    def target() -> None:
        pass

    target.__annotations__["return"] = annotation
    return ReturnLoader(target)


def refuse(load: ReturnLoader, data: bytes, *words: str) -> str:
    with pytest.raises(RestrictedUnpickleError) as caught:
        load(data)
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)


# ---- what is admitted ----

T = TypeVar("T")


@dataclasses.dataclass
class Point:
    x: int
    y: list[int] = dataclasses.field(default_factory=list)
    scale: ClassVar[int] = 3

    @dataclasses.dataclass
    class Inner:
        a: int = 1


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Frozen:
    x: int
    y: str = "a"


@dataclasses.dataclass(slots=True)
class Slotted:
    x: int
    y: Any = None


@dataclasses.dataclass(unsafe_hash=True)
class Hashed(Point):
    z: int = 0


@dataclasses.dataclass
class Late:
    x: int
    y: int = dataclasses.field(init=False)
    z: int = dataclasses.field(init=False, default=5)


@dataclasses.dataclass
class Nothing:
    pass


class Pair(NamedTuple):
    left: Any
    right: Any = None


Old = collections.namedtuple("Old", "a b")  # noqa: PYI024


class Sub(Old):
    __slots__ = ()

    def both(self) -> int:
        return int(self.a + self.b)


class Colour(enum.Enum):
    RED = 1
    BLUE = "blue"
    LIST = [1, 2]  # noqa: RUF012


class Word(str, enum.Enum):  # noqa: UP042
    HI = "hi"


class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Tree:
    value: "Frozen | None"
    children: "list[Tree]"
    extra: dict[str, tuple[Colour, ...]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


class Item(pydantic.BaseModel):
    name: str
    size: int = 1


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    items: list[Item]
    point: Point | None = None
    price: float = pydantic.Field(default=0.0, alias="thePrice")
    _seen: int = pydantic.PrivateAttr(default=0)


class Names(pydantic.RootModel[list[str]]):
    pass


class Record(TypedDict):
    point: Point
    colour: Colour


Number = NewType("Number", Frozen)
BoundT = TypeVar("BoundT", bound=Pair)


def late() -> Late:
    value = Late(1)
    value.y = 2
    return value


VALUES: list[tuple[Any, Any]] = [
    (Point, Point(1, [2])),
    (Point.Inner, Point.Inner(4)),
    (Frozen, Frozen(1, "b")),
    (Slotted, Slotted(1, {"a": [None]})),
    (Hashed, Hashed(1, [2], 3)),
    (Late, late()),
    (Nothing, Nothing()),
    (Pair, Pair(1, (2, Ellipsis))),
    (Old, Old(1, 2)),
    (Sub, Sub(3, 4)),
    (Colour, [*Colour]),
    (Word, [Word.HI]),
    (Level, [Level.LOW, Level.HIGH, Level.LOW | Level.HIGH, Level(0)]),
    (Tree, Tree(Frozen(1), [Tree(None, [], {"a": (Colour.RED,)})])),
    (Box[Point], Box(Point(1))),
    (Box[list[Pair]], Box([Pair(1)])),
    (Item, Item(name="a")),
    (Order, Order(items=[Item(name="a", size=2)], point=Point(1), thePrice=1.5, more=[1])),
    (Names, Names(["a"])),
    (list[Point], [Point(1)]),
    (dict[str, Point], {"a": Point(1)}),
    (tuple[Frozen, ...], (Frozen(1), Frozen(2))),
    (set[Frozen], {Frozen(1)}),
    (Optional[Point], Point(1)),  # noqa: UP045
    (Point | Pair | None, [Point(1), Pair(1)]),
    (typing.Union["Point", "list[Pair]"], [Point(1), [Pair(1)]]),  # noqa: UP007
    ("Point", Point(1)),
    ("list[Point] | None", [Point(1)]),
    (list["Point"], [Point(1)]),  # noqa: UP037
    (Annotated[Point, "a"], Point(1)),
    (Literal[Colour.RED], Colour.RED),
    (Number, Frozen(1)),
    (BoundT, Pair(1)),
    (Record, {"point": Point(1), "colour": Colour.RED}),
    (Iterator[Point], Point(1)),
    (AsyncIterator[Point], Point(1)),
    (Generator[Point, None, Pair], [Point(1), Pair(1)]),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("annotation", "value"), VALUES, ids=lambda x: str(x)[:40])
def test_admitted(annotation: Any, value: Any, protocol: int) -> None:
    load = returning(annotation)
    got = load(pickle.dumps(value, 4 if annotation is Point.Inner else protocol))  # before, by getattr
    assert got == value
    assert type(got) is type(value)
    assert repr(got) == repr(value)
    if isinstance(value, set | Frozen):
        assert hash(frozenset([got]) if isinstance(got, Frozen) else frozenset(got))
    refuse(returning(int), pickle.dumps(value, protocol), "allowlist", "allow_type", "AGENTIX_PICKLE_TRUST")


def test_sharing_and_cycles() -> None:
    tree = Tree(None, [])
    tree.children += [tree, tree]
    got = returning(Tree)(pickle.dumps(tree))
    assert got.children[0] is got.children[1] is got
    one, two = returning(list[Order])(pickle.dumps([Order(items=[])] * 2))
    assert one is two


def test_models_are_validated() -> None:
    order = Order(items=[Item(name="a")])
    order.items[0].__dict__["size"] = "three"
    refuse(returning(Order), pickle.dumps(order), "Item cannot be rebuilt", "ValidationError")
    kept = Item(name="a")
    got = returning(Item)(pickle.dumps(kept))
    assert got.model_fields_set == {"name"}
    assert got.model_dump(exclude_unset=True) == {"name": "a"}


def test_annotations_of_functions() -> None:
    def outer(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def inner(*args: Any) -> Any:
            return fn(*args)

        return inner

    @outer
    def wrapped() -> "Point":
        return Point(1)

    assert ReturnLoader(wrapped)(pickle.dumps(Point(1))) == Point(1)
    assert plans_of(wrapped) is plans_of(wrapped)
    assert plans_of(len) == {}
    allow_type(Pair)
    assert ReturnLoader(len)(pickle.dumps(Pair(1))) == Pair(1)


@pytest.mark.parametrize(
    "annotation",
    [
        None,
        Any,
        "Unknown",
        "list[Unknown] | Point",
        "not an annotation",
        "1/0",
        ")",
        "'\"Point\"'",
        5,
        [Point],
        type[Point],
        Callable[..., Point],
        object(),
        list,
        T,
        Exception,
    ],
    ids=str,
)
def test_what_an_annotation_does_not_say(annotation: Any) -> None:
    load = returning(annotation)
    if annotation != "'\"Point\"'":  # a text in a text is one
        refuse(load, pickle.dumps(Point(1)), "Point", "allowlist")
    assert load(pickle.dumps([1])) == [1]


# ---- classes with code of their own ----


def fail(*args: Any, **kwargs: Any) -> Any:
    pytest.fail("called")


@dataclasses.dataclass
class Post:
    x: int

    def __post_init__(self) -> None:
        pass


@dataclasses.dataclass
class New:
    x: int

    def __new__(cls, *args: Any) -> "New":
        return super().__new__(cls)


@dataclasses.dataclass
class Setting:
    x: int

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)


@dataclasses.dataclass
class Stated:
    x: int

    def __setstate__(self, state: Any) -> None:
        pass


@dataclasses.dataclass
class Reduced:
    x: int

    def __reduce__(self) -> Any:
        return Reduced, (1,)


@dataclasses.dataclass
class ReducedEx:
    x: int

    def __reduce_ex__(self, protocol: Any) -> Any:
        return ReducedEx, (1,)


@dataclasses.dataclass(frozen=True)
class OwnHash:
    x: int

    def __hash__(self) -> int:
        return 1


@dataclasses.dataclass(frozen=True)
class OwnEq:
    x: int

    def __eq__(self, other: object) -> bool:
        return True


@dataclasses.dataclass
class Dying:
    x: int

    def __del__(self) -> None:
        pass


@dataclasses.dataclass
class Inherits(Stated):
    y: int = 1


class PostBase:
    def __post_init__(self) -> None:
        pass


@dataclasses.dataclass
class InheritsPost(PostBase):
    x: int


@dataclasses.dataclass
class Error(Exception):
    x: int


class NotDecorated(Point):
    pass


class Plain:
    def __init__(self) -> None:
        self.x = 1


class OddPair(Pair):
    def __new__(cls, *args: Any) -> "OddPair":
        return super().__new__(cls, *args)


class HashPair(Pair):
    def __hash__(self) -> int:
        return 1


FOREIGN = [
    (Post(1), "__post_init__"),
    (New(1), "__new__"),
    (Setting(1), "__setattr__"),
    (Stated(1), "__setstate__"),
    (Reduced(1), "__reduce__"),
    (ReducedEx(1), "__reduce_ex__"),
    (OwnHash(1), "__hash__"),
    (OwnEq(1), "__eq__"),
    (Dying(1), "__del__"),
    (Inherits(1), "__setstate__"),
    (InheritsPost(1), "__post_init__"),
    (Error(1), "__"),
    (NotDecorated(1), "no dataclass"),
    (Plain(), "no dataclass"),
    (OddPair(1), "__new__"),
    (HashPair(1), "__hash__"),
]


@pytest.mark.parametrize(("value", "why"), FOREIGN, ids=lambda x: x if isinstance(x, str) else type(x).__name__)
def test_code_of_their_own_needs_allow_type(value: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load = returning(list[type(value)])  # type: ignore[misc]
    data = pickle.dumps([value])
    message = refuse(load, data, f"{__name__}.{type(value).__name__}", "declared", why, "allow_type", "allowlist")
    assert "AGENTIX_PICKLE_TRUST" in message
    allow_type(type(value))
    assert type(load(data)[0]) is type(value)


def test_no_code_of_a_plain_class_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the class says when its plan is made counts; what it has later does not run either."""
    load = returning(list[Point | Pair | Colour | Frozen])  # type: ignore[valid-type]
    values = [Point(1), Pair(1), Colour.RED, Frozen(1)]
    data = pickle.dumps(values)
    load(data)
    for cls in (Point, Frozen):
        for name in ("__init__", "__setattr__", "__delattr__", "__setstate__", "__getattribute__"):
            monkeypatch.setattr(cls, name, fail, raising=False)
    for name in ("__init__", "__new__"):
        monkeypatch.setattr(Pair, name, fail)
    monkeypatch.setattr(enum.EnumMeta, "__call__", fail)
    got = load(data)
    monkeypatch.undo()
    assert got == values


# ---- hostile streams ----

POINT = stack_global(__name__, "Point") + b")\x81"


def state(**fields: bytes) -> bytes:
    return b"}(" + b"".join(text(name) + value for name, value in fields.items()) + b"u"


HOSTILE: dict[str, tuple[Any, bytes]] = {
    "no state": (Point, POINT),
    "a state with less": (Point, POINT + state(x=b"K\x01") + b"b"),
    "a state with more": (Point, POINT + state(x=b"K\x01", y=b"]", z=b"K\x01") + b"b"),
    "a class variable": (Point, POINT + state(x=b"K\x01", y=b"]", scale=b"K\x01") + b"b"),
    "the class": (Point, POINT + state(x=b"K\x01", y=b"]", __class__=stack_global("builtins", "int")) + b"b"),
    "the dict": (Point, POINT + state(x=b"K\x01", y=b"]", __dict__=b"}") + b"b"),
    "a method": (Point, POINT + state(x=b"K\x01", y=b"]", __init__=b"N") + b"b"),
    "a state twice": (Point, POINT + (state(x=b"K\x01", y=b"]") + b"b") * 2),
    "one of two without": (
        Point,
        b"]" + POINT + b"\x94" + (state(x=b"K\x01", y=b"]") + b"b") + b"a" + POINT + b"a",
    ),
    "dropped without": (Point, POINT + b"0N"),
    "a name that is a number": (Point, POINT + b"}(K\x01K\x02" + text("x") + b"N" + text("y") + b"Nub"),
    "slots and dict overlap": (Point, POINT + state(x=b"N") + state(x=b"N") + b"\x86b"),
    "a list that is short": (Point, POINT + b"](K\x01eb"),
    "a list that is long": (Point, POINT + b"](K\x01K\x02K\x03eb"),
    "a tuple of three": (Point, POINT + b"NNN\x87b"),
    "slots that are none": (Point, POINT + b"NK\x01\x86b"),
    "state is None": (Point, POINT + b"Nb"),
    "arguments": (Point, stack_global(__name__, "Point") + b"K\x01\x85\x81"),
    "a call": (Point, reduce(stack_global(__name__, "Point"), b"K\x01", b"]")),
    "keywords": (Point, stack_global(__name__, "Point") + b")}\x92"),
    "state for the class": (Point, stack_global(__name__, "Point") + MARKER + b"b"),
    "items for an instance": (Point, POINT + state(x=b"N", y=b"N") + b"bK\x01a"),
    "pairs for an instance": (Point, POINT + state(x=b"N", y=b"N") + b"bK\x01K\x01s"),
    "elements for an instance": (Point, POINT + state(x=b"N", y=b"N") + b"b(K\x01\x90"),
    "another class": (Point, stack_global(__name__, "Frozen") + b")\x81"),
    "a name inside the class": (Point, stack_global(__name__, "Point.__init__")),
    "a class inside the class": (Point, stack_global(__name__, "Point.Inner") + b")\x81"),
    "a module of the class": (Point, stack_global(__name__, "sys.modules")),
    "old call": (Point, b"(K\x01]i" + __name__.encode() + b"\nPoint\n"),
    "hash before fields": (Frozen, b"}" + stack_global(__name__, "Frozen") + b")\x81Ns"),
    "frozen, again": (
        Frozen,
        stack_global(__name__, "Frozen") + b")\x81\x94" + (b"](K\x01K\x02e" + b"b") * 2,
    ),
    "too few items": (Pair, stack_global(__name__, "Pair") + b"K\x01\x85\x81"),
    "too many items": (Pair, stack_global(__name__, "Pair") + b"K\x01K\x01K\x01\x87\x81"),
    "a call of a tuple": (Pair, reduce(stack_global(__name__, "Pair"), b"K\x01")),
    "state of a tuple": (Pair, stack_global(__name__, "Pair") + b"NN\x86\x81" + MARKER + b"b"),
    "no member": (Colour, reduce(stack_global(__name__, "Colour"), b"K\x07")),
    "a member's name": (Colour, reduce(stack_global(__name__, "Colour"), text("RED"))),
    "two values": (Colour, reduce(stack_global(__name__, "Colour"), b"K\x01", b"K\x01")),
    "a new member": (Colour, stack_global(__name__, "Colour") + b")\x81"),
    "a new class of members": (Colour, reduce(stack_global(__name__, "Colour"), text("Other"), text("A B"))),
    "state of a member": (Colour, reduce(stack_global(__name__, "Colour"), b"K\x01") + MARKER + b"b"),
    "a flag of no name": (Level, reduce(stack_global(__name__, "Level"), b"K\x08")),
    "a negative flag": (Level, reduce(stack_global(__name__, "Level"), b"J\xff\xff\xff\xff")),
    "a model without a state": (Item, stack_global(__name__, "Item") + b")\x81"),
    "a model of nothing": (Item, stack_global(__name__, "Item") + b")\x81}b"),
    "a model of a number": (Item, stack_global(__name__, "Item") + b")\x81K\x01b"),
    "a model of a wrong type": (
        Item,
        stack_global(__name__, "Item") + b")\x81" + state(__dict__=state(name=b"K\x01")) + b"b",
    ),
    "a model of itself": (
        Item,
        stack_global(__name__, "Item") + b")\x81\x94" + state(__dict__=state(name=b"h\x00")) + b"b",
    ),
    "a tree of tuples as a member": (
        Colour,
        reduce(stack_global(__name__, "Colour"), b"I300\n" + b"2\x86" * 64),
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name: str) -> None:
    annotation, body = HOSTILE[name]
    before = {cls: set(vars(cls)) for cls in (Point, Pair, Colour, Level, Item, Frozen)}
    members = list(Colour), dict(Colour._value2member_map_)
    refuse(returning(annotation), whole(body))
    assert before == {cls: set(vars(cls)) for cls in before}
    assert members == (list(Colour), dict(Colour._value2member_map_))
    assert not hasattr(Colour.RED, "agx_marker")


def test_many_flags_are_named_only() -> None:
    Wide = enum.IntFlag("Wide", {f"B{i}": 1 << i for i in range(11)}, module=__name__)  # noqa: N806
    load = returning(Wide)
    assert load(whole(reduce(stack_global(__name__, "Wide"), b"M\x00\x04"))) is Wide.B10
    known = len(Wide._value2member_map_)
    refuse(load, whole(reduce(stack_global(__name__, "Wide"), b"K\x03")), "no member")
    assert len(Wide._value2member_map_) == known


def test_properties_are_no_fields() -> None:
    @dataclasses.dataclass
    class Sly:
        x: int

    Sly.x = property(fail, fail)  # type: ignore[assignment]
    Sly.__qualname__ = "Sly"
    refuse(returning(Sly), whole(stack_global(__name__, "Sly") + b")\x81" + state(x=b"N") + b"b"), "property")


def test_the_class_object_counts_not_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    load = returning(Point)
    data, original = pickle.dumps(Point(1)), Point
    monkeypatch.setattr(sys.modules[__name__], "Point", fail)
    assert load(data) == original(1)


def test_deep_declared_tuples_have_a_bound() -> None:
    load = returning(Pair)
    refuse(load, whole(stack_global(__name__, "Pair") + b"\x940NN\x86" + b"q\x050h\x00h\x05N\x86\x81" * 2_000))


def test_annotations_run_nothing_of_the_sandbox_and_never_fail() -> None:
    class Odd:
        __annotations__: ClassVar[dict[str, Any]] = {}

        def __call__(self) -> None: ...

        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    assert plans_of(Odd()) == {}
