"""What a transfer gives."""

from dataclasses import dataclass

from agentix.runtime.shared.safepickle import allow_type

__all__ = ["UploadResult"]


@dataclass
class UploadResult:
    """Where what was transferred is, as an absolute path on the side it went to, and how many bytes of content it has."""

    path: str
    size: int


UploadResult.__module__ = "agentix.files"
allow_type(UploadResult)
