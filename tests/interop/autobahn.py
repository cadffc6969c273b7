#!/usr/bin/env python3
"""Run the Autobahn test suite against both ends of our WebSocket, as `ws_echo_uv` shows them.

    autobahn.py PEER OUTDIR [--core]

PEER is the executable `ws_echo_uv`; reports go below OUTDIR. All cases outside of 12 and 13 (compression, which is
declined) must be OK or informational, or the exit code is 1. `--core` leaves out 9, which measures speed. The suite
runs on Python 2.7 only: one that pyenv or the PATH has; it is installed once into ~/.cache/agentix/autobahn (or
$AGENTIX_BUILD_CACHE). Exit code 3: there is no Python 2.7 on this machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

SUITE = "autobahntestsuite==25.10.1"
VIRTUALENV = "virtualenv==20.15.1"  # the last that makes environments of Python 2.7
CASES, CORE_CASES = 301, 247
GOOD = {"OK", "INFORMATIONAL"}
SECONDS = 1200
NO_PYTHON = 3


def cache() -> Path:
    return Path(os.environ.get("AGENTIX_BUILD_CACHE", Path.home() / ".cache/agentix/build")).parent / "autobahn"


def find_python2() -> str | None:
    roots = [Path(os.environ["PYENV_ROOT"])] if "PYENV_ROOT" in os.environ else []
    candidates = [str(p) for root in [*roots, Path.home() / ".pyenv"] for p in root.glob("versions/2.7*/bin/python2.7")]
    candidates += [found] if (found := shutil.which("python2.7")) else []
    for candidate in candidates:
        works = [candidate, "-c", "import ssl, zlib, ctypes"]
        if subprocess.run(works, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return candidate
    return None


def install() -> Path | None:
    """Return the suite's executable; None: it cannot run here."""
    there = cache() / SUITE
    if (there / "ready").exists():
        return there / "py27/bin/wstest"
    python2 = find_python2()
    if python2 is None:
        return None
    shutil.rmtree(there, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", there / "maker"], check=True)
    subprocess.run([there / "maker/bin/pip", "install", "-q", VIRTUALENV], check=True)
    subprocess.run([there / "maker/bin/virtualenv", "-q", "-p", python2, there / "py27"], check=True)
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}
    subprocess.run([there / "py27/bin/pip", "install", "-q", SUITE], check=True, env=quiet)
    (there / "ready").touch()
    return there / "py27/bin/wstest"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def until_listening(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"autobahn: nothing listens on port {port}")


def with_server(server: list[Any], port: int, client: list[Any], log: Path) -> None:
    """Start `server`, run `client` to its end."""
    with log.open("wb") as out:
        process = subprocess.Popen(server, stdout=out, stderr=out, cwd=log.parent)
        try:
            until_listening(port)
            subprocess.run(client, stdout=out, stderr=out, cwd=log.parent, check=True, timeout=SECONDS)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def spec(path: Path, core: bool, **keys: Any) -> Path:
    exclude = ["12.*", "13.*", *(["9.*"] if core else [])]
    path.write_text(json.dumps({**keys, "cases": ["*"], "exclude-cases": exclude, "exclude-agent-cases": {}}))
    return path


def run_against_our_server(wstest: Path, peer: Path, out: Path, core: bool) -> None:
    port = free_port()
    servers = [{"agent": "agentix", "url": f"ws://127.0.0.1:{port}", "options": {"version": 18}}]
    told = spec(out / "server.json", core, outdir=str(out / "server"), servers=servers)
    client = [wstest, "-m", "fuzzingclient", "-s", told]
    with_server([peer, "serve", str(port)], port, client, out / "server.log")


def run_against_our_client(wstest: Path, peer: Path, out: Path, core: bool) -> None:
    port = free_port()
    told = spec(out / "client.json", core, outdir=str(out / "client"), url=f"ws://127.0.0.1:{port}")
    with_server([wstest, "-m", "fuzzingserver", "-s", told], port, [peer, "run", str(port)], out / "client.log")


def judge(role: str, out: Path, expected: int) -> bool:
    agents = json.loads((out / role / "index.json").read_text())
    cases = next(iter(agents.values()))
    bad = {name: case for name, case in cases.items() if not {case["behavior"], case["behaviorClose"]} <= GOOD}
    counts = Counter(case["behavior"] for case in cases.values())
    told = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))
    print(f"autobahn: {role}: {len(cases) - len(bad)} of {expected} cases good ({told})")
    for name, case in bad.items():
        print(f"autobahn: {role}: case {name}: {case['behavior']}, its close {case['behaviorClose']}")
    return not bad and len(cases) == expected


def main() -> int:
    words = [word for word in sys.argv[1:] if word != "--core"]
    core = "--core" in sys.argv[1:]
    if len(words) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    wstest = install()
    if wstest is None:
        print("autobahn: no Python 2.7 on this machine (pyenv install 2.7.18): not run", file=sys.stderr)
        return NO_PYTHON
    peer, out = Path(words[0]).resolve(), Path(words[1]).resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    run_against_our_server(wstest, peer, out, core)
    run_against_our_client(wstest, peer, out, core)
    expected = CORE_CASES if core else CASES
    good = [judge(role, out, expected) for role in ("server", "client")]
    return 0 if all(good) else 1


if __name__ == "__main__":
    raise SystemExit(main())
