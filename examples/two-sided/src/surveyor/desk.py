"""The host's side: a bar, and answers."""

import sys
from typing import Any, TextIO

from agentix import AsyncClientNamespace, request_handler

WIDTH = 30


class Desk(AsyncClientNamespace):
    """Draws the progress of a job, and drops what is measured above `limit`."""

    namespace = "/surveyor"

    def __init__(self, limit: float, stream: TextIO | None = None) -> None:
        super().__init__()
        self.limit = limit
        self.decided: list[int] = []
        self.last: tuple[int, int] = (0, 0)
        self._stream = stream or sys.stderr

    def on_progress(self, data: dict[str, int]) -> None:
        """Show how far the job is."""
        done, of = self.last = data["done"], data["of"]
        bar = "#" * (WIDTH * done // of)
        end = "\n" if done == of else ""
        self._stream.write(f"\r[{bar:<{WIDTH}}] {done}/{of}{end}")
        self._stream.flush()

    @request_handler("decide")
    async def decide(self, body: dict[str, Any]) -> str:
        """Say whether a field is to be kept."""
        self.decided.append(body["field"])
        return "drop" if body["measured"] > self.limit else "keep"
