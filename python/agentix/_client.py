"""`RuntimeClient`: calls into a runtime whose URL is known.

The session itself (call ids, connections, retries, deadlines) is C: `agentix._core.ClientCore`, over
`src/client/session.h`. Here are the public class, the mapping of outcomes to exceptions, and what only Python can do:
resolving names, TLS, pickling.
"""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

from . import _address, _loops
from ._core import ClientCore, RemoteCall
from ._failures import (
    CallTimeout,
    RemoteCallError,
    RemoteError,
    RestrictedUnpickleError,
    RuntimeUnreachable,
    failure_from,
)
from ._feeds import Feeds
from ._namespaces import AsyncClientNamespace, SideChannels
from ._result import Failed, Ok, Result
from ._stream import DECODE_HERE_MAX, RemoteStream, decode
from .provider import _checks
from .runtime.shared.safepickle import ReturnLoader, restricted_loads

if TYPE_CHECKING:
    import ssl as _ssl

    from ._core import Pending

__all__ = ["HealthResponse", "RemoteCall", "RuntimeClient"]

P = ParamSpec("P")
R = TypeVar("R")

_LOOKUP_SECONDS = 30.0
_GRACE_MAX_SECONDS = 1e6
# So many times 5 ms close() waits for cancels to leave.
_CANCELS_TURNS = 100


@dataclass(frozen=True)
class HealthResponse:
    """What `GET /health` says: "ok", the version of Agentix, and a name that changes with every start of the server."""

    status: str
    version: str
    instance: str | None = None


async def _items_of(call: Awaitable[Any]) -> AsyncIterator[Any]:
    stream = await call
    if not isinstance(stream, RemoteStream):
        raise TypeError(f"the target returned a value of type {type(stream).__name__}, not a stream: await the call")
    try:
        async for item in stream:
            yield item
    finally:
        await stream.aclose()


def _kept(**options: Any) -> Callable[[], dict[str, Any]]:
    """Keep options, the token among them, where no repr of the client's attributes shows them."""
    return lambda: options


class RuntimeClient:
    """Calls functions in the sandbox whose runtime listens at `base_url`.

    `base_url` is `http://host:port`, `https://host:port` or `http+unix://%2Fpath%2Fto%2Fsocket`. The connection is made
    by the first call, or by `async with`. All times are in seconds:

    - `timeout` bounds each HTTP request, not a call.
    - `call_deadline` bounds each call once there is a connection, the start of the worker included; None: no bound.
    - `http_sync_ms` (milliseconds) is how long a call may take to be answered by HTTP, which is the quickest way. A
      longer one is awaited on a Socket.IO connection, which is opened then; with None every call goes over that one.
      A server that offers none is asked again by HTTP.
    - `cancel_grace` is how long a cancelled target may take to end before its worker is retired.
    - `reconnection` says whether lost connections are made anew (they are), `reconnection_attempts` how often in a row
      (0: without end), `reconnection_delay` how long after the first failure, growing up to `reconnection_delay_max`,
      each varied by the fraction `randomization_factor`.

    `token` is the sandbox's, by default what the file named by AGENTIX_CLIENT_TOKEN_FILE holds; it is sent only to a
    server that has proved to know it, or over https. `headers` go with every request, the one for that proof included.
    `ssl` is for https only.

    A client belongs to the event loop that uses it; once that has ended, the next one may. Raises ValueError or
    TypeError for arguments that cannot be.
    """

    _fast: ClassVar[bool] = True  # whether to ask for the fast wire

    def __init__(
        self,
        base_url: str,
        timeout: float = 300,
        *,
        http_sync_ms: int | None = 1000,
        call_deadline: float | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        ssl: "_ssl.SSLContext | None" = None,
        cancel_grace: float = 5.0,
        reconnection: bool | None = None,
        reconnection_attempts: int | None = None,
        reconnection_delay: float | None = None,
        reconnection_delay_max: float | None = None,
        randomization_factor: float | None = None,
    ) -> None:
        _checks.timing(call_deadline, timeout, http_sync_ms)
        _address.not_negative("cancel_grace", cancel_grace)
        address = _address.parse(base_url)
        if ssl is not None and not address.secure:
            raise ValueError("ssl is for https:// URLs only")
        knobs = _address.reconnection(
            reconnection, reconnection_attempts, reconnection_delay, reconnection_delay_max, randomization_factor
        )
        self._base_url = address.shown
        self._shell = _Shell(address, call_deadline, ssl)
        self._core = self._shell.core = ClientCore(
            self._shell,
            unix_path=address.unix_path,
            host=address.host,
            port=address.port,
            authority=address.authority,
            prefix=address.prefix,
            headers=_address.header_lines(headers),
            token=_address.token(token),
            secure=address.secure,
            timeout=float(timeout),
            http_sync=-1.0 if http_sync_ms is None else float(http_sync_ms),
            grace=min(float(cancel_grace), _GRACE_MAX_SECONDS),
            deadline=-1.0 if call_deadline is None else float(call_deadline),
            load_here=DECODE_HERE_MAX,
            fast=self._fast,
            **knobs,
        )
        self._conduit = _kept(  # a conduit's own connection says the same
            host=address.authority,
            prefix=address.prefix,
            headers=_address.header_lines(headers),
            token=_address.token(token),
            secure=address.secure,
        )
        self._remote = self._core.remote
        self._shell.side.core = self._core
        self._shell.feeds.begin(self._core)

    def __repr__(self) -> str:
        return f"<RuntimeClient of {self._base_url}{', closed' if self._core.closed else ''}>"

    def remote(
        self, fn: Callable[P, Awaitable[R]] | Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> RemoteCall[R]:
        """Call `fn(*args, **kwargs)` in the sandbox, which begins when the result is awaited; gives what `fn` returns.

        Raises at once TypeError if `fn` is not an importable function, and the plain pickling error if an argument
        cannot be pickled. Awaiting raises `RemoteCallError` if `fn` failed, `CallTimeout`, `RuntimeUnreachable`, or
        `RestrictedUnpickleError` if the value is of a kind that is not taken from a sandbox.
        """
        return self._remote(fn, args, kwargs)

    async def try_remote(
        self, fn: Callable[P, Awaitable[R]] | Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Result[R]:
        """Do as `remote`, but return `Ok(value)` or `Failed(error)`; bad targets, arguments and cancellation raise."""
        call: RemoteCall[R] = self.remote(fn, *args, **kwargs)
        try:
            return Ok(await call)
        except (RemoteCallError, CallTimeout, RuntimeUnreachable, RestrictedUnpickleError) as exc:
            return Failed(exc)

    async def health(self) -> HealthResponse:
        """Ask the runtime how it is. Raises `RuntimeUnreachable` if it does not answer."""
        self._must_be_open()
        return HealthResponse(*await self._core.health())

    def register_namespace(self, ns: AsyncClientNamespace) -> None:
        """Join a namespace of the sandbox's, on every connection. Also takes a stock `socketio.AsyncClientNamespace`.

        Raises RuntimeError once the client has been used, ValueError for a name that cannot be, is reserved, or is
        registered already, TypeError for something else than a namespace.
        """
        if self._core.bound:
            raise RuntimeError(f"register the namespace {getattr(ns, 'namespace', ns)!r} before the first call")
        self._shell.side.register(ns)

    async def close(self) -> None:
        """Close all connections; calls in flight fail with `RuntimeUnreachable`. A second call does nothing.

        What the sandbox has written so far is waited for, two seconds at most.
        """
        self._core.closed = True
        try:
            await self._shell.feeds.finish()
            await self._shell.say_cancels()
            await self._shell.side.close()
        finally:
            self._shell.feeds.silent = True
            self._core.close("the client was closed")
        await self._shell.settle()

    async def __aenter__(self) -> "RuntimeClient":
        self._core.closed = False
        self._shell.feeds.silent = False
        await self._core.connect()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _open_conduit(self, name: str) -> socket.socket | None:
        """Return a connection of which the worker has the other end, under this name; for plugins.

        None if there can be none: over https, or as the runtime says. Raises OSError if it cannot be made just now.
        """
        self._must_be_open()
        if self._shell.secure:
            return None
        from ._conduit import open_conduit

        return await open_conduit(self._shell.open_plain, name, self._conduit())

    def _must_be_open(self) -> None:
        if self._core.closed:
            raise self._shell.refusal()


RuntimeClient.__module__ = "agentix"


class _Shell:
    """What the core asks of Python: connections it cannot make itself, values, and exceptions."""

    core: ClientCore

    def __init__(self, address: "_address.Address", call_deadline: float | None, ssl: "_ssl.SSLContext | None") -> None:
        self._address = address
        self.secure = address.secure
        self._call_deadline = call_deadline
        self._ssl = ssl
        self._opening: dict[int, asyncio.Task[None]] = {}
        self.side = SideChannels(address.shown)
        self.feeds = Feeds(address)
        self._lookup: tuple[asyncio.AbstractEventLoop, float, asyncio.Future[Any]] | None = None
        self._transports = 0

    # ---- called by the core ----

    def stream(self, pending: "Pending") -> RemoteStream:
        """Return what takes the items of a call that turned out to be a stream, and goes on as `pending`."""
        return RemoteStream(pending, restricted_loads)

    def fail(self, kind: str, name: str | None, detail: Any) -> Exception:
        """Return the exception for an outcome; `detail` is the error's six fields, a text, or None."""
        if kind == "fault":
            return failure_from(name or "", RemoteError(*detail))
        if kind == "deadline":
            return CallTimeout(f"{name} exceeded deadline of {self._call_deadline}s")
        return RuntimeUnreachable(f"the runtime at {self._address.shown} is not reachable: {detail}")

    def refusal(self) -> RuntimeUnreachable:
        """Return the exception for a call of a client that is closed."""
        return RuntimeUnreachable(f"the client of {self._address.shown} is closed")

    def load(self, value: Any, fn: Callable[..., Any]) -> Any:
        """Return what a call of `fn` gives: its value, from the pickle that came, or a stream."""
        if type(value) is RemoteStream:
            value.load = ReturnLoader(fn)
            return value
        if not value:  # an end and nothing before it: a stream without items
            return RemoteStream(None, restricted_loads)
        return ReturnLoader(fn)(value)

    async def load_large(self, value: Any, fn: Callable[..., Any]) -> Any:
        """Do the same for a pickle that takes long, without holding the event loop up."""
        return await decode(value, ReturnLoader(fn))

    items_of = staticmethod(_items_of)
    inside = staticmethod(_loops.inside)

    def origin(self, depth: int) -> "list[tuple[str, int, str]]":
        """Return where `remote` was called: file, line and function of the last `depth` frames."""
        found: list[tuple[str, int, str]] = []
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        while frame is not None and len(found) < depth:
            found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
        return found[::-1]

    def never_awaited(self, origin: "list[tuple[str, int, str]]") -> None:
        """Warn of a call that was made there and never begun, as the interpreter does of its own coroutines."""
        import linecache
        import traceback
        import warnings

        frames = traceback.format_list(
            [(file, line, name, linecache.getline(file, line)) for file, line, name in origin]
        )
        text = "coroutine 'RuntimeClient.remote' was never awaited\nCoroutine created at (most recent call last)\n"
        warnings.warn((text + "".join(frames)).rstrip("\n"), RuntimeWarning, stacklevel=2)

    def open(self, serial: int) -> None:
        """Begin to open a connection; its end is `core.opened` or `core.lost`."""
        task = asyncio.get_running_loop().create_task(self._open(serial))
        self._opening[serial] = task
        task.add_done_callback(lambda _: self._opening.pop(serial, None))

    def cancel(self, serial: int) -> None:
        """A connection is not wanted any more."""
        task = self._opening.pop(serial, None)
        if task is not None and not task.get_loop().is_closed():
            task.cancel()

    def hear(self, kind: int, namespace: str, event: str, payload: bytes, skip: int, last: int, lost: int) -> None:
        """Something came on a side channel."""
        if not self.feeds.hear(kind, namespace, event, payload, skip, last, lost):
            self.side.hear(kind, namespace, event, payload)

    # ---- opening ----

    async def _open(self, serial: int) -> None:
        try:
            what = await (self._open_secure(serial) if self.secure else self.open_plain())
        except (OSError, ValueError) as exc:  # ValueError: a name that no resolver takes
            self.core.lost(serial, _reason(exc))
            return
        if not self.core.opened(serial, what):
            if isinstance(what, int):
                os.close(what)
            else:
                what.abort()

    async def open_plain(self) -> int:
        """Return the descriptor of a new connection."""
        loop = asyncio.get_running_loop()
        failure: OSError | None = None
        for family, kind, proto, _, where in await self._look_up(loop):
            sock = socket.socket(family, kind, proto)
            try:
                sock.setblocking(False)
                await loop.sock_connect(sock, where)
                return sock.detach()
            except OSError as exc:
                failure = exc
            finally:
                sock.close()  # nothing is left in it once it is detached
        raise failure or OSError(f"no address for {self._address.host}")

    async def _look_up(self, loop: asyncio.AbstractEventLoop) -> Any:
        """Resolve the host, once for all connections that are opened within a while."""
        known = self._lookup
        if known is None or known[0] is not loop or known[1] < loop.time() or _failed(known[2]):
            answer = asyncio.ensure_future(
                loop.getaddrinfo(self._address.host, self._address.port, type=socket.SOCK_STREAM)
            )
            self._lookup = known = (loop, loop.time() + _LOOKUP_SECONDS, answer)
        return await asyncio.shield(known[2])

    async def _open_secure(self, serial: int) -> asyncio.Transport:
        if self._ssl is None:
            import ssl

            self._ssl = ssl.create_default_context()
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: _Feed(self, serial), self._address.host or "", self._address.port, ssl=self._ssl
        )
        return transport

    # ---- closing ----

    async def say_cancels(self) -> None:
        """Wait a moment for cancels that have no connection yet."""
        for _ in range(_CANCELS_TURNS):
            if not self.core.counts()["cancels"]:
                return
            await asyncio.sleep(0.005)

    async def settle(self) -> None:
        """Let transports that were aborted say their last."""
        for _ in range(10):
            if not self._transports:
                return
            await asyncio.sleep(0)

    def counted(self, change: int) -> None:
        self._transports += change


class _Feed(asyncio.BufferedProtocol):
    """Hands what a TLS transport receives to the core, and the transport's backpressure too."""

    def __init__(self, shell: _Shell, serial: int) -> None:
        self._shell = shell
        self._serial = serial
        self._view = memoryview(bytearray(64 * 1024))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._shell.counted(1)

    def connection_lost(self, exc: Exception | None) -> None:
        self._shell.counted(-1)
        self._shell.core.lost(self._serial, None if exc is None else _reason(exc))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self._shell.core.feed(self._serial, self._view[:nbytes])

    def pause_writing(self) -> None:
        self._shell.core.pause(self._serial, True)

    def resume_writing(self) -> None:
        self._shell.core.pause(self._serial, False)


def _failed(lookup: asyncio.Future[Any]) -> bool:
    return lookup.done() and (lookup.cancelled() or lookup.exception() is not None)


def _reason(exc: BaseException) -> str:
    text = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
    return text or type(exc).__name__
