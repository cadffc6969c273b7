"""A handle that is held renews its lease; one that is closed or dropped does not."""

import asyncio
import gc
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from agentix import Sandbox, SandboxId
from agentix.provider._lease import keep, keep_lease

LEASE = 1.5


class Server:
    """A runtime with a short lease."""

    def __init__(self, directory: Path) -> None:
        self.token = "t" * 64
        (directory / "token").write_text(self.token)
        runtime = os.path.join(sysconfig.get_path("scripts"), "agentix-runtime")
        env = {
            "PATH": os.environ["PATH"],
            "AGENTIX_BIND_SOCKET": str(directory / "s"),
            "AGENTIX_TOKEN_FILE": str(directory / "token"),
            "AGENTIX_LEASE": str(LEASE),
        }
        self.url = f"http+unix://{quote(str(directory / 's'), safe='')}"
        self.process = subprocess.Popen([runtime, "--python", sys.executable], env=env, stderr=subprocess.DEVNULL)
        while not (directory / "s").exists():
            time.sleep(0.01)

    def handle(self) -> Sandbox:
        return keep_lease(Sandbox(sandbox_id=SandboxId("s"), runtime_url=self.url, token=self.token), LEASE)

    async def ended(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return self.process.poll() is not None


@pytest.fixture
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="agx-") as directory:
        server = Server(Path(directory))
        yield server
        server.process.kill()
        server.process.wait()


def test_while_it_is_held_and_then_closed(server: Server) -> None:
    async def main() -> None:
        sandbox = server.handle()
        assert not await server.ended(3 * LEASE)
        await sandbox.aclose()
        assert await server.ended(20)
        await sandbox.aclose()

    asyncio.run(main())


def test_once_it_is_dropped(server: Server) -> None:
    async def main() -> None:
        sandbox = server.handle()
        assert not await server.ended(2 * LEASE)
        del sandbox
        gc.collect()
        assert await server.ended(20)

    asyncio.run(main())


def test_after_the_loop_has_ended(server: Server) -> None:
    async def first() -> Sandbox:
        return server.handle()

    sandbox = asyncio.run(first())
    asyncio.run(sandbox.aclose())


def test_without_a_lease() -> None:
    async def main() -> None:
        sandbox = Sandbox(sandbox_id=SandboxId("s"), runtime_url="http://127.0.0.1:1")
        assert keep_lease(sandbox, None) is sandbox
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_a_renewal_that_makes_an_error_of_its_cancellation() -> None:
    async def renew(_: Sandbox) -> None:
        try:
            begun.set()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise RuntimeError("it was cancelled") from None

    async def main() -> None:
        sandbox = Sandbox(sandbox_id=SandboxId("s"), runtime_url="http://127.0.0.1:1", token="t")
        keep(sandbox, 0.001, renew)
        await asyncio.wait_for(begun.wait(), 30)
        await asyncio.wait_for(sandbox.aclose(), 30)

    begun = asyncio.Event()
    asyncio.run(main())
