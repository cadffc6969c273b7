"""Runs the job in a sandbox, with its desk on the host."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "src"))  # the host needs the names; the sandbox gets an installed copy

from agentix.provider.uv import UvProvider, UvProviderConfig
from surveyor.desk import Desk
from surveyor.job import survey

from agentix import SandboxConfig

FIELDS = [50.0, 52.5, 49.0, 51.0, 97.0, 50.5, 31.0, 48.5, 50.0, 51.5]


async def main() -> None:
    project = str(Path(__file__).parent)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    desk = Desk(limit=60)
    async with (
        UvProvider(UvProviderConfig(project=project, python=python)) as provider,
        provider.session(SandboxConfig(image="local", bundle="local")) as sandbox,
    ):
        sandbox.register_namespace(desk)
        result = await sandbox.remote(survey, FIELDS, seconds_each=0.05)
    print(f"{result['fields']} fields kept, {result['mean']:.2f} on average; asked about {desk.decided}")


if __name__ == "__main__":
    asyncio.run(main())
