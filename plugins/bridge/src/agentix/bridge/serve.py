"""Clients of the bridge on a port of the host, for agents that reach it without a tunnel.

    agentix-bridge-serve --upstream-base-url http://127.0.0.1:8000/v1 --upstream-model my-model

Callers are told apart by their keys: each key is a session with a client of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

from aiohttp import web

from ._errors import AbridgeError, ends_task, error_response, failure_response
from ._forward import SessionForward
from ._recorder import Recorder
from ._routes import routes_of, takes_raw
from ._sessions import Factory, Sessions
from ._types import ClientResponse, Handler, Request, check_status

logger = logging.getLogger("agentix.bridge")

_PORT = 8399
_MOST_SESSIONS = 256
_MOST_BODY = 256 * 1024 * 1024
_NOT_SENT = {"content-length", "content-type", "transfer-encoding", "connection", "keep-alive"}

_Routes = Callable[[str], AbstractAsyncContextManager[Mapping[str, Handler]]]


def session_id_for(headers: Mapping[str, str]) -> str:
    """Return the session of a caller: of its key (`x-api-key`, or `Authorization: Bearer`) the first 24 hex digits of
    the SHA-256; `anonymous` without a key."""
    key = _key_of(headers)
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:24] if key else "anonymous"


def build_app(handler: Any, *, verify_key: Callable[[str], bool] | None = None) -> web.Application:
    """Return an application that serves one client (or one handler, for every path) to all callers.

    The client is closed with the application. A caller whose key (empty for none) `verify_key` does not accept gets
    401.
    """
    routes: Mapping[str, Handler] = _Everything(handler) if _is_handler(handler) else routes_of([handler])

    async def close(_: web.Application) -> None:
        aclose = getattr(handler, "aclose", None)
        if aclose is not None:
            await aclose()

    return _application(lambda _: nullcontext(routes), verify_key, close)


def build_session_app(
    factory: Factory, *, verify_key: Callable[[str], bool] | None = None, max_sessions: int = _MOST_SESSIONS
) -> web.Application:
    """Return an application with a client for each session, which `factory(session_id)` makes.

    At most `max_sessions` are kept: the one that was not asked for longest is closed, after the requests that it still
    answers. All are closed with the application. A caller whose key `verify_key` does not accept gets 401.
    """
    sessions = Sessions(factory, max_sessions)

    async def close(_: web.Application) -> None:
        await sessions.aclose()

    return _application(sessions.use, verify_key, close)


def main(argv: list[str] | None = None) -> int:
    """Run the command. Returns 0 when it is ended by a signal; raises SystemExit 2 for wrong arguments."""
    arguments = _arguments(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    app = build_session_app(_factory(arguments), verify_key=_verifier(), max_sessions=arguments.max_sessions)
    print(f"agentix-bridge-serve: http://{arguments.host}:{arguments.port}", file=sys.stderr, flush=True)
    web.run_app(app, host=arguments.host, port=arguments.port, access_log=None, print=None, handler_cancellation=True)
    return 0


# ---- the command ----


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="agentix-bridge-serve",
        description="Serve the Messages and the Chat Completions API in front of a model service.",
    )
    upstream = parser.add_mutually_exclusive_group()
    upstream.add_argument("--upstream-base-url", metavar="URL", help="a Chat Completions API ($OPENAI_BASE_URL)")
    upstream.add_argument("--tito-url", metavar="URL", help="a gateway that keeps sessions ($TITO_URL)")
    parser.add_argument("--upstream-model", metavar="NAME", help="what it is asked for ($UPSTREAM_MODEL)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=_PORT, help="port to listen on (%(default)s)")
    parser.add_argument("--max-sessions", type=int, default=_MOST_SESSIONS, metavar="N", help="(%(default)s)")
    parser.epilog = (
        "environment: OPENAI_API_KEY (EMPTY), ABRIDGE_KEY_PREFIX (callers' keys begin with it, others get 401), "
        "ABRIDGE_RECORD_DIR (a file of what was said per session)"
    )
    found = parser.parse_args(argv)
    if not found.upstream_base_url and not found.tito_url:
        found.upstream_base_url = os.environ.get("OPENAI_BASE_URL")
        found.tito_url = os.environ.get("TITO_URL")
    if bool(found.upstream_base_url) == bool(found.tito_url):
        parser.error("one of --upstream-base-url ($OPENAI_BASE_URL) and --tito-url ($TITO_URL) is required, not both")
    if found.max_sessions < 1:
        parser.error("--max-sessions has to be 1 or more")
    found.upstream_model = found.upstream_model or os.environ.get("UPSTREAM_MODEL") or None
    return found


def _verifier() -> Callable[[str], bool] | None:
    prefix = os.environ.get("ABRIDGE_KEY_PREFIX", "")

    def verify(key: str) -> bool:
        return key.startswith(prefix)

    return verify if prefix else None


def _factory(arguments: argparse.Namespace) -> Factory:
    make = _tito if arguments.tito_url else _upstream
    importlib.import_module(
        "agentix.bridge.clients._translating" if arguments.tito_url else "openai"
    )  # not in a request
    directory = os.environ.get("ABRIDGE_RECORD_DIR")

    def factory(session_id: str) -> Any:
        client = make(arguments, session_id)
        if not directory:
            return client
        return Recorder(client, Path(directory) / f"{session_id}.jsonl", session_id=session_id)

    return factory


def _upstream(arguments: argparse.Namespace, session_id: str) -> Any:
    from .clients import AnthropicFromOpenAIClient, OpenAIClient

    base_url, model = arguments.upstream_base_url, arguments.upstream_model
    key = os.environ.get("OPENAI_API_KEY") or "EMPTY"
    return _Several(
        AnthropicFromOpenAIClient(base_url=base_url, api_key=key, model=model, session_id=session_id),
        OpenAIClient(base_url=base_url, api_key=key, model=model, session_id=session_id),
    )


def _tito(arguments: argparse.Namespace, session_id: str) -> Any:
    from .clients import AnthropicToOpenAI

    gateway = SessionForward(arguments.tito_url, paths=["/v1/chat/completions"])
    return _Several(AnthropicToOpenAI(gateway.handler(), model=arguments.upstream_model), gateway)


class _Several:
    """Several clients as one."""

    def __init__(self, *clients: Any) -> None:
        self._clients = clients

    def abridge_routes(self) -> dict[str, Handler]:
        return routes_of(self._clients)

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()

    def _abridge_secrets(self) -> list[str]:
        from ._secrets import of_client

        return [secret for client in self._clients for secret in of_client(client)]


# ---- the application ----


class _Everything(dict[str, Handler]):
    """One handler for all paths."""

    def __init__(self, handler: Handler) -> None:
        super().__init__()
        self._handler = handler

    def get(self, key: str, default: Any = None) -> Any:
        return self._handler


def _is_handler(handler: Any) -> bool:
    return callable(handler) and not isinstance(handler, type) and hasattr(handler, "__name__")


def _application(
    routes: _Routes, verify_key: Callable[[str], bool] | None, close: Callable[[web.Application], Any]
) -> web.Application:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/_health":
            return web.json_response({"status": "ok"})
        headers = _headers_of(request)
        if verify_key is not None and not verify_key(_key_of(headers)):
            return await _send(request, error_response(401, "this key is not accepted"))
        async with routes(session_id_for(headers)) as found:
            handler = found.get(request.path)
            if handler is None:
                return await _send(request, error_response(404, f"no such path: {request.path}"))
            return await _send(request, await _answered(handler, request, headers))

    async def guarded(request: web.Request) -> web.StreamResponse:
        try:
            return await answer(request)
        except (web.HTTPException, ConnectionResetError):
            raise
        except Exception as failure:  # a factory's, for one
            logger.warning("%s %s: %s", request.method, request.path, type(failure).__name__)
            return await _send(request, failure_response(failure))

    app = web.Application(client_max_size=_MOST_BODY)
    app.router.add_route("*", "/{path:.*}", guarded)
    app.on_cleanup.append(close)
    return app


async def _answered(handler: Handler, request: web.Request, headers: dict[str, str]) -> ClientResponse:
    raw: bytes | AsyncIterator[bytes]
    body: dict[str, Any] = {}
    if takes_raw(handler):
        raw = request.content.iter_any() if request.body_exists else b""
    else:
        raw = await request.read()
        body = _object_of(raw)
    asked = Request(request.path, body, request.method, request.rel_url.raw_query_string, headers, raw)
    try:
        response = await handler(asked)
        check_status(response.status_code)
        return response
    except BaseException as failure:
        if ends_task(failure):
            raise
        if not isinstance(failure, AbridgeError):
            logger.error("%s: the handler failed", request.path, exc_info=failure)
        return failure_response(failure)


async def _send(request: web.Request, response: ClientResponse) -> web.StreamResponse:
    headers = {name: value for name, value in response.headers.items() if name.lower() not in _NOT_SENT}
    headers["Content-Type"] = response.media_type
    if isinstance(response.body, bytes):
        return web.Response(status=response.status_code, body=response.body, headers=headers)
    stream = web.StreamResponse(status=response.status_code, headers=headers)
    try:
        await stream.prepare(request)
        async for piece in response.body:
            await stream.write(piece)
        await stream.write_eof()
    except ConnectionResetError:
        raise
    except BaseException as failure:
        if ends_task(failure):
            raise
        # The head is on its way: only a connection that breaks off says that this is not the end.
        logger.warning("%s: the reply broke off: %s", request.path, type(failure).__name__)
        if request.transport is not None:
            request.transport.abort()
    finally:
        close = getattr(response.body, "aclose", None)
        if close is not None:
            await close()
    return stream


def _headers_of(request: web.Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        name = name.lower()
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _key_of(headers: Mapping[str, str]) -> str:
    lower = {name.lower(): value for name, value in cast("Iterable[tuple[str, str]]", headers.items())}
    key = lower.get("x-api-key", "").strip()
    scheme, _, token = lower.get("authorization", "").strip().partition(" ")
    return key or (token.strip() if scheme.lower() == "bearer" else "")


def _object_of(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


if __name__ == "__main__":
    sys.exit(main())
