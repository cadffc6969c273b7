"""The functions every participant calls. This folder holds nothing else, so it can go on any worker's import path."""


def add(a: int, b: int) -> int:
    return a + b


async def add_async(a: int, b: int) -> int:
    return a + b


def echo(value: object) -> object:
    return value
