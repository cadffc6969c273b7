"""Tunnels through a real runtime: plain HTTP clients in the sandbox, handlers on the host, links that break."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import logging
import re
import subprocess
import time
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from agentix.bridge import AbridgeError, Budget, ClientResponse, Proxy, Request, on
from agentix.bridge._routes import raw_handler
from agentix.provider.uv import UvProvider, UvProviderConfig
from shim import Shim

from agentix import RuntimeClient, SandboxConfig, SandboxId
from agentix.provider import Sandbox
from agentix.testing import serve

PATIENCE = 45.0
pytestmark = pytest.mark.timeout(120)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await main()

    asyncio.run(bounded())


class Model:
    """Handlers of many kinds; it notes what becomes of them."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.gone = 0
        self.made = 0
        self.closed = 0
        self.go = asyncio.Event()

    @on("/echo")
    async def echo(self, request: Request) -> ClientResponse:
        self.calls.append(request.body.get("n"))
        headers = {k: v for k, v in request.headers.items() if k.startswith("x-")}
        return ClientResponse.json(
            {"body": request.body, "method": request.method, "query": request.query, "headers": headers}
        )

    @on("/bad")
    async def bad(self, request: Request) -> ClientResponse:
        what = request.body.get("what")
        if what == "abridge":
            raise AbridgeError("slow down", status_code=429)
        if what == "bug":
            raise LookupError("no such thing")
        if what == "wrong":
            return "text"  # type: ignore[return-value]
        return ClientResponse(
            b"not now", "text/plain", 503, {"retry-after": "7", "connection": "x", "x-bad": "a\r\nb: c"}
        )

    @on("/events")
    async def events(self, request: Request) -> ClientResponse:
        return ClientResponse.sse(self._events(request.body.get("n", 3), request.body.get("break", False)))

    async def _events(self, n: int, breaks: bool) -> AsyncIterator[bytes]:
        try:
            for i in range(n):
                yield f"data: {i}\n\n".encode()
                await asyncio.wait_for(self.go.wait(), 20)
                self.go.clear()
            if breaks:
                raise OSError("broke")
        finally:
            self.gone += 1

    @on("/flood")
    async def flood(self, request: Request) -> ClientResponse:
        return ClientResponse(self._flood(request.body["n"]), "application/octet-stream")

    async def _flood(self, n: int) -> AsyncIterator[bytes]:
        for i in range(n):
            self.made += 1
            yield i.to_bytes(4, "big") * 4096

    @on("/slow")
    async def slow(self, request: Request) -> ClientResponse:
        self.calls.append(request.body.get("n"))
        try:
            await asyncio.wait_for(self.go.wait(), 30)
        except asyncio.CancelledError:
            self.gone += 1
            raise
        return ClientResponse.json({"n": request.body.get("n")})

    def abridge_routes(self) -> dict[str, Any]:
        async def raw(request: Request) -> ClientResponse:
            size = 0
            if isinstance(request.raw, bytes):
                size = len(request.raw)
            else:
                async for piece in request.raw:
                    size += len(piece)
                    self.made = size
                    if request.query == "held":
                        await asyncio.wait_for(self.go.wait(), 20)
            return ClientResponse.json({"size": size, "method": request.method, "query": request.query})

        return {"/raw": raw_handler(raw)}

    async def aclose(self) -> None:
        self.closed += 1


@asynccontextmanager
async def tunnel(
    model: Any, *, shimmed: bool = False, **settings: Any
) -> AsyncIterator[tuple[str, aiohttp.ClientSession, Shim | None]]:
    async with serve() as url:
        shim = Shim(url).__enter__() if shimmed else None
        sandbox: Any = Sandbox(SandboxId("box"), url)
        if shim:  # comes back at once, however often its link breaks
            sandbox = RuntimeClient(shim.url, reconnection_delay=0.01, reconnection_delay_max=0.05)
        try:
            async with Proxy(model, **settings).session(sandbox) as handle, aiohttp.ClientSession() as http:
                yield handle.url, http, shim
        finally:
            await (sandbox.close() if shim else sandbox.aclose())
            if shim:
                shim.__exit__(None, None, None)


async def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def test_a_request_and_its_answer() -> None:
    async def main() -> None:
        model = Model()
        async with tunnel(model) as (url, http, _):
            curl = await asyncio.create_subprocess_exec(
                *("curl", "-sS", "-i", "--max-time", "10", "-H", "X-A: 1", "-H", "x-a: 2", "-d", '{"n": 1}'),
                f"{url}/echo?beta=true&x",
                stdout=subprocess.PIPE,
            )
            out = (await asyncio.wait_for(curl.communicate(), 20))[0].decode()
            head, _, body = out.partition("\r\n\r\n")
            assert head.startswith("HTTP/1.1 200 OK\r\n")
            assert "Content-Type: application/json" in head
            assert json.loads(body) == {
                "body": {"n": 1},
                "method": "POST",
                "query": "beta=true&x",
                "headers": {"x-a": "1, 2"},
            }
            for data, status in ((b"", 200), (b"[1]", 400), (b"{", 400), (b"\xff", 400)):
                async with http.post(url + "/echo", data=data) as reply:
                    assert reply.status == status
                    if status == 400:
                        assert (await reply.json())["error"]["message"]
            for coding, data, status in (
                ("gzip", gzip.compress(b'{"n": 2}'), 200),
                ("deflate", zlib.compress(b'{"n": 2}'), 200),
                ("identity", b'{"n": 2}', 200),
                ("gzip", b'{"n": 2}', 415),
                ("br", b'{"n": 2}', 415),
            ):
                async with http.post(url + "/echo", data=data, headers={"Content-Encoding": coding}) as reply:
                    assert reply.status == status, coding
                    if status == 200:
                        assert (await reply.json())["body"] == {"n": 2}
            for path, status in (("/nope", 404), ("/echo/", 404), ("//echo", 404)):
                async with http.post(url + path, json={}) as reply:
                    assert reply.status == status
                    assert (await reply.json())["error"]["message"]
            async with http.get(url + "/_health") as reply:
                assert await reply.read() == b'{"status":"ok"}'
            async with http.head(url + "/") as reply:
                assert reply.status == 404
            async with http.head(url + "/echo") as reply:
                assert reply.status == 200
                assert int(reply.headers["Content-Length"]) > 20
            async with http.post(url + "/echo", json={}, headers={"Origin": "http://evil"}) as reply:
                assert reply.status == 403
        assert model.closed == 1

    run(main)


def test_what_goes_wrong_reaches_the_agent(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with tunnel(Model()) as (url, http, _):

            async def ask(what: str) -> tuple[int, Any, Any]:
                async with http.post(url + "/bad", json={"what": what}) as reply:
                    return reply.status, await reply.read(), reply.headers

            status, body, headers = await ask("plain")
            assert (status, body, headers["Content-Type"]) == (503, b"not now", "text/plain")
            assert headers["retry-after"] == "7"
            assert "x-bad" not in headers
            assert "b" not in headers
            status, body, _ = await ask("abridge")
            assert status == 429
            assert json.loads(body)["error"]["message"] == "slow down"
            status, body, _ = await ask("bug")
            assert status == 502
            assert "LookupError: no such thing" in json.loads(body)["error"]["message"]
            status, body, _ = await ask("wrong")
            assert status == 502
            assert "TypeError" in json.loads(body)["error"]["message"]

    with caplog.at_level(logging.CRITICAL, "agentix.bridge"):
        run(main)


class Wrong:
    """Handlers whose answers cannot be sent as they are."""

    @on("/wrong")
    async def wrong(self, request: Request) -> ClientResponse:
        what = request.body["what"]
        answer = ClientResponse.json({})
        error = AbridgeError("odd", status_code=429)
        match what:
            case 99 | 1000 | "x" | 200.0 | True:
                answer.status_code = what
            case "error":
                error.status_code = request.body["status"]
                raise error
            case "exit":
                raise SystemExit(3)
            case "cancelled":
                raise asyncio.CancelledError
            case "group":
                raise BaseExceptionGroup("several", [SystemExit(3), KeyError("x")])
            case "surrogate":
                return ClientResponse.json({"text": "a\ud83d"})
            case "told":
                raise AbridgeError("bad \ud83d", status_code=429)
            case "fields":
                answer.headers = {f"x-{n}": "1" for n in range(300)}
            case "field":
                answer.headers["x-a"] = "\ud83d"
            case "error's field":
                error.headers["x-a"] = "\ud83d"
                raise error
            case "type":
                answer.media_type = request.body["type"]
            case "stream":
                return ClientResponse.sse(self.events())
            case _:
                pass
        return answer

    async def events(self) -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        raise SystemExit(4)


def test_what_cannot_be_sent_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not one of these takes the window, a minute here, nor the host's loop."""
    table: list[tuple[dict[str, Any], int, str]] = [
        *(({"what": status}, 502, "status_code") for status in (99, 1000, "x", 200.0, True)),
        *(({"what": "error", "status": status}, 502, "status_code") for status in (99, 1000, "x", 429.0, None)),
        ({"what": "exit"}, 502, "SystemExit: 3"),
        ({"what": "cancelled"}, 502, "CancelledError"),
        ({"what": "group"}, 502, "BaseExceptionGroup: several"),
        ({"what": "surrogate"}, 502, "lone surrogate"),
        ({"what": "told"}, 429, "bad \\ud83d"),
        ({"what": "fields"}, 502, "it may have 200"),
        ({"what": "field"}, 502, "lone surrogate"),
        ({"what": "error's field"}, 502, "the reply cannot be sent"),
        ({"what": "type", "type": None}, 502, "media_type"),
        ({"what": "type", "type": "\ud83d"}, 502, "lone surrogate"),
    ]

    async def main() -> None:
        async with tunnel(Wrong(), request_timeout=60) as (url, http, _):
            for asked, status, said in table:
                timeout = aiohttp.ClientTimeout(total=30)
                async with http.post(url + "/wrong", data=json.dumps(asked), timeout=timeout) as reply:
                    assert reply.status == status, asked
                    assert said in (await reply.json())["error"]["message"], asked
            reply = await http.post(url + "/wrong", json={"what": "stream"})
            assert await reply.content.readany() == b"data: 1\n\n"
            with pytest.raises(aiohttp.ClientError):
                await reply.content.read()
            async with http.post(url + "/wrong", json={"what": None}) as reply:
                assert reply.status == 200

    run(main)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) >= len(table) - 6  # all but what AbridgeErrors say of themselves
    assert any("SystemExit" in repr(record.exc_info) for record in errors)


def test_events_come_one_by_one() -> None:
    async def main() -> None:
        model = Model()
        async with tunnel(model) as (url, http, _):
            async with http.post(url + "/events", json={}) as reply:
                assert reply.headers["Content-Type"] == "text/event-stream"
                for i in range(3):  # each before the next one is made
                    assert await reply.content.readany() == f"data: {i}\n\n".encode()
                    model.go.set()
                assert await reply.content.read() == b""
            assert model.gone == 1
            async with http.post(url + "/echo", json={"n": 2}) as reply:  # the connection goes on
                assert reply.status == 200

    run(main)


def test_a_stream_that_fails_is_broken_off(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        model = Model()
        async with tunnel(model) as (url, http, _), http.post(url + "/events", json={"n": 1, "break": True}) as reply:
            assert await reply.content.readany() == b"data: 0\n\n"
            model.go.set()
            with pytest.raises(aiohttp.ClientError):
                await reply.content.read()

    with caplog.at_level(logging.CRITICAL, "agentix.bridge"):
        run(main)


def test_who_leaves_cancels_the_handler() -> None:
    async def main() -> None:
        model = Model()
        async with tunnel(model) as (url, http, _):
            reply = await http.post(url + "/events", json={})
            assert await reply.content.readany() == b"data: 0\n\n"
            reply.close()
            await until(lambda: model.gone == 1)
            asking = asyncio.create_task(http.post(url + "/slow", json={}))
            await until(lambda: model.calls == [None])
            asking.cancel()
            await until(lambda: model.gone == 2)

    run(main)


def test_who_reads_slowly_holds_back_the_handler() -> None:
    async def main() -> None:
        model = Model()
        async with tunnel(model) as (url, http, _), http.post(url + "/flood", json={"n": 2000}) as reply:
            made = -1
            while made != model.made:
                made = model.made
                await asyncio.sleep(0.5)
            assert made < 1500  # 24 MB; what both sockets hold, and the credit, is less
            body = await reply.read()
            assert len(body) == 2000 * 16384
            assert body[::16384] == b"".join(i.to_bytes(4, "big")[:1] for i in range(2000))

    run(main)


def test_a_large_request_is_streamed_and_held_back() -> None:
    async def main() -> None:
        model = Model()

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(400):
                yield b"z" * 50000

        async with tunnel(model) as (url, http, _):
            async with http.put(url + "/raw?a=b", data=pieces()) as reply:
                assert await reply.json() == {"size": 20_000_000, "method": "PUT", "query": "a=b"}
            model.made = 0
            asking = asyncio.create_task(http.post(url + "/raw?held", data=pieces()))
            await until(lambda: model.made > 0)
            await asyncio.sleep(0.3)
            assert model.made < 1_000_000
            model.go.set()
            async with await asking as reply:
                assert (await reply.json())["size"] == 20_000_000
            async with http.post(url + "/echo", data=io.BytesIO(b'{"a": "' + b"y" * 3_000_000 + b'"}')) as reply:
                assert len((await reply.json())["body"]["a"]) == 3_000_000

    run(main)


def test_an_answer_that_does_not_come_is_504() -> None:
    async def main() -> None:
        model = Model()
        async with tunnel(model, request_timeout=1.5) as (url, http, _):
            loop = asyncio.get_running_loop()
            since = loop.time()
            async with http.post(url + "/slow", json={}) as reply:
                assert reply.status == 504
                assert (await reply.json())["error"]["message"]
            assert 1.4 < loop.time() - since < 15
            await until(lambda: model.gone == 1)
            reply = await http.post(url + "/events", json={})
            assert await reply.content.readany() == b"data: 0\n\n"
            with pytest.raises(aiohttp.ClientError):
                await reply.content.read()
            reply.close()
            await until(lambda: model.gone == 2)

    run(main)


def test_two_hundred_at_once() -> None:
    async def main() -> None:
        model = Model()
        connector = aiohttp.TCPConnector(limit=0)
        async with tunnel(model) as (url, _, _), aiohttp.ClientSession(connector=connector) as http:

            async def ask(n: int) -> int:
                async with http.post(url + "/slow", json={"n": n}) as reply:
                    return (await reply.json())["n"]

            asking = [asyncio.create_task(ask(n)) for n in range(200)]
            await until(lambda: len(model.calls) == 200)
            model.go.set()
            assert await asyncio.gather(*asking) == list(range(200))

    run(main)


def test_requests_survive_a_broken_link_and_are_handled_once() -> None:
    async def main() -> None:
        model = Model()
        async with tunnel(model, shimmed=True) as (url, http, shim):
            assert shim is not None
            asking = [asyncio.create_task(http.post(url + "/slow", json={"n": n})) for n in range(5)]
            await until(lambda: len(model.calls) == 5)
            stream = await http.post(url + "/events", json={"n": 3})
            assert await stream.content.readany() == b"data: 0\n\n"
            await asyncio.to_thread(shim.cut)
            later = asyncio.create_task(http.post(url + "/echo", json={"n": "later"}))
            model.go.set()
            for i in (1, 2):
                assert await stream.content.readany() == f"data: {i}\n\n".encode()
                model.go.set()
            assert await stream.content.read() == b""
            stream.close()
            model.go.set()
            for n, one in enumerate(asking):
                async with await one as reply:
                    assert reply.status == 200
                    assert await reply.json() == {"n": n}
                    model.go.set()
            async with await later as reply:
                assert reply.status == 200
            assert sorted(map(str, model.calls)) == ["0", "1", "2", "3", "4", "later"]

    run(main)


def test_a_flood_through_cuts_is_whole() -> None:
    async def main() -> None:
        model = Model()
        async with tunnel(model, shimmed=True) as (url, http, shim):
            assert shim is not None
            async with http.post(url + "/flood", json={"n": 1500}) as reply:
                body = bytearray()
                for cut_at in (1_000_000, 5_000_000, 5_100_000, 12_000_000):
                    while len(body) < cut_at:
                        body += await reply.content.readany()
                    await asyncio.to_thread(shim.cut)
                body += await reply.content.read()
            assert bytes(body) == b"".join(i.to_bytes(4, "big") * 4096 for i in range(1500))

            async def pieces() -> AsyncIterator[bytes]:
                for i in range(200):
                    if i % 60 == 30:
                        await asyncio.to_thread(shim.cut)
                    yield b"z" * 50000

            async with http.post(url + "/raw", data=pieces()) as reply:
                assert (await reply.json())["size"] == 10_000_000

    run(main)


def test_a_host_that_stays_away_is_504() -> None:
    async def main() -> None:
        model = Model()
        async with tunnel(model, shimmed=True, request_timeout=3.0) as (url, http, shim):
            assert shim is not None
            async with http.post(url + "/echo", json={"n": 1}) as reply:
                assert reply.status == 200
            await asyncio.to_thread(shim.blackhole)
            async with http.post(url + "/echo", json={"n": 2}) as reply:
                assert reply.status == 504
            assert model.calls == [1]
            await asyncio.to_thread(shim.cut)

    run(main)


# ---- the life of a proxy ----


async def inside_an_except(proxy: Proxy, sandbox: Sandbox) -> None:
    try:
        raise KeyError
    except KeyError:
        async with proxy.session(sandbox):
            pass


def test_the_life_of_a_proxy() -> None:
    class Closing(Model):
        async def aclose(self) -> None:
            await super().aclose()
            raise OSError("cannot close")

    async def main() -> None:
        async with serve() as url:
            sandbox, model = Sandbox(SandboxId("box"), url), Closing()
            proxy = Proxy(model)
            assert proxy.paths == ("/echo", "/bad", "/events", "/flood", "/slow", "/raw")
            with pytest.raises(RuntimeError, match="start"):
                _ = proxy.url
            await proxy.stop()
            assert model.closed == 0
            handle = await proxy.start(sandbox)
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+", handle.url)
            assert handle.url.endswith(f":{handle.port}")
            assert await proxy.start(sandbox) is handle
            assert proxy.url == handle.url
            with pytest.raises(ExceptionGroup, match="clos"):
                await proxy.stop()
            await proxy.stop()
            assert model.closed == 1
            with pytest.raises(RuntimeError):
                _ = proxy.url
            async with aiohttp.ClientSession() as http:
                with pytest.raises(aiohttp.ClientError):
                    await http.get(handle.url + "/_health")
            with pytest.raises(ExceptionGroup):  # once more, inside of an except too
                await inside_an_except(proxy, sandbox)
            assert model.closed == 2
            with pytest.raises(LookupError):
                async with proxy.session(sandbox):
                    raise LookupError
            assert model.closed == 3
            await sandbox.aclose()

    run(main)


def test_a_proxy_comes_before_the_first_call() -> None:
    async def main() -> None:
        async with serve() as url:
            sandbox, model = Sandbox(SandboxId("box"), url), Model()
            assert await sandbox.remote(json.dumps, 1) == "1"
            with pytest.raises(RuntimeError, match="open the proxy first"):
                await Proxy(model).start(sandbox)
            assert model.closed == 1
            await sandbox.aclose()

    run(main)


def test_two_proxies_and_calls_beside_them() -> None:
    async def main() -> None:
        async with serve() as url:
            sandbox, first, second = Sandbox(SandboxId("box"), url), Model(), Model()
            async with Proxy(first).session(sandbox) as one, Proxy(second).session(sandbox) as two:
                assert one.url != two.url
                async with aiohttp.ClientSession() as http:
                    for handle, n in ((one, 1), (two, 2)):
                        async with http.post(handle.url + "/echo", json={"n": n}) as reply:
                            assert reply.status == 200
                assert await sandbox.remote(json.dumps, [1]) == "[1]"
            assert (first.calls, second.calls) == ([1], [2])
            await sandbox.aclose()

    run(main)


def test_what_is_no_proxy() -> None:
    class Nothing:
        pass

    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="request_timeout"):
            Proxy(Model(), request_timeout=wrong)
    for clients in ((), (Nothing(),), (Model(), Model())):
        with pytest.raises(ValueError, match=r"no clients|no handlers|two handlers"):
            Proxy(*clients)


def test_a_budget() -> None:
    class Paid:
        @on("/v1/messages")
        async def messages(self, request: Request) -> ClientResponse:
            return ClientResponse.json({"usage": {"input_tokens": 6, "output_tokens": 4}})

    async def main() -> None:
        for budget, statuses in (
            (Budget(requests=2), [200, 200, 429]),
            (Budget(tokens=15), [200, 200, 429]),
            (Budget(seconds=0), [429]),
        ):
            async with tunnel(Paid(), budget=budget) as (url, http, _):
                got: list[int] = []
                for _ in statuses:
                    async with http.post(url + "/v1/messages", json={}) as reply:
                        got.append(reply.status)
                assert got == statuses

    run(main)


def test_who_leaves_a_counted_stream_closes_it() -> None:
    """A generator that the client leaves runs its `finally`, also below the count of a budget."""

    async def main() -> None:
        model = Model()
        async with tunnel(model, budget=Budget(tokens=1000)) as (url, http, _):
            reply = await http.post(url + "/events", json={})
            assert await reply.content.readany() == b"data: 0\n\n"
            reply.close()
            await until(lambda: model.gone == 1)

    run(main)


def test_from_inside_of_a_sandbox(worker_python: str) -> None:
    async def main() -> None:
        config = UvProviderConfig(reuse_venv=str(Path(worker_python).parents[1]), lease=300)
        where = SandboxConfig(image="ignored", bundle="ignored")
        async with (
            UvProvider(config) as provider,
            provider.session(where) as sandbox,
            Proxy(Model()).session(sandbox) as handle,
        ):
            command = ["curl", "-sS", "--max-time", "20", "-d", '{"n": 1}', handle.url + "/echo"]
            out = await sandbox.remote(subprocess.check_output, command)
            assert json.loads(out)["body"] == {"n": 1}

    run(main)
