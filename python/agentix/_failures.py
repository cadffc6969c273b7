"""What a remote call can fail with.

    Exception
    +-- RuntimeError
    |   +-- RemoteCallError             the target raised, or its value could not be sent
    |   |   +-- CallCancelled           the call was cancelled in the sandbox
    |   |   +-- WorkerExited            the worker process died during the call
    |   +-- CallTimeout                 `call_deadline` passed
    |   +-- RuntimeUnreachable          no connection to the runtime, or the last one was lost
    |   +-- RemoteSioError              the other side of a namespace answered a request with an error
    +-- pickle.UnpicklingError
        +-- RestrictedUnpickleError     a returned value names something outside the allowlist

The texts of a `RemoteError` come from the sandbox, which is not trusted: `failure_from` and `error_from_wire` cut them
to the bounds below and escape what could move a terminal's cursor, forge a log line or break an encoder.
"""

import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass

# In characters; the bounds in bytes that the C side applies first are AGX_MAX_FAULT_* in src/proto/limits.h.
MAX_TYPE = 256
MAX_NAME = 4096
MAX_MESSAGE = 64 << 10
MAX_TRACEBACK = 256 << 10

_SEPARATOR = "\n--- sandbox traceback ---\n"

# Controls except tab and newline, the C1 range, line and paragraph separators, text-direction marks, lone surrogates.
_UNSAFE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_UNSAFE_TEXT = re.compile(f"[{_UNSAFE}]")
_UNSAFE_WORD = re.compile(f"[{_UNSAFE}\t\n]")


@dataclass(frozen=True)
class RemoteError:
    """A failure as the runtime reported it.

    `type` is the class name of the exception raised in the sandbox, or one of the runtime's own (`Cancelled`,
    `WorkerDied`, `ResultEncodeError`, ...). `returncode` is the dead worker's exit code, or minus the signal number.
    """

    type: str
    message: str
    traceback: str | None = None
    cancelled: bool = False
    returncode: int | None = None
    reason: str | None = None


class RemoteCallError(RuntimeError):
    """The remote function failed.

    `str(exc)` is `<module::qualname>: <type>: <message>`, followed by the sandbox's traceback when there is one.
    `display_name` is the target's name, `error` the structured failure.
    """

    display_name: str
    error: RemoteError

    def __init__(self, display_name: str, error: RemoteError) -> None:
        self.display_name = _word(display_name, MAX_NAME)
        self.error = _sanitised(error)
        super().__init__(_describe(self.display_name, self.error))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.display_name, self.error), dict(self.__dict__)


class CallCancelled(RemoteCallError):
    """The call was cancelled in the sandbox; cancelling the local task raises `asyncio.CancelledError` instead."""


class WorkerExited(RemoteCallError):
    """The worker process died while the call ran; `returncode` is its exit code or minus the signal number."""

    returncode: int | None

    def __init__(self, display_name: str, error: RemoteError) -> None:
        super().__init__(display_name, error)
        self.returncode = self.error.returncode


class CallTimeout(RuntimeError):
    """The call took longer than `call_deadline`. A `TimeoutError` raised by the target is a `RemoteCallError`."""


class RuntimeUnreachable(RuntimeError):
    """The sandbox's runtime cannot be reached."""


class RestrictedUnpickleError(pickle.UnpicklingError):
    """A value returned by the sandbox was refused: it names a type or function outside the allowlist."""


def failure_from(display_name: str, error: RemoteError) -> RemoteCallError:
    """Return the exception that stands for `error` of the call to `display_name`."""
    if error.cancelled:
        return CallCancelled(display_name, error)
    if error.type == "WorkerDied":
        return WorkerExited(display_name, error)
    return RemoteCallError(display_name, error)


def error_from_wire(fields: Mapping[str, object]) -> RemoteError:
    """Return the `error` map of the wire as a `RemoteError`; a field of a wrong type counts as absent."""

    def text(key: str) -> str | None:
        value = fields.get(key)
        return value if isinstance(value, str) else None

    returncode = fields.get("returncode")
    return _sanitised(
        RemoteError(
            type=text("type") or "UnknownError",
            message=text("message") or "",
            traceback=text("traceback") or None,
            cancelled=fields.get("cancelled") is True,
            returncode=returncode if isinstance(returncode, int) and not isinstance(returncode, bool) else None,
            reason=text("reason"),
        )
    )


class RemoteSioError(RuntimeError):
    """A request on a namespace was answered with an error: its `type`, `message` and `status_code`, an int or None."""

    type: str
    message: str
    status_code: int | None

    def __init__(self, type: str, message: str, status_code: int | None = None) -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message
        self.status_code = status_code

    def __reduce__(self) -> "tuple[type[RemoteSioError], tuple[str, str, int | None]]":
        return RemoteSioError, (self.type, self.message, self.status_code)


def _describe(display_name: str, error: RemoteError) -> str:
    text = f"{display_name}: {error.type}: {error.message}"
    return f"{text}{_SEPARATOR}{error.traceback}" if error.traceback else text


def _sanitised(error: RemoteError) -> RemoteError:
    return RemoteError(
        type=_word(error.type, MAX_TYPE),
        message=_text(error.message, MAX_MESSAGE),
        traceback=None if error.traceback is None else _text(error.traceback, MAX_TRACEBACK),
        cancelled=error.cancelled,
        returncode=error.returncode,
        reason=None if error.reason is None else _text(error.reason, MAX_MESSAGE),
    )


def _word(value: str, limit: int) -> str:
    return _cut(_UNSAFE_WORD.sub(_escape, _cut(value, limit)), limit)


def _text(value: str, limit: int) -> str:
    return _cut(_UNSAFE_TEXT.sub(_escape, _cut(value, limit)), limit)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _cut(value: str, limit: int) -> str:
    """Keep the ends of a text that is too long: a traceback says most in its last lines."""
    if len(value) <= limit:
        return value
    mark = f" ...[{len(value)} characters, cut]... "
    tail = (limit - len(mark)) // 2
    return value[: limit - len(mark) - tail] + mark + value[-tail:]


for _cls in (
    RemoteCallError,
    CallCancelled,
    WorkerExited,
    CallTimeout,
    RuntimeUnreachable,
    RemoteSioError,
    RestrictedUnpickleError,
):
    _cls.__module__ = "agentix"
