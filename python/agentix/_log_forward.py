"""In a worker: every log record goes to the host, as an item of the stream `/log`.

Whatever a record holds, user code hears nothing of it: what cannot be formatted or carried is replaced by something
readable. Without the server (in a forked child, or at the end) a record is a line on stderr, which is captured as well.
"""

import logging
import os
import sys
from typing import Any

from . import _carrier
from .runtime.shared.codec import pack
from .utils._log_text import FORWARD, RESERVED, expand
from .utils._plain import plain, shown

# Not forwarded, unless a record is marked: what these say may be about forwarding.
_NOT_FORWARDED = ("agentix.sio", "agentix.utils.log")
_TEXT_MAX = 256 << 10
# Bytes: AGX_STREAM_ITEM_MAX in src/proto/limits.h.
_ITEM_MAX = 1 << 20


def install() -> None:
    """Forward what the root logger gets; it is at least INFO."""
    root = logging.getLogger()
    if any(isinstance(handler, ForwardHandler) for handler in root.handlers):
        return
    root.addHandler(ForwardHandler())
    if root.level > logging.INFO or root.level == logging.NOTSET:
        root.setLevel(logging.INFO)


class ForwardHandler(logging.Handler):
    """Sends each record to the hosts."""

    def __init__(self) -> None:
        super().__init__()
        context = os.environ.get("AGENTIX_LOG_CONTEXT", "")
        self._context = expand(context, os.environ.get("AGENTIX_WORKER_ID", ""))
        self._fallback = logging.Formatter("%(levelname)s %(name)s %(message)s")
        self._lines = _worker_format()

    def emit(self, record: logging.LogRecord) -> None:
        name = str(record.name)
        if not record.__dict__.pop(FORWARD, False) and any(
            name == prefix or name.startswith((prefix + ".", prefix + "_")) for prefix in _NOT_FORWARDED
        ):
            self._say_here(record)
            return
        try:
            data = self._pack(record)
            carrier = _carrier.carrier
            if carrier is None:
                raise OSError
            carrier.item("/log", data)
        except Exception:
            self._say_here(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Nothing that a record holds is user code's business here."""

    def _say_here(self, record: logging.LogRecord) -> None:
        try:
            print(self._fallback.format(record), file=sys.stderr)
        except Exception:  # noqa: S110 - there is nobody left to tell
            pass

    def _pack(self, record: logging.LogRecord) -> bytes:
        item: dict[str, Any] = {
            "name": _cut(str(record.name)),
            "level": _cut(str(record.levelname)),
            "levelno": record.levelno if isinstance(record.levelno, int) else 0,  # pyright: ignore[reportUnnecessaryIsInstance]
            "message": _cut(_message(record)),
            "created": float(record.created),
            "pathname": str(record.pathname),
            "lineno": record.lineno,
            "funcName": record.funcName,
            "module": record.module,
            "exc_text": _cut_or_none(self._exception(record)),
            "stack_info": _cut_or_none(record.stack_info),
            "agentix_context": str(getattr(record, "agentix_context", self._context)),
            "extras": {key: value for key, value in record.__dict__.items() if key not in RESERVED},
        }
        if self._lines is not None:
            item["line"] = _cut(self._lines.format(record))
        data = pack(plain(item))
        if len(data) > _ITEM_MAX:
            item["extras"] = {"dropped": "too large"}
            item.pop("line", None)
            for key in ("message", "exc_text", "stack_info"):
                item[key] = None if item[key] is None else _cut(item[key], _TEXT_MAX // 8)
            data = pack(plain(item))
        return data

    def _exception(self, record: logging.LogRecord) -> str | None:
        if record.exc_text or not record.exc_info:
            return record.exc_text
        try:
            return self._fallback.formatException(record.exc_info)  # pyright: ignore[reportArgumentType]
        except Exception as exc:
            return f"<the traceback could not be made: {type(exc).__name__}>"


def _worker_format() -> logging.Formatter | None:
    """AGENTIX_WORKER_LOG_FORMAT: how records are written in the durable file."""
    text = os.environ.get("AGENTIX_WORKER_LOG_FORMAT")
    try:
        return logging.Formatter(text, defaults={"agentix_context": ""}) if text else None
    except ValueError:
        return None


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as exc:
        return f"{shown(record.msg)} {shown(record.args)} <bad format: {type(exc).__name__}: {exc}>"


def _cut(text: str, limit: int = _TEXT_MAX) -> str:
    return text if len(text) <= limit else f"{text[:limit]} ...[{len(text)} characters, cut]"


def _cut_or_none(text: str | None) -> str | None:
    return None if text is None else _cut(str(text))
