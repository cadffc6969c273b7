"""What commands give back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass
class BashResult:
    """How a command ended, and what it wrote."""

    exit_code: int
    """Its exit code; if a signal killed the shell, the negated number of that; -1 after a timeout."""
    stdout: str
    stderr: str


@dataclass
class BashStdout:
    """Some of the command's standard output."""

    data: str
    type: Literal["stdout"] = "stdout"


@dataclass
class BashStderr:
    """Some of the command's standard error."""

    data: str
    type: Literal["stderr"] = "stderr"


@dataclass
class BashExit:
    """The command has ended: the last event."""

    exit_code: int
    type: Literal["exit"] = "exit"


@dataclass
class BashError:
    """The command was ended, since it took too long: the last event."""

    message: str
    type: Literal["error"] = "error"
