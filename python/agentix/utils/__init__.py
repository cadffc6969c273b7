"""Helpers for users' own code, on the host and in the sandbox: `log`, `trace`, `context`.

Other distributions may add modules here.
"""

from agentix._lazy import extend_path as _extend_path

__path__ = _extend_path(__path__, __name__)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import context, log, trace

__all__ = ["context", "log", "trace"]


def __getattr__(name: str) -> object:
    """Import a module of ours when it is first used as an attribute."""
    import sys

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    full = f"{__name__}.{name}"
    __import__(full)
    return sys.modules[full]
