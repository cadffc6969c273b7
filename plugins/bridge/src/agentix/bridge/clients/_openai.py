"""The Chat Completions API, through OpenAI's SDK."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .._environ import openai_environ
from .._routes import on
from .._types import ClientResponse, Request, TunnelHandle
from ._sdk import SdkClient
from ._spans import CallSpan

_NO_KEY = "EMPTY"  # services that need none take any; the SDK insists on one


class OpenAISdkClient(SdkClient):
    """Sends requests by OpenAI's SDK."""

    vendor = "openai"

    def _make(self) -> Any:
        from openai import AsyncOpenAI

        options = self._options()
        if self._api_key is None and not os.environ.get("OPENAI_API_KEY"):
            options["api_key"] = _NO_KEY
        return AsyncOpenAI(**options)

    async def _complete(self, request: Request, body: dict[str, Any]) -> ClientResponse:
        span = CallSpan(self.vendor, "chat", body)
        create = self._sdk.chat.completions.with_streaming_response.create
        return await self._call(create, ("messages", "model"), request, body, span)


class OpenAIClient(OpenAISdkClient):
    """Answers Chat Completions requests by OpenAI's SDK: replies and streams come as the service sends them.

    What is not given is taken from the host's environment as the SDK does (`OPENAI_API_KEY`, `OPENAI_BASE_URL`, ...).
    `model` replaces the one that the agent asks for, `extra_body` is laid over its request; `timeout` is in seconds,
    for each piece of a stream; `session_id` is sent as `x-session-id`. Errors of the service reach the agent with
    their status, their message and the headers that say when to try again; no answer is 503.
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
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        self._extra_body = dict(extra_body or {})
        super().__init__(base_url, api_key, model, timeout, max_retries, session_id)

    @on("/v1/chat/completions")
    async def chat_completions(self, request: Request) -> ClientResponse:
        """Answer a request for a completion."""
        override = {} if self._model is None else {"model": self._model}
        return await self._complete(request, {**request.body, **override, **self._extra_body})

    def environ(self, handle: TunnelHandle) -> dict[str, str]:
        """Return the variables that point OpenAI's SDKs to the tunnel."""
        return openai_environ(handle)
