"""What a transfer gives, and how it fails."""

from dataclasses import dataclass

from agentix.runtime.shared.safepickle import allow_type

__all__ = ["TransferError", "UploadResult"]


@dataclass
class UploadResult:
    """Where what was transferred is, as an absolute path on the side it went to, and how many bytes it holds."""

    path: str
    size: int


class TransferError(OSError):
    """What came is not what was asked for: a source that changed meanwhile, a wrong checksum, an entry that is refused.

    Nothing stands under the target's name then that was not there before.
    """


for _cls in (UploadResult, TransferError):
    _cls.__module__ = "agentix.files"
allow_type(UploadResult)
