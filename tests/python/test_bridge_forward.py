"""Bridge: what `Forward` and `SessionForward` pass on, and what they keep back."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from agentix.bridge import AbridgeError, Forward, Request, SessionForward
from agentix.bridge._routes import takes_raw
from aiohttp import web
from bridge_peers import collected, events, free_port, serving, zipped

KEY = "sk-real-key-of-the-host"


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await main

    asyncio.run(bounded())


async def echo(request: web.Request) -> web.Response:
    return web.json_response({"path": request.raw_path}, headers={"x-served-by": "echo", "retry-after": "3"})


def test_arguments() -> None:
    with pytest.raises(ValueError, match="no paths"):
        Forward("http://127.0.0.1:1", paths=[])
    with pytest.raises(ValueError, match="starts with '/'"):
        Forward("http://127.0.0.1:1", paths=["v1"])
    with pytest.raises(ValueError, match="HTTP service"):
        Forward("127.0.0.1:1", paths=["/v1"])
    both = Forward("http://127.0.0.1:1", paths=["/a", "/b"])
    assert list(both.abridge_routes()) == ["/a", "/b"]
    assert all(takes_raw(handler) for handler in both.abridge_routes().values())
    with pytest.raises(ValueError, match="which of /a, /b"):
        both.handler()
    assert callable(Forward("http://127.0.0.1:1", paths=["/a"]).handler().aclose)  # type: ignore[attr-defined]


def test_request_goes_as_it_came() -> None:
    async def main() -> None:
        async with serving(echo) as service:
            forward = Forward(service.url + "/base/", paths=["/v1/x"], session_id="s-1", headers={"X-Api-Key": KEY})
            handler = forward.handler()
            headers = {
                "host": "evil.example",
                "connection": "x-foo, keep-alive",
                "x-foo": "hop",
                "te": "trailers",
                "authorization": "Bearer dummy",
                "x-api-key": "sandbox-dummy",
                "anthropic-beta": "a,b, c",
                "anthropic-version": "2023-06-01",
                "x-stainless-lang": "python",
                "x-session-id": "of the agent",
                "content-type": "application/json",
                "content-length": "10",
            }
            raw = b'{ "b":1  }'
            response = await handler(Request("/v1/x", {"b": 1}, "PUT", "beta=true&q=%2f%20a", headers, raw))
            assert json.loads(await collected(response.body)) == {"path": "/base/v1/x?beta=true&q=%2f%20a"}
            assert response.headers["retry-after"] == "3"
            assert response.headers["x-served-by"] == "echo"
            assert not {"content-length", "transfer-encoding", "connection"} & response.headers.keys()
            asked = service.requests[0]
            assert (asked["method"], asked["raw"]) == ("PUT", raw)
            names = {name for name, _ in asked["headers"]}
            assert not {"x-foo", "te", "authorization", "accept-encoding", "user-agent", "cookie"} & names
            assert service.header("host") == service.url.removeprefix("http://")
            assert service.header("x-api-key") == KEY
            assert service.header("anthropic-beta") == "a,b, c"
            assert service.header("x-stainless-lang") == "python"
            assert service.header("x-session-id") == "s-1"
            first = service.header("x-request-id")
            assert first

            await handler(Request("/v1/x", {"made": "by hand"}))
            assert service.body() == {"made": "by hand"}
            assert service.header("content-type") == "application/json"
            assert service.header("x-request-id") not in (None, first)

            await handler(Request("/v1/x", {}, "GET", headers={"host": "x"}))
            assert service.requests[-1]["raw"] == b""
            response = await handler(Request("/v1/x", {}, "HEAD", headers={"host": "x"}))
            assert (response.status_code, await collected(response.body)) == (200, b"")
            await forward.aclose()
            await forward.aclose()
            await handler(Request("/v1/x", {}))  # opens the pool again
            await forward.aclose()

    run(main())


def test_body_streams_up() -> None:
    async def main() -> None:
        async def body() -> AsyncIterator[bytes]:
            for _ in range(64):
                yield b"x" * 65536

        async with serving(echo) as service:
            forward = Forward(service.url, paths=["/up"])
            request = Request("/up", {}, headers={"content-type": "application/octet-stream"}, raw=body())
            assert (await forward.handler()(request)).status_code == 200
            assert len(service.requests[0]["raw"]) == 64 * 65536
            assert service.header("content-type") == "application/octet-stream"
            for request in (Request("/up", {}, raw=b"y" * 5_000_000), Request("/up", {"text": "y" * 5_000_000})):
                assert (await forward.handler()(request)).status_code == 200
                assert service.requests[-1]["raw"].count(b"y") == 5_000_000
                assert service.header("content-length") == str(len(service.requests[-1]["raw"]))
            await forward.aclose()

    run(main())


def test_events_stream_down_as_they_come_and_stop_when_the_agent_leaves() -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
            await response.prepare(request)
            await response.write(b"data: 1\n\n")
            await go.wait()
            while True:
                await response.write(b"data: 2\n\n")
                await asyncio.sleep(0.05)

        async with serving(answer) as service:
            forward = Forward(service.url, paths=["/s"])
            response = await forward.handler()(Request("/s", {}))
            assert response.media_type == "text/event-stream; charset=utf-8"
            assert not isinstance(response.body, bytes)
            assert await anext(response.body) == b"data: 1\n\n"  # before the service goes on
            go.set()
            assert await anext(response.body) == b"data: 2\n\n"
            await response.body.aclose()  # type: ignore[attr-defined]
            await service.left.wait()

            response = await forward.handler()(Request("/s", {}))
            service.left.clear()
            await response.body.aclose()  # type: ignore[union-attr]  # before its first piece
            await service.left.wait()
            await forward.aclose()

    run(main())


CODED = {
    "json": (200, b'{"text":"\xe6\x97\xa5"}', "application/json"),
    "error": (404, b'{"error":{"message":"no such model"}}', "application/json"),
    "events": (200, b"data: {}\n\n", "text/event-stream"),
    "empty": (200, b"", "application/json"),
}


@pytest.mark.parametrize("case", CODED)
@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd", "br", "none", "gzip, not said"])
def test_content_coding_passes(case: str, coding: str) -> None:
    """What the agent decodes is what the service meant: coding and bytes stay together, whatever they are."""
    status, plain, media_type = CODED[case]
    packed = {"gzip": zipped(plain), "gzip, not said": zipped(plain), "deflate": zlib.compress(plain)}.get(
        coding, plain
    )
    said = {} if coding in ("none", "gzip, not said") else {"Content-Encoding": coding}

    async def main() -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            return web.Response(status=status, body=packed, headers={"Content-Type": media_type, **said})

        async with serving(answer) as service:
            forward = Forward(service.url, paths=["/v1"], headers={"x-api-key": KEY})
            for accept in ({"accept-encoding": "gzip, br, zstd"}, {}):
                request = Request(
                    "/v1", {}, headers={"host": "x", "content-encoding": "gzip", **accept}, raw=zipped(b"{}")
                )
                response = await forward.handler()(request)
                assert response.status_code == status
                assert response.media_type == media_type
                assert await collected(response.body) == packed
                assert response.headers.get("content-encoding") == said.get("Content-Encoding")
                assert service.header("accept-encoding") == accept.get("accept-encoding")
                assert service.header("content-encoding") == "gzip"
                assert gzip.decompress(service.requests[-1]["raw"]) == b"{}"
            await forward.aclose()

    run(main())


def test_status_and_redirects_pass() -> None:
    async def main() -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            status = int(request.query["status"])
            return web.Response(status=status, text="<html>", content_type="text/html", headers={"Location": "/else"})

        async with serving(answer) as service:
            forward = Forward(service.url, paths=["/v1"])
            for status in (204, 302, 429, 503, 529):
                response = await forward.handler()(Request("/v1", {}, query=f"status={status}"))
                assert response.status_code == status
                assert response.headers["location"] == "/else"
            assert len(service.requests) == 5
            await forward.aclose()

    run(main())


def test_no_answer_is_503() -> None:
    async def main() -> None:
        async def never(request: web.Request) -> web.StreamResponse:
            await asyncio.sleep(30)
            return web.Response()

        forward = Forward(f"http://user:{KEY}@127.0.0.1:{free_port()}/?api_key={KEY}", paths=["/v1"])
        with pytest.raises(AbridgeError) as caught:
            await forward.handler()(Request("/v1", {}))
        assert caught.value.status_code == 503
        assert KEY not in str(caught.value)
        await forward.aclose()
        async with serving(never) as service:
            forward = Forward(service.url, paths=["/v1"], timeout=0.2)
            with pytest.raises(AbridgeError, match=r"within 0\.2 s") as caught:
                await forward.handler()(Request("/v1", {}))
            assert caught.value.status_code == 503
            await forward.aclose()

    run(main())


def test_stream_that_stops_or_breaks_says_so() -> None:
    async def main() -> None:
        async def stops(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write(b"data: 1\n\n")
            if "break" in request.path:
                assert request.transport is not None
                request.transport.abort()
            await asyncio.sleep(30)
            return response

        async with serving(stops) as service:
            forward = Forward(service.url, paths=["/stop", "/break"], timeout=0.3)
            stop, broken = forward.abridge_routes().values()
            response = await stop(Request("/stop", {}))
            with pytest.raises(AbridgeError, match=r"nothing for 0\.3 s"):
                await collected(response.body)
            response = await broken(Request("/break", {}))
            with pytest.raises(AbridgeError, match="ended early"):
                await collected(response.body)
            await forward.aclose()

    run(main())


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_key_of_the_host_stays_there(coding: str) -> None:
    """A service that repeats the key in its error and its headers."""

    async def main() -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            body = json.dumps({"error": {"message": f"invalid key {request.headers['x-api-key']}"}}).encode()
            return web.Response(
                status=401,
                body=zipped(body) if coding == "gzip" else body,
                headers={
                    "Content-Type": "application/json",
                    "Content-Encoding": coding,
                    "x-echo": KEY,
                    "Set-Cookie": f"k={KEY}",
                    "x-fine": "yes",
                },
            )

        async with serving(answer) as service:
            forward = Forward(service.url, paths=["/v1"], headers={"x-api-key": KEY})
            response = await forward.handler()(Request("/v1", {}, headers={"host": "x", "accept-encoding": "gzip"}))
            assert response.status_code == 401
            body = await collected(response.body)
            if response.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert json.loads(body) == {"error": {"message": "invalid key ***"}}
            assert KEY not in repr(response.headers)
            assert response.headers["x-fine"] == "yes"
            await forward.aclose()

    run(main())


def test_long_json_is_not_held_back() -> None:
    async def main() -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            for _ in range(20):
                await response.write(b" " * 1024 * 1024)
            return response

        async with serving(answer) as service:
            forward = Forward(service.url, paths=["/v1"])
            response = await forward.handler()(Request("/v1", {}))
            assert not isinstance(response.body, bytes)
            assert len(await collected(response.body)) == 20 * 1024 * 1024
            await forward.aclose()

    run(main())


def test_two_hundred_at_once() -> None:
    async def main() -> None:
        together = asyncio.Barrier(200)

        async def answer(request: web.Request) -> web.StreamResponse:
            await together.wait()
            return await events(request, [b"data: 1\n\n", b"data: 2\n\n"])

        async with serving(answer) as service:
            forward = Forward(service.url, paths=["/v1"])
            handler = forward.handler()

            async def one() -> bytes:
                return await collected((await handler(Request("/v1", {}))).body)

            assert set(await asyncio.gather(*(one() for _ in range(200)))) == {b"data: 1\n\ndata: 2\n\n"}
            await forward.aclose()

    run(main())


class Gateway:
    def __init__(self) -> None:
        self.made = 0
        self.status = 201
        self.body: Any = None

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/gw/sessions":
            self.made += 1
            await asyncio.sleep(0.05)
            body = {"session_id": f"s/{self.made}"} if self.body is None else self.body
            return web.json_response(body, status=self.status)
        if request.method == "DELETE":
            return web.Response(status=204)
        return web.json_response({"at": request.raw_path})


def test_session_is_made_once_and_used() -> None:
    async def main() -> None:
        gateway = Gateway()
        async with serving(gateway) as service:
            forward = SessionForward(service.url + "/gw", paths=["/v1/chat"])
            with pytest.raises(RuntimeError, match="no session yet"):
                _ = forward.session_id
            handler = forward.handler()
            responses = await asyncio.gather(*(handler(Request("/v1/chat", {})) for _ in range(10)))
            assert gateway.made == 1
            assert forward.session_id == "s/1"
            for response in responses:
                assert json.loads(await collected(response.body)) == {"at": "/gw/sessions/s%2F1/v1/chat"}
            assert service.header("x-session-id") == "s/1"
            assert await forward.open() == "s/1"
            await forward.aclose()
            await handler(Request("/v1/chat", {}))
            assert gateway.made == 1
            await forward.aclose()
            await forward.delete_session()
            assert (service.requests[-1]["method"], service.requests[-1]["path"]) == ("DELETE", "/gw/sessions/s%2F1")
            assert forward._pool.closed
            with pytest.raises(RuntimeError):
                _ = forward.session_id
            await forward.delete_session()
            assert await forward.open() == "s/2"
            forward.session_id = "mine"
            await handler(Request("/v1/chat", {}))
            assert service.header("x-session-id") == "mine"
            assert gateway.made == 2
            await forward.aclose()

    run(main())


@pytest.mark.parametrize(
    ("status", "body"), [(500, {"session_id": "x"}), (200, {}), (200, []), (200, {"session_id": 1})]
)
def test_session_that_is_not_made(status: int, body: Any) -> None:
    async def main() -> None:
        gateway = Gateway()
        gateway.status, gateway.body = status, body
        async with serving(gateway) as service:
            forward = SessionForward(service.url + "/gw", paths=["/v1"])
            with pytest.raises(AbridgeError) as caught:
                await forward.handler()(Request("/v1", {}))
            assert caught.value.status_code == 502
            gateway.status, gateway.body = 200, None
            assert (await forward.handler()(Request("/v1", {}))).status_code == 200
            await forward.aclose()

    run(main())
