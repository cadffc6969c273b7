"""The provider protocol and what passes through it.

A backend subclasses `SandboxProvider`, implements `create`, `delete` and `get`, and inherits `session`, which promises
that a sandbox never outlives its `async with` block. Configurations are checked when they are made and again by
`session`, so that no bad value reaches an engine (`_checks.py` has the rules).

Modules that hold remote targets often name these classes too, and then workers import this module: hence asyncio is
imported only where a sandbox is really used.
"""

from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, runtime_checkable

from .._failures import RuntimeUnreachable
from .._ids import SandboxId
from .._result import Failed, Result
from . import _checks

if TYPE_CHECKING:
    from socket import socket

    from .._client import HealthResponse, RemoteCall, RuntimeClient
    from .._namespaces import AsyncClientNamespace

__all__ = [
    "BundleDeployer",
    "DeployedBundle",
    "Sandbox",
    "SandboxConfig",
    "SandboxId",
    "SandboxInfo",
    "SandboxProvider",
    "SandboxResource",
]

P = ParamSpec("P")
R = TypeVar("R")

# Seconds that `session` waits for the client to close before it deletes the sandbox all the same.
CLOSE_TIMEOUT = 10.0


@dataclass
class SandboxResource:
    """What a sandbox may use; None leaves the backend's default.

    `cpu` in cores, `memory` in bytes or as `512m`, `16g` (powers of 1024), `gpu` a number of devices. ValueError for
    values that are not above zero or cannot be read, TypeError for other types.
    """

    cpu: float | None = None
    memory: int | str | None = None
    gpu: int | None = None

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Check the fields again; raise as the constructor does."""
        if self.cpu is not None:
            _checks.positive("SandboxResource.cpu", self.cpu)
        if self.memory is not None:
            _checks.memory("SandboxResource.memory", self.memory)
        if self.gpu is not None:
            _checks.count("SandboxResource.gpu", self.gpu)

    def memory_bytes(self) -> int | None:
        """Return `memory` in bytes."""
        return None if self.memory is None else _checks.memory("SandboxResource.memory", self.memory)


@dataclass
class SandboxConfig:
    """What to run: a bundle inside an image. Backend-neutral; how to run it is the provider's own config.

    `platform` is an OCI platform such as `linux/amd64`; `env` is added to the sandbox's environment and never shown
    in the repr. ValueError for values that an engine could misread, TypeError for wrong types and unknown fields.
    """

    image: str
    bundle: str
    platform: str | None = None
    env: dict[str, str] | None = field(default=None, repr=False)
    resource: SandboxResource | None = None

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Check the fields again, as they may have been changed; raise as the constructor does."""
        _checks.word("SandboxConfig.image", self.image)
        _checks.path("SandboxConfig.bundle", self.bundle)
        if self.platform is not None:
            _checks.platform("SandboxConfig.platform", self.platform)
        if self.env is not None:
            self.env = _checks.env("SandboxConfig.env", self.env)
        if self.resource is not None:
            _checks.instance("SandboxConfig.resource", self.resource, SandboxResource)
            self.resource.validate()


@dataclass
class SandboxInfo:
    """A sandbox as a backend sees it."""

    sandbox_id: SandboxId
    runtime_url: str
    status: str = "running"


@dataclass
class Sandbox(SandboxInfo):
    """A live sandbox: call `remote` on it. The connection is made by the first call.

    `call_deadline` (seconds) bounds each call, `timeout` (seconds) each HTTP request, `http_sync_ms` the time a call
    may take to be answered inline. `token` and `headers` go with every request and are never shown in the repr.
    Changes to these fields after the first call have no effect.
    """

    call_deadline: float | None = None
    timeout: float = 300
    http_sync_ms: int | None = 1000
    token: str | None = field(default=None, repr=False)
    headers: dict[str, str] = field(default_factory=dict[str, str], repr=False)

    def __post_init__(self) -> None:
        _checks.timing(self.call_deadline, self.timeout, self.http_sync_ms)
        self._client: RuntimeClient | None = None
        self._closed = False
        self._namespaces: list[AsyncClientNamespace] = []
        self._cleanups: list[Callable[[], Awaitable[object]]] = []

    def remote(
        self, fn: Callable[P, Awaitable[R]] | Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> "RemoteCall[R]":
        """Call `fn(*args, **kwargs)` in the sandbox: await the result, or iterate over it if `fn` is a generator.

        Raises TypeError if `fn` is not an importable function, the plain pickling error if an argument cannot be
        pickled, and `RemoteCallError`, `CallTimeout`, `RuntimeUnreachable` or `RestrictedUnpickleError` if the call
        fails.
        """
        # Not by its remote(): each frame on the way costs a call about as much as sending it.
        return (self._client or self._connection())._remote(fn, args, kwargs)  # pyright: ignore[reportPrivateUsage]

    async def try_remote(
        self, fn: Callable[P, Awaitable[R]] | Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> "Result[R]":
        """Do as `remote`, but return `Ok(value)` or `Failed(error)`; bad targets and arguments still raise."""
        try:
            client = self._connection()
        except RuntimeUnreachable as exc:
            return Failed(exc)
        return await client.try_remote(fn, *args, **kwargs)

    def register_namespace(self, ns: "AsyncClientNamespace") -> None:
        """Join a namespace of the sandbox's; before the first call. Raises as `RuntimeClient.register_namespace`."""
        if self._client is not None:
            self._client.register_namespace(ns)
            return
        from .._sio_names import check_name

        name = getattr(ns, "namespace", None)
        check_name(name)
        if any(other.namespace == name for other in self._namespaces):
            raise ValueError(f"the namespace {name} is registered already")
        self._namespaces.append(ns)

    async def health(self) -> "HealthResponse":
        """Ask the runtime how it is. Raises `RuntimeUnreachable` if it does not answer."""
        return await self._connection().health()

    async def _open_conduit(self, name: str) -> "socket | None":
        """Return a connection of which the worker has the other end, under this name; for plugins.

        None if there can be none. Raises OSError if it cannot be made just now.
        """
        return await self._connection()._open_conduit(name)  # pyright: ignore[reportPrivateUsage]

    async def aclose(self) -> None:
        """Close the connection; the sandbox itself goes on. A second call does nothing."""
        self._closed = True
        client, self._client = self._client, None
        cleanups, self._cleanups = self._cleanups, []
        if client is not None:
            cleanups.insert(0, client.close)
        await _run_all(cleanups)

    async def __aenter__(self) -> "Sandbox":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def _connection(self) -> "RuntimeClient":
        if self._client is None:
            self._client = self._new_client()
        return self._client

    def _new_client(self) -> "RuntimeClient":
        if self._closed:
            raise RuntimeUnreachable(
                f"the handle of sandbox {self.sandbox_id} is closed; ask its provider's get() for a new one"
            )
        from .._client import RuntimeClient

        client = RuntimeClient(
            self.runtime_url,
            self.timeout,
            http_sync_ms=self.http_sync_ms,
            call_deadline=self.call_deadline,
            token=self.token,
            headers=self.headers,
        )
        for ns in self._namespaces:
            client.register_namespace(ns)
        return client

    def _add_cleanup(self, cleanup: Callable[[], Awaitable[object]]) -> None:
        """For backends: run `cleanup` when this handle is closed, after the connection, the last added one first."""
        self._cleanups.insert(0, cleanup)


@runtime_checkable
class SandboxProvider(Protocol):
    """A backend: where bundles run. Subclasses implement the three methods and inherit `session`."""

    @abstractmethod
    async def create(self, config: SandboxConfig) -> Sandbox:
        """Start a sandbox and return it when its runtime answers. If it fails or is cancelled, leave nothing behind."""
        ...

    @abstractmethod
    async def delete(self, sandbox_id: SandboxId) -> None:
        """Remove the sandbox; an unknown id is no error."""
        ...

    @abstractmethod
    async def get(self, sandbox_id: SandboxId) -> SandboxInfo:
        """Return the sandbox; raise KeyError, naming the id, if there is none."""
        ...

    def session(
        self,
        config: SandboxConfig,
        *,
        call_deadline: float | None = None,
        timeout: float = 300,
        http_sync_ms: int | None = 1000,
    ) -> AbstractAsyncContextManager[Sandbox]:
        """Create a sandbox for the length of an `async with` block.

        On exit the connection is closed and the sandbox deleted, whatever happens: even if the block is cancelled,
        the connection cannot be closed, or a second cancellation arrives meanwhile. The block's own exception comes
        first, then what closing raised, then what deleting raised. The keywords are those of `Sandbox`.
        """
        _checks.timing(call_deadline, timeout, http_sync_ms)
        _checks.instance("config", config, SandboxConfig)
        config.validate()
        # A default says nothing, so it does not undo what the provider chose for its sandboxes.
        chosen: dict[str, object] = {}
        if call_deadline is not None:
            chosen["call_deadline"] = call_deadline
        if timeout != 300:
            chosen["timeout"] = timeout
        if http_sync_ms != 1000:
            chosen["http_sync_ms"] = http_sync_ms
        return _session(self, config, chosen)


@dataclass
class DeployedBundle:
    """A bundle where its backend can start it: `bundle` and `platform` are for `SandboxConfig`.

    `metadata` says what was done; `hints` maps a label to a command line for people.
    """

    bundle: str
    platform: str | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    hints: dict[str, str] = field(default_factory=dict[str, str])


@runtime_checkable
class BundleDeployer(Protocol):
    """A provider that can bring a bundle to its backend; `agentix deploy` offers every one that has this method."""

    async def deploy_bundle(
        self, bundle: Path, *, name: str | None = None, platform: str | None = None
    ) -> DeployedBundle:
        """Deploy the bundle file or directory."""
        ...


@asynccontextmanager
async def _session(
    provider: SandboxProvider, config: SandboxConfig, settings: dict[str, object]
) -> AsyncGenerator[Sandbox, None]:
    sandbox = await provider.create(config)
    try:
        for name, value in settings.items():
            setattr(sandbox, name, value)
        yield sandbox
    except BaseException as exc:
        failure = await to_the_end(_end(provider, sandbox))
        if failure is not None:
            exc.add_note(f"ending sandbox {sandbox.sandbox_id} then failed: {type(failure).__name__}: {failure}")
        raise
    failure = await to_the_end(_end(provider, sandbox))
    if failure is not None:
        raise failure


async def _end(provider: SandboxProvider, sandbox: Sandbox) -> None:
    import asyncio

    async def close() -> None:
        limit = asyncio.timeout(CLOSE_TIMEOUT)
        try:
            async with limit:
                await sandbox.aclose()
        except TimeoutError as exc:
            if not limit.expired():
                raise
            raise RuntimeUnreachable(
                f"the connection to sandbox {sandbox.sandbox_id} did not close within {CLOSE_TIMEOUT:g} s"
            ) from exc

    async def delete() -> None:
        try:
            await provider.delete(sandbox.sandbox_id)
        except Exception as exc:
            # Said here as well, because whoever cancels a session seldom reads the notes of its exception.
            import logging

            logging.getLogger("agentix.provider").warning("sandbox %s was not deleted: %s", sandbox.sandbox_id, exc)
            raise

    await _run_all([close, delete])


async def _run_all(steps: list[Callable[[], Awaitable[object]]]) -> None:
    """Run every step, whatever the others raise; raise the first exception, with the later ones as notes."""
    first: BaseException | None = None
    for step in steps:
        try:
            await step()
        except BaseException as exc:
            if first is None:
                first = exc
            else:
                first.add_note(f"then {type(exc).__name__}: {exc}")
    if first is not None:
        raise first


async def to_the_end(work: Coroutine[Any, Any, None]) -> BaseException | None:
    """Await `work` to its end and return what it raised. A cancellation that arrives meanwhile is raised afterwards."""
    import asyncio

    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as exc:
            cancelled = exc
    failure = asyncio.CancelledError() if task.cancelled() else task.exception()
    if cancelled is not None:
        raise cancelled
    return failure


for _cls in (
    SandboxResource,
    SandboxConfig,
    SandboxInfo,
    Sandbox,
    SandboxProvider,
    DeployedBundle,
    BundleDeployer,
):
    _cls.__module__ = "agentix"
