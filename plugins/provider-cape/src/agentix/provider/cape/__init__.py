"""The `cape` backend: each sandbox is one request to a CAPE capacity pool, made by the `cape` program."""

from ._config import CapeProviderConfig
from ._provider import CapeProvider

__all__ = ["CapeProvider", "CapeProviderConfig"]
