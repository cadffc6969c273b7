"""The tests' own engines leave the machine as it was; looked at in a network namespace that has nothing in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import subprocess, sys
import engines

def network():
    words = ("iptables-save | grep '^[:-]' | sed -e '/ ACCEPT /d' -e 's/ [[].*//'", "ip -o link | cut -d: -f2")
    return [subprocess.run(line, shell=True, capture_output=True, text=True, check=True).stdout for line in words]

before = network()
with getattr(engines, sys.argv[1])() as engine:
    engine("run", "-d", "--name", "one", "-p", "127.0.0.1::80", engine.image("busybox"), "/bin/sleep", "99")
    assert network() != before
    engine("rm", "-f", "one")
after = network()
assert after == before, after
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="engines of their own, and such a namespace, are root's")
@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_nothing_is_left_of_an_engine(kind: str, tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    env = {**os.environ, "PYTHONPATH": here, "AGENTIX_TEST_CACHE": str(tmp_path / "images")}
    env["DOCKER_HOST"] = f"unix://{tmp_path}/none"  # neither the machine's daemon nor that of other tests
    script = f'PATH=$PATH:/usr/sbin; ip link set lo up; exec {sys.executable} -c "$0" {kind}'
    done = subprocess.run(["unshare", "--net", "sh", "-c", script, _SCRIPT], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
