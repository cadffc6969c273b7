"""One run of the command line `claude`, whose every line is logged as it comes."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from agentix._processes import Ended, start

__all__ = ["ClaudeCodeInput", "ClaudeCodeResult", "run"]

_MAX_OUTPUT = 64 * 1024 * 1024  # bytes of each stream that are kept
_MAX_LINE = 256 * 1024  # bytes of a record: what is longer is logged in pieces
_ARGUMENT_MAX = 128 * 1024  # bytes of one argument with its null character, as Linux has it: execve(2)
_KILLED = -9
_BUNDLE_BIN = "/nix/runtime/bin"

_FIXED = {
    "IS_SANDBOX": "1",  # root may skip the questions
    # Commands that take long go on in the background; each generation of the CLI has its own names for that.
    "ENABLE_BACKGROUND_TASKS": "1",
    "FORCE_AUTO_BACKGROUND_TASKS": "1",
    "CLAUDE_AUTO_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
}

_logger = logging.getLogger("agentix.agents.claude_code")


@dataclass
class ClaudeCodeInput:
    """What Claude Code is to do, and with which model."""

    instruction: str
    """The task, in words; one that is too long for an argument, of 128 KiB and more, is what the program reads."""
    model: str
    workdir: str
    """The directory it works in; it is made if it is not there."""
    api_key: str = "sk-ant-api03-placeholder-the-key-is-on-the-host"
    """The key it sends. Behind a tunnel of `agentix.bridge` the placeholder will do."""
    base_url: str = "https://api.anthropic.com"  # check-text: allow: the vendor's own, as its SDKs have it
    """Where the Messages API is, without `/v1`; of a tunnel, `handle.url`."""
    timeout: float = 1800
    """Seconds after which it is killed with everything it has started."""
    max_turns: int | None = None
    effort: str | None = None
    append_system_prompt: str | None = None
    allowed_tools: str | None = None
    """Tools it may use without asking, as `--allowedTools` takes them: `"Bash,Read"`."""
    disallowed_tools: str | None = None
    env: dict[str, str] | None = None
    """Variables that are added to the worker's own."""


@dataclass
class ClaudeCodeResult:
    """How Claude Code ended, and what it wrote."""

    returncode: int
    """Its exit code; if a signal killed it, as the timeout does, the negated number of that."""
    stdout: bytes
    """Its messages, one JSON object a line."""
    stderr: bytes


async def run(args: ClaudeCodeInput) -> ClaudeCodeResult:
    """Run Claude Code once, without a question to anybody, and return what it wrote. For `sandbox.remote`.

    `claude` is looked up on the PATH that it will have (the worker's, or that of `args.env`), then in the bundle. Each
    line of its output is logged as it comes, to the logger `agentix.agents.claude_code`, of stdout at INFO, of stderr
    at WARNING. 64 MiB of each stream are kept; the rest is read and dropped.

    After `args.timeout` seconds it is killed with everything it has started, and so it is if the call is cancelled; in
    the first case what had been read by then is returned, with a negative `returncode`.

    Raises FileNotFoundError if there is no `claude`, other OSErrors if it or `workdir` cannot be used, ValueError for
    what no process can be given, RuntimeError outside a sandbox.
    """
    if not args.timeout >= 0:
        raise ValueError(f"timeout is {args.timeout}, a number of seconds cannot be negative")
    env = _environ(args)
    program = _find(env)
    os.makedirs(args.workdir, exist_ok=True)
    argv, stdin = [program, *_options(args), "--print"], None
    if len(os.fsencode(args.instruction)) < _ARGUMENT_MAX:
        argv += ["--", args.instruction]
    else:
        stdin = _text(args.instruction)
    process = start(argv, cwd=args.workdir, env=env, stdin=stdin, limit=_MAX_OUTPUT, timeout=args.timeout)
    out, err = _Lines(logging.INFO), _Lines(logging.WARNING)
    async with process:
        async for fd, data in process:
            (out if fd == 1 else err).add(data)
        ended = await process.wait()
    result = ClaudeCodeResult(_code(ended), out.end(), err.end())
    if ended.cause == "timeout":
        _logger.warning("claude was killed after %gs", args.timeout)
    return result


def _code(ended: Ended) -> int:
    return _KILLED if ended.cause == "timeout" and ended.code >= 0 else ended.code


def _text(instruction: str) -> bytes:
    if "\0" in instruction:
        raise ValueError("the instruction holds a NUL")
    return os.fsencode(instruction)


def _options(args: ClaudeCodeInput) -> list[str]:
    words = ["--verbose", "--output-format", "stream-json", "--permission-mode", "bypassPermissions"]
    words += ["--model", args.model]
    options = {
        "--max-turns": args.max_turns,
        "--effort": args.effort,
        "--append-system-prompt": args.append_system_prompt,
        "--allowedTools": args.allowed_tools,
        "--disallowedTools": args.disallowed_tools,
    }
    for option, value in options.items():
        if value is not None:
            words += [option, str(value)]
    return words


def _environ(args: ClaudeCodeInput) -> dict[str, str]:
    service = {
        "ANTHROPIC_BASE_URL": args.base_url,
        "ANTHROPIC_API_KEY": args.api_key,
        "ANTHROPIC_MODEL": args.model,
    }
    return {**os.environ, **(args.env or {}), **_FIXED, **service}


def _find(env: Mapping[str, str]) -> str:
    path = env.get("PATH", "")
    found = shutil.which("claude", path=f"{path}:{_BUNDLE_BIN}" if path else _BUNDLE_BIN)
    if found is None:
        raise FileNotFoundError(
            2,
            f"there is no claude on the PATH of the sandbox, {path!r}: a bundle brings it if the project depends on "
            "agentix-agent-claude-code; without a bundle it must be installed where the sandbox runs",
        )
    return found


class _Lines:
    """One stream: keeps all of it, and logs each line once it is whole."""

    def __init__(self, level: int) -> None:
        self._level = level
        self._parts: list[bytes] = []
        self._line = bytearray()

    def add(self, data: bytes) -> None:
        self._parts.append(data)
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._log(self._line + line)
            self._line.clear()
        self._line += rest
        while len(self._line) >= _MAX_LINE:
            self._log(self._line[:_MAX_LINE])
            del self._line[:_MAX_LINE]

    def end(self) -> bytes:
        if self._line:
            self._log(self._line)
            self._line.clear()
        return b"".join(self._parts)

    def _log(self, line: bytes | bytearray) -> None:
        _logger.log(self._level, "%s", line.decode("utf-8", "replace").removesuffix("\r"))
