"""Lets a scripted agent mend a repository in one container, and scores its patch in another.

python host.py IMAGE BUNDLE INSTANCE.json SCRIPT.sh
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "src"))  # the host needs the names; the sandbox gets an installed copy

from agentix.plugins.datasets import swe
from agentix.provider.docker import DockerProvider
from mender.agent import mend

from agentix import SandboxConfig


async def main(image: str, bundle: str, instance: dict[str, Any], script: str) -> None:
    provider = DockerProvider()
    config = SandboxConfig(image=image, bundle=bundle)
    async with provider.session(config) as sandbox:
        prepared = await sandbox.remote(swe.prepare_env, base_commit=instance["base_commit"])
        if not prepared.ok:
            sys.exit(prepared.log)
        patch = await sandbox.remote(mend, script)
    # What the agent did to its sandbox must not reach the judge: only the patch goes on.
    async with provider.session(config) as sandbox:
        print(json.dumps(await sandbox.remote(swe.score, instance, patch)))


if __name__ == "__main__":
    image, bundle, instance_file, script_file = sys.argv[1:]
    instance = json.loads(Path(instance_file).read_text())
    asyncio.run(main(image, bundle, instance, Path(script_file).read_text()))
