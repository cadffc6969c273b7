"""One suite for every backend: what a `SandboxProvider` has to do, whatever it starts its sandboxes with.

A backend says by a `Backend` how it is used and looked at, and runs the suite in its own tests:

    from agentix.testing import conformance

    class Fly(conformance.Backend):
        name = "fly"
        def provider(self, lease=900):
            return FlyProvider(FlyProviderConfig(lease=lease))
        def kill(self, sandbox):
            subprocess.run(["fly", "machine", "kill", sandbox.sandbox_id], check=True)
        def left(self):
            return subprocess.run(["fly", "machine", "list", "-q"], ...).stdout.split()
        def refusals(self):
            yield conformance.Refusal(lambda: FlyProviderConfig(lease=-1), "lease")

    class TestFly(conformance.Suite):
        @pytest.fixture(scope="class")
        @classmethod
        def backend(cls, agentix_bundle):
            return Fly(image="busybox", bundle=agentix_bundle)

or, if it names the class in the entry-point group `agentix.conformance`, from a shell:

    pytest --pyargs agentix.testing.conformance --agentix-backend fly

Sandboxes are shared where a test does not destroy them. `docs/guides/write-a-backend.md` goes through it all.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import pickle
import random
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, ClassVar

import pytest

from agentix import (
    RemoteCallError,
    RuntimeUnreachable,
    Sandbox,
    SandboxConfig,
    SandboxId,
    SandboxProvider,
    WorkerExited,
    providers,
)
from agentix.testing import targets

from . import _bundle, _settings
from ._loop import Loop

__all__ = ["Backend", "Refusal", "Suite"]

FEATURES: dict[str, str] = {
    "token": "each sandbox has a token of its own",
    "env": "SandboxConfig.env reaches the sandbox",
    "bundle": "a bundle that is missing is an error of create()",
    "elsewhere": "get() and delete() find a sandbox that another process started",
    "kill": "a sandbox that something else has ended is noticed",
    "lease": "a sandbox that nobody is connected to ends by itself",
    "left": "what is left of sandboxes can be looked for",
    "refusals": "there are configurations that __init__ must refuse",
}
"""What a backend may be without; `Backend.without` gives the reason."""

ENV = {"LINES": "one\ntwo\n", "EMPTY": "", "QUOTES": "a'b\"c $HOME #", "WORDS": " x  y "}
PAUSE = 0.05
LEASES = (2.0, 10.0, 40.0)
"""Seconds; on a machine that is busy enough not even a host that lives keeps a short one."""


class Refusal:
    """A configuration that must not be accepted: `make` raises, and the text says each of `words`.

    `words` are the setting's name and what to do about it, such as the name of a variable. `variables` are set (None:
    removed) meanwhile.
    """

    def __init__(
        self, make: Callable[[], object], *words: str, variables: Mapping[str, str | None] | None = None
    ) -> None:
        self.make = make
        self.words = words
        self.variables = dict(variables or {})


class Backend(ABC):
    """How the suite uses a backend and looks at it. Override what is not so; the instance has to be picklable.

    `kill`, `left` and `refusals` everybody has to say; one that belongs to a feature in `without` is not called.

    - `name`: the one under which the provider is registered.
    - `without`: features (`FEATURES`) that it does not have, each with a reason, which is shown.
    - `patience`: seconds after which whatever is waited for does not come any more.
    - `create_moments`: seconds after the beginning of a `create` at which the suite cancels it.
    """

    name: str = ""
    without: ClassVar[Mapping[str, str]] = {}
    patience: ClassVar[float] = 120.0
    create_moments: ClassVar[tuple[float, ...]] = (0.0, 0.02, 0.1, 0.3)

    def __init__(self, *, image: str = "busybox", bundle: str = "") -> None:
        self.image = image
        self.bundle = bundle

    def provider(self, lease: float | None = 900) -> SandboxProvider:
        """Make a provider whose sandboxes have this lease, in seconds."""
        del lease
        return providers().get(self.name)()

    def config(self, **settings: Any) -> SandboxConfig:
        """Return what a sandbox is started with."""
        chosen: dict[str, Any] = {"image": self.image, "bundle": self.bundle, **settings}
        return SandboxConfig(**chosen)

    @abstractmethod
    def kill(self, sandbox: Sandbox) -> None:
        """End a sandbox for good, by force, and not through the provider."""

    @abstractmethod
    def left(self) -> Iterable[str]:
        """Name all that is there of sandboxes at the moment: processes, containers, directories, sockets.

        A sandbox's processes come and go while it lives, so name them by the sandbox, not by their numbers.
        """

    @abstractmethod
    def refusals(self) -> Iterable[Refusal]:
        """Return configurations that must be refused before anything is started."""


class _Undescribed(Backend):
    """A backend of which nothing is known but its name."""

    without: ClassVar[Mapping[str, str]] = dict.fromkeys(
        FEATURES, "it has no description in the group agentix.conformance"
    )

    def __init__(self, name: str, **settings: str) -> None:
        super().__init__(**settings)
        self.name = name

    def kill(self, sandbox: Sandbox) -> None:
        raise LookupError(f"how {sandbox.sandbox_id} is ended by force is not known of {self.name}")

    def left(self) -> Iterable[str]:
        return ()

    def refusals(self) -> Iterable[Refusal]:
        return ()


def describe(name: str, *, image: str, bundle: str) -> Backend:
    """Make the description that a backend's distribution gives in the entry-point group `agentix.conformance`."""
    for point in entry_points(group="agentix.conformance", name=name):
        return point.load()(image=image, bundle=bundle)
    return _Undescribed(name, image=image, bundle=bundle)


# ---- helpers ----

_ELSEWHERE = """
import asyncio, json, math, pickle, sys
data = json.loads(sys.stdin.read())
sys.path[:] = data["path"]
backend = pickle.loads(bytes.fromhex(data["backend"]))
async def main():
    provider = backend.provider()
    found = await provider.get(data["id"])
    value = await found.remote(math.factorial, 5) if hasattr(found, "remote") else None
    if value is not None:
        await found.aclose()
    await provider.delete(data["id"])
    await provider.delete(data["id"])
    if hasattr(provider, "aclose"):
        await provider.aclose()
    print(json.dumps([str(found.sandbox_id), found.status, value]))
asyncio.run(main())
"""


class _Keeper(logging.Handler):
    def __init__(self) -> None:
        super().__init__(0)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def said(self, logger: str) -> str:
        return "\n".join(record.getMessage() for record in self.records if record.name == logger)


@contextlib.contextmanager
def _listening() -> Generator[_Keeper]:
    keeper, logger = _Keeper(), logging.getLogger("agentix.sandbox")
    level = logger.level
    logger.addHandler(keeper)
    logger.setLevel(logging.DEBUG)
    try:
        yield keeper
    finally:
        logger.removeHandler(keeper)
        logger.setLevel(level)


async def _until(true: Callable[[], Awaitable[object]], what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not await true():
        assert time.monotonic() < deadline, f"in vain: {what}"
        await asyncio.sleep(PAUSE)


async def _close(provider: SandboxProvider) -> None:
    close: Callable[[], Awaitable[object]] | None = getattr(provider, "aclose", None)
    if close is not None:
        await close()


class Watch:
    """A backend under test, with what was there before."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.before = set(backend.left()) if "left" not in backend.without else set[str]()

    def need(self, feature: str) -> None:
        """Skip the test, with the backend's reason, if it does not have a feature."""
        if feature in self.backend.without:
            pytest.skip(f"{self.backend.name}: {self.backend.without[feature]}")

    def new(self) -> list[str]:
        """Return what has come since; nothing if the backend cannot tell."""
        if "left" in self.backend.without:
            return []
        return sorted(set(self.backend.left()) - self.before)

    async def nothing_but(self, there: list[str]) -> None:
        """Wait until nothing new is there, besides what was."""

        async def so() -> bool:
            return set(await asyncio.to_thread(self.new)) <= set(there)

        try:
            await _until(so, "", self.backend.patience)
        except AssertionError:
            raise AssertionError(f"left over: {sorted(set(self.new()) - set(there))}") from None

    async def is_gone(self, provider: SandboxProvider, sandbox_id: SandboxId) -> bool:
        """Tell whether `get` no longer says that the sandbox runs."""
        try:
            return (await provider.get(sandbox_id)).status != "running"
        except KeyError as error:
            if sandbox_id not in str(error):
                raise AssertionError(f"the KeyError of get() does not name the sandbox: {error}") from error
            return True

    @contextlib.asynccontextmanager
    async def provider(self, lease: float | None = 900) -> AsyncGenerator[SandboxProvider]:
        """A provider of its own, for a test that ends sandboxes."""
        provider = self.backend.provider(lease)
        try:
            yield provider
        finally:
            await _close(provider)


@pytest.fixture(scope="session")
def agentix_bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A bundle's tar with nothing in it but Agentix, or what --agentix-bundle names."""
    given = _settings.get(request.config, "bundle")
    return given or str(_bundle.build_empty(tmp_path_factory.mktemp("agentix-bundle")))


# ---- the suite ----


class Suite:
    """What every backend does. Subclass it as `Test...`, with a fixture `backend` of class scope."""

    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls, request: pytest.FixtureRequest) -> Backend:
        """The chosen backend, as its distribution describes it."""
        name = _settings.backend(request.config)
        image = str(_settings.get(request.config, "image"))
        made = describe(name, image=image, bundle="unused")
        if _bundle.takes_bundle(providers().get(name)):
            made.bundle = request.getfixturevalue("agentix_bundle")
        return made

    @pytest.fixture(scope="class")
    @classmethod
    def watch(cls, backend: Backend, agentix_loop: Loop) -> Watch:
        del agentix_loop  # so that every test that is a coroutine function runs there
        return Watch(backend)

    @pytest.fixture(scope="class")
    @classmethod
    def provider(cls, watch: Watch, agentix_loop: Loop) -> Iterator[SandboxProvider]:
        """The provider that the tests share; when it is closed, nothing is left."""
        provider = watch.backend.provider()
        yield provider
        agentix_loop.run(_close(provider), watch.backend.patience)
        agentix_loop.run(watch.nothing_but([]), 2 * watch.backend.patience)

    @pytest.fixture(scope="class")
    @classmethod
    def box(cls, watch: Watch, provider: SandboxProvider, agentix_loop: Loop) -> Iterator[Sandbox]:
        """The sandbox that the tests share."""
        env = {} if "env" in watch.backend.without else {"env": ENV}
        session = provider.session(watch.backend.config(**env))
        box = agentix_loop.run(session.__aenter__(), 5 * watch.backend.patience)
        yield box
        agentix_loop.run(session.__aexit__(None, None, None), watch.backend.patience)

    @pytest.fixture(scope="class")
    @classmethod
    def there(cls, box: Sandbox, watch: Watch) -> list[str]:
        """What belongs to that sandbox."""
        del box
        return watch.new()

    # ---- what a provider is ----

    def test_it_is_registered(self, backend: Backend, provider: SandboxProvider) -> None:
        assert isinstance(provider, SandboxProvider)
        assert isinstance(provider, providers().get(backend.name))

    def test_bad_configurations_are_refused(
        self, watch: Watch, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before anything is started, and the error says which setting, and how to give it."""
        watch.need("refusals")
        refusals = list(backend.refusals())
        assert refusals
        before = watch.new()
        for refusal in refusals:
            with monkeypatch.context() as patch:
                for name, value in refusal.variables.items():
                    patch.delenv(name, raising=False) if value is None else patch.setenv(name, value)
                with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
                    refusal.make()
            for word in refusal.words:
                assert word in str(caught.value)
        assert watch.new() == before

    # ---- a sandbox that lives ----

    async def test_what_create_returns(self, box: Sandbox, watch: Watch) -> None:
        assert box.sandbox_id.strip() == box.sandbox_id != ""
        assert box.runtime_url.startswith(("http://", "https://", "http+unix://"))
        assert box.status == "running"
        assert (await box.health()).status == "ok"
        watch.need("token")
        assert box.token is not None
        assert len(box.token) >= 32
        assert box.token not in repr(box)

    async def test_who_has_no_token_is_turned_away(self, box: Sandbox, watch: Watch) -> None:
        watch.need("token")
        stranger = Sandbox(sandbox_id=box.sandbox_id, runtime_url=box.runtime_url, headers=box.headers, token="0" * 64)
        try:
            with pytest.raises((RuntimeUnreachable, RemoteCallError)):
                await stranger.remote(targets.echo)
        finally:
            await stranger.aclose()

    async def test_a_value(self, box: Sandbox) -> None:
        assert await box.remote(math.factorial, 5) == 120
        value = {"text": "ä\n", "bytes": b"\0\xff", "number": 1 << 70, "list": [None, True, 1.5, (1, 2)], "set": {3}}
        assert await box.remote(targets.echo, value, key=value) == ((value,), {"key": value})

    async def test_an_exception(self, box: Sandbox) -> None:
        with pytest.raises(RemoteCallError, match="it broke") as caught:
            await box.remote(targets.fail, "it broke")
        assert caught.value.error.type.endswith("Trouble")
        assert "in fail" in str(caught.value.error.traceback)
        assert await box.remote(math.factorial, 3) == 6

    async def test_a_big_value(self, box: Sandbox) -> None:
        data = random.Random(1).randbytes(8 << 20)
        assert await box.remote(targets.reverse, data) == data[::-1]

    async def test_many_calls_at_once(self, box: Sandbox) -> None:
        values = await asyncio.gather(*(box.remote(math.factorial, n) for n in range(50)))
        assert values == [math.factorial(n) for n in range(50)]

    async def test_a_stream(self, box: Sandbox) -> None:
        assert [item async for item in box.remote(targets.count, 1000)] == list(range(1000))
        stream = aiter(box.remote(targets.count, 1_000_000))
        assert [await anext(stream) for _ in range(3)] == [0, 1, 2]
        await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        assert await box.remote(math.factorial, 4) == 24

    async def test_records_and_output(self, box: Sandbox, backend: Backend) -> None:
        with _listening() as keeper:
            await box.remote(targets.speak, "it speaks")

            async def heard() -> bool:
                return (
                    "it speaks as a record" in keeper.said(targets.LOGGER)
                    and "it speaks on stdout" in keeper.said("agentix.sandbox.stdout")
                    and "it speaks on stderr" in keeper.said("agentix.sandbox.stderr")
                )

            await _until(heard, "a record, a line of stdout and one of stderr", backend.patience)
        record = next(record for record in keeper.records if record.name == targets.LOGGER)
        assert (record.levelname, vars(record)["said"]) == ("WARNING", "it speaks")

    async def test_cancelling_a_call(self, box: Sandbox, backend: Backend) -> None:
        name = f"{os.getpid()}-{time.monotonic_ns()}"
        call = asyncio.ensure_future(_await(box.remote(targets.nap, 3600, name)))

        async def state(wanted: str) -> bool:
            assert wanted == "cancelled" or not call.done(), await call
            return await box.remote(targets.nap_state, name) == wanted

        await _until(lambda: state("asleep"), "the call begins", backend.patience)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await _until(lambda: state("cancelled"), "the target hears of it", backend.patience)

    async def test_the_environment(self, box: Sandbox, watch: Watch) -> None:
        watch.need("env")
        assert {name: await box.remote(targets.variable, name) for name in ENV} == {
            name: value.encode() for name, value in ENV.items()
        }
        assert await box.remote(targets.variable, "two") is None

    async def test_get(self, box: Sandbox, provider: SandboxProvider) -> None:
        found = await provider.get(box.sandbox_id)
        assert (found.sandbox_id, found.runtime_url, found.status) == (box.sandbox_id, box.runtime_url, "running")
        if isinstance(found, Sandbox):
            assert await found.remote(math.factorial, 5) == 120
            await found.aclose()
        assert await box.remote(math.factorial, 6) == 720

    async def test_ids_that_are_nobodys(self, box: Sandbox, provider: SandboxProvider) -> None:
        nobody = SandboxId(box.sandbox_id[:-4] + ("0000" if not box.sandbox_id.endswith("0000") else "1111"))
        with pytest.raises(KeyError, match=nobody):
            await provider.get(nobody)
        await provider.delete(nobody)
        for odd in ("--all", "-f", "a b", "", "../x", "a\nb"):
            with pytest.raises((ValueError, KeyError)):
                await provider.get(SandboxId(odd))
            with contextlib.suppress(ValueError):
                await provider.delete(SandboxId(odd))
        assert await box.remote(math.factorial, 3) == 6

    # ---- sandboxes that end ----

    async def test_a_whole_life(
        self, watch: Watch, provider: SandboxProvider, there: list[str], record_property: Callable[[str, object], None]
    ) -> None:
        """Create, call, delete, and delete again; nothing is left, and who asks is told."""
        began = time.monotonic()
        sandbox = await provider.create(watch.backend.config())
        assert await sandbox.remote(math.factorial, 5) == 120
        record_property("time to first result", f"{watch.backend.name:12} {time.monotonic() - began:6.3f} s")
        await sandbox.aclose()
        await provider.delete(sandbox.sandbox_id)
        assert await watch.is_gone(provider, sandbox.sandbox_id)
        await provider.delete(sandbox.sandbox_id)
        with pytest.raises(RuntimeUnreachable):
            await sandbox.remote(math.factorial, 5)
        await watch.nothing_but(there)

    async def test_a_session_ends_with_its_block(
        self, watch: Watch, provider: SandboxProvider, there: list[str]
    ) -> None:
        """Its exception is the one that comes out; calls under way fail; descriptors come back."""
        descriptors = len(os.listdir("/proc/self/fd"))
        calls: list[asyncio.Future[Any]] = []

        async def block() -> None:
            async with provider.session(watch.backend.config()) as sandbox:
                calls.append(asyncio.ensure_future(_await(sandbox.remote(targets.nap, 3600))))
                assert await sandbox.remote(math.factorial, 5) == 120
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await block()
        with pytest.raises((RuntimeUnreachable, RemoteCallError)):
            await asyncio.wait_for(calls[0], watch.backend.patience)
        await watch.nothing_but(there)

        async def given_back() -> bool:
            return len(os.listdir("/proc/self/fd")) <= descriptors

        await _until(given_back, f"no more than {descriptors} descriptors", watch.backend.patience)

    async def test_another_process(self, watch: Watch, provider: SandboxProvider, there: list[str]) -> None:
        """It gets the sandbox, calls and deletes it; here it is gone then."""
        watch.need("elsewhere")
        sandbox = await provider.create(watch.backend.config())
        data = {"path": sys.path, "backend": pickle.dumps(watch.backend).hex(), "id": sandbox.sandbox_id}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _ELSEWHERE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(json.dumps(data).encode()), watch.backend.patience)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert json.loads(out or "null") in ([sandbox.sandbox_id, "running", value] for value in (120, None))
        assert await watch.is_gone(provider, sandbox.sandbox_id)
        with pytest.raises((RuntimeUnreachable, RemoteCallError)):
            await sandbox.remote(math.factorial, 5)
        await sandbox.aclose()
        await provider.delete(sandbox.sandbox_id)
        await watch.nothing_but(there)

    async def test_killed_from_outside(self, watch: Watch, provider: SandboxProvider, there: list[str]) -> None:
        """The call under way fails with an error that says so, `get` does not find it, `delete` tidies up."""
        watch.need("kill")
        sandbox = await provider.create(watch.backend.config())
        call = asyncio.ensure_future(_await(sandbox.remote(targets.nap, 3600)))
        assert await sandbox.remote(math.factorial, 5) == 120
        await asyncio.to_thread(watch.backend.kill, sandbox)
        later = asyncio.ensure_future(_until_it_fails(sandbox))
        for outcome in await asyncio.wait_for(
            asyncio.gather(call, later, return_exceptions=True), watch.backend.patience
        ):
            assert isinstance(outcome, (RuntimeUnreachable, WorkerExited)), outcome
            assert str(outcome)
        await _until(lambda: watch.is_gone(provider, sandbox.sandbox_id), "get() hears of it", watch.backend.patience)
        await sandbox.aclose()
        await provider.delete(sandbox.sandbox_id)
        await watch.nothing_but(there)

    async def test_a_lease_ends(self, watch: Watch) -> None:
        """A handle renews it; once that is closed, the sandbox ends by itself."""
        watch.need("lease")
        before = watch.new()
        kept: object = None
        for lease in LEASES:
            async with watch.provider(lease=lease) as provider:
                sandbox = await provider.create(watch.backend.config())
                await asyncio.sleep(lease * 1.5)
                (kept,) = await asyncio.gather(_await(sandbox.remote(math.factorial, 5)), return_exceptions=True)
                await sandbox.aclose()
                await _until(
                    lambda: watch.is_gone(provider, sandbox.sandbox_id),  # noqa: B023
                    "the lease ends",
                    watch.backend.patience,
                )
                await provider.delete(sandbox.sandbox_id)
            if kept == 120:
                break
        assert kept == 120
        await watch.nothing_but(before)

    async def test_a_create_that_fails(self, watch: Watch, provider: SandboxProvider, there: list[str]) -> None:
        watch.need("bundle")
        with pytest.raises((RuntimeError, OSError)) as caught:
            await provider.create(watch.backend.config(bundle="/nowhere/at-all.bundle.tar"))
        assert "/nowhere/at-all" in str(caught.value)
        await watch.nothing_but(there)

    async def test_a_create_that_is_cancelled(self, watch: Watch, provider: SandboxProvider, there: list[str]) -> None:
        for moment in watch.backend.create_moments:
            task = asyncio.ensure_future(provider.create(watch.backend.config()))
            await asyncio.sleep(moment)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                sandbox = await asyncio.wait_for(task, watch.backend.patience)  # it was quicker
                await sandbox.aclose()
                await provider.delete(sandbox.sandbox_id)
        await watch.nothing_but(there)


async def _until_it_fails(sandbox: Sandbox) -> None:
    """What is inside may outlive for a moment what was killed outside."""
    while True:
        await sandbox.remote(math.factorial, 5)
        await asyncio.sleep(0.05)


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


class TestBackend(Suite):
    """The chosen backend, for `pytest --pyargs agentix.testing.conformance`."""
