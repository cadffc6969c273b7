"""What this backend keeps on the host: a private directory for each sandbox, with its token and perhaps its socket."""

from __future__ import annotations

import re
from pathlib import Path

from agentix.provider import _places as shared

ID_PATTERN = re.compile(r"agentix-[0-9a-f]{8}")


def left_directories(engine: str) -> list[Path]:
    """Return the directories of sandboxes of an engine, or of none yet, that killed processes left."""
    return [
        path
        for path in shared.base().iterdir()
        if ID_PATTERN.fullmatch(path.name)
        and shared.is_left(path)
        and (shared.facts_of(path) or {}).get("engine", engine) == engine
    ]
