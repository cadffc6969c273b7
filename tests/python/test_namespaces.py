"""Namespaces without a runtime: names, handlers, what is raised where there is nobody at the other end."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import pickle
import weakref
from typing import Any

import pytest

from agentix import (
    AsyncClientNamespace,
    Namespace,
    RemoteSioError,
    Sandbox,
    SandboxId,
    register_namespace,
    request_handler,
    sio,
)


class Mine(Namespace):
    namespace = "/mine"

    def on_a(self, data: Any) -> None: ...

    async def on_b(self, data: Any) -> None: ...


@pytest.mark.parametrize("name", ["/rpc", "/log", "/trace"])
def test_reserved(name: str) -> None:
    with pytest.raises(ValueError, match="reserved"):
        Namespace(name)
    ns = Namespace("/fine")
    ns.namespace = name
    with pytest.raises(ValueError, match="reserved"):
        register_namespace(ns)


@pytest.mark.parametrize("name", ["", "no-slash", "/", "/a,b", "/a?b", "/a b", "/\n", "/" + "x" * 256])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        Namespace(name)


def test_handlers() -> None:
    ns = Mine()
    assert ns.registered_handlers() == {"a": [ns.on_a], "b": [ns.on_b]}
    heard: list[Any] = []
    ns.on("a", heard.append)
    assert ns.registered_handlers()["a"] == [ns.on_a, heard.append]
    ns.off("a", heard.append)
    ns.off("a", ns.on_a)
    assert "a" not in ns.registered_handlers()
    with pytest.raises(ValueError, match="no handler"):
        ns.off("a", heard.append)


def test_registered_once() -> None:
    register_namespace(Namespace("/registered-once"))
    with pytest.raises(ValueError, match="registered already"):
        register_namespace(Namespace("/registered-once"))


def test_outside_a_sandbox() -> None:
    with pytest.raises(RuntimeError, match="sandbox"):
        asyncio.run(Mine().emit("x"))
    with pytest.raises(RuntimeError, match="register"):
        asyncio.run(AsyncClientNamespace("/x").emit("x"))


def test_a_handle_takes_namespaces_before_the_first_call() -> None:
    sandbox = Sandbox(SandboxId("s"), "http://127.0.0.1:1")
    sandbox.register_namespace(AsyncClientNamespace("/x"))
    with pytest.raises(ValueError, match="registered already"):
        sandbox.register_namespace(AsyncClientNamespace("/x"))
    with pytest.raises(ValueError, match="reserved"):
        sandbox.register_namespace(AsyncClientNamespace("/log"))


def test_the_error() -> None:
    error = RemoteSioError("Type", "words", 429)
    assert str(error) == "Type: words"
    again = pickle.loads(pickle.dumps(error))
    assert (again.type, again.message, again.status_code) == ("Type", "words", 429)
    assert RemoteSioError("T", "m").status_code is None


def deliver(ns: Namespace, event: str, data: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        sio.deliver(lambda: loop, ns.namespace, event, sio.pack(data))
        await asyncio.sleep(0.01)

    asyncio.run(main())


def test_unhandled_events_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    ns = Mine("/told-once")
    register_namespace(ns)
    with caplog.at_level(logging.WARNING, "agentix.sio"):
        deliver(ns, "a", 1)
        deliver(ns, "other", 1)
        deliver(ns, "other", 2)
    (record,) = caplog.records
    for words in ("no handler", "/told-once", "other", "a, b"):
        assert words in record.getMessage()


def test_a_failing_handler_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ns = Namespace("/failing")
    register_namespace(ns)

    def plain(data: Any) -> None:
        raise RuntimeError("plain")

    async def later(data: Any) -> None:
        raise RuntimeError("later")

    ns.on("e", plain)
    ns.on("e", later)
    with caplog.at_level(logging.ERROR, "agentix.sio"):
        deliver(ns, "e", 1)
    assert [str(r.exc_info[1]) for r in caplog.records if r.exc_info] == ["plain", "later"]


def test_status_codes_are_ints_or_none() -> None:
    async def main(status: Any) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        sio._requests["id"] = ("/n", "e", loop, future)  # pyright: ignore[reportPrivateUsage]
        error = {"type": "T", "message": "m", "status_code": status}
        sio.deliver(lambda: loop, "/n", "e:error", sio.pack({"request_id": "id", "error": error}))
        try:
            await future
        except RemoteSioError as exc:
            return exc.status_code

    assert asyncio.run(main(429)) == 429
    for other in ("429", 4.5, True, None):
        assert asyncio.run(main(other)) is None


def test_a_handler_that_waits_is_kept_alive() -> None:
    ns, done = Namespace("/kept"), []
    register_namespace(ns)

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def later(data: Any) -> None:
            waker: asyncio.Future[None] = loop.create_future()
            wakers.append(weakref.ref(waker))
            await waker
            done.append(data)

        wakers: list[Any] = []
        ns.on("e", later)
        sio.deliver(lambda: loop, "/kept", "e", sio.pack(1))
        await asyncio.sleep(0.01)
        gc.collect()
        wakers[0]().set_result(None)
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert done == [1]
    assert not ns._tasks  # pyright: ignore[reportPrivateUsage]


def test_what_a_request_handler_answers() -> None:
    class Host(AsyncClientNamespace):
        namespace = "/answers"

        def __init__(self) -> None:
            super().__init__()
            self.said: list[Any] = []

        async def emit(self, event: str, data: Any = None) -> None:
            self.said.append((event, data))

        @request_handler("fetch")
        async def anything(self, body: Any) -> Any:
            if body == "wrong":
                raise LookupError("not there")
            return body

    async def main() -> list[Any]:
        host = Host()
        for data in (
            {"request_id": "1", "data": {"a": 1}},
            {"request_id": "2", "data": "wrong"},
            {"data": 3},
            "no map",
        ):
            await host.anything(data)
        return host.said

    assert asyncio.run(main()) == [
        ("fetch:result", {"request_id": "1", "value": {"a": 1}}),
        ("fetch:error", {"request_id": "2", "error": {"type": "LookupError", "message": "not there"}}),
    ]


def test_a_request_waits_for_300_seconds() -> None:
    assert inspect.signature(Namespace.request).parameters["timeout"].default == 300.0
