"""Lets an agent work in a sandbox, on a model that the host serves.

python host.py                        # a small agent of this project's, without a container
python host.py claude IMAGE BUNDLE    # Claude Code, in a container without a network
"""

import asyncio
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "src"))  # the host needs the names; the sandbox gets an installed copy

from agentix.agents import claude_code
from agentix.bridge import Proxy
from agentix.bridge.clients import AnthropicFromOpenAIClient, OpenAIClient
from agentix.provider.docker import DockerProvider, DockerProviderConfig
from agentix.provider.uv import UvProvider, UvProviderConfig
from coder import wrapped
from model import KEY, serving

from agentix import SandboxConfig, files

TASK = "The answer in answer.txt is wrong. Put it right."


async def tiny(url: str) -> str:
    project = str(Path(__file__).parent)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    client = OpenAIClient(base_url=url, api_key=KEY)
    with tempfile.TemporaryDirectory() as workdir:  # sandboxes of this backend have the machine's files
        config = SandboxConfig(image="local", bundle="local", env={"AGENTIX_UPLOAD_ROOT": workdir})
        async with (
            UvProvider(UvProviderConfig(project=project, python=python)) as provider,
            provider.session(config) as sandbox,
            Proxy(client).session(sandbox) as handle,
        ):
            await sandbox.remote(files.upload, "answer.txt", b"41\n")
            result = await sandbox.remote(wrapped.run, TASK, workdir, client.environ(handle))
            left = await sandbox.remote(files.download, "answer.txt")
    return f"{result.stdout}{result.stderr}exit code {result.exit_code}, answer.txt: {left.decode()}"


async def claude(url: str, image: str, bundle: str) -> str:
    client = AnthropicFromOpenAIClient(base_url=url, api_key=KEY)
    provider = DockerProvider(DockerProviderConfig(network="none"))
    async with (
        provider.session(SandboxConfig(image=image, bundle=bundle)) as sandbox,
        Proxy(client).session(sandbox) as handle,
    ):
        await sandbox.remote(files.upload, "answer.txt", b"41\n")
        task = claude_code.ClaudeCodeInput(
            instruction=TASK, model="any", workdir="/workspace", base_url=handle.url, timeout=300, max_turns=20
        )
        result = await sandbox.remote(claude_code.run, task)
        left = await sandbox.remote(files.download, "answer.txt")
    return f"{result.stdout.decode()}exit code {result.returncode}, answer.txt: {left.decode()}"


async def main(arguments: list[str]) -> None:
    with serving() as url:
        text = await (claude(url, *arguments[1:]) if arguments[:1] == ["claude"] else tiny(url))
    print(text, end="")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
