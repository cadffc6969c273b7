"""Namespaces on the host: the public class, and what stands between a client's link and its handlers.

The link itself is C (`src/client/side.c`). Handlers run as tasks of their own on the client's loop, so none delays a
call; how many run and wait at once is bounded, since the sandbox decides how many events it sends.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ._failures import RuntimeUnreachable
from ._sio_names import check_name, check_size
from .runtime.shared.codec import pack, unpack

if TYPE_CHECKING:
    from ._core import ClientCore

__all__ = ["AsyncClientNamespace", "SideChannels", "request_handler"]

_log = logging.getLogger("agentix.sio")

# Kinds of agx_client_event_kind in src/client/session.h.
OPENED, CLOSED, EVENT, BATCH = range(4)

_SPACES_MAX = 250
_RUNNING_MAX = 256
_WAITING_MAX = 16384
# Events begun before others get their turn.
_TURN = 64
_WAITING_BYTES = 64 << 20
# Bytes: larger payloads are decoded in a thread.
_DECODE_HERE_MAX = 1 << 20
_WARNED_MAX = 1000
_EMIT_SECONDS = 300.0

_EVENT_MARK = "_agentix_event"


class AsyncClientNamespace:
    """The host's end of a namespace. Subclass it, set `namespace`, write `on_<event>(self, data)` methods.

    `on_connect` and `on_disconnect`, without data, tell that the link is up or gone. Register it with
    `Sandbox.register_namespace` before the first call.
    """

    namespace: ClassVar[str] | str = ""

    def __init__(self, namespace: str | None = None) -> None:
        if namespace is not None:
            self.namespace = namespace
        self._side: SideChannels | None = None

    async def emit(self, event: str, data: Any = None) -> None:
        """Send an event to the sandbox; it waits there until the namespace is open.

        Raises RuntimeError before the namespace is registered, `RuntimeUnreachable` if the link does not come,
        `FrameTooLarge`, a ValueError, if the packed data has more than 16 MiB, and what `agentix.runtime.shared.pack`
        raises.
        """
        if self._side is None:
            raise RuntimeError(f"register the namespace {self.namespace} with a sandbox or client before emit()")
        await self._side.emit(self.namespace, event, data)

    def _need_link(self, needed: bool) -> None:
        """While this is said the link is made again, however often it has failed, though there are no calls."""
        if self._side is not None:
            self._side.need_link(self.namespace, needed)


def request_handler(event: str) -> Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[None]]]:
    """Make a method answer the sandbox's `request(event, ...)`: it gets the bare body and returns the answer.

    An exception becomes the error that `request` raises in the sandbox as `RemoteSioError`.
    """

    def decorate(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[None]]:
        @functools.wraps(method)
        async def answer(self: Any, data: Any) -> None:
            if not isinstance(data, dict) or "request_id" not in data:
                _log.warning("%s: %r came without a request_id and cannot be answered", self.namespace, event)
                return
            body = cast("dict[Any, Any]", data)
            request_id = body["request_id"]
            try:
                value = await method(self, body.get("data"))
            except Exception as exc:
                error = {"type": type(exc).__name__, "message": str(exc)}
                await self.emit(f"{event}:error", {"request_id": request_id, "error": error})
                return
            try:
                await self.emit(f"{event}:result", {"request_id": request_id, "value": value})
            except (TypeError, ValueError, OverflowError) as exc:
                error = {"type": type(exc).__name__, "message": f"the answer cannot be sent: {exc}"}
                await self.emit(f"{event}:error", {"request_id": request_id, "error": error})

        setattr(answer, _EVENT_MARK, event)
        return answer

    return decorate


class _StockClient:
    """What a namespace object of another Socket.IO library takes for its client."""

    def __init__(self, side: SideChannels) -> None:
        self._side = side

    async def emit(
        self, event: str, data: Any = None, namespace: str | None = None, callback: object = None, **_more: object
    ) -> None:
        await self._side.emit(namespace or "/", event, data)

    async def send(self, data: Any, namespace: str | None = None, callback: object = None) -> None:
        await self._side.emit(namespace or "/", "message", data)


class SideChannels:
    """The namespaces of one client."""

    def __init__(self, shown: str) -> None:
        self.core: ClientCore | None = None
        self._shown = shown
        self._spaces: dict[str, Any] = {}
        self._marked: dict[str, dict[str, Callable[[Any], Any]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: deque[tuple[Any, str, bytes]] = deque()
        self._waiting_bytes = 0
        self._warned: set[tuple[str, str]] = set()
        self._overflow_told = False
        self._beginning = False
        self._needing: set[str] = set()

    def register(self, ns: Any) -> None:
        """Take a namespace object; see `RuntimeClient.register_namespace`."""
        assert self.core is not None
        name: Any = getattr(ns, "namespace", None)
        check_name(name)
        if name in self._spaces:
            raise ValueError(f"the namespace {name} is registered already")
        if len(self._spaces) >= _SPACES_MAX:
            raise ValueError(f"one client has at most {_SPACES_MAX} namespaces")
        if isinstance(ns, AsyncClientNamespace):
            ns._side = self  # pyright: ignore[reportPrivateUsage]
        elif callable(getattr(ns, "trigger_event", None)) and callable(getattr(ns, "_set_client", None)):
            ns._set_client(_StockClient(self))
        else:
            raise TypeError(f"{type(ns).__name__} is no namespace: subclass agentix.AsyncClientNamespace")
        self.core.join(name, False)
        self._spaces[name] = ns
        self._marked[name] = _marked_handlers(ns)

    def need_link(self, namespace: str, needed: bool) -> None:
        """A namespace needs the link, or does so no longer."""
        assert self.core is not None
        (self._needing.add if needed else self._needing.discard)(namespace)
        self.core.need_link(bool(self._needing))

    async def emit(self, namespace: str, event: str, data: Any) -> None:
        """Send an event, once there is room for it."""
        assert self.core is not None
        payload = pack(data)
        check_size(namespace, event, payload)
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + _EMIT_SECONDS, 0.001
        while outcome := self.core.emit(namespace, event, payload):
            if outcome == 2:
                raise ValueError(f"{namespace}: the event {event[:40]!r} is too large for a message")
            if outcome == 3 or loop.time() > deadline:
                why = "it offers no Socket.IO" if outcome == 3 else "the link does not come, or does not take more"
                raise RuntimeUnreachable(f"the runtime at {self._shown} takes no events: {why}")
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.1)

    # ---- what comes ----

    def hear(self, kind: int, namespace: str, event: str, payload: bytes) -> None:
        """Something happened on a namespace."""
        ns = self._spaces.get(namespace)
        if ns is None:
            return
        if kind == EVENT:
            self._take(ns, event, payload)
        else:
            self._start(self._tell(ns, "connect" if kind == OPENED else "disconnect"))

    def _take(self, ns: Any, event: str, payload: bytes) -> None:
        """Events wait in order for the one task that begins them; the server sends only so many ahead."""
        if len(self._waiting) >= _WAITING_MAX or self._waiting_bytes > _WAITING_BYTES:
            if not self._overflow_told:
                self._overflow_told = True
                _log.warning("%s: handlers are too slow for the events that come; events are dropped", ns.namespace)
            return
        self._waiting.append((ns, event, payload))
        self._waiting_bytes += len(payload)
        if not self._beginning:
            self._beginning = True
            self._start(self._begin_all())

    async def _begin_all(self) -> None:
        assert self.core is not None
        begun = 0
        try:
            while self._waiting:
                ns, event, payload = self._waiting.popleft()
                self._waiting_bytes -= len(payload)
                while len(self._tasks) > _RUNNING_MAX:
                    await asyncio.wait(self._tasks - {asyncio.current_task()}, return_when=asyncio.FIRST_COMPLETED)  # pyright: ignore[reportArgumentType]
                await self._begin(ns, event, payload)
                begun += 1
                if begun % _TURN == 0:
                    self.core.taken(_TURN)
                    await asyncio.sleep(0)
        finally:
            self._beginning = False
        self.core.taken(begun % _TURN)

    async def _begin(self, ns: Any, event: str, payload: bytes) -> None:
        """Decode one event and call its handler; what there is to await goes on in a task of its own."""
        try:
            if len(payload) > _DECODE_HERE_MAX:
                data = await asyncio.to_thread(unpack, payload)
            else:
                data = unpack(payload)
        except ValueError as exc:
            _log.warning("%s: an event %r of the sandbox was dropped: %s", ns.namespace, event[:100], exc)
            return
        try:
            value = self._call(ns, event, data)
        except Exception:
            _log.exception("%s: the handler of %r failed", ns.namespace, event[:100])
            return
        if inspect.isawaitable(value):
            self._start(_finish(ns, event, value))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _call(self, ns: Any, event: str, data: Any) -> Any:
        handler = self._marked[ns.namespace].get(event)
        if handler is None and not isinstance(ns, AsyncClientNamespace):
            return ns.trigger_event(event, data)
        handler = handler or getattr(ns, f"on_{event}", None)
        if not callable(handler):
            self._warn_of(ns.namespace, event)
            return None
        return handler(data)

    async def _tell(self, ns: Any, what: str) -> None:
        """That the link is up, or gone; who does not ask for it is not told."""
        try:
            if not isinstance(ns, AsyncClientNamespace):
                await ns.trigger_event(what, *(() if what == "connect" else ("transport close",)))
            elif callable(handler := getattr(ns, f"on_{what}", None)):
                value = handler(None) if _takes_data(handler) else handler()
                if inspect.isawaitable(value):
                    await value
        except Exception:
            _log.exception("%s: on_%s failed", ns.namespace, what)

    def _warn_of(self, namespace: str, event: str) -> None:
        if (namespace, event) not in self._warned and len(self._warned) < _WARNED_MAX:
            self._warned.add((namespace, event))
            _log.warning("no handler on namespace %s for event %r", namespace, event[:100])

    # ---- the end ----

    async def close(self) -> None:
        """End the handlers that still run."""
        self._waiting.clear()
        self._waiting_bytes = 0
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)


async def _finish(ns: Any, event: str, value: Awaitable[Any]) -> None:
    try:
        await value
    except Exception:
        _log.exception("%s: the handler of %r failed", ns.namespace, event[:100])


def _marked_handlers(ns: Any) -> dict[str, Callable[[Any], Any]]:
    """The methods that `request_handler` made, by event."""
    found: dict[str, Callable[[Any], Any]] = {}
    cls: Any = type(ns)  # pyright: ignore[reportUnknownVariableType]
    for name in dir(cls):
        event = getattr(getattr(cls, name, None), _EVENT_MARK, None)
        if isinstance(event, str):
            found[event] = getattr(ns, name)
    return found


def _takes_data(handler: Callable[..., Any]) -> bool:
    try:
        inspect.signature(handler).bind(None)
    except (TypeError, ValueError):
        return False
    return True


AsyncClientNamespace.__module__ = "agentix"
