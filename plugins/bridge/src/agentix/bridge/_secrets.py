"""What must not reach a sandbox, a record or a log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast
from urllib.parse import unquote, urlsplit

MASK = "***"

#: Headers that prove who asks. An agent's are placeholders: they are never passed on.
KEY_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key"})

_SECRET_HEADERS = KEY_HEADERS | {"cookie", "set-cookie"}
_SECRET_PARAMETER = r"(?:api[_-]?key|key|token|access[_-]?token|auth|secret|password|signature|sig)"
_IN_QUERY = re.compile(rf"([?&;]{_SECRET_PARAMETER}=)[^&#\s'\"]+", re.IGNORECASE)
_IN_URL = re.compile(r"([a-z][a-z0-9+.-]*://)[^/\s?#@]+@", re.IGNORECASE)
_IN_HEADER = re.compile(
    r"((?:authorization|x-api-key|api-key|cookie)['\"]?\s*[:=]\s*['\"]?(?:bearer\s+|basic\s+)?)[^\s'\",;]+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(bearer\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_KEY = re.compile(r"\bsk-[A-Za-z0-9_-]{8,}")
_SHORTEST = 6  # of what is looked for anywhere in a text: shorter ones are words


def hide_patterns(text: str) -> str:
    """Mask what looks like a key, for texts of which only people read: errors and logs."""
    text = _IN_URL.sub(rf"\1{MASK}@", text)
    text = _IN_QUERY.sub(rf"\1{MASK}", text)
    text = _IN_HEADER.sub(rf"\1{MASK}", text)
    text = _BEARER.sub(rf"\1{MASK}", text)
    return _KEY.sub(MASK, text)


def hide(text: str, secrets: Iterable[str]) -> str:
    """Mask these values in a text, and nothing else."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def hide_bytes(data: bytes, secrets: Iterable[str]) -> bytes:
    """Mask these values in bytes."""
    for secret in secrets:
        data = data.replace(secret.encode("utf-8", "surrogatepass"), MASK.encode())
    return data


def hide_in(value: Any, secrets: tuple[str, ...]) -> Any:
    """Return a JSON value with these values masked in all its texts, keys too."""
    if not secrets:
        return value
    if isinstance(value, str):
        return hide(value, secrets)
    if isinstance(value, list):
        return [hide_in(item, secrets) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {hide(key, secrets): hide_in(item, secrets) for key, item in cast("dict[str, Any]", value).items()}
    return value


def longest_first(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return the values worth looking for; a value that holds another one comes before it."""
    return tuple(sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=len, reverse=True))


def of_headers(headers: Mapping[str, str]) -> list[str]:
    """Return the secret values in headers: whole, and without their scheme or their cookie's name."""
    found: list[str] = []
    for name, value in headers.items():
        if name.lower() not in _SECRET_HEADERS:
            continue
        found.append(value)
        if name.lower() in ("cookie", "set-cookie"):
            found += [part.partition("=")[2].strip() for part in value.split(";") if "=" in part]
        else:
            found.append(value.rpartition(" ")[2])
    return found


def of_query(query: str) -> list[str]:
    """Return the secret values in a query string, as they stand and decoded."""
    values = [match.group(0).partition("=")[2] for match in _IN_QUERY.finditer("?" + query)]
    return values + [unquote(value) for value in values]


def of_url(url: str) -> list[str]:
    """Return the secret values in a URL: its password and what its query has."""
    parts = urlsplit(url)
    password = [parts.password, unquote(parts.password)] if parts.password else []
    return password + of_query(parts.query)


def of_client(client: Any) -> list[str]:
    """Return the secrets that a client of ours says it holds."""
    held = getattr(client, "_abridge_secrets", None)
    return list(cast("Iterable[str]", held())) if callable(held) else []
