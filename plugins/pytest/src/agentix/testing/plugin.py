"""The pytest plugin: sandboxes and their bundle as fixtures.

    def test_it(sandbox):                            async def test_it(async_sandbox):
        assert sandbox.remote(job, 1) == 2               assert await async_sandbox.remote(job, 1) == 2

Sandboxes live on an event loop of a thread of its own (`agentix_loop`). A test that is a coroutine function and uses a
fixture of ours runs there too, without another plugin. `docs/guides/testing.md` has the rest.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from . import _settings

if TYPE_CHECKING:
    from agentix import Sandbox, SandboxConfig, SandboxProvider

    from ._face import SyncSandbox
    from ._loop import Loop

pytest.register_assert_rewrite("agentix.testing.conformance")

_START_SECONDS = 600.0
_STOP_SECONDS = 120.0


def pytest_addoption(parser: pytest.Parser) -> None:
    _settings.declare(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run coroutine functions that use our loop."""
    loop = cast("Loop | None", pyfuncitem.funcargs.get("agentix_loop"))
    if loop is None or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    loop.run(pyfuncitem.obj(**arguments), float(str(_settings.get(pyfuncitem.config, "timeout"))))
    return True


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show how long each backend took from `create` to the first result."""
    times = {
        str(value)
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == "time to first result"
    }
    if times:
        terminalreporter.section("agentix: time to first result")
        for line in sorted(times):
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def agentix_loop() -> Iterator[Loop]:
    """The loop on which sandboxes live: `agentix_loop.run(coroutine)`."""
    from ._loop import Loop

    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(scope="session")
def agentix_provider(request: pytest.FixtureRequest, agentix_loop: Loop) -> Iterator[SandboxProvider]:
    """The chosen backend's provider, with its default configuration; override it to give another one."""
    from agentix import providers

    provider = providers().get(_settings.backend(request.config))()
    yield provider
    close = getattr(provider, "aclose", None)
    if close is not None:
        agentix_loop.run(close(), _STOP_SECONDS)


@pytest.fixture(scope="session")
def bundle(
    request: pytest.FixtureRequest,
    agentix_provider: SandboxProvider,
    agentix_loop: Loop,
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """The project's bundle, built and deployed once in a run: what `SandboxConfig(bundle=)` takes."""
    from . import _bundle

    given = _settings.get(request.config, "bundle")
    if given is not None:
        return given
    project = Path(_settings.get(request.config, "project") or request.config.rootpath).absolute()
    if not _bundle.takes_bundle(agentix_provider):
        return str(project)
    tar = _bundle.build(project, tmp_path_factory.mktemp("agentix-bundle"))
    return _bundle.deploy(tar, agentix_provider, agentix_loop)


@pytest.fixture(scope="session")
def agentix_config(request: pytest.FixtureRequest, bundle: str) -> SandboxConfig:
    """What each sandbox is started with; override it to add an environment or resources."""
    from agentix import SandboxConfig

    return SandboxConfig(image=str(_settings.get(request.config, "image")), bundle=bundle)


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    scope = _settings.get(config, "scope")
    if scope not in ("function", "class", "module", "session"):
        raise pytest.UsageError(f"agentix_scope must be function, class, module or session: {scope!r}")
    return scope


@pytest.fixture(scope=_scope)
def async_sandbox(
    agentix_provider: SandboxProvider, agentix_config: SandboxConfig, agentix_loop: Loop
) -> Iterator[Sandbox]:
    """A live sandbox, for tests that are coroutine functions."""
    session = agentix_provider.session(agentix_config)
    handle = agentix_loop.run(session.__aenter__(), _START_SECONDS)
    try:
        yield handle
    finally:
        agentix_loop.run(session.__aexit__(None, None, None), _STOP_SECONDS)


@pytest.fixture(scope=_scope)
def sandbox(async_sandbox: Sandbox, agentix_loop: Loop) -> SyncSandbox:
    """A live sandbox, for tests that are plain functions: each verb waits for its result."""
    from ._face import SyncSandbox

    return SyncSandbox(async_sandbox, agentix_loop)
