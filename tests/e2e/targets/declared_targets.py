"""Functions whose return annotations name classes of their own; `from __future__` makes the annotations texts."""

from __future__ import annotations

import dataclasses
import enum
import os
import typing
from collections.abc import AsyncIterator, Iterator

import pydantic


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Line(typing.NamedTuple):
    start: Point
    end: Point
    colour: Colour


@dataclasses.dataclass(frozen=True)
class Drawing:
    lines: list[Line]
    names: dict[str, Point | None]


class Order(pydantic.BaseModel):
    number: int
    point: Point


class Foreign:
    pass


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (os.environ["AGX_TRAP"],)


def drawing(n: int) -> Drawing:
    line = Line(Point(0, 0), Point(n, n), Colour.BLUE)
    return Drawing([line] * n, {"a": Point(1, 2), "b": None})


async def line() -> Line:
    return Line(Point(0, 0), Point(1, 1), Colour.RED)


def order(number: int) -> Order:
    return Order(number=number, point=Point(1, 2))


def points(n: int) -> Iterator[Point]:
    for i in range(n):
        yield Point(i, -i)


async def lines(n: int) -> AsyncIterator[Line]:
    for i in range(n):
        yield Line(Point(i, i), Point(0, 0), Colour.RED)


def lies() -> Point:
    return typing.cast(Point, Foreign())


def trap() -> Point:
    return typing.cast(Point, Trap())


def says_nothing():  # type: ignore[no-untyped-def]
    return Point(1, 2)
