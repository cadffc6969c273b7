"""Clients for `agentix.bridge.Proxy` that come along: the vendors' SDKs, and translations between their APIs.

An SDK is imported when the first client that needs it is made.
"""

from agentix._lazy import exporter as _exporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._anthropic import AnthropicClient
    from ._openai import OpenAIClient
    from ._translating import AnthropicFromOpenAIClient, AnthropicToOpenAI

__all__ = ["AnthropicClient", "OpenAIClient", "AnthropicFromOpenAIClient", "AnthropicToOpenAI"]

__getattr__, __dir__ = _exporter(
    __name__,
    {
        "agentix.bridge.clients._anthropic": ["AnthropicClient"],
        "agentix.bridge.clients._openai": ["OpenAIClient"],
        "agentix.bridge.clients._translating": ["AnthropicFromOpenAIClient", "AnthropicToOpenAI"],
    },
)
