"""Errors, and the form in which the SDKs of both vendors understand them.

Anthropic's has `type` beside `error`, OpenAI's has `code` and `param` within; either skips what the other has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._types import ClientResponse

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}

_TOLD = ("retry-after", "retry-after-ms", "x-should-retry", "request-id", "x-request-id")
_TOLD_PREFIXES = ("anthropic-ratelimit-", "x-ratelimit-")


class AbridgeError(RuntimeError):
    """A request that ends with `status_code` and this message in the agent.

    `headers` go to the agent with it (when to try again, for one), and `detail` into the error beside its message.
    """

    def __init__(self, message: str, *, status_code: int = 502) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.headers: dict[str, str] = {}
        self.detail: dict[str, Any] = {}


def error_object(status: int, message: str, detail: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return an error as both vendors' SDKs read it."""
    kind = _TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")
    error = {"type": kind, "message": message, "code": None, "param": None}
    return {"type": "error", "error": {**error, **(detail or {})}}


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> ClientResponse:
    """Return a reply that is an error."""
    response = ClientResponse.json(error_object(status, message), status_code=status)
    response.headers.update(headers or {})
    return response


def failure_response(failure: BaseException) -> ClientResponse:
    """Return what the agent gets for what a handler raised: an `AbridgeError`'s own status, else 502 `Type: text`."""
    if isinstance(failure, AbridgeError):
        body = error_object(failure.status_code, str(failure), failure.detail)
        response = ClientResponse.json(body, status_code=failure.status_code)
        response.headers.update(failure.headers)
        return response
    return error_response(502, f"{type(failure).__name__}: {failure}")


def told_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return those headers of a model service's reply that tell the agent about limits and when to try again."""
    lower = {name.lower(): value for name, value in headers.items()}
    return {name: value for name, value in lower.items() if name in _TOLD or name.startswith(_TOLD_PREFIXES)}
