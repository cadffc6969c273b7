"""A recorded run, again, without a model."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ._environ import anthropic_environ, openai_environ
from ._errors import AbridgeError
from ._http import decoded
from ._json import json_bytes
from ._routes import raw_handler
from ._types import ClientResponse, Handler, Request, TunnelHandle

_MOST = 64 * 1024 * 1024  # of a request that is compared


@dataclass
class _Entry:
    ts: str
    digest: bytes
    offset: int
    length: int
    served: bool = False


class Replay:
    """Serves a `Recorder`'s file again: per path, the rows in the order in which their calls began.

    A request that is recorded gets its own row, if that is not served yet; any other gets the next one. A path whose
    rows are used up is answered with 410. Lines that a crash left behind are skipped. Of the file only the places
    of its rows are kept in memory.

    Raises OSError if the file cannot be read, ValueError if it has no rows.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._entries: dict[str, list[_Entry]] = {}
        with self._path.open("rb") as file:
            for line in file:
                self._index(line, file.tell() - len(line))
        if not self._entries:
            raise ValueError(f"no recorded calls in {self._path}")
        for entries in self._entries.values():
            entries.sort(key=lambda entry: entry.ts)

    def abridge_routes(self) -> dict[str, Handler]:
        """Return a handler for each recorded path."""
        return {path: raw_handler(self._handler_of(path)) for path in self._entries}

    def environ(self, handle: TunnelHandle) -> dict[str, str]:
        """Return the variables that point agents of the recorded vendors to the tunnel."""
        found: dict[str, str] = {}
        if any("/messages" in path for path in self._entries):
            found |= anthropic_environ(handle)
        if any(path.endswith(("/completions", "/responses")) for path in self._entries):
            found |= openai_environ(handle)
        return found

    def _index(self, line: bytes, offset: int) -> None:
        row = _row_of(line)
        if row is not None:
            entry = _Entry(str(row.get("ts", "")), _digest(row.get("method"), row.get("request")), offset, len(line))
            self._entries.setdefault(cast("str", row["path"]), []).append(entry)

    def _handler_of(self, path: str) -> Handler:
        async def answer(request: Request) -> ClientResponse:
            digest = _digest(request.method, await _object_of(request))
            left = [entry for entry in self._entries[path] if not entry.served]
            if not left:
                raise AbridgeError(
                    f"replay: all {len(self._entries[path])} recorded answers of {path} are used up", status_code=410
                )
            entry = next((entry for entry in left if entry.digest == digest), left[0])
            entry.served = True
            return self._response(entry)

        return answer

    def _response(self, entry: _Entry) -> ClientResponse:
        with self._path.open("rb") as file:
            row = _row_of(os.pread(file.fileno(), entry.length, entry.offset))
        if row is None:
            raise AbridgeError(f"replay: {self._path} has changed since it was opened")
        response = row.get("response")
        if not isinstance(response, dict):
            raise AbridgeError(str(row.get("error")), status_code=int(row.get("status_code", 502)))
        said = cast("dict[str, Any]", response)
        body, headers = _bytes_of(said.get("body"))
        return ClientResponse(body, said.get("media_type", "application/json"), said.get("status_code", 200), headers)


def _row_of(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not isinstance(cast("dict[str, Any]", row).get("path"), str):
        return None
    return cast("dict[str, Any]", row)


def _digest(method: str | None, request: object) -> bytes:
    text = json.dumps([method or "POST", request], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).digest()


async def _object_of(request: Request) -> object:
    raw = request.raw if isinstance(request.raw, bytes) else await _read(request.raw)
    if not raw:
        return request.body
    plain = decoded(raw, request.headers.get("content-encoding"), _MOST) or raw
    try:
        return cast("object", json.loads(plain))
    except (ValueError, RecursionError):
        return plain.decode(errors="replace")


async def _read(body: AsyncIterator[bytes]) -> bytes:
    read = bytearray()
    async for piece in body:
        if len(read) + len(piece) > _MOST:
            raise AbridgeError(f"replay: a request of more than {_MOST} bytes", status_code=413)
        read += piece
    return bytes(read)


def _bytes_of(body: object) -> tuple[bytes, dict[str, str]]:
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass"), {}
    if isinstance(body, dict):
        kept = cast("dict[str, Any]", body)
        if isinstance(kept.get("base64"), str) and kept.keys() <= {"base64", "content_encoding"}:
            encoding = kept.get("content_encoding")
            return base64.b64decode(kept["base64"]), {"content-encoding": encoding} if encoding else {}
    return json_bytes(body), {}
