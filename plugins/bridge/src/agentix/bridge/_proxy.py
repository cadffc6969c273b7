"""The host's end of a tunnel: which clients answer, from when to when."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from ._errors import AbridgeError
from ._routes import routes_of
from ._tunnel import Tunnel, check_path, namespace_of
from ._types import Budget, ClientResponse, Handler, Request, TunnelHandle
from ._usage import UsageReader

if TYPE_CHECKING:
    from agentix.provider import Sandbox

_log = logging.getLogger("agentix.bridge")
_WINDOW_MOST = 7 * 24 * 3600.0


class Proxy:
    """Lets programs in a sandbox ask clients on the host over plain HTTP, streams included.

    `request_timeout` is in seconds: how long a handler may take to the head of its reply, and then from one piece of it
    to the next; then the program gets 504, or its reply is broken off. Raises ValueError if it is not positive or above
    a week, and if there are no clients, one has no handlers, or two have the same path.
    """

    def __init__(self, *clients: Any, request_timeout: float = 600.0, budget: Budget | None = None) -> None:
        if not 0 < request_timeout <= _WINDOW_MOST:
            raise ValueError(
                f"request_timeout is {request_timeout}; it has to be above 0 and at most a week, in seconds"
            )
        self._clients = list({id(client): client for client in clients}.values())
        self._routes = routes_of(clients)
        for path in self._routes:
            check_path(path)
        self._window = request_timeout
        self._budget = budget
        self._lock = asyncio.Lock()
        self._tunnel: Tunnel | None = None
        self._handle: TunnelHandle | None = None
        self._sandbox: Any = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that are answered, in order."""
        return tuple(self._routes)

    @property
    def url(self) -> str:
        """The tunnel's address in the sandbox. Raises RuntimeError before `start`."""
        if self._handle is None:
            raise RuntimeError("the proxy has no address yet: start() it first")
        return self._handle.url

    async def start(self, sandbox: Sandbox) -> TunnelHandle:
        """Open the tunnel and return its address in the sandbox; again, the same one.

        To be called before the first `remote()` of this sandbox: later it raises RuntimeError. It raises
        `RuntimeUnreachable` if the sandbox cannot be reached. If it fails, the clients are closed.
        """
        async with self._lock:
            if self._handle is not None:
                if sandbox is not self._sandbox:
                    raise RuntimeError("the proxy is open for another sandbox: stop() it first, or make another one")
                return self._handle
            try:
                return await self._open(sandbox)
            except BaseException as failure:
                for error in await _closed(self._clients):
                    failure.add_note(f"closing a client then failed: {type(error).__name__}: {error}")
                raise

    async def stop(self) -> None:
        """Close the tunnel, then the clients; a second call does nothing.

        Raises ExceptionGroup of what closing the clients raised.
        """
        async with self._lock:
            tunnel, self._tunnel = self._tunnel, None
            if tunnel is None:
                return
            self._handle = self._sandbox = None
            try:
                await tunnel.close()
            finally:
                errors = await _closed(self._clients)
            if errors:
                raise ExceptionGroup("closing the clients of a proxy failed", errors)

    def session(self, sandbox: Sandbox) -> AbstractAsyncContextManager[TunnelHandle]:
        """Return a context in which the tunnel is open. What `stop` raises is only logged if the body has raised."""
        return self._session(sandbox)

    @asynccontextmanager
    async def _session(self, sandbox: Sandbox) -> AsyncGenerator[TunnelHandle, None]:
        handle = await self.start(sandbox)
        try:
            yield handle
        except BaseException:
            try:
                await self.stop()
            except ExceptionGroup as group:
                for error in group.exceptions:
                    _log.error("closing a client of a proxy failed", exc_info=error)
            raise
        await self.stop()

    async def _open(self, sandbox: Any) -> TunnelHandle:
        namespace = namespace_of(sandbox)
        spent = _Spending(self._budget) if self._budget is not None else None
        routes = {path: _within(spent, handler) for path, handler in self._routes.items()} if spent else self._routes
        await sandbox.health()
        self._tunnel = await namespace.open(routes, self._window, contextvars.copy_context())
        self._sandbox = sandbox
        self._handle = TunnelHandle(f"http://127.0.0.1:{self._tunnel.port}", self._tunnel.port)
        return self._handle


# ---- the end of clients ----


async def _closed(clients: list[Any]) -> list[Exception]:
    """Close each client that can be, whatever the others raise and also if this task is cancelled meanwhile."""
    work = asyncio.ensure_future(_close_all(clients))
    cancelled: BaseException | None = None
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None:
        raise cancelled
    return work.result()


async def _close_all(clients: list[Any]) -> list[Exception]:
    errors: list[Exception] = []
    for client in clients:
        close = getattr(client, "aclose", None)
        if not callable(close):
            continue
        try:
            await close()  # pyright: ignore[reportGeneralTypeIssues]
        except Exception as exc:
            errors.append(exc)
    return errors


# ---- budgets ----


class _Spending:
    """What was spent of a budget."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.requests = 0
        self.tokens = 0
        self.since = asyncio.get_running_loop().time()

    def begin(self) -> None:
        """Count one request, or raise."""
        budget = self.budget
        if budget.requests is not None and self.requests >= budget.requests:
            raise AbridgeError(f"the budget of {budget.requests} requests is spent", status_code=429)
        if budget.tokens is not None and self.tokens >= budget.tokens:
            raise AbridgeError(f"the budget of {budget.tokens} tokens is spent", status_code=429)
        if budget.seconds is not None and asyncio.get_running_loop().time() - self.since >= budget.seconds:
            raise AbridgeError(f"the budget of {budget.seconds:g} seconds is spent", status_code=429)
        self.requests += 1


def _within(spent: _Spending, handler: Handler) -> Handler:
    async def bounded(request: Request) -> ClientResponse:
        spent.begin()
        response = await handler(request)
        if spent.budget.tokens is None:
            return response
        reader = UsageReader(response.media_type)
        if isinstance(response.body, bytes):
            reader.feed(response.body)
            spent.tokens += reader.end().total
        else:
            response.body = _Counted(response.body, reader, spent)
        return response

    bounded.__dict__.update(getattr(handler, "__dict__", {}))  # whether it takes any body, and the like
    return bounded


class _Counted:
    """A body that is counted as it passes. Not a generator: one that has not begun would not close what it wraps."""

    def __init__(self, body: AsyncIterator[bytes], reader: UsageReader, spent: _Spending) -> None:
        self._body = body
        self._pieces = aiter(body)
        self._reader = reader
        self._spent = spent
        self._over = False

    def __aiter__(self) -> _Counted:
        return self

    async def __anext__(self) -> bytes:
        try:
            piece = await anext(self._pieces)
        except BaseException:
            self._end()
            raise
        self._reader.feed(piece)
        return piece

    async def aclose(self) -> None:
        """Leave the rest unread."""
        self._end()
        for body in [self._pieces] if self._pieces is self._body else [self._pieces, self._body]:
            close = getattr(body, "aclose", None)
            if callable(close):
                await close()  # pyright: ignore[reportGeneralTypeIssues]

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._spent.tokens += self._reader.end().total
