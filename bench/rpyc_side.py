"""rpyc in its classic mode, as its documentation shows it: a threaded server on loopback, one connection, defaults.

python rpyc_side.py [--quick]     prints its rows as JSON
python rpyc_side.py --serve       the server process; prints its port
"""

from __future__ import annotations

import collections
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any


def serve() -> None:
    from rpyc.core import SlaveService
    from rpyc.utils.server import ThreadedServer

    server = ThreadedServer(SlaveService, hostname="127.0.0.1", port=0)
    threading.Thread(target=server.start).start()
    while not server.active:  # its port is known before it listens
        time.sleep(0.001)
    print(server.port, flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what targets print; nobody reads the pipe from here on


class Lane:
    def __init__(self, connection: Any) -> None:
        import rpyc

        self._target = connection.modules.bench_target
        self._functions = {name: getattr(self._target, name) for name in ("add", "echo")}
        self._add_later = rpyc.async_(self._functions["add"])
        self._pending: collections.deque[Any] = collections.deque()
        # A call has 30 s by default, which a busy machine may need; nothing here is to take longer.
        connection._config["sync_request_timeout"] = 30

    def call(self, name: str, *args: object) -> Any:
        function = self._functions.get(name)
        return (function or getattr(self._target, name))(*args)

    def send(self, name: str, *args: object) -> None:
        assert name == "add"
        self._pending.append(self._add_later(*args))

    def receive(self) -> Any:
        return self._pending.popleft().value


class Server:
    def __init__(self, process: subprocess.Popen[str], stack: contextlib.ExitStack) -> None:
        assert process.stdout is not None
        self.pid = process.pid
        self._stack = stack
        self._port = int(process.stdout.readline())

    def lane(self) -> Lane:
        import rpyc

        connection = rpyc.classic.connect("127.0.0.1", self._port)
        self._stack.callback(connection.close)
        return Lane(connection)


class Rpyc:
    @contextlib.contextmanager
    def server(self) -> Iterator[Server]:
        process = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
        try:
            with contextlib.ExitStack() as stack:
                yield Server(process, stack)
        finally:
            process.kill()
            process.communicate()


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve()
    else:
        import blocking
        import probe

        blocking.measure(Rpyc(), probe.Report("rpyc"), probe.Effort(sys.argv))
