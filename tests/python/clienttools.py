"""What the client's tests share: the targets they name, a loop of either kind, a client of a stand-in server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from standin import Behaviour, StandIn

from agentix import RuntimeClient

try:
    import uvloop
except ImportError:  # a platform without it tests the stock loop alone
    uvloop = None

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop] | None] = {"asyncio": None}
if uvloop is not None:
    LOOPS["uvloop"] = uvloop.new_event_loop


@pytest.fixture(params=sorted(LOOPS))
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a coroutine on a fresh loop of the parametrised kind, and fail if the loop was told of a lost exception."""

    def runner(coroutine: Coroutine[Any, Any, Any]) -> Any:
        complaints: list[dict[str, Any]] = []

        async def main() -> Any:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            return await asyncio.wait_for(coroutine, 60)

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as own:
            result = own.run(main())
        assert complaints == []
        return result

    return runner


@contextlib.asynccontextmanager
async def serving(
    *, token: str | None = None, behaviour: Behaviour | None = None, socketio: bool = False, **options: Any
) -> AsyncIterator[tuple[StandIn, RuntimeClient]]:
    """A stand-in server with the usual functions, and a client of it; at the end nothing may be left or be wrong."""
    server = StandIn(token=token, behaviour=behaviour, socketio=socketio)
    for function in (add, echo, nap, fail):
        server.functions[function.__name__] = BODIES[function.__name__]
    async with server:
        client = RuntimeClient(server.url, token=token, **options)
        try:
            yield server, client
        finally:
            await client.close()
        counts = core(client).counts()
        assert counts["pending"] == counts["waiting"] == counts["pausing"] == counts["connections"] == 0
    assert server.violations == []
    assert all(n == 1 for n in server.executions.values())


def core(client: RuntimeClient) -> Any:
    return client._core


# What clients name. The bodies that the stand-in runs are below: these must never run here.


def add(a: int, b: int) -> int:
    raise AssertionError("ran on the host")


def echo(value: Any) -> Any:
    raise AssertionError("ran on the host")


def nap(seconds: float, value: Any = None) -> Any:
    raise AssertionError("ran on the host")


def fail(message: str) -> None:
    raise AssertionError("ran on the host")


async def _add(a: int, b: int) -> int:
    return a + b


async def _echo(value: Any) -> Any:
    return value


async def _nap(seconds: float, value: Any = None) -> Any:
    await asyncio.sleep(seconds)
    return value


async def _fail(message: str) -> None:
    raise TimeoutError(message)


BODIES = {"add": _add, "echo": _echo, "nap": _nap, "fail": _fail}
