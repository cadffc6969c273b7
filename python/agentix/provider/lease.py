"""For backends whose sandboxes have a lease: a handle that renews it."""

from ._lease import keep_lease

__all__ = ["keep_lease"]
