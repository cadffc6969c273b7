"""Virtual environments of the participants: made when first needed, kept, and made anew when their pins change.

Each peer, and the plots, get one of their own with the exact versions in `pins/NAME.txt`, from whatever package index
the machine is configured for. Ours gets one too, for its worker: it sees the installed project through a `.pth` line.
All of them see `targets/`, because a worker is not expected to look at the current directory or at PYTHONPATH.

    python bench/peers.py [NAME ...]     make them now (all without a name)
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = ("reference", "execnet", "rpyc", "ray")
TOOLS = ("plot",)
INSTALL_SECONDS = 600


class Unavailable(Exception):
    """The environment cannot be made; the text is the reason to show."""


def cache_dir() -> Path:
    return Path(os.environ.get("AGENTIX_BENCH_DIR") or HERE.parent / ".bench")


def environment(name: str) -> Path:
    """The directory of that participant's environment, made if it is not there or is out of date."""
    cache = cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    (cache / ".gitignore").write_text("*\n")
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        venv, stamp = cache / name, cache / name / "bench-stamp"
        wanted = _stamp(name)
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(venv, ignore_errors=True)
            _make(name, venv)
            stamp.write_text(wanted)
    return venv


def python_of(venv: Path) -> str:
    return str(venv / "bin" / "python")


def _pins(name: str) -> Path | None:
    return HERE / "pins" / f"{name}.txt" if name in (*PEERS, *TOOLS) else None


def _path_lines(name: str) -> str:
    lines = [str(HERE / "targets")]
    if name == "ours":
        # addsitedir, unlike a bare path, also obeys the .pth files of an editable install.
        lines.append(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})")
    return "\n".join(lines) + "\n"


def _stamp(name: str) -> str:
    pins = _pins(name)
    facts = [sys.version, os.path.realpath(sys.executable), _path_lines(name), pins.read_text() if pins else ""]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()


def _make(name: str, venv: Path) -> None:
    uv, pins = shutil.which("uv"), _pins(name)
    if uv:
        _run([uv, "venv", "--quiet", "--no-project", "--python", sys.executable, str(venv)])
    else:
        _run([sys.executable, "-m", "venv", *([] if pins else ["--without-pip"]), str(venv)])
    if pins and uv:
        _run([uv, "pip", "install", "--quiet", "--no-deps", "--python", python_of(venv), "-r", str(pins)])
    elif pins:
        _run([python_of(venv), "-m", "pip", "install", "--quiet", "--no-deps", "-r", str(pins)])
    site = _run([python_of(venv), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
    Path(site, "agentix-bench.pth").write_text(_path_lines(name))


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{Path(command[0]).name} took longer than {INSTALL_SECONDS} s") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise Unavailable(f"{Path(command[0]).name} failed: {lines[-1][:160] if lines else done.returncode}")
    return done.stdout


if __name__ == "__main__":
    for wanted_name in sys.argv[1:] or (*PEERS, *TOOLS, "ours"):
        print(environment(wanted_name))
