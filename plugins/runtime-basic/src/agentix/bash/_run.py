"""Commands in the sandbox, run by its runtime."""

from __future__ import annotations

import codecs
import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping

from agentix._processes import NO_LIMIT, Process, start

from ._events import BashError, BashExit, BashResult, BashStderr, BashStdout

_MAX_OUTPUT = 10 * 1024 * 1024
_TIMED_OUT = -1
# Given to bash as its BASH_ENV, whose value it expands.
_ONCE = re.sub(r'([\\$`"])', r"\\\1", os.path.join(os.path.dirname(__file__), "once.sh"))


async def run(
    command: str,
    cwd: str | None = None,
    env: dict[str, str] | None = None,
    timeout: float | None = None,
    max_output: int = _MAX_OUTPUT,
    executable: str | None = None,
    stdin: bytes | None = None,
) -> BashResult:
    """Run a command in a shell and return its exit code and output.

    `env` None: the worker's environment, without `BASH_ENV`; a dict replaces it, and a `BASH_ENV` in it is read by this
    shell, but by no bash below it. `timeout`, in seconds: then the shell and everything it has started are killed,
    `exit_code` is -1 and `stderr` says so after what was read; None or infinity: no timeout. `max_output`:
    bytes of each stream that are kept; the rest is read and dropped, and the text says so at its end. `executable`: the
    shell, a path or a name looked up on the environment's PATH. `stdin`: what the command reads; None: nothing.

    What the command leaves in the background goes on until the sandbox ends, without an output. If the call is
    cancelled, whatever runs of the command is killed.

    Raises OSError if the shell or the directory is not there, ValueError for what no process can be given,
    OverflowError for a `max_output` above 2**64 - 1, RuntimeError outside a sandbox.
    """
    if max_output < 0:
        raise ValueError(f"max_output is {max_output}, a number of bytes cannot be negative")
    if max_output > NO_LIMIT:
        raise OverflowError(f"max_output is {max_output}; it can be at most {NO_LIMIT}, which is no bound")
    process = _start(command, cwd, env, timeout, max_output, executable, stdin)
    out, err, ended = await process.communicate()
    stdout = _text(out, ended.written[0], max_output)
    stderr = _text(err, ended.written[1], max_output)
    if ended.cause == "timeout":
        return BashResult(_TIMED_OUT, stdout, _line_by_itself(stderr, _timed_out(timeout)))
    return BashResult(ended.code, stdout, stderr)


async def run_stream(
    command: str,
    cwd: str | None = None,
    env: dict[str, str] | None = None,
    timeout: float | None = None,
    executable: str | None = None,
    stdin: bytes | None = None,
) -> AsyncIterator[BashStdout | BashStderr | BashExit | BashError]:
    """Run a command in a shell and yield its output as it comes, then one `BashExit`, or `BashError` after a timeout.

    As `run`, but for the output, which is not bounded: a command whose events nobody takes waits. Whoever stops taking
    them ends the command.
    """
    decoders = [codecs.getincrementaldecoder("utf-8")("replace") for _ in range(2)]
    events = (BashStdout, BashStderr)
    async with _start(command, cwd, env, timeout, None, executable, stdin) as process:
        async for fd, data in process:
            text = decoders[fd - 1].decode(data)
            if text:
                yield events[fd - 1](text)
        ended = await process.wait()
        for decoder, event in zip(decoders, events, strict=True):
            if text := decoder.decode(b"", True):
                yield event(text)
        yield BashError(_timed_out(timeout)) if ended.cause == "timeout" else BashExit(ended.code)


def _start(
    command: str,
    cwd: str | None,
    env: dict[str, str] | None,
    timeout: float | None,
    limit: int | None,
    executable: str | None,
    stdin: bytes | None,
) -> Process:
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout is {timeout}, a number of seconds cannot be negative, nor NaN; None is no timeout")
    given: Mapping[str, str] = os.environ if env is None else env
    shell = _shell(executable, given)
    variables = {name: value for name, value in given.items() if name != "BASH_ENV"}
    if env is not None and env.get("BASH_ENV") and "bash" in os.path.basename(shell):
        variables |= {"BASH_ENV": _ONCE, "__AGENTIX_BASH_ENV": env["BASH_ENV"]}
    return start([shell, "-c", command], cwd=cwd, env=variables, stdin=stdin, limit=limit, timeout=timeout)


def _shell(executable: str | None, env: Mapping[str, str]) -> str:
    """The shell's path. The runtime's own bash is for images that have none on the PATH."""
    path = env.get("PATH", "")
    if executable is None:
        found = shutil.which("bash", path=path)
        return found or ("/nix/runtime/bin/bash" if os.access("/nix/runtime/bin/bash", os.X_OK) else "/bin/bash")
    if "/" in executable:
        return executable
    found = shutil.which(executable, path=path)
    if found is None:
        raise FileNotFoundError(2, f"there is no {executable} on the PATH of the command, {path!r}")
    return found


def _timed_out(timeout: float | None) -> str:
    return f"Command timed out after {timeout}s"


def _line_by_itself(text: str, line: str) -> str:
    return f"{text}\n{line}" if text and not text.endswith("\n") else text + line


def _text(data: bytes, written: int, max_output: int) -> str:
    if written <= max_output:
        return data.decode("utf-8", "replace")
    kept = codecs.getincrementaldecoder("utf-8")("replace").decode(data)  # without a character that was cut
    return _line_by_itself(kept, f"[truncated at {max_output} bytes]")
