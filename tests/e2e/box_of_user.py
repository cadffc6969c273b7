"""A host of another user: a sandbox of the uv backend, then a runtime by itself. Says what it saw of their logs.

Arguments: the environment of workers, what is to be printed in there. Prints JSON, {"uv": facts, "alone": facts}.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "targets"))

import uv_targets as t
from agentix.provider.uv import UvProvider, UvProviderConfig

from agentix import RuntimeClient, SandboxConfig
from agentix.testing import serve


async def facts(remote: Any, text: str) -> dict[str, Any]:
    """The log file of the worker that `remote` reaches, once the text is in it."""
    environ = await remote(t.print_and_environ, text)
    name = f"sandbox-{environ['AGENTIX_WORKER_ID']}.log"
    places = [environ.get("AGENTIX_LOG_DIR"), "/tmp/agentix", f"/tmp/agentix-{os.geteuid()}"]
    paths = [Path(place) / name for place in places if place]
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for path in paths:
            if path.exists() and text in path.read_text():
                directory = path.parent.stat()
                return {
                    "path": str(path),
                    "mode": directory.st_mode & 0o777,
                    "uid": directory.st_uid,
                    "log_dir": environ.get("AGENTIX_LOG_DIR"),
                }
        await asyncio.sleep(0.05)
    raise TimeoutError(f"{text!r} is in none of {paths}")


async def of_uv(venv: str, text: str) -> dict[str, Any]:
    async with (
        UvProvider(UvProviderConfig(reuse_venv=venv)) as provider,
        provider.session(SandboxConfig(image="ignored", bundle="ignored")) as sandbox,
    ):
        return await facts(sandbox.remote, text)


async def alone(venv: str, text: str) -> dict[str, Any]:
    async with serve(python=f"{venv}/bin/python") as url, RuntimeClient(url) as client:
        return await facts(client.remote, text)


async def main(venv: str, text: str) -> None:
    async with asyncio.timeout(60):
        print(json.dumps({"uv": await of_uv(venv, text), "alone": await alone(venv, text)}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
