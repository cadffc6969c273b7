"""End to end: a real `agentix-runtime`, its worker, and this process as the host.

The worker runs in a small venv of its own that sees this environment's packages and `tests/e2e/targets`, since a worker
imports nothing from the directory it is started in or from PYTHONPATH. The host sees the same targets.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import box_bundle
import engines
import pytest
from containers import PATIENCE, left

import agentix
from agentix.testing import serve

TARGETS = Path(__file__).parent / "targets"
sys.path[:0] = [str(TARGETS), str(TARGETS.parents[1] / "support")]


# Who starts a run in the background has interrupts ignored, and so would all that the tests start and then interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def worker_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter for workers."""
    venv = tmp_path_factory.mktemp("worker") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = next(venv.glob("lib/python*/site-packages"))
    ours = str(Path(agentix.__file__).parents[1])  # wherever this process has it from
    paths = [str(TARGETS), ours, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    lines = list(dict.fromkeys(paths))
    python = venv / "bin" / "python"
    if library := os.environ.get("AGENTIX_TEST_WORKER_PRELOAD"):  # tools/sanitized_ext.sh; the runtime hands down none
        lines.append("import os; os.environ.pop('LD_PRELOAD', None)")  # not for what the worker starts
        real, python = python, python.with_name("preloading")
        python.write_text(f'#!/bin/sh\nLD_PRELOAD={library} exec {real} "$@"\n')
        python.chmod(0o755)
    (site / "agentix-tests.pth").write_text("\n".join(lines) + "\n")
    return str(python)


@pytest.fixture(scope="module")
def url(worker_python: str) -> Iterator[str]:
    """A runtime that lives in a loop of its own."""
    found: list[str] = []
    ready, over = threading.Event(), threading.Event()

    async def main() -> None:
        async with serve(python=worker_python) as url:
            found.append(url)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert ready.wait(30)
    yield found[0]
    over.set()
    thread.join(30)


@pytest.fixture(scope="session")
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that builds share: what an interpreter costs is then paid once."""
    return tmp_path_factory.mktemp("build-cache")


@pytest.fixture
def run() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Run a coroutine, for two minutes at most; the loop must not be told of an exception that nobody took."""
    complaints: list[dict[str, Any]] = []

    def runner(coroutine: Coroutine[Any, Any, Any]) -> Any:
        async def main() -> Any:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            return await asyncio.wait_for(coroutine, PATIENCE)

        return asyncio.run(main())

    yield runner
    assert complaints == []


# ---- containers: one bundle, one docker, one podman for all tests that want them ----


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> box_bundle.Bundle:
    return box_bundle.shared(tmp_path_factory)


@pytest.fixture(scope="session")
def plain_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tar of a bundle with the same targets that depends on nothing: for services that unpack it often."""
    return box_bundle.build_plain(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[engines.Engine]:
    with engines.docker() as engine:
        yield engine


@pytest.fixture(scope="session")
def podman_engine() -> Iterator[engines.Engine]:
    with engines.podman() as engine:
        yield engine


@pytest.fixture(params=["docker", "podman"])
def engine(request: pytest.FixtureRequest) -> engines.Engine:
    return request.getfixturevalue(f"{request.param}_engine")


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The backend's directory on the host, this test's own; nothing may be left in it."""
    root = Path(tempfile.mkdtemp(prefix="agx-"))  # a short name: the path of a socket must fit
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(root))
    yield root / f"agentix-{os.getuid()}"
    try:
        assert left(root / f"agentix-{os.getuid()}") == []
    finally:
        shutil.rmtree(root)


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No sandbox may outlive the test."""
    yield
    assert {engine.kind: engine.sandboxes() for engine in engines.started if engine.sandboxes()} == {}
