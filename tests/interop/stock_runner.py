"""Runs what a call names, for servers that are not ours. As a program: JSON lines in, JSON lines out.

    in   {"id", "callable", "arguments": base64}   {"cancel": id}
    out  {"id", "value": base64}   {"id", "error": {...}}

Imports nothing of the project; targets come from the folders that AGENTIX_TEST_TARGETS lists.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import inspect
import json
import os
import pickle
import sys
import traceback
from typing import Any

sys.path[:0] = os.environ.get("AGENTIX_TEST_TARGETS", "").split(os.pathsep)


def error_of(exc: BaseException) -> dict[str, Any]:
    cancelled = isinstance(exc, asyncio.CancelledError)
    return {
        "type": "Cancelled" if cancelled else type(exc).__name__,
        "message": "the remote call was cancelled" if cancelled else str(exc),
        "traceback": "" if cancelled else "".join(traceback.format_exception(exc)),
        "cancelled": cancelled,
        "returncode": None,
    }


async def run(name: str, arguments: bytes) -> bytes:
    """Return the pickle of what the target gives."""
    module, _, qualname = name.partition("::")
    target: Any = importlib.import_module(module)
    for part in qualname.split("."):
        target = getattr(target, part)
    args, kwargs = pickle.loads(arguments)
    if inspect.iscoroutinefunction(target):
        value = await target(*args, **kwargs)
    else:
        value = await asyncio.to_thread(target, *args, **kwargs)
    return pickle.dumps(value)


async def main() -> None:
    tasks: dict[str, asyncio.Task[None]] = {}

    def say(words: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(words) + "\n")
        sys.stdout.flush()

    async def one(call_id: str, name: str, arguments: bytes) -> None:
        try:
            value = await run(name, arguments)
        except BaseException as exc:
            say({"id": call_id, "error": error_of(exc)})
        else:
            say({"id": call_id, "value": base64.b64encode(value).decode()})
        tasks.pop(call_id, None)

    while line := await asyncio.to_thread(sys.stdin.readline):
        words = json.loads(line)
        if "cancel" in words:
            if task := tasks.get(words["cancel"]):
                task.cancel()
            continue
        arguments = base64.b64decode(words["arguments"])
        tasks[words["id"]] = asyncio.create_task(one(words["id"], words["callable"], arguments))


if __name__ == "__main__":
    asyncio.run(main())
