"""For tests: a real runtime server (`serve`), and the functions that the conformance suite calls (`targets`).

The distribution `agentix-pytest` adds `agentix.testing.plugin`, fixtures for pytest, and `agentix.testing.conformance`.
"""

from .._lazy import exporter as _exporter
from .._lazy import extend_path as _extend_path

__path__ = _extend_path(__path__, __name__)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._serve import serve

__all__ = ["serve"]

__getattr__, __dir__ = _exporter(__name__, {f"{__name__}._serve": __all__})
