"""On the host: records of a sandbox become records of loggers here.

The sandbox is not trusted. It chooses no logger that the host does not have, except below `agentix.sandbox.`, and few
of those; sizes are bounded, levels clamped, and attributes of a record that mean something here are not its to set.
"""

import logging
import sys
import traceback
from typing import Any, cast

from .utils._log_text import RESERVED, escape_line

_PREFIX = "agentix.sandbox."
_OTHER = "agentix.sandbox.other"
_NAME_MAX = 200
_NAMES_MAX = 1000
_TEXT_MAX = 256 << 10
_EXTRAS_MAX = 64
_made: set[str] = set()
_failure_said = False


def take(items: list[Any], lost: int) -> None:
    """Replay items of the stream `/log`."""
    if lost:
        _say_lost(lost)
    for item in items:
        if isinstance(item, dict):
            _replay(cast("dict[Any, Any]", item))


def _say_lost(lost: int) -> None:
    logging.getLogger("agentix.sandbox").warning(
        "log buffer full: %d records of the sandbox were dropped, the oldest ones", lost
    )


def _replay(item: dict[Any, Any]) -> None:
    logger = _logger_of(_text(item.get("name"), _NAME_MAX * 4) or "root")
    level = item.get("levelno", logging.INFO)
    level = max(0, min(level, 50)) if isinstance(level, int) else logging.INFO
    if not logger.isEnabledFor(level):
        return
    record = _record(logger.name, level, item)
    try:
        logger.handle(record)
    except BaseException as error:  # a handler of the host's own: its other records must not pay for it
        _say_failure(error)


def _say_failure(error: BaseException) -> None:
    """Say on stderr, once, that a handler raised: telling the loggers might only make it raise again."""
    global _failure_said
    if _failure_said or sys.stderr is None:
        return
    _failure_said = True
    print(
        "agentix: a logging handler raised when it was given a record of a sandbox; the record was passed over, and "
        "further failures are not shown",
        file=sys.stderr,
    )
    traceback.print_exception(error, file=sys.stderr)


def _logger_of(name: str) -> logging.Logger:
    known = logging.root.manager.loggerDict.get(name)
    if name == "root" or isinstance(known, logging.Logger):
        return logging.getLogger(name)
    if not name.startswith(_PREFIX):
        name = _PREFIX + name
    if len(name) > _NAME_MAX or not name.isprintable():
        name = escape_line(name)[:_NAME_MAX]
    if name not in _made:
        if len(_made) >= _NAMES_MAX:
            return logging.getLogger(_OTHER)
        _made.add(name)
    return logging.getLogger(name)


def _record(name: str, level: int, item: dict[Any, Any]) -> logging.LogRecord:
    created = item.get("created")
    record = logging.LogRecord(
        name,
        level,
        _text(item.get("pathname"), 4096),
        item["lineno"] if isinstance(item.get("lineno"), int) else 0,
        _text(item.get("message"), _TEXT_MAX),
        (),
        None,
        _text(item.get("funcName"), 1000) or None,
        _text_or_none(item.get("stack_info")),
    )
    record.levelname = escape_line(_text(item.get("level"), 40)) or logging.getLevelName(level)
    if isinstance(created, float) and 0 <= created < 1e11:
        record.created = created
        record.msecs = int(created % 1 * 1000) + 0.0
    record.module = _text(item.get("module"), 1000) or record.module
    record.exc_text = _text_or_none(item.get("exc_text"))
    record.processName = record.threadName = "sandbox"
    record.agentix_sandbox = True
    record.agentix_context = escape_line(_text(item.get("agentix_context"), 1000)) or "sandbox"
    extras: Any = item.get("extras")
    if isinstance(extras, dict):
        for key, value in list(cast("dict[Any, Any]", extras).items())[:_EXTRAS_MAX]:
            if _may_set(key):
                setattr(record, key, value)
    return record


def _may_set(key: Any) -> bool:
    """Whether an attribute of this name means nothing to `logging` or to Python."""
    if not isinstance(key, str) or not key.isidentifier() or key.startswith("__"):
        return False
    return key not in RESERVED and not hasattr(logging.LogRecord, key)


def _text(value: Any, limit: int) -> str:
    if not isinstance(value, str):
        return ""
    return value if len(value) <= limit else f"{value[:limit]} ...[{len(value)} characters, cut]"


def _text_or_none(value: Any) -> str | None:
    return _text(value, _TEXT_MAX) or None
