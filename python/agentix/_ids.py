"""The two kinds of id that users see: plain strings with a name for type checkers."""

from typing import NewType

SandboxId = NewType("SandboxId", str)
CallId = NewType("CallId", str)

SandboxId.__module__ = "agentix"
CallId.__module__ = "agentix.runtime.shared"
