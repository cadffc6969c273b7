"""The C engine. Private; each part is described in its own file under python/ext/."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, TypedDict, TypeVar, final

_R_co = TypeVar("_R_co", covariant=True)

__version__: str

class Error(Exception): ...

# ---- call.c, channel.c, serve.c: the worker ----

@final
class Call:
    id: str
    target: str
    arguments: bytes | tuple[Any, Any] | None
    context: bytes | None
    stream: int | None
    task: Any
    @property
    def cancelled(self) -> bool: ...
    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any: ...
    def cancel(self, exception: type[BaseException], /) -> bool: ...

def uninterrupted(function: Callable[..., _R_co], /, *args: Any) -> _R_co: ...

@final
class Channel:
    parked: bool
    has_loop: bool
    inbox: Any
    processes: Any
    @property
    def fd(self) -> int: ...
    @property
    def stepping(self) -> int: ...
    def __init__(
        self,
        fd: int,
        calls: dict[str, Call],
        targets: dict[str, tuple[str, dict[str, Any], str, Callable[..., Any], bool]],
        rest: Callable[[Call, str, Any], Coroutine[Any, Any, None] | None],
        idle_max: int,
        pieces: bool,
    ) -> None: ...
    def serve(self) -> Call | tuple[str, Any] | None: ...
    def accept(self) -> bool: ...
    def poll(self, again: bool, /) -> Call | tuple[str, Any] | bool | None: ...
    def use_loop(self, loop: asyncio.AbstractEventLoop, /) -> None: ...
    def finish(self, call: Call, value: object, /) -> bool: ...
    def enter(self) -> None: ...
    def is_full(self) -> bool: ...
    def leave(self, *, last: bool = False) -> bool: ...
    def send_ready(self, spare: bool, /) -> None: ...
    def send_open(self, namespace: str, /) -> None: ...
    def send_emit(self, namespace: str, event: str, data: bytes | bytearray | memoryview, /) -> None: ...
    def send_result(self, call_id: str, value: bytes, /) -> None: ...
    def send_item(self, call_id: str, seq: int, value: bytes, /) -> None: ...
    def send_end(self, call_id: str, /) -> None: ...
    def send_error(self, call_id: str, type: str, message: str, traceback: str | None, cancelled: bool, /) -> None: ...
    def send_boot_error(
        self, call_id: str, type: str, message: str, traceback: str | None, cancelled: bool, /
    ) -> None: ...
    def start_process(
        self,
        proc: int,
        call_id: str | None,
        path: bytes,
        argv: bytes,
        env: bytes,
        cwd: bytes,
        stdin: bool,
        credit: int,
        limit: int,
        timeout: int,
        /,
    ) -> None: ...
    def send_process(self, verb: str, proc: int, n: int = 0, data: bytes | bytearray | memoryview = b"", /) -> None: ...
    def disown(self) -> None: ...

# ---- scalars.c ----

def dumps_plain(args: tuple[Any, ...], kwargs: dict[str, Any], /) -> bytes | None: ...
def dumps_parts(args: tuple[Any, ...], kwargs: dict[str, Any], /) -> bytes | tuple[bytes, bytes, bytes] | None: ...
def loads_plain(data: bytes, /) -> Any: ...

# ---- brain.c, provider.c ----

class Wish(TypedDict):
    """Only `kind`, `signal`, `bare` and `timeout` (seconds) are always there; the others where the kind has them."""

    kind: str
    argv: list[str]
    env: list[str]
    files: list[tuple[str, int, bytes]]
    cwd: str
    path: str
    url: str
    token_file: str
    message: str
    signal: int
    bare: bool
    timeout: float

@final
class Brain:
    def next(self) -> Wish: ...
    def event(self, kind: str, code: int = 0, text: bytes = b"", /) -> None: ...

def uv_venv(
    *,
    uv: str | PathLike[str],
    venv: str | PathLike[str],
    python: str,
    project: str | PathLike[str] | None,
    install: Sequence[str],
    index_url: str | None,
    extra_index_url: Sequence[str],
    constraints: str | PathLike[str] | None,
    own: Sequence[str],
    env: Sequence[str],
) -> Brain: ...
def uv_sandbox(
    *,
    runtime: str | PathLike[str],
    python: str | PathLike[str],
    dir: str | PathLike[str],
    cwd: str | PathLike[str],
    token_file: str | PathLike[str],
    socket: str | PathLike[str] | None,
    host: str,
    ready: float,
    lease: float,
    host_env: Sequence[str],
    config_env: Sequence[str],
) -> Brain: ...
def docker_sandbox(
    *,
    engine: str,
    host_env: Sequence[str],
    id: str,
    dir: str | PathLike[str],
    nix: str | PathLike[str],
    image: str,
    platform: str | None,
    network: str | None,
    publish_host: str,
    ports: Sequence[str],
    pull: str,
    cpus: str | None,
    memory: str | None,
    gpus: str | None,
    cap_add: Sequence[str],
    run_args: Sequence[str],
    host_label: str,
    config_env: Sequence[str],
    lease: float,
    ready: float,
    pids_limit: int,
    no_new_privileges: bool,
    read_only: bool,
) -> Brain: ...
def docker_command(*, what: str, engine: str, host_env: Sequence[str], name: str) -> Brain: ...
def cape_sandbox(
    *,
    binary: str,
    host_env: Sequence[str],
    id: str,
    dir: str | PathLike[str],
    token: str,
    controller_url: str,
    pool: str,
    user: str,
    image: str,
    gpus: str,
    cpu_cores: str | None,
    memory_gb: str | None,
    isolation_policy: str,
    runtime_adapter: str | None,
    max_duration: str,
    bundle: str,
    extra_binds: Sequence[str],
    workspace_root: str,
    url_template: str,
    port: str,
    meta: str | PathLike[str] | None,
    config_env: Sequence[str],
    lease: float,
    ready: float,
    failure_limit: int,
) -> Brain: ...
def cape_command(*, what: str, binary: str, host_env: Sequence[str], controller_url: str, request: str) -> Brain: ...
def apptainer_image(
    *, binary: str, host_env: Sequence[str], source: str, arch: str | None, target: str | PathLike[str]
) -> Brain: ...
def apptainer_sandbox(
    *,
    binary: str,
    host_env: Sequence[str],
    flags: Sequence[str],
    dir: str | PathLike[str],
    nix: str | PathLike[str],
    image: str | PathLike[str],
    cpus: str | None,
    memory: str | None,
    port: str | None,
    gpu: bool,
    config_env: Sequence[str],
    lease: float,
    ready: float,
) -> Brain: ...

# ---- conduit.c ----

class Conduit:
    """The opening of a conduit: next() takes what came and says what is to be done."""

    def __init__(
        self, *, host: str, prefix: str, headers: bytes, token: str | None, secure: bool, name: str, nonce: bytes
    ) -> None: ...
    def next(
        self, data: bytes, /
    ) -> (
        tuple[Literal["send"], bytes]
        | tuple[Literal["more", "open"], None]
        | tuple[Literal["refused"], int]
        | tuple[Literal["broken"], str]
    ): ...

def checksum(data: bytes | bytearray | memoryview, /) -> int:
    """Return a quick checksum of 64 bits, computed beside other threads."""

# ---- client.c ----

class ClientCore:
    """A client session under the running event loop; an awaitable it gives ends as the call does."""

    session: str
    bound: bool
    closed: bool
    here: bool
    instance: str
    """Of the server that the link is with; empty if that is not known."""
    def __init__(
        self,
        shell: Any,
        *,
        unix_path: bytes | None,
        host: str | None,
        port: int,
        authority: str,
        prefix: str,
        headers: bytes,
        token: str | None,
        secure: bool,
        timeout: float,
        reconnect: bool,
        attempts: int,
        delay: float,
        delay_max: float,
        jitter: float,
        http_sync: float,
        grace: float,
        deadline: float,
        load_here: int,
        fast: bool,
    ) -> None: ...
    def remote(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /) -> RemoteCall[Any]: ...
    def health(self) -> Awaitable[tuple[str, str, str]]: ...
    def connect(self) -> Awaitable[None]: ...
    def close(self, why: str, /) -> None: ...
    def opened(self, serial: int, what: Any, /) -> bool: ...
    def lost(self, serial: int, why: str | None, /) -> None: ...
    def feed(self, serial: int, data: bytes | bytearray | memoryview, /) -> None: ...
    def pause(self, serial: int, paused: bool, /) -> None: ...
    def counts(self) -> dict[str, int]: ...
    def join(self, nsp: str, stream: bool, /) -> int: ...
    def emit(self, nsp: str, name: str, payload: bytes | bytearray | memoryview, /) -> int: ...
    def dealt(self, nsp: str, seq: int, /) -> None: ...
    def taken(self, n: int, /) -> None: ...
    def hurry(self) -> None: ...
    def need_link(self, needed: bool, /) -> None: ...
    def joined(self, nsp: str, /) -> int: ...

# ---- client_call.c ----

@final
class RemoteCall(Coroutine[Any, Any, _R_co]):
    """A remote call that has not begun: await it once, or give it to `asyncio.create_task`, `gather`, `wait_for`."""

    __name__: str
    __qualname__: str
    cr_running: bool
    def __await__(self) -> Generator[Any, Any, _R_co]: ...
    def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate over the items of a target that is a generator. Raises TypeError at the first step if it is none."""

    def send(self, value: Any, /) -> Any: ...
    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None, /) -> Any: ...
    def close(self) -> None: ...

# ---- client_pending.c ----

class Pending(Awaitable[Any]):
    """A call under way; it cannot be made from Python."""

    def __await__(self) -> Generator[Any, Any, Any]: ...
    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: Any = None) -> None: ...
    def cancel(self, msg: Any = None) -> bool: ...
    def consumed(self, n: int, size: int, /) -> None: ...
    def done(self) -> bool: ...
    def get_loop(self) -> Any: ...
    def result(self) -> Any: ...

# ---- codec.c ----

def pack(obj: Any, other: Callable[[Any], Any] | None = None, /) -> bytes: ...
def unpack(data: bytes | bytearray | memoryview, ext: Callable[[int, bytes], Any] | None = None, /) -> Any: ...

# ---- module.c ----

def has_environ(name: str, /) -> bool: ...

# ---- unpickle.c ----

def restricted_loads(
    data: bytes | bytearray | memoryview,
    /,
    *,
    extra: dict[tuple[str, str], type] | None = None,
    declared: Callable[[], dict[tuple[str, str], Any]] | None = None,
) -> Any: ...
