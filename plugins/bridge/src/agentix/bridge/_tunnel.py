"""Exchanges on the namespace /abridge; the wire page has the rules.

An exchange is a task that runs a handler. What it says is kept until the sandbox has consumed it, and said again after
a broken link; what it hears waits for the handler. Both have a bound. The sandbox is not trusted: what it sends out of
turn is passed over, and what breaks the rules ends that exchange.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import itertools
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, cast

from agentix import AsyncClientNamespace, RuntimeUnreachable

from ._errors import AbridgeError, ends_task, failure_response, printable
from ._routes import takes_raw
from ._types import ClientResponse, Handler, Request, check_status

_log = logging.getLogger("agentix.bridge")

_NAMESPACE = "/abridge"
_PATH_MAX = 240
_LIVE_MAX = 4096  # exchanges of one tunnel
_CHUNK_MAX = 64 * 1024
_CREDIT_MAX = 1024 * 1024
_UNREAD_MAX = 1024 * 1024  # bytes of a request that the sandbox sends ahead of the handler
_JSON_MAX = 64 * 1024 * 1024
_JSON_HERE_MAX = 1024 * 1024  # larger ones are parsed in a thread
_OPEN_SECONDS = 60.0
_CLOSE_SECONDS = 5.0
_FIELDS_MAX = 200  # AGX_TUNNEL_REPLY_FIELDS_MAX in src/proto/limits.h


def check_path(path: str) -> None:
    """Raise ValueError for a path that no tunnel can have."""
    if len(path.encode()) > _PATH_MAX or not path.isascii() or any(c <= " " or c in "?#\x7f" for c in path):
        raise ValueError(f"a path has at most {_PATH_MAX} visible ASCII characters, without ? and #: {path[:300]!r}")


def namespace_of(sandbox: Any) -> Abridge:
    """Return the sandbox's namespace for tunnels, registered with it."""
    namespace = getattr(sandbox, "_abridge", None)
    if isinstance(namespace, Abridge):
        return namespace
    namespace = Abridge()
    try:
        sandbox.register_namespace(namespace)
    except RuntimeError as exc:
        raise RuntimeError(
            f"open the proxy first: start() or session() comes before the first remote() of a sandbox ({exc})"
        ) from None
    sandbox._abridge = namespace
    return namespace


def _field(data: Any, name: str, kind: type) -> Any:
    """Return a field of what the sandbox sent, or raise ValueError."""
    value = cast("dict[Any, Any]", data).get(name) if isinstance(data, dict) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{name} is no {kind.__name__}")
    return value


class Abridge(AsyncClientNamespace):
    """The namespace of one sandbox, with all of its tunnels."""

    namespace = _NAMESPACE

    def __init__(self) -> None:
        super().__init__()
        self._questions: dict[str, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._tunnels: dict[int, Tunnel] = {}
        self._attaching: set[asyncio.Task[None]] = set()
        self._odd_told = False

    def __getattr__(self, name: str) -> Callable[[Any], None]:
        """Return the handler of an event that is named by a path, or answers a question."""
        if name.startswith("on_/"):
            return lambda data: self._heard(self._begin, data)
        if name.endswith((":result", ":error")):
            return self._answered
        raise AttributeError(name)

    # ---- tunnels ----

    async def open(self, routes: Mapping[str, Handler], window: float, context: contextvars.Context) -> Tunnel:
        """Open one. Raises RuntimeError if the sandbox cannot, `RuntimeUnreachable` if it does not answer."""
        asked = {"paths": list(routes), "window": max(1, round(window * 1000))}
        value = await self._ask("open", asked, _OPEN_SECONDS)
        tunnel = Tunnel(self, routes, value, context)
        self._tunnels[tunnel.id] = tunnel
        self._need_link(True)
        return tunnel

    async def close(self, tunnel: Tunnel) -> None:
        """Close one, as well as the link lets us."""
        self._tunnels.pop(tunnel.id, None)
        self._need_link(bool(self._tunnels))
        try:
            await self._ask("close", {"tunnel": tunnel.id}, _CLOSE_SECONDS)
        except Exception as exc:
            _log.debug("a tunnel was not closed in the sandbox: %s", exc)

    async def _ask(self, event: str, data: dict[str, Any], seconds: float) -> Any:
        request_id = f"{event}-{next(self._numbers)}"
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._questions[request_id] = answer
        try:
            async with asyncio.timeout(seconds):
                await self.emit(event, {"request_id": request_id, "data": data})
                return await answer
        except TimeoutError:
            raise RuntimeUnreachable(f"the sandbox has not answered {event!r} of a tunnel in {seconds:g} s") from None
        finally:
            self._questions.pop(request_id, None)

    def _answered(self, data: Any) -> None:
        try:
            answer = self._questions.get(_field(data, "request_id", str))
        except ValueError:
            return
        if answer is None or answer.done():
            return
        error = data.get("error")
        if error is None:
            answer.set_result(data.get("value"))
        else:
            said = cast("dict[str, Any]", error).get("message") if isinstance(error, dict) else error
            answer.set_exception(RuntimeError(f"the sandbox refused: {said}"))

    # ---- the link ----

    def on_connect(self) -> None:
        """Go on with the tunnels that there are."""
        for tunnel in self._tunnels.values():
            self._keep(self._attach(tunnel))

    def on_disconnect(self) -> None:
        """Say nothing more until the link is back."""
        for task in self._attaching:
            task.cancel()
        for tunnel in self._tunnels.values():
            tunnel.attached = False

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._attaching.add(task)
        task.add_done_callback(self._attaching.discard)

    async def _attach(self, tunnel: Tunnel) -> None:
        try:
            await self._ask("attach", {"tunnel": tunnel.id, "live": sorted(tunnel.live)}, _OPEN_SECONDS)
        except RuntimeUnreachable as exc:
            _log.warning("a tunnel is not attached: %s", exc)
        except RuntimeError as exc:
            _log.error("a tunnel is lost, and its requests with it: %s", exc)
            tunnel.lose()
        else:
            tunnel.resume()

    # ---- events ----

    def _find(self, data: Any) -> Exchange | None:
        request_id = _field(data, "request_id", int)
        for tunnel in self._tunnels.values():
            exchange = tunnel.live.get(request_id)
            if exchange is not None:
                return exchange
        return None

    def _begin(self, data: Any) -> None:
        asked = _field(data, "data", dict)
        tunnel = self._tunnels.get(_field(asked, "tunnel", int))
        if tunnel is not None:
            tunnel.begin(_field(data, "request_id", int), asked)

    def _chunk(self, data: Any) -> None:
        exchange = self._find(data)
        if exchange is not None:
            exchange.hear(_field(data, "seq", int), _field(data, "data", bytes), _field(data, "last", bool))

    def _ack(self, data: Any) -> None:
        exchange = self._find(data)
        if exchange is not None:
            exchange.consumed(_field(data, "seq", int))

    def _gone(self, data: Any) -> None:
        exchange = self._find(data)
        if exchange is not None:
            exchange.gone()

    def _heard(self, take: Callable[[Any], None], data: Any) -> None:
        try:
            take(data)
        except ValueError as exc:
            if not self._odd_told:
                _log.warning("events of a sandbox for a tunnel are passed over, since they cannot be read: %s", exc)
            self._odd_told = True

    def on_chunk(self, data: Any) -> None:
        """More of a request's body."""
        self._heard(self._chunk, data)

    def on_ack(self, data: Any) -> None:
        """What was consumed of a reply."""
        self._heard(self._ack, data)

    def on_gone(self, data: Any) -> None:
        """The exchange is over."""
        self._heard(self._gone, data)


class Tunnel:
    """One tunnel, and its exchanges by id."""

    def __init__(
        self, namespace: Abridge, routes: Mapping[str, Handler], opened: Any, context: contextvars.Context
    ) -> None:
        self.namespace = namespace
        self.routes = routes
        self.context = context
        self.id: int = _field(opened, "tunnel", int)
        self.port: int = _field(opened, "port", int)
        self.chunk = min(max(1, _field(opened, "chunk", int)), _CHUNK_MAX)
        self.credit = min(max(self.chunk, _field(opened, "credit", int)), _CREDIT_MAX)
        if not 0 < self.port < 65536:
            raise ValueError(f"the sandbox names the port {self.port}")
        self.live: dict[int, Exchange] = {}
        self.attached = True
        self._newest = -1

    def begin(self, request_id: int, asked: dict[str, Any]) -> None:
        """Begin an exchange, if it is new: ids only rise."""
        if request_id in self.live or request_id <= self._newest:
            return
        self._newest = request_id
        exchange = Exchange(self, request_id, asked)
        self.live[request_id] = exchange
        exchange.start()

    def resume(self) -> None:
        """Say on the new link what the sandbox may not have."""
        self.attached = True
        for exchange in list(self.live.values()):
            exchange.say_again()

    def lose(self) -> None:
        """Give up every exchange."""
        for exchange in list(self.live.values()):
            exchange.gone()

    async def close(self) -> None:
        """End it: handlers are cancelled and waited for."""
        tasks = [exchange.task for exchange in self.live.values() if exchange.task is not None]
        closing = asyncio.get_running_loop().create_task(self.namespace.close(self))
        self.lose()
        await asyncio.wait([closing, *tasks], timeout=2 * _CLOSE_SECONDS)


class _Record:
    __slots__ = ("data", "event", "seq", "size")

    def __init__(self, seq: int, event: str, data: dict[str, Any], size: int) -> None:
        self.seq, self.event, self.data, self.size = seq, event, data, size


class _Body:
    """A request's body as it comes, once."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece = await self._exchange.read()
        if piece is None:
            raise StopAsyncIteration
        return piece


class Exchange:
    """One request and its reply."""

    def __init__(self, tunnel: Tunnel, request_id: int, asked: dict[str, Any]) -> None:
        self.tunnel = tunnel
        self.id = request_id
        self.path: str = _field(asked, "path", str)
        self.task: asyncio.Task[None] | None = None
        self._asked = asked
        # The request: pieces that the handler has not read.
        self._pieces: deque[bytes] = deque()
        self._unread = 0
        self._read_since = 0
        self._next = 1
        self._complete = bool(asked.get("last"))
        self._news = asyncio.Event()
        # The reply: records that the sandbox has not consumed.
        self._kept: deque[_Record] = deque()
        self._kept_bytes = 0
        self._seq = 0
        self._said = 0  # on this link
        self._told = 0  # on this one or those before
        self._room = asyncio.Event()
        self._saying = asyncio.Lock()
        self._raw = b""
        self._take(_field(asked, "body", bytes))
        del asked["body"]

    def start(self) -> None:
        """Run the handler."""
        context = self.tunnel.context.copy()
        self.task = asyncio.get_running_loop().create_task(self._run(), context=context)

    def gone(self) -> None:
        """The sandbox wants no more of it."""
        self.tunnel.live.pop(self.id, None)
        if self.task is not None:
            self.task.cancel()

    # ---- the request ----

    def _take(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._unread += len(piece)

    def hear(self, seq: int, piece: bytes, last: bool) -> None:
        """Take the next piece of the body; repeats, and what is ahead of its turn, are passed over."""
        if seq != self._next or self._complete:
            return
        if self._unread + len(piece) > _UNREAD_MAX:
            _log.warning("a request to %s was given up: the sandbox sends more than it was asked for", self.path)
            self.gone()
            return
        self._next += 1
        self._take(piece)
        self._complete = last
        self._news.set()

    async def read(self) -> bytes | None:
        """Return the next piece of the body; None is its end."""
        while not self._pieces:
            if self._complete:
                return None
            self._news.clear()
            await self._news.wait()
        piece = self._pieces.popleft()
        self._unread -= len(piece)
        self._read_since += len(piece)
        if not self._complete and self._read_since >= self.tunnel.credit // 4:
            await self._acknowledge()
        return piece

    async def _acknowledge(self) -> None:
        self._read_since = 0
        await self._emit("ack", {"request_id": self.id, "seq": self._next - len(self._pieces)})

    async def _json(self) -> dict[str, Any]:
        """Return the body as an object, or raise what the agent is told."""
        pieces: list[bytes] = []
        size = 0
        while (piece := await self.read()) is not None:
            size += len(piece)
            if size > _JSON_MAX:
                raise AbridgeError(f"a body has at most {_JSON_MAX} bytes", status_code=413)
            pieces.append(piece)
        raw = b"".join(pieces)
        self._raw = raw
        coding = _headers(self._asked.get("headers")).get("content-encoding", "").strip().lower()
        if coding not in ("", "identity"):
            raw = await asyncio.to_thread(_plain, raw, coding)
            size = len(raw)
        if not raw.strip():
            return {}
        try:
            parsed = json.loads(raw) if size <= _JSON_HERE_MAX else await asyncio.to_thread(json.loads, raw)
        except (ValueError, RecursionError) as exc:
            raise AbridgeError(f"the body is not JSON: {exc}", status_code=400) from None
        if not isinstance(parsed, dict):
            raise AbridgeError("the body has to be a JSON object", status_code=400)
        return cast("dict[str, Any]", parsed)

    async def _request(self, raw_wanted: bool) -> Request:
        asked = self._asked
        body: dict[str, Any] = {}
        raw: bytes | AsyncIterator[bytes]
        if not raw_wanted:
            body = await self._json()
            raw = self._raw
        elif self._complete:
            raw = b"".join(self._pieces)
            self._pieces.clear()
        else:
            raw = _Body(self)
        query, method = _text(asked.get("query")), _text(asked.get("method"))
        return Request(self.path, body, method, query, _headers(asked.get("headers")), raw)

    # ---- the reply ----

    async def _run(self) -> None:
        try:
            await self._answer()
        except asyncio.CancelledError:
            if self.id in self.tunnel.live:
                raise
        except Exception as exc:
            _log.exception("a request to %s could not be answered", self.path)
            await self._give_up(exc)

    async def _answer(self) -> None:
        try:
            response, head = await self._handled()
        except BaseException as exc:
            if ends_task(exc):
                raise
            if not isinstance(exc, AbridgeError):
                _log.error("the handler of %s failed", self.path, exc_info=exc)
            response = failure_response(exc)
            head = _head_of(response)
        await self._reply(response, head)

    async def _handled(self) -> tuple[ClientResponse, dict[str, Any]]:
        """Return the handler's reply, and its head as it travels."""
        handler = self.tunnel.routes.get(self.path)
        if len(self.tunnel.live) > _LIVE_MAX:
            raise AbridgeError("too many requests at once", status_code=503)
        if handler is None:
            raise AbridgeError(f"there is no handler for {self.path}", status_code=404)
        response: Any = await handler(await self._request(takes_raw(handler)))
        try:
            _check(response)
            return response, _head_of(response)
        except BaseException:
            await _leave(getattr(response, "body", None))
            raise

    async def _give_up(self, failure: Exception) -> None:
        """Say that there is no answer, or no more of it, so that the agent need not wait."""
        text = printable(f"the reply cannot be sent: {failure}")[:1000]
        try:
            await self._say(f"{self.path}:error", {"error": {"type": type(failure).__name__, "message": text}}, 0)
        except Exception as exc:
            _log.error("a request to %s is left without an answer: %s", self.path, exc)
            self.tunnel.live.pop(self.id, None)

    async def _reply(self, response: ClientResponse, head: dict[str, Any]) -> None:
        body = response.body
        if isinstance(body, (bytes, bytearray, memoryview)):
            body = bytes(body)
            if len(body) <= self.tunnel.chunk:
                await self._say(f"{self.path}:result", {"value": {"body": body, **head}}, len(body))
                return
            await self._say("head", {"value": head}, 0)
            await self._say_all(body, True)
            return
        await self._stream(body, head)

    async def _stream(self, body: AsyncIterator[bytes], head: dict[str, Any]) -> None:
        pieces: Any = None
        try:
            await self._say("head", {"value": head}, 0)
            pieces = aiter(body)
            async for piece in pieces:
                await self._say_all(bytes(piece), False)
        except BaseException as exc:
            if ends_task(exc):
                raise
            _log.warning("the reply of %s was broken off", self.path, exc_info=exc)
            error = {"type": type(exc).__name__, "message": printable(str(exc))[:1000]}
            await self._say(f"{self.path}:error", {"error": error}, 0)
        else:
            await self._say("chunk", {"data": b"", "last": True}, 0)
        finally:
            if pieces is not body:
                await _leave(pieces)
            await _leave(body)

    async def _say_all(self, body: bytes, last: bool) -> None:
        size = self.tunnel.chunk
        for at in range(0, len(body), size):
            piece = body[at : at + size]
            await self._say("chunk", {"data": piece, "last": last and at + size >= len(body)}, len(piece))

    async def _say(self, event: str, data: dict[str, Any], size: int) -> None:
        """Say one record, once there is room for it."""
        while self._kept and self._kept_bytes + size > self.tunnel.credit:
            self._room.clear()
            await self._room.wait()
        record = _Record(self._seq, event, {"request_id": self.id, "seq": self._seq, **data}, size)
        self._seq += 1
        self._kept.append(record)
        self._kept_bytes += size
        await self._say_kept()

    async def _say_kept(self) -> None:
        """Say what this link was not told, in order."""
        async with self._saying:
            while self.tunnel.attached and self._said < self._seq:
                first = self._kept[0].seq if self._kept else self._seq
                if self._said < first:
                    self._said = first
                    continue
                record = self._kept[self._said - first]
                self._said += 1
                self._told = max(self._told, self._said)
                await self._emit(record.event, record.data)

    async def _emit(self, event: str, data: dict[str, Any]) -> None:
        if not self.tunnel.attached:
            return
        try:
            await self.tunnel.namespace.emit(event, data)
        except RuntimeUnreachable as exc:
            _log.debug("a record of a tunnel waits for the link: %s", exc)

    async def _say_again(self) -> None:
        if not self._complete:
            await self._acknowledge()
        await self._say_kept()

    def say_again(self) -> None:
        """Begin anew with what was not consumed."""
        self._said = self._kept[0].seq if self._kept else self._seq
        task = asyncio.get_running_loop().create_task(self._say_again())
        _saying.add(task)
        task.add_done_callback(_saying.discard)

    def consumed(self, below: int) -> None:
        """Forget what was consumed."""
        while self._kept and self._kept[0].seq < min(below, self._told):
            self._kept_bytes -= self._kept.popleft().size
        self._room.set()


_saying: set[asyncio.Task[None]] = set()


async def _leave(body: Any) -> None:
    """Close a body that is read no further."""
    close = getattr(body, "aclose", None)
    if callable(close) and inspect.isawaitable(closing := close()):
        await closing


def _check(response: Any) -> None:
    if not isinstance(response, ClientResponse):
        raise TypeError(f"the handler returned {type(response).__name__}, not a ClientResponse")
    body: Any = response.body
    if not isinstance(body, (bytes, bytearray, memoryview)) and not hasattr(body, "__aiter__"):
        raise TypeError(f"the body of the reply is {type(body).__name__}, neither bytes nor an async iterator")
    check_status(response.status_code)


def _head_of(response: ClientResponse) -> dict[str, Any]:
    """Return the head of a reply as it travels. Raises TypeError or ValueError for what cannot."""
    media_type: Any = response.media_type
    if not isinstance(media_type, str):
        raise TypeError(f"the media_type of the reply is {type(media_type).__name__}, not a str")
    head: dict[str, Any] = {"media_type": media_type, "status_code": int(response.status_code)}
    fields = [[str(name), str(text)] for name, text in response.headers.items()]
    if len(fields) > _FIELDS_MAX:
        raise ValueError(f"the reply has {len(fields)} headers; it may have {_FIELDS_MAX}")
    for text in (media_type, *itertools.chain.from_iterable(fields)):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"a header of the reply holds a lone surrogate: {text[:200]!r}") from None
    return {**head, "headers": fields} if fields else head


def _plain(body: bytes, coding: str) -> bytes:
    """Return a body without its content coding, or raise what the agent is told."""
    from ._http import decoded  # which takes a while to import, and is seldom needed

    plain = decoded(body, coding, _JSON_MAX)
    if plain is None:
        raise AbridgeError(
            f"the body is not in the coding {coding[:100]!r}, or has more than {_JSON_MAX} bytes without it; "
            "known are gzip and deflate",
            status_code=415,
        )
    return plain


def _text(value: Any) -> str:
    """Return what the sandbox sent as text; what is not ASCII in HTTP comes as bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def _headers(pairs: Any) -> dict[str, str]:
    """Return the header fields, names in lower case, repeated ones joined as RFC 9110, 5.3 has it."""
    headers: dict[str, str] = {}
    for pair in cast("list[Any]", pairs) if isinstance(pairs, list) else []:
        name, value = (_text(part) for part in pair)
        name = name.lower()
        if name in headers:
            value = headers[name] + ("; " if name == "cookie" else ", ") + value
        headers[name] = value
    return headers
