"""Clients by session: made when first asked for, closed when others have been asked for since and nobody uses them."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from ._routes import routes_of
from ._types import Handler

logger = logging.getLogger("agentix.bridge")

Factory = Callable[[str], Any | Awaitable[Any]]


class _Session:
    def __init__(self, client: Any, routes: dict[str, Handler]) -> None:
        self.client = client
        self.routes = routes
        self.using = 0
        self.evicted = False

    async def close(self) -> None:
        close = getattr(self.client, "aclose", None)
        if close is None:
            return
        try:
            await close()
        except Exception:
            logger.exception("a client could not be closed")


class Sessions:
    """At most `most` clients by session id; the one that was not asked for longest goes first, after its requests."""

    def __init__(self, factory: Factory, most: int) -> None:
        if most < 1:
            raise ValueError(f"max_sessions is {most}; it has to be 1 or more")
        self._factory = factory
        self._most = most
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._making: dict[str, asyncio.Lock] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def use(self, session_id: str) -> AsyncGenerator[dict[str, Handler]]:
        """Give the handlers of a session's client, which is not closed in the block."""
        session = await self._of(session_id)
        session.using += 1
        try:
            self._evict()
            yield session.routes
        finally:
            session.using -= 1
            if session.evicted and session.using == 0:
                self._close(session)

    async def aclose(self) -> None:
        """Close all clients."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        await asyncio.gather(*(session.close() for session in sessions), *self._closing)

    async def _of(self, session_id: str) -> _Session:
        async with self._making.setdefault(session_id, asyncio.Lock()):
            session = self._sessions.get(session_id)
            if session is None:
                made = self._factory(session_id)
                client = await made if inspect.isawaitable(made) else made
                session = self._sessions[session_id] = _Session(client, routes_of([client]))
            self._sessions.move_to_end(session_id)
        self._making.pop(session_id, None)
        return session

    def _evict(self) -> None:
        while len(self._sessions) > self._most:
            _, session = self._sessions.popitem(last=False)
            session.evicted = True
            if session.using == 0:
                self._close(session)

    def _close(self, session: _Session) -> None:
        task = asyncio.ensure_future(session.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
