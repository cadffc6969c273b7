"""In a worker: hands what is traced to the host, on the reliable stream `/trace`. `_replay` is the other end."""

import logging
from collections.abc import Callable
from typing import Any

from agentix.runtime.shared.codec import pack
from agentix.utils._plain import plain

from ._model import Span, Trace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._processors import Processor
else:
    Processor = object  # importing it would be a circle

_logger = logging.getLogger("agentix.utils.trace")

ITEM_MAX = 1 << 20
"""Bytes: AGX_STREAM_ITEM_MAX in src/proto/limits.h."""


class Forwarder(Processor):
    """Gives each start and end, packed, to `emit("/trace", data)`."""

    def __init__(self, emit: Callable[[str, bytes], None]) -> None:
        self._emit = emit

    def on_trace_start(self, t: Trace) -> None:
        self._send("on_trace_start", t.export(), "metadata")

    def on_trace_end(self, t: Trace) -> None:
        self._send("on_trace_end", t.export(), "metadata")

    def on_span_start(self, s: Span) -> None:
        self._send("on_span_start", s.export(), "attrs")

    def on_span_end(self, s: Span) -> None:
        self._send("on_span_end", s.export(), "attrs")

    def force_flush(self) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def _send(self, kind: str, exported: dict[str, Any], bulky: str) -> None:
        data = pack({"kind": kind, "data": plain(exported)})
        if len(data) > ITEM_MAX:
            _logger.warning(
                "%s %.100r has %d bytes and more than %d cannot be sent: its %s and events are left out",
                exported["object"],
                exported["name"],
                len(data),
                ITEM_MAX,
                bulky,
            )
            small = {**exported, "name": str(exported["name"])[:1000], bulky: {"agentix.left_out_bytes": len(data)}}
            if exported["object"] == "span":
                small |= {"events": [], "error": _short_error(exported["error"]), "status_description": None}
            data = pack({"kind": kind, "data": plain(small)})
        self._emit("/trace", data)


def _short_error(error: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if error is None else {"message": error["message"][:1000], "data": {}}
