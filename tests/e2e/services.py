"""Emulated sandbox services for tests: one program each, which is told of faults and asked what there is."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import socket
import subprocess
import sys
import traceback
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import until

SUPPORT = Path(__file__).parents[1] / "support"


class Service:
    """A running service."""

    def __init__(self, name: str, urls: dict[str, str]) -> None:
        self.name = name
        self.urls = urls

    def state(self) -> dict[str, Any]:
        """What there is: `rentals`, ids of `ended` ones, `images`, and the `log` of requests."""
        return self._test(None)

    def rentals(self) -> list[str]:
        return [rental["id"] for rental in self.state()["rentals"]]

    def order(self, *faults: dict[str, Any]) -> None:
        """Have these faults happen: `on` a method and path, `do` refuse, delay or lose, so many `times`."""
        self._test([{"times": 1, **fault} for fault in faults])

    def empty(self, seconds: float = 60.0) -> None:
        """Wait until nothing is rented; what is under way when its client goes is finished first."""
        until(lambda: not self.rentals(), f"no sandbox of {self.name} is left", seconds)

    def _test(self, body: Any) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.urls['api']}/_test", data)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)


@contextlib.contextmanager
def running(name: str, directory: Path) -> Iterator[Service]:
    """Have `tests/support/<name>_service.py` running."""
    program = [sys.executable, str(SUPPORT / f"{name}_service.py"), str(directory)]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Service(name, json.loads(process.stdout.readline()))
    finally:
        process.stdin.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


async def keeps_the_key(
    create: Callable[[], Awaitable[object]],
    service: Service,
    on: list[str],
    key: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The service says the account's key in each refusal: neither the failure of `create` nor a record shows it."""
    monkeypatch.setattr("agentix.provider._cloud.UNDO_PAUSE", 0.001)
    caplog.set_level(logging.DEBUG)
    said = {"do": "refuse", "status": 500, "message": f"no: {key}"}
    service.order(*({"on": one, "times": 20, **said} for one in on))
    with pytest.raises(RuntimeError, match="<redacted>") as failed:
        await create()
    shown = "".join(traceback.format_exception(failed.value))
    assert "cleaning up then failed: RuntimeError" in shown
    assert key not in shown
    assert "may be left behind" in caplog.text
    assert key not in caplog.text


def cape_program(directory: Path) -> Path:
    """The emulated `cape` program, as an executable in that directory."""
    path = directory / "cape"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {SUPPORT / "cape_tool.py"} "$@"\n')
    path.chmod(0o755)
    return path


def free_ports(count: int = 20) -> int:
    """The first of so many ports in a row that nobody listens on, below those that the system hands out."""
    while True:
        first = random.randrange(10_000, 30_000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
