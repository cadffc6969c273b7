"""Files into a sandbox and out of it.

`upload` and `download` are called by `sandbox.remote`, `upload_path` and `download_path` on the host.
"""

from agentix._lazy import exporter as _exporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._result import TransferError, UploadResult
    from ._sandbox import download, upload
    from ._transfer import download_path, upload_path

__all__ = ["TransferError", "UploadResult", "download", "download_path", "upload", "upload_path"]

# Loaded when first used: a sandbox needs nothing of the host's side.
__getattr__, __dir__ = _exporter(
    __name__,
    {
        "agentix.files._result": ["TransferError", "UploadResult"],
        "agentix.files._sandbox": ["download", "upload"],
        "agentix.files._transfer": ["download_path", "upload_path"],
    },
)
