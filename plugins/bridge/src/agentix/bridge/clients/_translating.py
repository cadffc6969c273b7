"""The Messages API over services that speak the Chat Completions API."""

from __future__ import annotations

import inspect
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from .._environ import anthropic_environ
from .._errors import AbridgeError
from .._json import json_bytes
from .._routes import on
from .._secrets import of_client
from .._types import ClientResponse, Handler, Request, TunnelHandle
from ._openai import OpenAISdkClient
from ._reply import first_choice, message_of, said_in, tool_calls_of, tool_use
from ._request import Block, Translated, count_tokens
from ._sse import EventTooLong, SseReader, object_of
from ._stream import MessageStream
from ._whole import events_of

_REMEMBERED = 4096
_CHAT = "/v1/chat/completions"

Remember = Callable[[dict[str, Any], dict[str, str]], None]


class AnthropicFromOpenAIClient(OpenAISdkClient):
    """Answers Messages requests by a service that speaks Chat Completions, through OpenAI's SDK.

    `model` is what the service is asked for; replies carry the name that the agent used. `upstream_params` are laid
    over the translated request; those that are None are left out of it. Tokens are counted here, as characters / 4.
    The rest is as with `OpenAIClient`.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        model: str | None = None,
        timeout: float = 120.0,
        max_retries: int = 0,
        session_id: str | None = None,
        upstream_params: Mapping[str, Any] | None = None,
    ) -> None:
        self._upstream_params = dict(upstream_params or {})
        super().__init__(base_url, api_key, model, timeout, max_retries, session_id)

    @on("/v1/messages")
    async def messages(self, request: Request) -> ClientResponse:
        """Answer a request for a message."""
        asked = Translated(request.body, self._model)
        body = {**asked.body, **self._upstream_params}
        if "max_completion_tokens" in self._upstream_params:
            body.pop("max_tokens", None)
        elif "max_tokens" in self._upstream_params:
            body.pop("max_completion_tokens", None)
        body = {name: value for name, value in body.items() if value is not None}
        return await translated(await self._complete(_chat_request(request, body), body), asked)

    @on("/v1/messages/count_tokens")
    async def count_tokens(self, request: Request) -> ClientResponse:
        """Estimate how many tokens a request has."""
        return ClientResponse.json({"input_tokens": count_tokens(request.body)})

    def environ(self, handle: TunnelHandle) -> dict[str, str]:
        """Return the variables that point Anthropic's SDKs and Claude Code to the tunnel."""
        return anthropic_environ(handle)


class AnthropicToOpenAI:
    """Answers Messages requests by any handler of Chat Completions requests (`Forward(...).handler()`, for one).

    Its errors pass through. The assistant messages of turns that call tools are remembered as they came (the last
    4096), and said again verbatim when the agent sends them back: by id, name and arguments of their calls, so that a
    service that uses ids again does no harm. `aclose` closes what the handler belongs to.
    """

    def __init__(self, downstream: Handler, *, model: str | None = None) -> None:
        self._downstream = downstream
        self._model = model
        self._known: OrderedDict[tuple[str, str, str], dict[str, Any]] = OrderedDict()

    @on("/v1/messages")
    async def messages(self, request: Request) -> ClientResponse:
        """Answer a request for a message."""
        asked = Translated(request.body, self._model, self._recall)
        response = await self._downstream(_chat_request(request, asked.body))
        if response.status_code != 200:
            return response
        return await translated(response, asked, self._remember)

    @on("/v1/messages/count_tokens")
    async def count_tokens(self, request: Request) -> ClientResponse:
        """Estimate how many tokens a request has."""
        return ClientResponse.json({"input_tokens": count_tokens(request.body)})

    def environ(self, handle: TunnelHandle) -> dict[str, str]:
        """Return the variables that point Anthropic's SDKs and Claude Code to the tunnel."""
        return anthropic_environ(handle)

    async def aclose(self) -> None:
        """Close the handler, or the object whose method it is."""
        for owner in (self._downstream, getattr(self._downstream, "__self__", None)):
            close = getattr(owner, "aclose", None)
            if close is not None:
                closing = close()
                if inspect.isawaitable(closing):
                    await closing
                return

    def _abridge_secrets(self) -> list[str]:
        return of_client(self._downstream) or of_client(getattr(self._downstream, "__self__", None))

    def _remember(self, message: dict[str, Any], names: dict[str, str]) -> None:
        for call in tool_calls_of(message):
            if call.get("id"):
                self._known[_key(tool_use(call, names))] = message
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _recall(self, uses: list[Block]) -> dict[str, Any] | None:
        found = [self._known.get(_key(use)) for use in uses]
        first = found[0]
        if first is None or any(message is not first for message in found):
            return None
        if len(tool_calls_of(first)) != len(uses):
            return None
        for use in uses:
            self._known.move_to_end(_key(use))
        return first


def _key(use: Block) -> tuple[str, str, str]:
    arguments = json.dumps(use.get("input"), sort_keys=True, separators=(",", ":"), default=str)
    return str(use.get("id", "")), str(use.get("name", "")), arguments


def _chat_request(request: Request, body: dict[str, Any]) -> Request:
    """The agent's request as one for a completion; headers and query that are about the other API are left out."""
    headers = {
        name: value
        for name, value in request.headers.items()
        if not name.startswith("anthropic-") and name not in ("content-length", "accept-encoding", "content-encoding")
    }
    headers["accept-encoding"] = "identity"  # without it any coding would be welcome (RFC 9110, 12.5.3)
    return Request(_CHAT, body, headers=headers)


async def translated(response: ClientResponse, asked: Translated, remember: Remember | None = None) -> ClientResponse:
    """Return a good reply of the Chat Completions API as one of the Messages API.

    A reply that came whole though the agent asked for a stream becomes one. Raises AbridgeError 502 for what is no such
    reply.
    """
    if response.media_type.partition(";")[0].strip().lower() == "text/event-stream":
        if not asked.stream:
            await _leave(response.body)
            raise AbridgeError("the model service streams though it was not asked to")
        body = _Translating(response.body, asked, remember)
        return ClientResponse(body, "text/event-stream", 200, response.headers)
    whole = response.body if isinstance(response.body, bytes) else b"".join([piece async for piece in response.body])
    completion = object_of(whole)
    if completion is None:
        raise AbridgeError("the model service's reply is no JSON object")
    message = message_of(completion, asked.model, asked.names)
    choice = first_choice(completion)
    if remember is not None and choice is not None:
        remember(said_in(choice), asked.names)
    reply = ClientResponse.sse(_as_events(message)) if asked.stream else ClientResponse(json_bytes(message))
    reply.headers = {name: value for name, value in response.headers.items() if name != "content-encoding"}
    return reply


async def _leave(body: bytes | AsyncIterator[bytes]) -> None:
    close = getattr(body, "aclose", None)
    if close is not None:
        await close()


class _Translating:
    """A stream of chunks, read as a stream of a message's events."""

    def __init__(self, body: bytes | AsyncIterator[bytes], asked: Translated, remember: Remember | None) -> None:
        self._body = _once(body) if isinstance(body, bytes) else body
        self._names = asked.names
        self._remember = remember
        self._reader = SseReader()
        self._message = MessageStream(asked.model, asked.names)
        self._over = False

    def __aiter__(self) -> _Translating:
        return self

    async def __anext__(self) -> bytes:
        while not self._over:
            said = await self._next()
            if said:
                return b"".join(said)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Leave the rest unread."""
        self._over = True
        await _leave(self._body)

    async def _next(self) -> list[bytes]:
        """The events that the next piece makes."""
        try:
            piece = await anext(self._body)
            events = self._reader.feed(piece)
        except StopAsyncIteration:
            self._over = True
            said = self._all(self._reader.end())
            said += self._message.end()
            self._remembered()
            return said
        except Exception as failure:
            await self.aclose()
            if self._message.ended:
                return []
            ours = isinstance(failure, (AbridgeError, EventTooLong))
            said = str(failure) if ours else f"{type(failure).__name__}: {failure}"
            return [self._message.broken(getattr(failure, "status_code", 502) if ours else 502, said)]
        return self._all(events)

    def _all(self, events: list[Any]) -> list[bytes]:
        return [part for event in events for part in self._message.take(event)]

    def _remembered(self) -> None:
        if self._remember is not None:
            self._remember(self._message.assistant(), self._names)


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _as_events(message: dict[str, Any]) -> bytes:
    """Return a whole message as the events of a stream."""
    return b"".join(events_of(message))
