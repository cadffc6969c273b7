"""The variables that point the vendors' SDKs, and agents built on them, to a tunnel."""

from __future__ import annotations

from ._types import TunnelHandle

# Placeholders of a form that agents accept; the keys that count stay on the host.
_ANTHROPIC_KEY = "sk-ant-api03-placeholder-the-key-is-on-the-host"
_OPENAI_KEY = "sk-placeholder-the-key-is-on-the-host"


def anthropic_environ(handle: TunnelHandle) -> dict[str, str]:
    """Return the variables for Anthropic's SDKs and Claude Code."""
    return {"ANTHROPIC_BASE_URL": handle.url.rstrip("/"), "ANTHROPIC_API_KEY": _ANTHROPIC_KEY}


def openai_environ(handle: TunnelHandle) -> dict[str, str]:
    """Return the variables for OpenAI's SDKs."""
    return {"OPENAI_BASE_URL": handle.url.rstrip("/") + "/v1", "OPENAI_API_KEY": _OPENAI_KEY}
