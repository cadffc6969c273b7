"""Logging on the host: records of sandboxes come as records of their loggers; here is a handler that shows them well.

    from agentix.utils.log import configure_logging

    configure_logging()

Sandbox code uses `logging` as usual. A record arrives under its own logger's name if the host has that logger, else
under `agentix.sandbox.<name>`; what was printed arrives under `agentix.sandbox.stdout` and `agentix.sandbox.stderr`.
"""

import logging
import os
from typing import Any

from ._log_text import escape, escape_line, expand

__all__ = ["configure_logging"]

_FORMAT = "%(asctime)s [%(agentix_context)s] %(name)s: %(message)s"


def configure_logging(*, default_context: str = "host", stream: Any = None, force: bool = False) -> None:
    """Write the records of this process and of its sandboxes to `stream`, standard error by default.

    Each record has the attribute `agentix_context`: where it comes from, `default_context` for this process's own.
    Control characters are escaped, and a sandbox's record stays on one line. A second call changes the context and, if
    it is given one, the stream. With `force` all other handlers of the root logger are removed.

    From the environment: AGENTIX_LOG_LEVEL (INFO), AGENTIX_LOG_FORMAT, and AGENTIX_LOG_CONTEXT, a template for the
    context in which {uname}, {hostname}, {pid} and {id} are filled in.
    """
    root = logging.getLogger()
    if force:
        for old in root.handlers[:]:
            root.removeHandler(old)
            old.close()
    handler = next((h for h in root.handlers if isinstance(h, _Handler)), None)
    if handler is None:
        handler = _Handler(stream)
        root.addHandler(handler)
    elif stream is not None:
        handler.setStream(stream)
    handler.context = expand(os.environ.get("AGENTIX_LOG_CONTEXT") or default_context, _ident())
    handler.setFormatter(_formatter())
    root.setLevel(_level())


class _Handler(logging.StreamHandler[Any]):
    context = "host"

    def filter(self, record: logging.LogRecord) -> Any:
        if not hasattr(record, "agentix_context"):
            record.agentix_context = self.context
        return super().filter(record)


class _Formatter(logging.Formatter):
    """Nothing that a record says can move a cursor or pass for another record."""

    def format(self, record: logging.LogRecord) -> str:
        foreign = getattr(record, "agentix_sandbox", False)
        record.message = (escape_line if foreign else escape)(record.getMessage())
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        text = escape_line(self.formatMessage(record)) if foreign else self.formatMessage(record)
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        for more in (record.exc_text, record.stack_info):
            if more:
                text += "\n" + "\n".join(
                    "    " * foreign + escape(line) for line in more.removesuffix("\n").split("\n")
                )
        return text


def _formatter() -> logging.Formatter:
    text = os.environ.get("AGENTIX_LOG_FORMAT")
    try:
        return _Formatter(text or _FORMAT)
    except ValueError:
        return _Formatter(_FORMAT)


def _level() -> int:
    text = os.environ.get("AGENTIX_LOG_LEVEL", "").strip().upper()
    return int(text) if text.isdecimal() else logging.getLevelNamesMapping().get(text, logging.INFO)


def _ident() -> str:
    return os.environ.get("AGENTIX_WORKER_ID") or f"{os.getpid():08x}"


configure_logging.__module__ = "agentix"
