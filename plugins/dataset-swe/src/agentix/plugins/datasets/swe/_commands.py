"""Running commands as the image would: its own bash, its own environment, everything that they print in one text.

Each command is a process tree of its own in a fresh `/bin/bash -c` with `pipefail`, which ends with the call or at its
time limit. What one sets in its shell for those after it (`export K=V`, `K=V`, `source F`) is therefore not run but
kept, and said again at the beginning of each later one.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from agentix.bash import BashError, BashExit, BashStderr, BashStdout

    BashEvent = BashStdout | BashStderr | BashExit | BashError

__all__ = ["Budget", "Commands", "Done", "Output", "batches", "git"]

SHELL = "/bin/bash"
MAX_OUTPUT = 32 * 1024 * 1024  # characters of one command's output that are kept

# Hooks and monitors that the agent may have left behind are not started; names are not patterns.
_GIT = "git -c core.hooksPath=/dev/null -c core.fsmonitor=false --literal-pathspecs"
_VALUE = r"""(?:"[^"]*"|'[^']*'|[^\s"'&|;])*"""
_NAMED = rf"\w+(?:={_VALUE})?"
_SETTING = re.compile(rf"\s*(?:export\s+{_NAMED}(?:\s+{_NAMED})*|\w+={_VALUE}|(?:source|\.)\s+[^&|;]+)\s*")
_CONDA = """\
if [ -f /opt/miniconda3/bin/activate ]; then
  source /opt/miniconda3/bin/activate
  conda activate testbed
fi
"""


@dataclass
class Done:
    """How a command ended; after a time-out `exit_code` is -1."""

    exit_code: int
    output: str
    timed_out: bool

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


class Output:
    """The beginning and the end of a text of any length, since runners say last what became of each test."""

    def __init__(self, most: int = MAX_OUTPUT) -> None:
        self._most = most // 2  # of each
        self._begin: list[str] = []
        self._end: deque[str] = deque()
        self._room = self._most
        self._kept = self._left_out = 0

    def add(self, text: str) -> None:
        if self._room:
            self._begin.append(text[: self._room])
            text, self._room = text[self._room :], max(0, self._room - len(text))
        self._end.append(text)
        self._kept += len(text)
        while self._kept - len(self._end[0]) >= self._most:
            gone = len(self._end.popleft())
            self._kept -= gone
            self._left_out += gone

    def text(self) -> str:
        gap = f"\n[{self._left_out} characters left out]\n" if self._left_out else ""
        return "".join([*self._begin, gap, *self._end])


class Budget:
    """A number of seconds that several commands share."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())


class Commands:
    """Runs commands in `workdir` and keeps what they said in `transcript`."""

    def __init__(self, workdir: str) -> None:
        self.workdir = workdir
        self.transcript: list[str] = []
        self._settings: list[str] = []
        self._environ = _environ()

    def note(self, text: str) -> None:
        self.transcript.append(text.rstrip("\n") + "\n")

    def tail(self, characters: int) -> str:
        return "".join(self.transcript)[-characters:]

    def keep(self, command: str) -> bool:
        """Keep `command` for those to come if it is a setting of the shell; whether it is."""
        if _SETTING.fullmatch(command) is None:
            return False
        self._settings.append(command)
        self.note(f"$ {command}")
        return True

    async def run(self, command: str, budget: Budget, *, stdin: bytes | None = None) -> Done:
        """Run `command` bare, as git is."""
        return await self._run(command, "", budget, stdin)

    async def run_in_testbed(self, command: str, budget: Budget, *, conda: bool) -> Done:
        """Run `command` with the conda environment `testbed`, if wanted and there, and with the settings kept."""
        settings = "".join(f"{line}\n" for line in self._settings)
        return await self._run(command, (_CONDA if conda else "") + settings, budget, None)

    async def _run(self, command: str, before: str, budget: Budget, stdin: bytes | None) -> Done:
        self.note(f"$ {command.replace(_GIT, 'git')}")
        done = await self._ask(command, before, budget.left, stdin)
        self.note(done.output)
        if done.timed_out:
            self.note(f"(timed out after {budget.seconds:g} s)")
        elif not done.ok:
            self.note(f"(exit code {done.exit_code})")
        return done

    async def _ask(self, command: str, before: str, timeout: float, stdin: bytes | None) -> Done:
        from agentix.bash import BashError, BashExit, run_stream

        if timeout <= 0:
            return Done(-1, "", timed_out=True)
        # Only the shell itself can say anything on a stderr of its own, when it does not understand the command.
        script = f"exec 2>&1\ncd -- {shlex.quote(self.workdir)} || exit\nset -o pipefail\n{before}{command}"
        output = Output()
        events = run_stream(script, env=self._environ, timeout=timeout, executable=SHELL, stdin=stdin)
        async with contextlib.aclosing(cast("AsyncGenerator[BashEvent, None]", events)) as stream:
            async for event in stream:
                if isinstance(event, BashExit):
                    return Done(event.exit_code, output.text(), timed_out=False)
                if isinstance(event, BashError):
                    break
                output.add(event.data)
        return Done(-1, output.text(), timed_out=True)


def git(*words: str) -> str:
    """The command line of a git command."""
    return f"{_GIT} {shlex.join(words)}"


def batches(names: Iterable[str], characters: int = 32 * 1024) -> list[list[str]]:
    """Cut `names` so that each part fits into a command line."""
    parts: list[list[str]] = []
    room = 0
    for name in names:
        if len(name) >= room or not parts:
            parts.append([])
            room = characters
        parts[-1].append(name)
        room -= len(name)
    return parts


def _environ() -> dict[str, str]:
    """The image's environment, without what would lead git elsewhere and without a start-up file of an agent's."""
    from agentix.bash import image_env

    environ = image_env()
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        environ.pop(name, None)
    if "BASH_ENV" not in os.environ:
        environ.pop("BASH_ENV", None)
    if not environ.get("HOME"):
        environ["HOME"] = _home()
    return environ


def _home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/tmp"
