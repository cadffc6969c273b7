"""What callers may say, checked before anything is spawned.

Every string ends up as an argument or a variable of some engine, so none may be taken for an option, split in two or
end a line early. The functions raise ValueError for a bad value and TypeError for a wrong type. Error texts name the
field and the rule; values of environment variables, which may be secrets, never appear in them.
"""

import math
import os
import re
from collections.abc import Mapping

_PLATFORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*){0,2}")
_SANDBOX_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_MEMORY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(?:([kmgt]?)b?|([kmgt])ib)", re.IGNORECASE)
_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def word(field: str, value: object) -> str:
    """One argument of an engine: not empty, no leading `-`, no white space or control characters."""
    text = path(field, value)
    if any(c.isspace() for c in text):
        raise ValueError(f"{field} must not contain white space: {_shown(text)}")
    return text


def path(field: str, value: object) -> str:
    """A path, which may contain spaces inside."""
    text = _string(field, value)
    if not text:
        raise ValueError(f"{field} must not be empty")
    if text.startswith("-"):
        raise ValueError(f"{field} must not start with '-', which would make it an option: {_shown(text)}")
    if text != text.strip():
        raise ValueError(f"{field} must not start or end with white space: {_shown(text)}")
    if not text.isprintable():
        raise ValueError(f"{field} must not contain control or unprintable characters: {_shown(text)}")
    return text


def platform(field: str, value: object) -> str:
    """An OCI platform: `linux/amd64`, `linux/arm64/v8`."""
    text = word(field, value)
    if not _PLATFORM.fullmatch(text):
        raise ValueError(f"{field} must look like 'linux/amd64': {_shown(text)}")
    return text


def sandbox_id(value: object) -> str:
    """A sandbox's id, as `delete` and `get` receive it: letters, digits, `_`, `.` and `-` inside, at most 128."""
    text = _string("sandbox_id", value)
    if not _SANDBOX_ID.fullmatch(text):
        raise ValueError(f"not a sandbox id: {_shown(text)}")
    return text


def secret(field: str, value: object) -> str:
    """A key or token that travels in a header; what is wrong with it is said without showing it."""
    text = _string(field, value)
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"{field} is no key: it is empty, or has spaces, control or non-ASCII characters")
    return text


def env(field: str, value: object) -> dict[str, str]:
    """Environment variables, copied. Values may hold anything but NUL, newlines included."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{field} must be a dict of strings, not {type(value).__name__}")
    return {_env_name(field, name): _env_value(field, name, text) for name, text in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _env_name(field: str, name: object) -> str:
    text = _string(f"a name in {field}", name)
    if not text:
        raise ValueError(f"a name in {field} must not be empty")
    before, equals, _ = text.partition("=")
    if equals:  # what follows may be a value
        raise ValueError(f"a name in {field} must not contain '=': {_shown(before + '=')}...")
    if text[0] in "-#":
        raise ValueError(f"a name in {field} must not start with '-' or '#': {_shown(text)}")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"a name in {field} must be printable ASCII without spaces: {_shown(text)}")
    return text


def _env_value(field: str, name: object, value: object) -> str:
    text = _string(f"{field}[{name!r}]", value)
    if "\0" in text:
        raise ValueError(f"{field}[{name!r}] must not contain NUL")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise ValueError(f"{field}[{name!r}] cannot be encoded: it contains lone surrogates") from None
    return text


def positive(field: str, value: object) -> float:
    """A finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{field} must be a number, not {type(value).__name__}")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{field} must be above 0 and finite: {value}")
    return value


def count(field: str, value: object) -> int:
    """A whole number above zero."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field} must be an int, not {type(value).__name__}")
    if value <= 0:
        raise ValueError(f"{field} must be above 0: {value}")
    return value


def memory(field: str, value: object) -> int:
    """An amount of memory in bytes: an int, or a string such as `512m`, `16g`, `1.5GiB` (powers of 1024)."""
    if not isinstance(value, str):
        return count(field, value)
    match = _MEMORY.fullmatch(value)
    if not match:
        raise ValueError(f"{field} must be a number of bytes or look like '512m' or '16g': {_shown(value)}")
    unit = 1 << _SHIFT[(match[2] or match[3] or "").lower()]
    size = int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit
    if size < 1:
        raise ValueError(f"{field} must be above 0: {_shown(value)}")
    return size


def timing(call_deadline: object, timeout: object, http_sync_ms: object) -> None:
    """The three knobs of `Sandbox` and `session`: seconds or None, seconds, whole milliseconds or None."""
    if call_deadline is not None:
        positive("call_deadline", call_deadline)
    positive("timeout", timeout)
    if http_sync_ms is None:
        return
    if isinstance(http_sync_ms, bool) or not isinstance(http_sync_ms, int):
        raise TypeError(f"http_sync_ms must be an int or None, not {type(http_sync_ms).__name__}")
    if http_sync_ms < 0:
        raise ValueError(f"http_sync_ms must not be negative: {http_sync_ms}")


def instance(field: str, value: object, cls: type) -> None:
    """An object of the class."""
    if not isinstance(value, cls):
        raise TypeError(f"{field} must be a {cls.__name__}, not {type(value).__name__}")


def _string(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{field} must be a str, not {type(value).__name__}")
    return value


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
