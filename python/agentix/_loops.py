"""What the engine needs to know of the event loop it runs under.

asyncio tells nobody what a loop is about to do. Its own loop, though, shows it in attributes that have been the same
for many versions; `inside` finds them, or finds that they are not as expected, and then the engine does without.
"""

import asyncio
import selectors
import sys
from typing import Any

__all__ = ["inside"]

_METHODS = frozenset(dir(asyncio.SelectorEventLoop))


def inside(loop: Any) -> tuple[int, Any, Any, Any] | None:
    """Return what waiting in a loop's stead needs (`python/ext/client_wait.c`), or None if it is not asyncio's own.

    These are the descriptor it waits with, its queue of what is ready, all loops' running tasks, and the tasks that are
    being begun by their creators.
    """
    if type(loop) is not asyncio.SelectorEventLoop:
        return None
    own, tasks = vars(loop), vars(asyncio.tasks)
    selector: Any = own.get("_selector")
    if type(selector) is not getattr(selectors, "EpollSelector", None) or not _METHODS.isdisjoint(own):
        return None  # changed: by a fake clock, for one
    eager: Any = tasks.get("_eager_tasks") if sys.version_info >= (3, 12) else ()
    if eager is None:
        return None
    return selector.fileno(), own["_ready"], tasks["_current_tasks"], eager
