"""A host in a process of its own, to be stopped and killed: makes one call and notes what comes of it.

Arguments: the URL, the file to note in, the journal of the target, the key, seconds the target takes, `http_sync_ms` or
"none". It connects, notes "ready <key>" and waits for a line on standard input; then it calls, and notes "value <key>"
or "error <key> <type>"; then it waits for another line, and makes a second call, whose request acknowledges the first.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "targets"))

import storm_targets as t

from agentix import RuntimeClient


async def main() -> None:
    url, notes, journal, key, seconds, sync = sys.argv[1:]
    async with RuntimeClient(url, http_sync_ms=None if sync == "none" else int(sync)) as client:
        await client.remote(len, "now there is a link, where one is wanted")
        t.note(notes, "ready", key)
        await asyncio.to_thread(sys.stdin.readline)
        try:
            value = await client.remote(t.work_async, journal, key, float(seconds), 64)
            t.note(notes, "value" if value == t.value_of(key, 64) else "wrong", key)
        except Exception as exc:
            t.note(notes, "error", f"{key} {type(exc).__name__} {exc}")
        await asyncio.to_thread(sys.stdin.readline)
        await client.remote(len, "the end")


asyncio.run(main())
