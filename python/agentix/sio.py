"""Namespaces inside the sandbox: events to the host and back, over the link that carries calls.

    class Progress(Namespace):
        namespace = "/my-plugin"

        async def on_pause(self, data): ...

    progress = Progress()
    register_namespace(progress)

    async def work():
        await progress.emit("step", {"done": 3})
        answer = await progress.request("fetch", {"key": "k"})

Handlers run on the worker's event loop. Data is what `agentix.runtime.shared.pack` takes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, cast

from . import _carrier
from ._failures import RemoteSioError
from ._sio_names import check_name, check_size
from .runtime.shared.codec import pack, unpack
from .utils._log_text import FORWARD

__all__ = ["Namespace", "RemoteSioError", "register_namespace"]

_log = logging.getLogger("agentix.sio")
# AGX_EMIT_WAIT_S in src/proto/limits.h.
_EMIT_WAIT_SECONDS = 5.0
_ANSWERS = (":result", ":error")

Handler = Callable[[Any], Any]


class Namespace:
    """The sandbox's end of a namespace. Subclass it, set `namespace`, write `on_<event>(self, data)` methods.

    Raises ValueError for a name that does not begin with "/", is too long, or is reserved.
    """

    namespace: ClassVar[str] | str = ""

    def __init__(self, namespace: str | None = None) -> None:
        if namespace is not None:
            self.namespace = namespace
        check_name(self.namespace)
        self._handlers: dict[str, list[Handler]] = {}
        self._tasks: set[asyncio.Future[Any]] = set()
        self._warned: set[str] = set()
        for name in dir(type(self)):
            if name.startswith("on_") and callable(getattr(self, name)):
                self.on(name[3:], getattr(self, name))

    async def emit(self, event: str, data: Any = None) -> None:
        """Send an event to every host that has joined; it waits for the first one if there is none yet.

        Waits a moment when hosts read too slowly; what they do not read for long is dropped, the oldest first. Raises
        RuntimeError outside a sandbox, `FrameTooLarge`, a ValueError, if the packed data has more than 16 MiB, and what
        `pack` raises.
        """
        carrier = _carrier.carrier
        if carrier is None:
            raise RuntimeError(f"{self.namespace}: there is no host: emit() works in a sandbox's worker only")
        payload = pack(data)
        check_size(self.namespace, event, payload)
        if carrier.stopped:
            await _until_flowing(carrier)
        carrier.emit(self.namespace, event, payload)

    async def request(self, event: str, data: Any = None, *, timeout: float = 300.0) -> Any:
        """Ask the host and return its answer.

        Raises `RemoteSioError` if the host's handler failed, TimeoutError if no answer comes within `timeout` seconds.
        """
        loop = asyncio.get_running_loop()
        request_id = os.urandom(16).hex()
        future: asyncio.Future[Any] = loop.create_future()
        _requests[request_id] = (self.namespace, event, loop, future)
        try:
            async with asyncio.timeout(timeout):
                await self.emit(event, {"request_id": request_id, "data": data})
                return await future
        except TimeoutError:
            if future.done() and not future.cancelled():
                raise
            raise TimeoutError(f"{self.namespace}: {event} was not answered within {timeout:g} s") from None
        finally:
            _requests.pop(request_id, None)

    def on(self, event: str, handler: Handler) -> None:
        """Call `handler(data)` for each such event, on the worker's loop; what it returns is awaited if it can be."""
        self._handlers.setdefault(event, []).append(handler)

    def off(self, event: str, handler: Handler) -> None:
        """Take a handler away. Raises ValueError if it is not there."""
        handlers = self._handlers.get(event, [])
        if handler not in handlers:
            raise ValueError(f"{self.namespace}: that is no handler of {event!r}")
        handlers.remove(handler)
        if not handlers:
            del self._handlers[event]

    def registered_handlers(self) -> dict[str, list[Handler]]:
        """Return the handlers by event."""
        return {event: list(handlers) for event, handlers in self._handlers.items()}

    def _trigger(self, event: str, data: Any) -> None:
        """On the loop: run the handlers of an event."""
        handlers = self._handlers.get(event)
        if not handlers:
            self._warn_of(event)
            return
        for handler in list(handlers):
            try:
                value = handler(data)
            except BaseException:  # noqa: BLE001 - SystemExit included: it must not end the loop
                self._say_failed(event)
                continue
            if asyncio.iscoroutine(value) or asyncio.isfuture(value) or hasattr(value, "__await__"):
                task = asyncio.ensure_future(self._finish(event, value))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _finish(self, event: str, value: Awaitable[Any]) -> None:
        try:
            await value
        except asyncio.CancelledError:
            raise
        except BaseException:  # noqa: BLE001
            self._say_failed(event)

    def _say_failed(self, event: str) -> None:
        """Log what a handler has raised; unlike other records of this logger it goes to the host."""
        _log.exception("%s: a handler of %r failed", self.namespace, event, extra={FORWARD: True})

    def _warn_of(self, event: str) -> None:
        if event in self._warned or len(self._warned) > 1000:
            return
        self._warned.add(event)
        known = ", ".join(sorted(self._handlers)) or "none"
        _log.warning("no handler on namespace %s for event %r; registered: %s", self.namespace, event, known)


_namespaces: dict[str, Namespace] = {}
_requests: dict[str, tuple[str, str, asyncio.AbstractEventLoop, asyncio.Future[Any]]] = {}
_registering = threading.Lock()


def register_namespace(ns: Namespace) -> None:
    """Open a namespace: its handlers hear what hosts emit, and what they emitted before it was open.

    Raises ValueError if the name cannot be, is reserved, or is registered already.
    """
    check_name(ns.namespace)
    with _registering:
        if ns.namespace in _namespaces:
            raise ValueError(f"the namespace {ns.namespace} is registered already")
        _namespaces[ns.namespace] = ns
        if _carrier.carrier is not None:
            _carrier.carrier.open(ns.namespace)


def open_all(carrier: _carrier.Carrier) -> None:
    """The process has become a worker."""
    with _registering:
        for name in _namespaces:
            carrier.open(name)


def deliver(loop_of: Callable[[], asyncio.AbstractEventLoop], namespace: str, event: str, data: bytes) -> None:
    """An event has come from a host; on any thread, one at a time."""
    try:
        body = unpack(data)
    except ValueError as exc:
        _log.warning("%s: an event %r of a host was dropped: %s", namespace, event, exc)
        return
    if event.endswith(_ANSWERS) and _answer(namespace, event, body):
        return
    ns = _namespaces.get(namespace)
    if ns is not None:
        loop_of().call_soon_threadsafe(ns._trigger, event, body)  # pyright: ignore[reportPrivateUsage]


def _answer(namespace: str, event: str, body: Any) -> bool:
    """The answer to a request: True if it is one, even to a request that nobody waits for any more."""
    request_id = _map(body).get("request_id")
    if not isinstance(request_id, str):
        return False
    name, _, kind = event.rpartition(":")
    known = _requests.get(request_id)
    if known is None or known[:2] != (namespace, name):
        return True
    _, _, loop, future = known
    if not loop.is_closed():
        loop.call_soon_threadsafe(_settle, future, kind, _map(body))
    return True


def _map(value: Any) -> dict[Any, Any]:
    """The value, if it is a map, or an empty one."""
    return cast("dict[Any, Any]", value) if isinstance(value, dict) else {}


def _settle(future: asyncio.Future[Any], kind: str, body: dict[Any, Any]) -> None:
    if future.done():
        return
    if kind == "result":
        future.set_result(body.get("value"))
        return
    error = _map(body.get("error"))
    status = error.get("status_code")
    future.set_exception(
        RemoteSioError(
            str(error.get("type", "Error")),
            str(error.get("message", "")),
            status if isinstance(status, int) and not isinstance(status, bool) else None,
        )
    )


async def _until_flowing(carrier: _carrier.Carrier) -> None:
    deadline = asyncio.get_running_loop().time() + _EMIT_WAIT_SECONDS
    while carrier.stopped and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - set on another thread
        await asyncio.sleep(0.005)


Namespace.__module__ = "agentix"
