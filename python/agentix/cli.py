"""The command `agentix`, for Python: `main` runs the executable that is installed beside this package.

The executable does not need Python but for plugins; this module only finds it, tells it which interpreter and which
`sys.path` its caller has, and passes on what it prints.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import IO

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run `agentix` with `argv`, by default the arguments of this process, and return 0.

    What it prints goes to `sys.stdout` and `sys.stderr`. Raises SystemExit with its exit code if that is not 0.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    code = _run([_executable(), *arguments])
    if code != 0:
        raise SystemExit(code)
    return 0


def _executable() -> str:
    for directory in (Path(sysconfig.get_path("scripts")), Path(sys.executable).parent):
        candidate = directory / "agentix"
        if os.access(candidate, os.X_OK):
            return str(candidate)
    if found := shutil.which("agentix"):
        return found
    print(f"error: there is no executable 'agentix' beside {sys.executable} or on PATH", file=sys.stderr)
    raise SystemExit(1)


def _environment() -> dict[str, str]:
    # The executable looks for plugins where this process would, and runs them with this interpreter.
    paths = [os.path.abspath(entry or os.curdir) for entry in sys.path]
    return {**os.environ, "AGENTIX_PYTHON": sys.executable, "AGENTIX_PYTHON_PATH": os.pathsep.join(paths)}


def _run(command: list[str]) -> int:
    out, err = _descriptor(sys.stdout), _descriptor(sys.stderr)
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE if out is None else out,
            stderr=subprocess.PIPE if err is None else err,
            env=_environment(),
        )
    except OSError as exc:
        print(f"error: {command[0]} could not be run: {exc.strerror}", file=sys.stderr)
        raise SystemExit(1) from None
    with process:
        try:
            output = process.communicate()
        except BaseException:
            process.terminate()
            raise
    for data, stream in zip(output, (sys.stdout, sys.stderr), strict=True):
        if data:
            stream.write(data.decode(errors="replace"))
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _descriptor(stream: IO[str] | None) -> int | None:
    """Return the descriptor behind a text stream, if it has one; what it still buffers goes out first."""
    if stream is None:
        return subprocess.DEVNULL
    try:
        stream.flush()
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None


if __name__ == "__main__":
    main()
