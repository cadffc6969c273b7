"""The `agentix` program, run by backends for what it does already: looking at bundles and unpacking them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sysconfig
from typing import Any


def program() -> str:
    """Find `agentix` where this installation put its scripts, else on PATH."""
    beside = os.path.join(sysconfig.get_path("scripts"), "agentix")
    found = beside if os.access(beside, os.X_OK) else shutil.which("agentix")
    if found is None:
        raise RuntimeError("the agentix program was not found beside this interpreter or on PATH; reinstall agentix")
    return found


async def answer(failed: str, *words: str) -> dict[str, Any]:
    """Run it with these words and return the JSON that it prints. RuntimeError: `failed`, and what it said."""
    code, out, err = await _run([program(), *words])
    if code:
        raise RuntimeError(f"{failed}: {_said(err)}")
    return json.loads(out)


def _said(err: bytes) -> str:
    """Return the message of an error that is JSON, as it is with `--format=json`; else all of it."""
    text = err.decode(errors="replace").strip()[-4096:]
    try:
        error: Any = json.loads(text)["error"]
        return f"{error['message']}\nhint: {error['hint']}" if error.get("hint") else str(error["message"])
    except (ValueError, KeyError, TypeError):
        return text


async def _run(argv: list[str]) -> tuple[int, bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate()
    except BaseException:
        if process.returncode is None:
            process.kill()  # it leaves nothing that is half done
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode, out, err
