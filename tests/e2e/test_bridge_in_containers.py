"""The bridge where it is meant to be used: an agent in a container without a network, its keys on the host only."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import box_bundle
import engines
import pytest
from agentix.bridge import Forward, Proxy
from agentix.bridge.clients import AnthropicFromOpenAIClient, OpenAIClient
from aiohttp import web
from containers import provider_of

from agentix import SandboxConfig, SandboxId
from agentix.provider import Sandbox

AGENTS = Path(__file__).parent / "agents"
sys.path[:0] = [str(AGENTS / "src"), str(Path(__file__).parents[1] / "support")]

import agent_targets as t  # noqa: E402
from bridge_models import USAGE, ChatModel, call, chunk, completion  # noqa: E402
from bridge_peers import serving  # noqa: E402
from processes import Runtime  # noqa: E402

pytestmark = pytest.mark.timeout(300)

KEY = "sk-real-" + secrets.token_hex(16)
# Neither of them matches itself, which is then in the memory of whoever searches.
REAL = "sk-real-[0-9a-f]{16}"
PLACEHOLDER = "the-key-is-on-the-hos[t]"


def answer(body: dict[str, Any]) -> Any:
    if body["model"] == "limited":
        error = {"message": f"slow down, {KEY}", "code": "rate_limit_exceeded"}
        return web.json_response({"error": error}, status=429, headers={"retry-after": "2", "x-key": KEY})
    if not body.get("stream"):
        return completion({"content": "日本語"})
    pieces = [chunk({"content": "日本"}), chunk(call(0, '{"path":', "read")), chunk(call(0, ' "/😀"}'))]
    return [*pieces, chunk({}, "tool_calls"), chunk(**USAGE)]


class Model:
    """Both APIs, and one that repeats the key that it got wherever it can."""

    def __init__(self) -> None:
        self.chat = ChatModel(answer)

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        said = request.headers["authorization"]
        if request.path == "/v1/models":
            models = {"object": "list", "data": [{"id": "m", "object": "model"}]}
            return web.json_response(models, headers={"x-echo": said, "x-other": "kept"})
        if request.path == "/v1/embeddings":
            return web.json_response({"error": {"message": f"no such key: {said}"}}, status=401)
        return await self.chat(request)


def clients_of(url: str) -> list[Any]:
    return [
        AnthropicFromOpenAIClient(base_url=url + "/v1", api_key=KEY),
        OpenAIClient(base_url=url + "/v1", api_key=KEY),
        Forward(url, paths=["/v1/models", "/v1/embeddings"], headers={"authorization": f"Bearer {KEY}"}),
    ]


Search = Callable[[str], Awaitable[list[str]]]


async def agent_and_search(sandbox: Any, search: Search) -> None:
    """An agent talks, by the SDKs of both vendors; the key is not below, wherever one looks."""
    async with serving(Model()) as service:
        clients = clients_of(service.url)
        async with Proxy(*clients).session(sandbox) as handle:
            environ = clients[0].environ(handle) | clients[1].environ(handle)
            heard = await sandbox.remote(t.converse, environ)
            (text, tools, limited, tokens), (chat, streamed, listed, denied) = heard
            assert (text, chat, streamed, tokens) == ("日本語", "日本語", "日本", 1)
            assert tools == ["tool_use", {"path": "/😀"}]
            assert limited[0] == 429
            assert "slow down" in limited[1]
            assert limited[2]["retry-after"] == "2"
            assert listed[0] == ["m"]
            assert listed[1]["x-other"] == "kept"
            assert denied[0] == 401
            assert KEY not in json.dumps(heard)
            for index in range(len(service.requests)):
                assert service.header("authorization", index) == f"Bearer {KEY}"
            assert "placeholder" not in repr(service.requests)

            assert [path for path in await search(PLACEHOLDER) if path.endswith("environ")], "the agent's own"
            assert await search(REAL) == []
            assert await sandbox.remote(t.end) == [0]


def test_an_agent_without_a_network(
    run: Any, places: Path, nothing_left: None, docker_engine: engines.Engine, tmp_path: Path
) -> None:
    bundle = box_bundle.build(tmp_path, AGENTS)
    config = SandboxConfig(image=docker_engine.image("busybox"), bundle=bundle.directory)

    async def main() -> None:
        async with provider_of(docker_engine, network="none").session(config) as sandbox:

            async def search(pattern: str) -> list[str]:
                searched = await sandbox.remote(t.search, pattern)
                assert [path for path in searched["looked"] if path.endswith("mem")], "a worker can look at itself"
                assert len([path for path in searched["looked"] if path.endswith("environ")]) >= 2
                return searched["found"]

            await agent_and_search(sandbox, search)
            assert await sandbox.remote(t.interfaces) == ["lo"]

    run(main())


def test_a_key_of_the_host_is_in_no_memory_below(run: Any, worker_python: str, tmp_path: Path) -> None:
    """As above, without a container: whoever runs a runtime may look into the memory of all of it."""
    site = next(Path(worker_python).parents[1].glob("lib/python*/site-packages"))
    (site / "agentix-agents.pth").write_text(f"{AGENTS / 'src'}\n")

    async def main() -> None:
        with Runtime(worker_python, tmp_path, AGENTIX_LOG_DIR=str(tmp_path)) as runtime:

            async def search(pattern: str) -> list[str]:
                found, looked = t.search_processes(pattern, [str(pid) for pid in family(runtime.pid)])
                assert len([path for path in looked if path.endswith("mem")]) >= 2, (
                    "worker, agent, and whoever may: the server"
                )
                return found + t.search_files(pattern, str(tmp_path))

            async with Sandbox(SandboxId("box"), runtime.url) as sandbox:
                await agent_and_search(sandbox, search)

    run(main())


def family(pid: int) -> list[int]:
    """A process, and all that were started below it, by whichever thread."""
    lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [pid, *(one for below in lists for child in below.split() for one in family(int(child)))]
