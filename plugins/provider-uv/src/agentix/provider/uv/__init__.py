"""The `uv` backend: sandboxes as local processes in a virtual environment made by uv, without a container."""

from ._config import UvProviderConfig
from ._provider import UvProvider

__all__ = ["UvProvider", "UvProviderConfig"]
