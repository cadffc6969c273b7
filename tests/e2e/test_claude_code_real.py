"""The real Claude Code, from a bundle, in containers without a network, on models that this test scripts.

The package is large and is fetched once, into a cache that outlives the run.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import engines
import pytest
from agent_models import AFTER, BEFORE, DONE, models, task
from agentix.agents import claude_code
from agentix.agents.claude_code import ClaudeCodeInput, ClaudeCodeResult
from agentix.bridge import AbridgeError, ClientResponse, Proxy, Recorder, Replay, Request, on
from agentix.bridge.clients import AnthropicClient, AnthropicFromOpenAIClient
from bundletools import AGENTIX, agentix, build, environment, project
from containers import provider_of, until

from agentix import SandboxConfig, bash, files

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("places", "nothing_left"), pytest.mark.timeout(400)]

KEY = "sk-the-real-key-of-the-host"
MODEL = "claude-sonnet-4-5"
NOTES = "/workspace/notes.txt"
# Nothing that a process of the sandbox has or wrote may hold the key. The pattern does not match itself.
SEARCH = (
    "for f in /proc/[0-9]*/environ /proc/[0-9]*/cmdline $(find / -xdev -path /proc -prune -o -path /sys -prune -o "
    f"-newer {NOTES} -type f -print); do grep -aq [{KEY[0]}]{KEY[1:]} $f 2>/dev/null && echo $f; done; true"
)


@pytest.fixture(scope="module")
def claude_bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("claude")
    where = project(root / "p", dependencies=("agentix-agent-claude-code", "agentix-runtime-basic"))
    env = environment(Path.home() / ".cache/agentix/test-agents")
    tar = where / build(cwd=where, env=env)["bundle"]
    answer = agentix(
        "deploy", "docker", tar, "--bundle-cache-dir", root / "cache", "--format", "json", cwd=root, env=env
    )
    assert answer.returncode == 0, (AGENTIX, answer.stderr)
    tar.unlink()
    return str(json.loads(answer.stdout)["bundle"])


@asynccontextmanager
async def sandbox_of(engine: engines.Engine, image: str, bundle: str, client: Any) -> AsyncIterator[tuple[Any, Any]]:
    """A sandbox with the file, and a tunnel to the client."""
    config = SandboxConfig(image=engine.image(image), bundle=bundle)
    async with (
        provider_of(engine, network="none").session(config) as sandbox,
        Proxy(client).session(sandbox) as handle,
    ):
        await sandbox.remote(files.upload, NOTES, BEFORE.encode())
        yield sandbox, handle


def work(handle: Any, **more: Any) -> ClaudeCodeInput:
    about: dict[str, Any] = {"timeout": 100, "max_turns": 10, **more}
    return ClaudeCodeInput(instruction=task(NOTES), model=MODEL, workdir="/workspace", base_url=handle.url, **about)


async def does_the_task(engine: engines.Engine, image: str, bundle: str, client: Any) -> list[dict[str, Any]]:
    async with sandbox_of(engine, image, bundle, client) as (sandbox, handle):
        result: ClaudeCodeResult = await sandbox.remote(claude_code.run, work(handle))
        assert (result.returncode, result.stderr) == (0, b"")
        said = [json.loads(line) for line in result.stdout.splitlines()]
        assert said[-1]["type"] == "result"
        assert said[-1]["result"] == DONE
        assert await sandbox.remote(files.download, NOTES) == AFTER.encode()
        assert await sandbox.remote(files.download, NOTES + ".before") == BEFORE.encode()
        if image != "busybox":
            assert (await sandbox.remote(bash.run, SEARCH)).stdout == ""
        return said


def test_it_does_a_task(
    run: Any, docker_engine: engines.Engine, claude_bundle: str, tmp_path: Path, caplog: Any
) -> None:
    """On a model that speaks Messages, on one that speaks Chat Completions, and again from the record of the first."""
    record = tmp_path / "calls.jsonl"

    async def main() -> None:
        with caplog.at_level(logging.INFO, logger="agentix.agents.claude_code"):
            async with models(KEY) as (service, model):
                client = Recorder(AnthropicClient(base_url=service.url, api_key=KEY), record)
                said = await does_the_task(docker_engine, "bookworm", claude_bundle, client)
        assert [bool(turn.tools) for turn in model.turns] == [True, True, True, False]
        assert all(asked["path"] == "/v1/messages?beta=true" for asked in service.requests)
        assert KEY not in record.read_text()
        logged = [json.loads(text) for name, _, text in caplog.record_tuples if name == "agentix.agents.claude_code"]
        assert logged == said

        async with models(KEY) as (service, model):
            client = AnthropicFromOpenAIClient(base_url=service.url + "/v1", api_key=KEY, model="their-model")
            await does_the_task(docker_engine, "bookworm", claude_bundle, client)
        assert [asked["path"] for asked in service.requests] == ["/v1/chat/completions"] * 4
        assert {service.body(i)["model"] for i in range(4)} == {"their-model"}

        await does_the_task(docker_engine, "bookworm", claude_bundle, Replay(record))

    run(main())


def test_an_image_without_a_libc(run: Any, docker_engine: engines.Engine, claude_bundle: str) -> None:
    async def main() -> None:
        async with models(KEY) as (service, _):
            client = AnthropicClient(base_url=service.url, api_key=KEY)
            await does_the_task(docker_engine, "busybox", claude_bundle, client)

    run(main())


def test_the_example(docker_engine: engines.Engine, claude_bundle: str) -> None:
    program = Path(__file__).parents[2] / "examples/coding-agent/host.py"
    command = [sys.executable, str(program), "claude", docker_engine.image("bookworm"), claude_bundle]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "The answer is 42 now." in done.stdout
    assert done.stdout.endswith("\nexit code 0, answer.txt: 42\n")


class Silent:
    """A model that takes a request and then says nothing, or refuses it."""

    def __init__(self, status: int = 0) -> None:
        self.asked = 0
        self.left = 0
        self._status = status

    @on("/v1/messages")
    async def messages(self, _: Request) -> ClientResponse:
        self.asked += 1
        if self._status:
            raise AbridgeError("not this model", status_code=self._status)
        try:
            await asyncio.sleep(90)
        finally:
            self.left += 1
        return ClientResponse.json({})


def running(engine: engines.Engine, sandbox: Any) -> list[str]:
    return [line for line in engine("top", sandbox.sandbox_id).splitlines() if "claude" in line]


def test_it_ends_with_its_time_and_with_its_caller(
    run: Callable[..., Any], docker_engine: engines.Engine, claude_bundle: str
) -> None:
    async def main() -> None:
        silent = Silent()
        async with sandbox_of(docker_engine, "bookworm", claude_bundle, silent) as (sandbox, handle):
            result = await sandbox.remote(claude_code.run, work(handle, timeout=20))
            assert result.returncode < 0
            assert json.loads(result.stdout.splitlines()[0])["subtype"] == "init"
            assert silent.asked
            assert running(docker_engine, sandbox) == []
            await until(lambda: silent.left == silent.asked)

            before = silent.asked
            call = asyncio.ensure_future(sandbox.remote(claude_code.run, work(handle)))
            await until(lambda: silent.asked > before)
            assert running(docker_engine, sandbox)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await until(lambda: running(docker_engine, sandbox) == [] and silent.left == silent.asked)

    run(main())


def test_what_the_model_refuses(run: Any, docker_engine: engines.Engine, claude_bundle: str) -> None:
    async def main() -> None:
        async with sandbox_of(docker_engine, "bookworm", claude_bundle, Silent(400)) as (sandbox, handle):
            result = await sandbox.remote(claude_code.run, work(handle))
            assert result.returncode != 0
            assert b"not this model" in result.stdout + result.stderr

    run(main())
