"""A bundle in old roots: it was moved, the build machine's files are gone, and the system around it is another one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import box_bundle
import engines
import pytest

# The root is made of an image's tree; the bundle is the only thing in it that this machine has made.
_IN_ROOT = r"""
set -eu
root=$1 nix=$2
shift 2
mkdir -p "$root/nix"
mount --rbind "$nix" "$root/nix"
mount -o remount,bind,ro "$root/nix"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
exec chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin "$@"
"""

# Imports whatever extension modules there are, each in turn, and prints what came from where.
_IMPORT_ALL = """
import importlib, importlib.machinery, json, os, sys
import agentix
ends = tuple(importlib.machinery.EXTENSION_SUFFIXES)
names, failed = [], {}
for root in (path for path in sys.path if os.path.isdir(path)):
    for path, _, files in os.walk(root):
        inner = [part for part in os.path.relpath(path, root).split(os.sep) if part != "."]
        if all(part.isidentifier() for part in inner):
            names += [".".join([*inner, name.partition(".")[0]]) for name in files if name.endswith(ends)]
for name in sorted(set(names)):
    try:
        importlib.import_module(name)
    except Exception as error:
        failed[name] = f"{type(error).__name__}: {error}"
maps = [line.split(None, 5)[5].rstrip() for line in open("/proc/self/maps") if len(line.split(None, 5)) == 6]
files = sorted({path for path in maps if path.startswith("/")})
print(json.dumps({"names": names, "failed": failed, "files": files, "agentix": agentix.__file__, "path": sys.path}))
"""


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployed bundle whose cache was then moved to somewhere else."""
    bundle = box_bundle.shared(tmp_path_factory)
    cache, elsewhere = tmp_path_factory.mktemp("cache"), tmp_path_factory.mktemp("moved") / "another name"
    answer = json.loads(
        box_bundle.agentix(
            "deploy", "docker", str(bundle.tar), "--bundle-cache-dir", str(cache / "c"), "--format", "json"
        )
    )
    (cache / "c").rename(elsewhere)
    return elsewhere / Path(answer["bundle"]).name


@pytest.fixture(scope="module", params=["bullseye", "bookworm"])
def debian(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp(request.param)
    subprocess.run(["tar", "-xf", engines.tree(request.param), "-C", root, "--exclude=./dev/*"], check=True)
    return root


def run_in(root: Path, bundle: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    spaces = ["unshare", *user, "--mount", "--pid", "--fork", "--propagation", "private"]
    command = [*spaces, "sh", "-c", _IN_ROOT, "sh", str(root), str(bundle / "nix"), *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_every_extension_module_is_imported_from_the_bundle_alone(debian: Path, moved: Path) -> None:
    done = run_in(debian, moved, "/nix/runtime/venv/bin/python", "-c", _IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["agentix"].startswith("/nix/runtime/venv/")
    assert {path for path in told["path"] if path and not path.startswith("/nix/")} == set()
    assert {"_ssl", "_ctypes", "agentix._core", "numpy.linalg._umath_linalg"} <= set(told["names"])
    assert [f"{name}: {why}" for name, why in told["failed"].items() if "shared object" in why or "GLIBC" in why] == []
    # The image's locales, which are data, are used; code is not.
    outside = [path for path in told["files"] if not path.startswith(("/nix/", "/dev/"))]
    assert [path for path in outside if "/locale/" not in path and not path.endswith("/gconv-modules.cache")] == []


def test_programs_of_the_bundle_and_of_the_image(debian: Path, moved: Path) -> None:
    done = run_in(debian, moved, "/nix/runtime/venv/bin/python", "-c", "import agentix; print(agentix.__version__)")
    assert (done.returncode, done.stderr) == (0, "")
    assert run_in(debian, moved, "/nix/runtime/venv/bin/numpy-config", "--version").returncode == 0
    assert run_in(debian, moved, "/nix/runtime/bin/bash", "-c", "echo $((6 * 7))").stdout == "42\n"
    code = "import subprocess; print(open('/etc/debian_version').read(), subprocess.check_output(['git', '--version']))"
    done = run_in(debian, moved, "/nix/runtime/venv/bin/python", "-c", code)
    assert "git version" in done.stdout, done.stderr


def test_no_link_and_no_shebang_leaves_the_moved_bundle(debian: Path, moved: Path) -> None:
    """Looked at from inside, where a path of the build machine leads nowhere."""
    script = (
        "for path in $(find /nix -type l -o -type f -perm -100); do "
        'if [ -L "$path" ]; then where=$(readlink -e "$path") || echo "dangling $path"; '
        'case $where in /nix/*|"") ;; *) echo "$path leads to $where" ;; esac; '
        'elif [ -f "$path" ] && [ "$(head -c 2 "$path" | tr -d "\\0")" = "#!" ]; then '
        'read -r first _ < "$path"; first=${first#"#!"}; '
        'case $first in /nix/*) [ -x "$first" ] || echo "$path: no $first" ;; *) echo "$path: $first" ;; esac; fi; done'
    )
    done = run_in(debian, moved, "/bin/sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
