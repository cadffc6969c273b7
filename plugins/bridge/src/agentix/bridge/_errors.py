"""Errors, and the form in which the SDKs of both vendors understand them.

Anthropic's has `type` beside `error`, OpenAI's has `code` and `param` within; either skips what the other has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ._types import ClientResponse, check_status, is_status

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
    Raises TypeError for a `status_code` that is no int, ValueError for one that is not from 200 to 599.
    """

    def __init__(self, message: str, *, status_code: int = 502) -> None:
        check_status(status_code)
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
    response = ClientResponse.json(error_object(status, printable(message)), status_code=status)
    response.headers.update(headers or {})
    return response


def failure_response(failure: BaseException) -> ClientResponse:
    """Return what the agent gets for what a handler raised: an `AbridgeError`'s own status, else 502 `Type: text`."""
    try:
        if isinstance(failure, AbridgeError):
            check_status(failure.status_code)  # it may have been changed, or be a subclass's own
            body = error_object(failure.status_code, printable(str(failure)), failure.detail)
            response = ClientResponse.json(body, status_code=failure.status_code)
            response.headers.update(failure.headers)
            return response
        return error_response(502, f"{type(failure).__name__}: {failure}")
    except Exception as exc:
        return error_response(502, f"{type(failure).__name__}, which cannot be told: {type(exc).__name__}: {exc}")


def ends_task(exc: BaseException) -> bool:
    """Whether this is meant for the task that runs a handler, or the whole program, and is no failure of the handler.

    A SystemExit is one: the program is not the handler's to end. So is a CancelledError of what the handler waited for.
    """
    if isinstance(exc, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(exc, (KeyboardInterrupt, GeneratorExit))


def printable(text: str) -> str:
    """Return a text for the eye with whatever UTF-8 has no form for escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def service_status(status: int) -> int:
    """Return the status that a reply of a model service gets here: its own, unless no reply may have that.

    Raises AbridgeError 502 for one that no reply may have.
    """
    if not is_status(status):
        raise AbridgeError(f"the model service answered with the status {status}, which no reply may have")
    return status


def told_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return those headers of a model service's reply that tell the agent about limits and when to try again."""
    lower = {name.lower(): value for name, value in headers.items()}
    return {name: value for name, value in lower.items() if name in _TOLD or name.startswith(_TOLD_PREFIXES)}
