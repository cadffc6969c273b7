"""The Messages API, through Anthropic's SDK."""

from __future__ import annotations

from typing import Any

from .._environ import anthropic_environ
from .._routes import on
from .._types import ClientResponse, Request, TunnelHandle
from ._sdk import SdkClient
from ._spans import CallSpan


class AnthropicClient(SdkClient):
    """Answers Messages requests by Anthropic's SDK: replies and streams come as the service sends them.

    What is not given is taken from the host's environment as the SDK does (`ANTHROPIC_API_KEY`, ...). `model` replaces
    the one that the agent asks for; `timeout` is in seconds, for each piece of a stream; `session_id` is sent as
    `x-session-id`. Errors of the service reach the agent with their status, their message and the headers that say when
    to try again; no answer is 503.
    """

    vendor = "anthropic"

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        model: str | None = None,
        timeout: float = 120.0,
        max_retries: int = 0,
        session_id: str | None = None,
    ) -> None:
        super().__init__(base_url, api_key, model, timeout, max_retries, session_id)

    def _make(self) -> Any:
        from anthropic import AsyncAnthropic

        return AsyncAnthropic(**self._options())

    @on("/v1/messages")
    async def messages(self, request: Request) -> ClientResponse:
        """Answer a request for a message."""
        body = self._body(request)
        span = CallSpan(self.vendor, "messages", body)
        create = self._sdk.messages.with_streaming_response.create
        return await self._call(create, ("max_tokens", "messages", "model"), request, body, span)

    @on("/v1/messages/count_tokens")
    async def count_tokens(self, request: Request) -> ClientResponse:
        """Ask the service how many tokens a request has."""
        create = self._sdk.messages.with_streaming_response.count_tokens
        return await self._call(create, ("messages", "model"), request, self._body(request), CallSpan.none())

    def environ(self, handle: TunnelHandle) -> dict[str, str]:
        """Return the variables that point Anthropic's SDKs and Claude Code to the tunnel."""
        return anthropic_environ(handle)

    def _body(self, request: Request) -> dict[str, Any]:
        return request.body if self._model is None else {**request.body, "model": self._model}
