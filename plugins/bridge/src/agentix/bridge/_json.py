"""JSON as it is sent."""

from __future__ import annotations

import json
from typing import Any


def json_bytes(value: Any) -> bytes:
    """Return JSON in UTF-8; lone surrogates, for which that has no form, are escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
