"""Files into a sandbox and out of it."""

from ._result import UploadResult

__all__ = ["UploadResult"]
