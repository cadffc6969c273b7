"""What a `RuntimeClient` is told, checked: its URL, token, headers and the numbers for reconnection."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict
from urllib.parse import unquote_to_bytes, urlsplit

# RFC 9110: the characters of a field name, and of a value as we send it.
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_HOST = re.compile(r"[A-Za-z0-9._~%:-]+")
_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)*")

# Fields that the client writes itself, or that would change how a message ends.
_OURS = frozenset(
    {
        "accept-encoding",
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "prefer",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_HEADERS_MAX = 16 << 10
_UNIX_PATH_MAX = 107


@dataclass(frozen=True)
class Address:
    """Where a runtime listens: a Unix socket's path, or host and port."""

    shown: str
    secure: bool
    authority: str
    prefix: str
    unix_path: bytes | None = None
    host: str | None = None
    port: int = 0


class Reconnection(TypedDict):
    """The keywords of `ClientCore` about reconnecting."""

    reconnect: bool
    attempts: int
    delay: float
    delay_max: float
    jitter: float


def parse(base_url: str) -> Address:
    """Return the address that `base_url` means; ValueError says what is wrong with it."""
    if not isinstance(base_url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"base_url must be a str, not {type(base_url).__name__}")
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https", "http+unix"):
        raise ValueError(f"{base_url!r} is no URL of a runtime: http://, https:// or http+unix:// was expected")
    if parts.query or parts.fragment or "@" in parts.netloc or not parts.netloc:
        raise ValueError(f"{_shown(base_url)} is no URL of a runtime: it needs a host, and no user, query or fragment")
    prefix = parts.path.rstrip("/")
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"{_shown(base_url)} has a path that cannot be sent")
    if parts.scheme == "http+unix":
        return _unix(parts.netloc, prefix)
    return _network(base_url, parts.scheme, prefix)


def _unix(netloc: str, prefix: str) -> Address:
    path = unquote_to_bytes(netloc)
    if not path.startswith(b"/") or b"\0" in path:
        raise ValueError("http+unix:// wants the absolute path of a socket, with %2F for each slash")
    if len(path) > _UNIX_PATH_MAX:
        raise ValueError(f"the path of a Unix socket may have {_UNIX_PATH_MAX} bytes: {os.fsdecode(path)}")
    return Address(f"http+unix://{netloc}{prefix}", False, "localhost", prefix, unix_path=path)


def _network(base_url: str, scheme: str, prefix: str) -> Address:
    parts = urlsplit(base_url)
    host, port = parts.hostname or "", parts.port  # ValueError for a port that is none
    if not _HOST.fullmatch(host) or port == 0:
        raise ValueError(f"{_shown(base_url)} has no host and port that can be connected to")
    bracketed = f"[{host}]" if ":" in host else host
    authority = bracketed if port is None else f"{bracketed}:{port}"
    secure = scheme == "https"
    return Address(
        f"{scheme}://{authority}{prefix}",
        secure,
        authority,
        prefix,
        host=host,
        port=port or (443 if secure else 80),
    )


def _shown(url: str) -> str:
    """A URL for an error text: without what may be a password in it."""
    head, at, tail = url.rpartition("@")
    return repr(f"{head.partition('://')[0]}://...@{tail}" if at else url)


def header_lines(headers: Mapping[str, str] | None) -> bytes:
    """Return header fields as they are sent; ValueError or TypeError for one that may not be."""
    lines = b"".join(_line(name, value) for name, value in (headers or {}).items())
    if len(lines) > _HEADERS_MAX:
        raise ValueError(f"headers take {len(lines)} bytes; {_HEADERS_MAX} may be sent")
    return lines


def _line(name: str, value: str) -> bytes:
    if not isinstance(name, str) or not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("headers must map str to str")
    lowered = name.lower()
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a header")
    if lowered in _OURS or lowered.startswith("agentix-"):
        hint = "; use token=" if lowered == "authorization" else ""
        raise ValueError(f"the header {name} is set by the client itself{hint}")
    if not _VALUE.fullmatch(value):  # the value may be a secret: it is not shown
        raise ValueError(f"the value of the header {name} has characters that cannot be sent")
    return f"{name}: {value.strip()}\r\n".encode("latin-1")


def token(given: str | None) -> str | None:
    """Return the token given, or that of the file named by AGENTIX_CLIENT_TOKEN_FILE, or None."""
    path = os.environ.get("AGENTIX_CLIENT_TOKEN_FILE")
    source = "token"
    if given is None and path:
        source = f"the token in {path} (AGENTIX_CLIENT_TOKEN_FILE)"
        try:
            given = Path(path).read_text(encoding="ascii", errors="replace").strip()
        except OSError as exc:
            raise ValueError(f"AGENTIX_CLIENT_TOKEN_FILE names {path}, which cannot be read: {exc.strerror}") from exc
    if given is None:
        return None
    if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"token must be a str or None, not {type(given).__name__}")
    if not _TOKEN.fullmatch(given) or len(given) > 4096:
        raise ValueError(f"{source} must be 1 to 4096 visible ASCII characters, without spaces")
    return given


def not_negative(field: str, value: object) -> float:
    """A finite number, zero or above."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{field} must be a number, not {type(value).__name__}")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{field} must be 0 or above and finite: {value}")
    return float(value)


def reconnection(
    enabled: object, attempts: object, delay: object, delay_max: object, randomization_factor: object
) -> Reconnection:
    """Return the knobs with their defaults filled in."""
    if enabled is not None and not isinstance(enabled, bool):
        raise TypeError(f"reconnection must be a bool or None, not {type(enabled).__name__}")
    if attempts is not None and (isinstance(attempts, bool) or not isinstance(attempts, int)):
        raise TypeError(f"reconnection_attempts must be an int or None, not {type(attempts).__name__}")
    if attempts is not None and not 0 <= attempts < 1 << 31:
        raise ValueError(f"reconnection_attempts must not be negative: {attempts}")
    jitter = 0.5 if randomization_factor is None else not_negative("randomization_factor", randomization_factor)
    if jitter > 1:
        raise ValueError(f"randomization_factor must be from 0 to 1: {jitter}")
    first = 0.1 if delay is None else not_negative("reconnection_delay", delay)
    return Reconnection(
        reconnect=enabled is not False,
        attempts=5 if attempts is None else attempts,
        delay=first,
        delay_max=max(first, 2.0) if delay_max is None else not_negative("reconnection_delay_max", delay_max),
        jitter=jitter,
    )
