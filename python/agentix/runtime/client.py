"""The client of a runtime whose URL is known; `Sandbox.remote` uses it for you."""

from .._client import RuntimeClient

__all__ = ["RuntimeClient"]
