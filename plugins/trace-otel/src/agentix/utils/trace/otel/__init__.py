"""Exports `agentix.trace` through the OpenTelemetry SDK: see `OtelProcessor`."""

from ._processor import OtelProcessor

__all__ = ["OtelProcessor"]
