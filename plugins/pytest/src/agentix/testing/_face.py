"""A sandbox for tests that are plain functions: each verb waits for its result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ._loop import Loop

if TYPE_CHECKING:
    from agentix import AsyncClientNamespace, Result, Sandbox

P = ParamSpec("P")
R = TypeVar("R")

_END: Any = object()


class SyncSandbox:
    """The verbs of `agentix.Sandbox` without `await`. `handle` is the sandbox itself, for `run`."""

    def __init__(self, handle: Sandbox, loop: Loop) -> None:
        self.handle = handle
        self._loop = loop

    def __repr__(self) -> str:
        return f"SyncSandbox({self.handle!r})"

    @property
    def sandbox_id(self) -> str:
        return self.handle.sandbox_id

    @property
    def runtime_url(self) -> str:
        return self.handle.runtime_url

    def remote(self, fn: Callable[P, Awaitable[R]] | Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `fn(*args, **kwargs)` in the sandbox and return its result; raises as `Sandbox.remote`."""

        async def call() -> R:
            return await self.handle.remote(fn, *args, **kwargs)

        return self._loop.run(call())

    def try_remote(
        self, fn: Callable[P, Awaitable[R]] | Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Result[R]:
        """Do as `remote`, but return `Ok(value)` or `Failed(error)`."""
        return self._loop.run(self.handle.try_remote(fn, *args, **kwargs))

    def stream(
        self, fn: Callable[P, AsyncIterator[R]] | Callable[P, Iterator[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Iterator[R]:
        """Call a generator function in the sandbox and yield its items as they come."""
        open_: list[Any] = []

        async def following() -> Any:
            if not open_:
                open_.append(aiter(self.handle.remote(fn, *args, **kwargs)))
            return await anext(open_[0], _END)

        async def close() -> None:
            await open_[0].aclose()

        try:
            while (item := self._loop.run(following())) is not _END:
                yield item
        finally:
            if open_ and hasattr(open_[0], "aclose"):
                self._loop.run(close())

    def health(self) -> Any:
        """Ask the runtime how it is; raises as `Sandbox.health`."""
        return self._loop.run(self.handle.health())

    def register_namespace(self, ns: AsyncClientNamespace) -> None:
        """Join a namespace of the sandbox's; before the first call."""

        async def register() -> None:
            self.handle.register_namespace(ns)

        self._loop.run(register())

    def run(self, coroutine: Coroutine[Any, Any, R], timeout: float | None = None) -> R:
        """Run a coroutine where the sandbox's connection lives: `sandbox.run(agentix.files.upload_path(...))`."""
        return self._loop.run(coroutine, timeout)
