"""The `e2b` backend: sandboxes of the E2B service, through its official SDK, which is imported on first use."""

from ._config import E2BProviderConfig
from ._provider import E2BProvider

__all__ = ["E2BProvider", "E2BProviderConfig"]
