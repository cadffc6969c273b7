"""Which client answers which path."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from ._types import ClientResponse, Handler

_MARK = "__abridge_path__"
_RAW = "__abridge_raw__"

Method = TypeVar("Method", bound=Callable[..., Awaitable[ClientResponse]])


def on(path: str) -> Callable[[Method], Method]:
    """Mark an async method of a client as the handler of POST requests to `path`.

    A subclass that overrides the method answers in its place, marked again or not. Raises ValueError for a path that
    does not start with `/`.
    """
    if not path.startswith("/"):
        raise ValueError(f"the path of a handler starts with '/': {path!r} does not")

    def mark(method: Method) -> Method:
        setattr(method, _MARK, path)
        return method

    return mark


def raw_handler(handler: Handler) -> Handler:
    """Mark a handler as one that takes any method and any body (`Request.raw`)."""
    setattr(handler, _RAW, True)
    return handler


def takes_raw(handler: Handler) -> bool:
    """Whether the handler takes any method and body; others get JSON objects only."""
    return bool(getattr(handler, _RAW, False))


def routes_of(clients: Iterable[Any]) -> dict[str, Handler]:
    """Return the handlers of `clients` by path, in order.

    Raises ValueError if there are no clients, one of them has no handlers, two handlers have one path, or a path does
    not start with `/`.
    """
    routes: dict[str, Handler] = {}
    clients = list(clients)
    if not clients:
        raise ValueError("no clients: pass at least one object with a method marked by @on(path)")
    for client in clients:
        own = list(_routes_of_one(client))
        if not own:
            raise ValueError(f"{type(client).__name__} has no handlers: mark a method with @on(path)")
        for path, handler in own:
            if not path.startswith("/"):
                raise ValueError(f"the path of a handler starts with '/': {path!r} of {type(client).__name__} does not")
            if path in routes:
                raise ValueError(f"two handlers for {path!r}; the second is of {type(client).__name__}")
            routes[path] = handler
    return routes


def _routes_of_one(client: Any) -> Iterable[tuple[str, Handler]]:
    for name, path in _marked(cast("type[Any]", type(client))).items():
        yield path, getattr(client, name)
    dynamic = getattr(client, "abridge_routes", None)
    if callable(dynamic):
        routes: Mapping[str, Handler] = dynamic()  # pyright: ignore[reportAssignmentType]
        yield from routes.items()


def _marked(cls: type) -> dict[str, str]:
    """Names of marked methods and their paths: bases first, each name where it first stood, with its last mark.

    An override keeps its base's path unless it is marked itself; one that is no function takes the handler away.
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            value = inspect.unwrap(value) if callable(value) else value
            path = getattr(value, _MARK, None)
            if path is not None:
                found[name] = path
            elif name in found and not callable(value):
                del found[name]
    return found
