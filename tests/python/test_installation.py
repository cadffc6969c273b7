"""What the build promises about the two binaries it makes."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import agentix

SCRIPTS = Path(sys.executable).parent
PACKAGE = Path(agentix.__file__).parent
EXTENSION = PACKAGE / "_core.abi3.so"
RUNTIME = SCRIPTS / "agentix-runtime"


def output(*command: str | Path) -> str:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout


def test_package_is_installed_and_not_the_source_tree() -> None:
    assert PACKAGE.is_relative_to(sysconfig.get_path("platlib"))


def test_extension_keeps_to_the_limited_api() -> None:
    result = subprocess.run(
        [SCRIPTS / "abi3audit", "--strict", "--assume-minimum-abi3", "3.11", EXTENSION],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_extension_brings_no_shared_library_along() -> None:
    needed = [line for line in output("readelf", "-d", EXTENSION).splitlines() if "(NEEDED)" in line]
    assert all("[libc.so" in line for line in needed), needed


def test_extension_exports_only_its_entry() -> None:
    symbols = output("nm", "-D", "--defined-only", EXTENSION).splitlines()
    assert [line.split()[-1] for line in symbols] == ["PyInit__core"]


def test_extension_never_contains_libuv() -> None:
    assert b"uv_run" not in EXTENSION.read_bytes()
    undefined = output("nm", "-D", "--undefined-only", EXTENSION)
    assert " uv_" not in undefined


def test_extension_imports_in_a_second_interpreter_state() -> None:
    """Two imports of the module give two states: nothing of ours is a process-wide static."""
    script = (
        "import sys, agentix._core as first; del sys.modules['agentix._core'];"
        "import agentix; vars(agentix).pop('_core', None);"
        "import agentix._core as second; assert first.Error is not second.Error"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_runtime_is_one_static_hardened_executable() -> None:
    headers = output("readelf", "-lhd", RUNTIME)
    assert "INTERP" not in headers, "has a dynamic loader"
    assert "(NEEDED)" not in headers, "needs a shared library"
    assert "DYN (Position-Independent Executable file)" in headers, "is not position independent"
    assert "GNU_RELRO" in headers
    assert "NOW" in headers
    stack = headers[headers.index("GNU_STACK") :].split("\n", 2)
    assert " RWE " not in stack[0] + stack[1], "has an executable stack"


def test_runtime_is_small() -> None:
    assert RUNTIME.stat().st_size <= 3 * 1024 * 1024
