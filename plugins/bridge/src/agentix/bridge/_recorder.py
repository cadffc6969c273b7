"""What agent and model service said, a line of JSON per call."""

from __future__ import annotations

import base64
import dataclasses
import fcntl
import json
import logging
import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from . import _secrets
from ._calls import Call, current_call
from ._errors import AbridgeError
from ._http import decoded
from ._routes import raw_handler, routes_of, takes_raw
from ._types import ClientResponse, Handler, Request

logger = logging.getLogger("agentix.bridge")

_MOST = 256 * 1024 * 1024  # of one body; what is longer is cut in the record, and says so


class Recorder:
    """Writes what passes through `client` to a file, one JSON object per line and call.

    A row has `ts` (when the call began), `path`, `request_id` (the `x-request-id` that the model service saw),
    `session_id` if one was given, `gateway_session_id` if a gateway keeps one, `request`, and `response` with
    `status_code`, `media_type` and `body`, or `error` (and the `status_code` that the agent got). JSON bodies are
    objects, others text, and `{"base64": ...}` what is neither. Keys are masked: those in the agent's headers and
    query, and those that the client holds.

    The file is made at the first row, readable by its owner only. A row that cannot be written is logged, and the call
    succeeds.
    """

    def __init__(self, client: Any, path: Path | str, *, session_id: str | None = None) -> None:
        self._client = client
        self._path = Path(path)
        self._session_id = session_id
        self._file: int | None = None
        self._closed = False

    def abridge_routes(self) -> dict[str, Handler]:
        """Return the client's handlers, each with its recording."""
        return {path: self._recording(path, handler) for path, handler in routes_of([self._client]).items()}

    def environ(self, handle: Any) -> dict[str, str]:
        """Return the client's variables, if it has any."""
        environ = getattr(self._client, "environ", None)
        return environ(handle) if callable(environ) else {}  # pyright: ignore[reportReturnType]

    async def aclose(self) -> None:
        """Close the client and the file. Rows that come later are dropped."""
        self._closed = True
        try:
            close = getattr(self._client, "aclose", None)
            if close is not None:
                await close()
        finally:
            file, self._file = self._file, None
            if file is not None:
                os.close(file)

    def _abridge_secrets(self) -> list[str]:
        return _secrets.of_client(self._client)

    def _recording(self, path: str, handler: Handler) -> Handler:
        async def record(request: Request) -> ClientResponse:
            row = _Row(path, Call(), request, self)
            token = current_call.set(row.call)
            try:
                response = await handler(row.request)
            except BaseException as failure:
                row.failed(failure)
                raise
            finally:
                current_call.reset(token)
            return row.answered(response)

        return raw_handler(record) if takes_raw(handler) else record

    def write(self, row: dict[str, Any], request: Request) -> None:
        """Append the row of a request, with what is secret masked. Never raises."""
        if self._closed:
            logger.warning("recorder is closed: row of %s dropped", row.get("path"))
            return
        try:
            row = _secrets.hide_in(row, self.secrets(request))
            line = json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=str) + "\n"
            if self._file is None:
                self._file = _open(self._path)
            _append(self._file, line.encode("utf-8", "backslashreplace"))
        except Exception as failure:
            logger.error("row NOT persisted to %s: %s: %s", self._path, type(failure).__name__, failure)

    def fields(self, call: Call) -> dict[str, str]:
        """Return the sessions of a call."""
        found = {"session_id": self._session_id, "gateway_session_id": call.gateway_session_id}
        return {name: value for name, value in found.items() if value is not None}

    def secrets(self, request: Request) -> tuple[str, ...]:
        """Return what is masked in the row of a request."""
        theirs = [*_secrets.of_headers(request.headers), *_secrets.of_query(request.query)]
        return _secrets.longest_first([*theirs, *self._abridge_secrets()])


class _Row:
    """One call on its way; written when its reply has ended, however that ends."""

    def __init__(self, path: str, call: Call, request: Request, recorder: Recorder) -> None:
        self.call = call
        self.request = request
        self._path = path
        self._began = datetime.now(UTC)
        self._recorder = recorder
        self._sent = _Kept()
        self._written = False
        if not isinstance(request.raw, bytes):
            self.request = dataclasses.replace(request, raw=_passing(request.raw, self._sent))
        elif request.raw:
            self._sent.take(request.raw)

    def answered(self, response: ClientResponse) -> ClientResponse:
        got = _Kept()
        encoding = response.headers.get("content-encoding")

        def ended(failure: BaseException | None) -> None:
            if failure is not None:
                self.failed(failure)
                return
            body = got.value(encoding)
            said = {"status_code": response.status_code, "media_type": response.media_type, "body": body}
            self._write({"response": said})

        if isinstance(response.body, bytes):
            got.take(response.body)
            ended(None)
            return response
        return dataclasses.replace(response, body=_Passing(response.body, got, ended))

    def failed(self, failure: BaseException) -> None:
        said = _secrets.hide_patterns(f"{type(failure).__name__}: {failure}")
        status = {"status_code": failure.status_code} if isinstance(failure, AbridgeError) else {}
        self._write({"error": said, **status})

    def _write(self, end: dict[str, Any]) -> None:
        if self._written:
            return
        self._written = True
        began = self._began.isoformat(timespec="microseconds").replace("+00:00", "Z")
        row: dict[str, Any] = {"ts": began, "path": self._path, "request_id": self.call.request_id}
        row.update(self._recorder.fields(self.call))
        if self.request.method != "POST":
            row["method"] = self.request.method
        body = self._sent.value(self.request.headers.get("content-encoding")) if self._sent.size else self.request.body
        row |= {"request": body, **end}
        self._recorder.write(row, self.request)


class _Kept:
    """A body as it passes."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytes] = []

    def take(self, piece: bytes) -> None:
        if self.size <= _MOST:
            self._pieces.append(piece)
        self.size += len(piece)

    def value(self, encoding: str | None) -> Any:
        body = b"".join(self._pieces)
        if self.size > _MOST:
            return f"({self.size} bytes, too long for a record)"
        plain = decoded(body, encoding, _MOST)
        if plain is None:
            return {"base64": base64.b64encode(body).decode(), "content_encoding": encoding}
        try:
            text = plain.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(plain).decode()}
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return cast("object", parsed) if isinstance(parsed, (dict, list)) else text


class _Passing:
    """A body that is kept while it passes; says how it ended."""

    def __init__(self, body: AsyncIterator[bytes], kept: _Kept, ended: Callable[[BaseException | None], None]) -> None:
        self._body = body
        self._kept = kept
        self._ended = ended

    def __aiter__(self) -> _Passing:
        return self

    async def __anext__(self) -> bytes:
        try:
            piece = await anext(self._body)
        except StopAsyncIteration:
            self._ended(None)
            raise
        except BaseException as failure:
            self._ended(failure)
            raise
        self._kept.take(piece)
        return piece

    async def aclose(self) -> None:
        """The agent left; does nothing after the end."""
        self._ended(ConnectionAbortedError("the agent left before the end of the reply"))
        close = getattr(self._body, "aclose", None)
        if close is not None:
            await close()


async def _passing(body: AsyncIterator[bytes], kept: _Kept) -> AsyncIterator[bytes]:
    async for piece in body:
        kept.take(piece)
        yield piece


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(file, 0o600)
    except BaseException:
        os.close(file)
        raise
    return file


def _append(file: int, line: bytes) -> None:
    """Append a line; what a crash left of an earlier one, here or in another process, does not run into it."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            line = b"\n" + line
        view = memoryview(line)
        while view:
            view = view[os.write(file, view) :]
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
