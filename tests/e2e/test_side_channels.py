"""Namespaces from the worker to the host and back, through a real runtime; also with stock Socket.IO at the host."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import call_targets as t
import msgpack
import pytest
import side_targets as side
import socketio
from test_roads import Shim, until

import agentix
from agentix import AsyncClientNamespace, RemoteCallError, RuntimeClient, WorkerExited
from agentix.runtime.shared import FrameTooLarge
from agentix.testing import serve


class Host(AsyncClientNamespace):
    namespace = "/agx-demo"

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []
        self.links: list[str] = []

    def on_tick(self, data: Any) -> None:
        self.heard.append(data)

    async def on_slow(self, data: Any) -> None:
        await asyncio.sleep(30)

    def on_connect(self) -> None:
        self.links.append("up")

    def on_disconnect(self) -> None:
        self.links.append("down")

    @agentix.request_handler("fetch")
    async def fetch(self, body: Any) -> Any:
        if body == "wrong":
            raise LookupError("no such thing")
        return {"you": body}

    @agentix.request_handler("unpackable")
    async def unpackable(self, body: Any) -> Any:
        return object()

    @agentix.request_handler("large")
    async def large(self, body: Any) -> Any:
        return bytes(body)

    @agentix.request_handler("never")
    async def never(self, body: Any) -> Any:
        await asyncio.sleep(30)


def client_of(url: str, *namespaces: Any, **options: Any) -> RuntimeClient:
    client = RuntimeClient(url, **options)
    for ns in namespaces:
        client.register_namespace(ns)
    return client


def test_requests_and_their_errors(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with serve(python=worker_python) as url, client_of(url, Host()) as client:
            assert await client.remote(side.ask, "fetch", [1, b"2"]) == {"you": [1, b"2"]}
            with pytest.raises(RemoteCallError, match="RemoteSioError: LookupError: no such thing"):
                await client.remote(side.ask, "fetch", "wrong")
            with pytest.raises(RemoteCallError, match="RemoteSioError: TypeError: the answer cannot be sent"):
                await client.remote(side.ask, "unpackable", None)
            with pytest.raises(RemoteCallError, match=r"TimeoutError: /agx-demo: never was not answered within 0.2 s"):
                await client.remote(side.ask, "never", None, 0.2)
            begun = time.perf_counter()
            assert len(await client.remote(side.ask_in_turn, 200)) == 200
            assert time.perf_counter() - begun < 60

    run(main())


def test_nothing_is_lost_at_the_beginning(run: Any, worker_python: str) -> None:
    """Case T52: the first act of the function is an emit, the first of the host a call."""

    async def main() -> None:
        for _ in range(8):
            host = Host()
            async with serve(python=worker_python) as url, client_of(url, host) as client:
                await client.remote(side.emit, "tick", "first")
                assert await client.remote(side.ask, "fetch", 1) == {"you": 1}
                await until(lambda: host.heard == ["first"])  # noqa: B023

    run(main())


def test_order_size_and_a_burst(run: Any, worker_python: str) -> None:
    async def main() -> None:
        host = Host()
        async with serve(python=worker_python) as url, client_of(url, host) as client:
            await client.remote(side.emit, "tick", None, 3000)
            await until(lambda: len(host.heard) == 3000)
            assert [data["i"] for data in host.heard] == list(range(3000))
            blob = bytes(range(256)) * 20_000
            beside = asyncio.ensure_future(client.remote(t.sleep_async, 0.2, "beside"))
            await client.remote(side.emit, "tick", blob)  # case T51
            await until(lambda: len(host.heard) == 3001)
            assert host.heard[-1] == blob
            assert await beside == "beside"
            for i in range(300):
                await host.emit("ping", i)
            assert await client.remote(side.got, 300) == list(range(300))
            with pytest.raises(ValueError, match=r"too large|larger than"):
                await host.emit("ping", bytes(257 << 20))
            assert await client.remote(t.add, 1, 2) == 3

    run(main())


def test_the_largest_event(run: Any, worker_python: str) -> None:
    """It arrives, also with others behind it; one that is larger is refused where it is sent, and only that."""
    whole, head = 16 << 20, 5  # msgpack's bytes begin with five of their own

    async def main() -> None:
        host = Host()
        async with serve(python=worker_python) as url, client_of(url, host) as client:
            await client.remote(side.emit_two, whole - head)  # before this host has joined, as like as not
            await until(lambda: len(host.heard) == 2)
            await client.remote(side.emit_two, whole - head)
            await until(lambda: len(host.heard) == 4)
            assert [len(data) for data in host.heard] == [whole - head, len("behind it")] * 2
            too_large = rf"/agx-demo: the event 'tick' has {whole + 1:,} bytes of data and was not sent: one event may"
            with pytest.raises(RemoteCallError, match=f"FrameTooLarge: {too_large} have {whole:,}"):
                await client.remote(side.emit_bytes, whole - head + 1)
            await host.emit("ping", bytes(whole - head))
            assert [len(data) for data in await client.remote(side.got, 1)] == [whole - head]
            with pytest.raises(FrameTooLarge, match=too_large.replace("tick", "ping")):
                await host.emit("ping", bytes(whole - head + 1))
            with pytest.raises(RemoteCallError, match="RemoteSioError: FrameTooLarge: the answer cannot be sent"):
                await client.remote(side.ask, "large", whole)
            assert await client.remote(side.ask, "fetch", 1) == {"you": 1}
            assert len(host.heard) == 4

    run(main())


def test_a_slow_handler_delays_no_call(run: Any, worker_python: str) -> None:
    async def main() -> None:
        async with serve(python=worker_python) as url, client_of(url, Host()) as client:
            await client.remote(side.emit, "slow", None, 20)
            begun = time.perf_counter()
            assert await client.remote(t.add, 1, 2) == 3
            assert await client.remote(side.ask, "fetch", 1) == {"you": 1}
            assert time.perf_counter() - begun < 15

    begun = time.perf_counter()
    run(main())
    assert time.perf_counter() - begun < 20  # closing does not wait for handlers


def test_a_stock_namespace_object(run: Any, worker_python: str) -> None:
    class Stock(socketio.AsyncClientNamespace):
        def __init__(self) -> None:
            super().__init__("/agx-demo")
            self.heard: list[Any] = []

        async def on_tick(self, data: Any) -> None:
            self.heard.append(data)
            await self.emit("ping", data)

        @agentix.request_handler("fetch")
        async def on_fetch(self, body: Any) -> Any:
            return [body]

    async def main() -> None:
        stock = Stock()
        async with serve(python=worker_python) as url, client_of(url, stock) as client:
            await client.remote(side.emit, "tick", {"a": b"b"})
            assert await client.remote(side.got, 1) == [{"a": b"b"}]
            assert stock.heard == [{"a": b"b"}]
            assert await client.remote(side.ask, "fetch", 5) == [5]

    run(main())


@pytest.mark.parametrize("transport", ["polling", "websocket"])
def test_a_stock_client(run: Any, worker_python: str, transport: str) -> None:
    """Case T50: 200 events without pause, both ways."""

    async def main() -> None:
        heard: list[Any] = []
        async with serve(python=worker_python) as url, RuntimeClient(url) as client:
            sio = socketio.AsyncClient(reconnection=False)
            sio.on("tick", lambda data: heard.append(msgpack.unpackb(data)), namespace="/agx-demo")
            await sio.connect(url, namespaces=["/agx-demo"], transports=[transport])
            for i in range(200):
                await sio.emit("ping", msgpack.packb(i), namespace="/agx-demo")
            assert await client.remote(side.got, 200) == list(range(200))
            await sio.emit("ping", {"plain": "json"}, namespace="/agx-demo")
            assert (await client.remote(side.got, 201))[-1] == {"plain": "json"}
            await client.remote(side.emit, "tick", None, 200)
            await until(lambda: len(heard) == 200)
            assert [data["i"] for data in heard] == list(range(200))
            await sio.disconnect()

    run(main())


def test_events_outlive_a_worker_and_a_link(run: Any, worker_python: str) -> None:
    async def main() -> None:
        host = Host()
        async with serve(python=worker_python) as url, Shim(url).listening() as through:
            client = client_of(through, host)
            async with client:
                assert await client.remote(side.ask, "fetch", 1) == {"you": 1}
                with pytest.raises(WorkerExited):
                    await client.remote(side.die)
                await host.emit("ping", "held")  # nobody has opened the namespace just now
                assert await client.remote(side.got, 1) == ["held"]
                assert await client.remote(side.ask, "fetch", 2) == {"you": 2}

    run(main())


def test_a_link_that_was_cut_is_joined_again(run: Any, worker_python: str) -> None:
    async def main() -> None:
        host = Host()
        async with serve(python=worker_python) as url:
            shim = Shim(url)
            async with shim.listening() as through, client_of(through, host) as client:
                assert await client.remote(side.ask, "fetch", 1) == {"you": 1}
                shim.cut()
                await until(lambda: "down" in host.links)
                await host.emit("ping", "while down")
                await client.remote(side.emit, "tick", "later")
                await until(lambda: host.heard == ["later"])
                assert await client.remote(side.got, 1) == ["while down"]
                assert host.links == ["up", "down", "up"]

    run(main())


def test_unknown_events_and_failing_handlers_are_told(
    run: Any, worker_python: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        host = Host()
        async with serve(python=worker_python) as url, client_of(url, host) as client:
            await client.remote(side.emit, "nobody", None, 3)
            await client.remote(side.ask, "fetch", 1)
            await host.emit("wrong", 1)
            assert await client.remote(side.ask, "fetch", 1) == {"you": 1}

    with caplog.at_level(logging.WARNING, "agentix.sio"):
        run(main())
    texts = [r.getMessage() for r in caplog.records if r.name == "agentix.sio"]
    assert texts == [
        "no handler on namespace /agx-demo for event 'nobody'",
        "/agx-demo: a handler of 'wrong' failed",  # in the sandbox
    ]


def test_what_handlers_in_the_sandbox_raise_is_logged_here(
    run: Any, worker_python: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        host = Host()
        async with serve(python=worker_python) as url, client_of(url, host) as client:
            await client.remote(side.log_to_sio)
            await host.emit("wrong", 1)
            await host.emit("wrong_later", 2)
            await until(lambda: len(records()) == 2)
            assert await client.remote(side.ask, "fetch", 1) == {"you": 1}

    def records() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.name == "agentix.sio"]

    with caplog.at_level(logging.INFO):
        run(main())
    first, second = records()
    assert first.getMessage() == "/agx-demo: a handler of 'wrong' failed"
    assert first.agentix_context.startswith("sandbox-")  # type: ignore[attr-defined]
    assert first.exc_text is not None
    assert first.exc_text.startswith("Traceback")
    assert first.exc_text.endswith("\nRuntimeError: no 1")
    assert not hasattr(first, "agentix_forward")
    assert second.getMessage() == "/agx-demo: a handler of 'wrong_later' failed"
    assert second.exc_text is not None
    assert second.exc_text.endswith("\nSystemExit: not 2 either")
    others = [record for record in caplog.records if record.name.startswith("agentix.sandbox")]
    assert [r.getMessage() for r in others if "of user code" in r.getMessage()] == [
        "ERROR agentix.sio of user code",
        "ERROR agentix.sio.more of user code",
    ]
    assert not [r for r in others if "failed" in r.getMessage()]  # not once more, as lines of stderr


def test_registering(worker_python: str, run: Any) -> None:
    client = RuntimeClient("http://127.0.0.1:1")
    for name in ("/rpc", "/log", "/trace"):
        with pytest.raises(ValueError, match="reserved"):
            client.register_namespace(AsyncClientNamespace(name))
    for name in ("plain", "", "/a,b", "/" + "x" * 300):
        with pytest.raises(ValueError, match="namespace"):
            client.register_namespace(AsyncClientNamespace(name))
    client.register_namespace(AsyncClientNamespace("/once"))
    with pytest.raises(ValueError, match="registered already"):
        client.register_namespace(AsyncClientNamespace("/once"))
    with pytest.raises(TypeError, match="no namespace"):
        client.register_namespace(type("Other", (), {"namespace": "/other"})())  # type: ignore[arg-type]

    async def main() -> None:
        async with serve(python=worker_python) as url, RuntimeClient(url) as client:
            with pytest.raises(RuntimeError, match="before the first call"):
                client.register_namespace(Host())

    run(main())
