"""Configurations, the `Sandbox` handle, and what `session` promises about ending one."""

import asyncio
import copy
import dataclasses
import inspect
import logging
import os
import sys
import types
import typing
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentix import (
    BundleDeployer,
    DeployedBundle,
    Failed,
    RuntimeUnreachable,
    Sandbox,
    SandboxConfig,
    SandboxId,
    SandboxInfo,
    SandboxProvider,
    SandboxResource,
)
from agentix.provider import _checks, base

CANARY = "canary-5d1f"


def config(**changes: Any) -> SandboxConfig:
    return SandboxConfig(**{"image": "python:3.13-slim", "bundle": "/b/x.bundle.tar", **changes})


# ---- SandboxConfig


def test_config_defaults() -> None:
    plain = SandboxConfig("img", "bundle")
    assert (plain.platform, plain.env, plain.resource) == (None, None, None)
    assert dataclasses.is_dataclass(plain)
    assert typing.get_type_hints(SandboxConfig)["env"] == dict[str, str] | None


@pytest.mark.parametrize("missing", [{}, {"image": "i"}, {"bundle": "b"}])
def test_config_needs_image_and_bundle(missing: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        SandboxConfig(**missing)


def test_config_refuses_unknown_fields() -> None:
    with pytest.raises(TypeError, match="imge"):
        config(imge="x")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image", "python:3.13-slim"),
        ("image", "registry.test:5000/a/b@sha256:" + "0" * 64),
        ("image", "docker://alpine"),
        ("image", "/images/a.sif"),
        ("bundle", "/home/me/my projects/x.bundle.tar"),
        ("bundle", "relative/dir"),
        ("platform", "linux/amd64"),
        ("platform", "linux/arm64/v8"),
        ("platform", "amd64"),
        ("env", {}),
        ("env", {"A": "x\nB=evil", "K": "-----BEGIN\nline\n", "E": "", "Q": "a'b\"c $HOME #", "n.a-m_e1": "é"}),
        ("env", {"BASH_FUNC_f%%": "() { :; }"}),
        ("env", {"RAW": os.fsdecode(b"\xff")}),
    ],
)
def test_config_accepts(field: str, value: Any) -> None:
    assert getattr(config(**{field: value}), field) == value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image", ""),
        ("image", " alpine"),
        ("image", "alpine "),
        ("image", "a b"),
        ("image", "a\u00a0b"),
        ("image", "--privileged"),
        ("image", "-v=/:/host"),
        ("image", "--env-file=/etc/hostname"),
        ("image", "a\nb"),
        ("image", "a\0b"),
        ("image", "a\x1b[2J"),
        ("image", "a\udc80"),
        ("bundle", ""),
        ("bundle", "-b"),
        ("bundle", " /b"),
        ("bundle", "/b\n"),
        ("bundle", "/b\0c"),
        ("platform", ""),
        ("platform", "linux/amd64 --privileged"),
        ("platform", "--linux"),
        ("platform", "linux//amd64"),
        ("platform", "a/b/c/d"),
        ("platform", "linux/amd64\n"),
        ("env", {"": "x"}),
        ("env", {"A B": "x"}),
        ("env", {"A=B": "x"}),
        ("env", {"A\nB": "x"}),
        ("env", {"A\tB": "x"}),
        ("env", {"A\0B": "x"}),
        ("env", {"-A": "x"}),
        ("env", {"--env": "x"}),
        ("env", {"#A": "x"}),
        ("env", {"É": "x"}),
        ("env", {"A": "x\0y"}),
        ("env", {"A": "\ud800"}),
    ],
)
def test_config_refuses_values(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        config(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image", None),
        ("image", b"alpine"),
        ("bundle", Path("/b")),
        ("platform", 3),
        ("env", [("A", "x")]),
        ("env", "A=x"),
        ("env", {"A": 1}),
        ("env", {1: "x"}),
        ("env", {"A": None}),
        ("resource", {"cpu": 1}),
    ],
)
def test_config_refuses_types(field: str, value: Any) -> None:
    with pytest.raises(TypeError, match=field):
        config(**{field: value})


@pytest.mark.parametrize(
    "env", [{f"A={CANARY}": "x"}, {"A": f"{CANARY}\0"}, {"A": f"{CANARY}\ud800"}, {"A": CANARY, "": "x"}]
)
def test_config_errors_do_not_tell_values_of_variables(env: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="env") as caught:
        config(env=env)
    assert CANARY not in str(caught.value) + repr(caught.value.__cause__)


def test_config_repr_does_not_tell_the_environment() -> None:
    assert CANARY not in repr(config(env={"KEY": CANARY}))


def test_config_keeps_its_own_environment() -> None:
    env = {"A": "1"}
    kept = config(env=env)
    env["-v"] = "2"
    assert kept.env == {"A": "1"}


# ---- SandboxResource


@pytest.mark.parametrize(
    ("memory", "size"),
    [
        (1, 1),
        (1 << 40, 1 << 40),
        ("1024", 1024),
        ("512b", 512),
        ("512m", 512 << 20),
        ("16g", 16 << 30),
        ("16G", 16 << 30),
        ("2kb", 2048),
        ("1.5GiB", 3 << 29),
        ("1t", 1 << 40),
    ],
)
def test_memory(memory: Any, size: int) -> None:
    resource = SandboxResource(memory=memory)
    assert resource.memory == memory
    assert resource.memory_bytes() == size


def test_no_memory() -> None:
    assert SandboxResource().memory_bytes() is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cpu", 0),
        ("cpu", -1),
        ("cpu", 0.0),
        ("cpu", float("nan")),
        ("cpu", float("inf")),
        ("gpu", 0),
        ("gpu", -1),
        ("memory", 0),
        ("memory", -1),
        ("memory", ""),
        ("memory", "0"),
        ("memory", "0m"),
        ("memory", "0.0000001b"),
        ("memory", "-1g"),
        ("memory", "g"),
        ("memory", "1x"),
        ("memory", "1 g"),
        ("memory", "1g\n"),
        ("memory", "1e3"),
        ("memory", "٣m"),
        ("memory", "nan"),
        ("memory", "--memory=1g"),
        ("memory", "9" * 400),
    ],
)
def test_resource_refuses_values(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        SandboxResource(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [("cpu", "4"), ("cpu", True), ("gpu", 1.0), ("gpu", True), ("gpu", "all"), ("memory", 1.5), ("memory", True)],
)
def test_resource_refuses_types(field: str, value: Any) -> None:
    with pytest.raises(TypeError, match=field):
        SandboxResource(**{field: value})


def test_resource_accepts() -> None:
    SandboxResource(cpu=0.5, memory="16g", gpu=2)
    SandboxResource(cpu=4)
    config(resource=SandboxResource(cpu=1))


@pytest.mark.parametrize("value", ["agentix-0a1b2c3d", "a", "A.b_c-d", "0" * 128])
def test_sandbox_ids(value: str) -> None:
    assert _checks.sandbox_id(value) == value


@pytest.mark.parametrize("value", ["", "--all", "-f", "a b", "a/b", "a\n", "..", ".a", "0" * 129, "a\0"])
def test_bad_sandbox_ids(value: str) -> None:
    with pytest.raises(ValueError, match="not a sandbox id"):
        _checks.sandbox_id(value)
    with pytest.raises(TypeError):
        _checks.sandbox_id(None)


# ---- Sandbox


class FakeClient:
    """Stands in for `RuntimeClient`."""

    made: typing.ClassVar[list["FakeClient"]] = []

    def __init__(self, base_url: str, timeout: float = 300, **settings: Any) -> None:
        self.base_url, self.timeout, self.settings = base_url, timeout, settings
        self.closed = 0
        self.close_error: BaseException | None = None
        self.made.append(self)

    async def _remote(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return fn(*args, **kwargs)

    async def try_remote(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return "tried", fn(*args, **kwargs)

    async def health(self) -> str:
        return "healthy"

    async def close(self) -> None:
        self.closed += 1
        if self.close_error is not None:
            raise self.close_error


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeClient]]:
    module = types.ModuleType("agentix._client")
    module.RuntimeClient = FakeClient  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "agentix._client", module)
    FakeClient.made.clear()
    yield FakeClient.made
    FakeClient.made.clear()


def box(**fields: Any) -> Sandbox:
    return Sandbox(**{"sandbox_id": SandboxId("box-1"), "runtime_url": "http://127.0.0.1:8000", **fields})


def test_sandbox_fields() -> None:
    assert [field.name for field in dataclasses.fields(Sandbox)] == [
        "sandbox_id",
        "runtime_url",
        "status",
        "call_deadline",
        "timeout",
        "http_sync_ms",
        "token",
        "headers",
    ]
    plain = box()
    assert isinstance(plain, SandboxInfo)
    assert (plain.status, plain.call_deadline, plain.timeout, plain.http_sync_ms) == ("running", None, 300, 1000)
    assert (plain.token, plain.headers) == (None, {})
    assert plain == box()
    assert box().headers is not box().headers


def test_sandbox_repr_tells_no_secret() -> None:
    text = repr(box(token=CANARY, headers={"authorization": CANARY}))
    assert CANARY not in text
    assert "box-1" in text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("call_deadline", 0),
        ("call_deadline", -1),
        ("call_deadline", float("nan")),
        ("timeout", 0),
        ("timeout", -1),
        ("http_sync_ms", -1),
    ],
)
def test_timing_values(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        box(**{field: value})
    with pytest.raises(ValueError, match=field):
        Backend().session(config(), **{field: value})


@pytest.mark.parametrize(("field", "value"), [("call_deadline", "1"), ("timeout", None), ("http_sync_ms", 0.5)])
def test_timing_types(field: str, value: Any) -> None:
    with pytest.raises(TypeError, match=field):
        box(**{field: value})


def test_the_client_is_made_by_the_first_call(clients: list[FakeClient]) -> None:
    async def main() -> None:
        sandbox = box(
            token="t", headers={"h": "v"}, call_deadline=5, timeout=7, http_sync_ms=None, runtime_url="http://u"
        )
        async with sandbox as same:
            assert same is sandbox
            assert not clients
            assert await sandbox.remote(max, 1, 2) == 2
            assert await sandbox.remote(sorted, [1, 2], reverse=True) == [2, 1]
            assert await sandbox.try_remote(max, 1, 2) == ("tried", 2)
            assert await sandbox.health() == "healthy"
        (client,) = clients
        assert (client.base_url, client.timeout) == ("http://u", 7)
        assert client.settings == {"http_sync_ms": None, "call_deadline": 5, "token": "t", "headers": {"h": "v"}}
        await sandbox.aclose()
        assert client.closed == 1

    asyncio.run(main())


def test_a_closed_handle_says_so(clients: list[FakeClient]) -> None:
    async def main() -> None:
        sandbox = box()
        await sandbox.aclose()
        for use in (lambda: sandbox.remote(max, 1, 2), sandbox.health):
            with pytest.raises(RuntimeUnreachable, match="box-1 is closed"):
                await use()  # type: ignore[operator]
        result = await sandbox.try_remote(max, 1, 2)
        assert isinstance(result, Failed)
        assert isinstance(result.error, RuntimeUnreachable)

    asyncio.run(main())
    assert not clients


def test_cleanups_run_after_the_client_last_first_whatever_they_raise(clients: list[FakeClient]) -> None:
    order: list[str] = []

    def step(name: str, error: Exception | None = None) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            order.append(f"{name}, client closed {clients[0].closed}")
            if error is not None:
                raise error

        return run

    async def main() -> None:
        sandbox = box()
        await sandbox.health()
        sandbox._add_cleanup(step("first", OSError("later")))
        sandbox._add_cleanup(step("second", ValueError("sooner")))
        with pytest.raises(ValueError, match="sooner") as caught:
            await sandbox.aclose()
        assert caught.value.__notes__ == ["then OSError: later"]
        await sandbox.aclose()

    asyncio.run(main())
    assert order == ["second, client closed 1", "first, client closed 1"]


# ---- SandboxProvider.session


class Backend(SandboxProvider):
    """Records what is asked of it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.delete_error: Exception | None = None
        self.delete_takes = 0.0
        self.sandbox = box()

    async def create(self, config: SandboxConfig) -> Sandbox:
        self.log.append("create")
        return self.sandbox

    async def delete(self, sandbox_id: SandboxId) -> None:
        self.log.append(f"delete {sandbox_id}")
        await asyncio.sleep(self.delete_takes)
        if self.delete_error is not None:
            raise self.delete_error
        self.log.append("deleted")

    async def get(self, sandbox_id: SandboxId) -> SandboxInfo:
        return self.sandbox


WHOLE = ["create", "delete box-1", "deleted"]


async def use(backend: Backend, clients: list[FakeClient], *, close: Exception, block: Exception | None = None) -> None:
    """A session whose client raises `close` when it is closed, and whose block raises `block`."""
    async with backend.session(config()) as sandbox:
        await sandbox.health()
        clients[0].close_error = close
        if block is not None:
            raise block


def test_session(clients: list[FakeClient]) -> None:
    backend = Backend()

    async def main() -> None:
        async with backend.session(config()) as sandbox:
            assert await sandbox.remote(max, 1, 2) == 2
            assert backend.log == ["create"]
        assert clients[0].closed == 1
        assert backend.log == WHOLE

    asyncio.run(main())


def test_session_settings_reach_the_client(clients: list[FakeClient]) -> None:
    backend = Backend()

    async def main() -> None:
        async with backend.session(config(), call_deadline=2.5, timeout=9, http_sync_ms=None) as sandbox:
            await sandbox.health()
            assert (sandbox.call_deadline, sandbox.timeout, sandbox.http_sync_ms) == (2.5, 9, None)
        assert clients[0].timeout == 9
        assert clients[0].settings["call_deadline"] == 2.5
        assert clients[0].settings["http_sync_ms"] is None

    asyncio.run(main())


def test_session_defaults_leave_the_providers_choice() -> None:
    backend = Backend()
    backend.sandbox = box(call_deadline=4, timeout=5, http_sync_ms=6)

    async def main() -> None:
        async with backend.session(config()) as sandbox:
            assert (sandbox.call_deadline, sandbox.timeout, sandbox.http_sync_ms) == (4, 5, 6)

    asyncio.run(main())


def test_session_checks_before_it_creates() -> None:
    backend = Backend()
    changed = config(env={})
    changed.env = {"A=B": "x"}
    with pytest.raises(ValueError, match="env"):
        backend.session(changed)
    changed = config(resource=SandboxResource(cpu=1))
    changed.resource.cpu = 0  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="cpu"):
        backend.session(changed)
    with pytest.raises(TypeError, match="SandboxConfig"):
        backend.session("python:3.13-slim")  # type: ignore[arg-type]
    assert backend.log == []


def test_session_deletes_even_if_closing_raises(clients: list[FakeClient]) -> None:
    backend = Backend()

    async def main() -> None:
        with pytest.raises(OSError, match="close failed"):
            await use(backend, clients, close=OSError("close failed"))
        assert backend.log == WHOLE

    asyncio.run(main())


def test_session_raises_what_closing_raised_before_what_deleting_raised(clients: list[FakeClient]) -> None:
    backend = Backend()
    backend.delete_error = OSError("delete failed")

    async def main() -> None:
        with pytest.raises(ValueError, match="close failed") as caught:
            await use(backend, clients, close=ValueError("close failed"))
        assert caught.value.__notes__ == ["then OSError: delete failed"]

    asyncio.run(main())


def test_session_deletes_even_if_closing_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "CLOSE_TIMEOUT", 0.05)
    backend = Backend()

    async def main() -> None:
        with pytest.raises(RuntimeUnreachable, match=r"box-1 did not close within 0\.05 s"):
            async with backend.session(config()) as sandbox:
                sandbox._add_cleanup(lambda: asyncio.sleep(30))
        assert backend.log == WHOLE

    asyncio.run(main())


def test_session_does_not_mistake_a_timeout_of_the_close_for_its_own() -> None:
    backend = Backend()

    async def fail() -> None:
        raise TimeoutError("inner")

    async def main() -> None:
        with pytest.raises(TimeoutError, match="inner"):
            async with backend.session(config()) as sandbox:
                sandbox._add_cleanup(fail)

    asyncio.run(main())


def test_the_blocks_own_exception_comes_first(clients: list[FakeClient], caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend()
    backend.delete_error = OSError("delete failed")

    async def main() -> None:
        with pytest.raises(KeyError, match="mine") as caught:
            await use(backend, clients, close=ValueError("close failed"), block=KeyError("mine"))
        assert "box-1" in caught.value.__notes__[0]
        assert "close failed" in caught.value.__notes__[0]

    with caplog.at_level(logging.WARNING, "agentix.provider"):
        asyncio.run(main())
    assert "sandbox box-1 was not deleted: delete failed" in caplog.text


def test_nothing_is_deleted_that_was_not_created() -> None:
    class Failing(Backend):
        async def create(self, config: SandboxConfig) -> Sandbox:
            raise OSError("no engine")

    backend = Failing()

    async def main() -> None:
        with pytest.raises(OSError, match="no engine"):
            async with backend.session(config()):
                pytest.fail("not reached")

    asyncio.run(main())
    assert backend.log == []


@pytest.mark.parametrize("delete_takes", [0, 0.02])
def test_cancelled_block(delete_takes: float) -> None:
    backend = Backend()
    backend.delete_takes = delete_takes

    async def use() -> None:
        async with backend.session(config()):
            await asyncio.sleep(30)

    async def main() -> None:
        task = asyncio.create_task(use())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert backend.log == WHOLE

    asyncio.run(main())


@pytest.mark.parametrize("block_fails", [False, True])
def test_cancelled_while_it_ends(block_fails: bool) -> None:
    backend = Backend()
    backend.delete_takes = 0.05

    async def use() -> None:
        async with backend.session(config()):
            if block_fails:
                raise KeyError("mine")

    async def main() -> None:
        task = asyncio.create_task(use())
        for _ in range(3):
            await asyncio.sleep(0.01)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert backend.log == WHOLE

    asyncio.run(main())


def test_timeout_around_a_session() -> None:
    backend = Backend()
    backend.delete_takes = 0.03

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02), backend.session(config()):
                await asyncio.sleep(30)
        assert backend.log == WHOLE

    asyncio.run(main())


# ---- protocols


def test_protocols_at_run_time() -> None:
    assert isinstance(Backend(), SandboxProvider)
    assert not isinstance(object(), SandboxProvider)
    assert not isinstance(Backend(), BundleDeployer)

    class Deploying(Backend):
        async def deploy_bundle(
            self, bundle: Path, *, name: str | None = None, platform: str | None = None
        ) -> DeployedBundle:
            return DeployedBundle(str(bundle))

    assert isinstance(Deploying(), BundleDeployer)


def test_a_method_that_a_backend_lacks_is_named() -> None:
    class Half(SandboxProvider):
        async def create(self, config: SandboxConfig) -> Sandbox:
            raise AssertionError("never made")

    with pytest.raises(TypeError, match=r"Half.*delete.*get"):
        Half()  # pyright: ignore[reportAbstractUsage]


def test_deployed_bundle() -> None:
    plain = DeployedBundle("/cache/sha256-0")
    assert (plain.platform, plain.metadata, plain.hints) == (None, {}, {})
    assert DeployedBundle("b").hints is not plain.hints
    assert copy.deepcopy(plain) == plain


def test_signatures() -> None:
    assert str(inspect.signature(SandboxProvider.session)).startswith(
        "(self, config: agentix.SandboxConfig, *, call_deadline: float | None = None,"
        " timeout: float = 300, http_sync_ms: int | None = 1000)"
    )
