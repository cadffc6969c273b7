"""The `apptainer` backend: sandboxes as processes of the user's inside an image, without a daemon."""

from ._config import ApptainerProviderConfig
from ._provider import ApptainerProvider

__all__ = ["ApptainerProvider", "ApptainerProviderConfig"]
