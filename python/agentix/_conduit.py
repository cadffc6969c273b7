"""A conduit, seen from the host: a connection whose other end is the worker's, not the runtime's.

It carries bytes of a plugin's own, as fast as a connection can. All that is known of the other end is that the runtime,
which has proved itself, passed the connection on; what comes is the plugin's to check.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from ._core import Conduit

__all__ = ["open_conduit", "opener_of"]

_SECONDS = 15.0
_READ = 16 << 10


def opener_of(callee: object) -> Callable[[str], Awaitable[socket.socket | None]] | None:
    """Return what opens conduits of a `Sandbox` or a `RuntimeClient`; None of something else that has a `remote`."""
    return getattr(callee, "_open_conduit", None)


async def open_conduit(connect: Callable[[], Awaitable[int]], name: str, about: dict[str, Any]) -> socket.socket | None:
    """Open the conduit that the worker expects under `name`; None if the runtime offers none.

    Raises OSError if the connection cannot be made, is lost, or the server does not prove itself.
    """
    async with asyncio.timeout(_SECONDS):
        sock = socket.socket(fileno=await connect())
        try:
            if await _opened(sock, Conduit(**about, name=name, nonce=os.urandom(32))):
                sock.setblocking(True)
                return sock.dup()
            return None
        finally:
            sock.close()


async def _opened(sock: socket.socket, brain: Conduit) -> bool:
    loop = asyncio.get_running_loop()
    data = b""
    while True:
        wish, what = brain.next(data)
        if wish == "open":
            return True
        if wish == "refused":
            return False
        if wish == "broken":
            raise ConnectionError(f"no conduit: {what}")
        if isinstance(what, bytes):
            await loop.sock_sendall(sock, what)
        data = await loop.sock_recv(sock, _READ)
        if not data:
            raise ConnectionError("no conduit: the server closed the connection")
