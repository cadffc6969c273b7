"""The `daytona` backend: sandboxes of the Daytona service, through its official SDK, which is imported on first use."""

from ._config import DaytonaProviderConfig
from ._provider import DaytonaProvider

__all__ = ["DaytonaProvider", "DaytonaProviderConfig"]
