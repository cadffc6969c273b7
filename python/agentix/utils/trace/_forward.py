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
_ROOM = ITEM_MAX - 4096
# Characters.
_TEXT_MAX = 1000
_NOTE_MAX = 64


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
        whole = _plain(exported, bulky)
        data = pack({"kind": kind, "data": whole})
        if len(data) > ITEM_MAX:
            small = _Small(whole, bulky)
            _logger.warning(
                "%s %.100r has %d bytes and more than %d cannot be sent: the %d largest of its values are left out",
                exported["object"],
                exported["name"],
                len(data),
                ITEM_MAX,
                small.n,
            )
            data = pack({"kind": kind, "data": small.exported})
        self._emit("/trace", data)


def _plain(exported: dict[str, Any], bulky: str) -> dict[str, Any]:
    """Part by part, since `plain` bounds the items of what it is given, and the form must stay what it is."""
    whole = {key: value if key in (bulky, "events") else plain(value) for key, value in exported.items()}
    whole[bulky] = plain(exported[bulky])
    if "events" in whole:
        whole["events"] = [plain(event) for event in exported["events"]]
    return whole


class _Small:
    """What may be sent of an exported span or trace: as many values as fit, notes of the size of the largest ones."""

    def __init__(self, exported: dict[str, Any], bulky: str) -> None:
        self.exported = exported
        self.n = self.n_bytes = 0  # left out
        error: dict[str, Any] = exported.get("error") or {}
        events: list[dict[str, Any]] = exported.get("events", [])
        for holder, key in ((exported, "name"), (exported, "status_description"), (error, "message")):
            self._cut(holder, key)
        for event in events:
            self._cut(event, "name")
        maps = [exported[bulky], error.get("data", {}), *(event["attributes"] for event in events)]
        self._leave_out_largest(maps)
        if _size(exported) > _ROOM:  # very many small ones
            self._leave_out_all(bulky, maps)
        exported[bulky] |= {"agentix.left_out": self.n, "agentix.left_out_bytes": self.n_bytes}

    def _cut(self, holder: dict[str, Any], key: str) -> None:
        text = holder.get(key)
        if text and len(text) > _TEXT_MAX:
            self.n, self.n_bytes = self.n + 1, self.n_bytes + _size(text)
            holder[key] = f"{text[:_TEXT_MAX]} <cut: {len(text)} characters>"

    def _leave_out_largest(self, maps: list[dict[str, Any]]) -> None:
        sizes = [
            (_size(value) + _size(key), holder, key)
            for holder in maps
            for key, value in holder.items()
            if key != "call_id"
        ]
        sizes.sort(key=lambda entry: entry[0])
        over = _size(self.exported) - _ROOM
        while over > 0 and sizes and sizes[-1][0] > _NOTE_MAX:
            size, holder, key = sizes.pop()
            del holder[key]
            holder[key[:_TEXT_MAX]] = note = f"<left out: {size} bytes>"
            over -= size - _size(note) - _size(key[:_TEXT_MAX])
            self.n, self.n_bytes = self.n + 1, self.n_bytes + size

    def _leave_out_all(self, bulky: str, maps: list[dict[str, Any]]) -> None:
        self.n += sum(map(len, maps)) + len(self.exported.get("events", []))
        self.n_bytes += _size(maps)
        kept = self.exported[bulky].get("call_id")
        self.exported[bulky] = {} if kept is None else {"call_id": kept}
        if "events" in self.exported:
            self.exported["events"] = []
        if self.exported.get("error"):
            self.exported["error"]["data"] = {}


def _size(value: Any) -> int:
    return len(pack(value))
