"""A real runtime server, for the length of an `async with` block."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket as _socket
import sys
import sysconfig
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

__all__ = ["serve"]

_READY_SECONDS = 30.0
_STOP_SECONDS = 10.0
_LINE_MAX = 4096


def serve(
    *, python: str | None = None, token: str | None = None, socket: str | None = None
) -> AbstractAsyncContextManager[str]:
    """Run `agentix-runtime` and give its URL; it has ended when the block has.

    `python` is the interpreter of its worker (default: the running one), `token` the token that calls need (default:
    none), `socket` the path of a Unix socket to listen on (default: a port of the loopback interface). Raises
    FileNotFoundError if there is no `agentix-runtime`, RuntimeError with its output if it does not start.
    """
    return _serve(python or sys.executable, token, socket)


def _executable() -> str:
    beside = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
    for directory in beside:
        candidate = directory / "agentix-runtime"
        if os.access(candidate, os.X_OK):
            return str(candidate)
    if found := shutil.which("agentix-runtime"):
        return found
    raise FileNotFoundError(f"no agentix-runtime beside {sys.executable} or on PATH")


@contextlib.asynccontextmanager
async def _serve(python: str, token: str | None, socket: str | None) -> AsyncGenerator[str]:
    with tempfile.TemporaryDirectory(prefix="agentix-serve-") as directory:
        output = Path(directory, "output")
        env = _environment(Path(directory), token, socket)
        process, url = await _start(python, env, output)
        try:
            yield url
        finally:
            await _stop(process)


def _environment(directory: Path, token: str | None, socket: str | None) -> dict[str, str]:
    env = {**os.environ, "AGENTIX_BIND_HOST": "127.0.0.1", "AGENTIX_BIND_PORT": "0"}
    env.pop("AGENTIX_BIND_SOCKET", None)
    env.pop("AGENTIX_TOKEN_FILE", None)
    env.pop("AGENTIX_LEASE", None)
    if socket is not None:
        env["AGENTIX_BIND_SOCKET"] = socket
    if token is not None:
        path = directory / "token"
        path.write_text(token)
        path.chmod(0o400)
        env["AGENTIX_TOKEN_FILE"] = str(path)
    return env


async def _start(python: str, env: dict[str, str], output: Path) -> tuple[asyncio.subprocess.Process, str]:
    """Start the server and wait for its ready line; both ends of the descriptors are closed or owned on return."""
    with contextlib.ExitStack() as stack:
        ours, theirs = _socket.socketpair()
        stack.enter_context(ours)
        stack.enter_context(theirs)
        log = stack.enter_context(output.open("wb"))
        process = await asyncio.create_subprocess_exec(
            _executable(),
            "--python",
            python,
            env={**env, "AGENTIX_READY_FD": str(theirs.fileno())},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        ours.setblocking(False)
        try:
            line = await asyncio.wait_for(_read_line(ours), _READY_SECONDS)
            url = _url_of(line)
            if url is None:
                raise RuntimeError(f"agentix-runtime did not start: {line or 'it said nothing'}\n{_tail(output)}")
        except BaseException:
            await _stop(process)
            raise
    return process, url


async def _read_line(sock: _socket.socket) -> str:
    loop = asyncio.get_running_loop()
    line = b""
    while b"\n" not in line and len(line) < _LINE_MAX:
        data = await loop.sock_recv(sock, _LINE_MAX)
        if not data:
            break
        line += data
    return line.partition(b"\n")[0].decode(errors="replace")


def _url_of(line: str) -> str | None:
    """`ready <url> <instance>`; anything else is a failure."""
    words = line.split()
    return words[1] if len(words) > 1 and words[0] == "ready" else None


def _tail(output: Path) -> str:
    return output.read_text(errors="replace")[-_LINE_MAX:].rstrip()


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_SECONDS)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
