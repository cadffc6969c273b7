"""The path of SWE-bench in real containers: a scripted agent in one, the judge in another, as an image of it would be.

The image has git, patch, Python, pytest and what installs a project without a network; the repository lies in /testbed
and belongs to somebody else. The bundle is the example's.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import box_bundle
import engines
import pytest
import swe_instances as instances
from agentix.plugins.datasets import swe
from agentix.provider.docker import DockerProvider
from mender.agent import mend

from agentix import SandboxConfig, bash

EXAMPLE = Path(__file__).parents[2] / "examples" / "swe-bench"
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800), pytest.mark.usefixtures("places", "nothing_left")]

# The image's pip installs with what it has.
OFFLINE = "ENV PIP_NO_BUILD_ISOLATION=0 PIP_NO_INDEX=1 PIP_BREAK_SYSTEM_PACKAGES=1"
GOLD = "sed -i 's/a - b/a + b/' calc/__init__.py"
RUNTESTS = """\
import os, sys
sys.path.insert(0, os.getcwd())
import calc
assert sys.argv[1:3] == ["--verbosity", "2"], sys.argv
print("language", os.environ["LANG"], os.environ["LC_ALL"], file=sys.stderr)
for name, good in (("test_add", calc.add(2, 3) == 5), ("test_mul", calc.mul(2, 3) == 6)):
    print(f"{name} (calc_tests.Tests) ... {'ok' if good else 'FAIL'}", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def mender(tmp_path_factory: pytest.TempPathFactory) -> box_bundle.Bundle:
    return box_bundle.build(tmp_path_factory.mktemp("mender"), EXAMPLE)


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory, docker_engine: engines.Engine) -> Iterator[dict[str, Any]]:
    """The image's name, and its instances."""
    root = tmp_path_factory.mktemp("testbed")
    calc = instances.make(root / "testbed")
    new = "tests/calc_tests.py"
    django = instances.make(
        root / "django",
        key=("django/django", "3.0"),
        files={"tests/runtests.py": f"#!/usr/bin/env python3\n{RUNTESTS}"},
        tests={new: "# what the tests would be\n"},
        fail_to_pass=["test_add (calc_tests.Tests)"],
        pass_to_pass=["test_mul (calc_tests.Tests)"],
    )
    instances.git(root / "django", "update-index", "--chmod=+x", "tests/runtests.py")
    instances.git(root / "django", "commit", "-q", "--amend", "-m", "base")
    django["base_commit"] = instances.git(root / "django", "rev-parse", "HEAD").strip()
    subprocess.run(["chown", "-R", "1234:1234", str(root / "testbed")], check=True)
    tag = "localhost/agentix-test/swe:latest"
    container = docker_engine("create", docker_engine.image("testbed"), "/nothing")
    try:
        for name in ("testbed", "django"):
            docker_engine("cp", "-a", str(root / name), f"{container}:/{name}")
        docker_engine("commit", "--change=WORKDIR /testbed", f"--change={OFFLINE}", container, tag)
    finally:
        docker_engine("rm", container)
    yield {"image": tag, "calc": calc, "django": django}
    docker_engine("rmi", "-f", tag, check=False)


def config(testbed: dict[str, Any], bundle: box_bundle.Bundle) -> SandboxConfig:
    return SandboxConfig(image=testbed["image"], bundle=bundle.directory)


async def agents_patch(settings: SandboxConfig, instance: dict[str, Any], script: str) -> str:
    async with DockerProvider().session(settings, call_deadline=300) as sandbox:
        prepared = await sandbox.remote(swe.prepare_env, base_commit=instance["base_commit"])
        assert prepared.ok, prepared.log
        assert prepared.head == instance["base_commit"]
        return await sandbox.remote(mend, script)


async def judged(
    settings: SandboxConfig, instance: dict[str, Any], patch: str, **limits: Any
) -> tuple[dict[str, Any], str]:
    """What the judge says, and which processes there are in its sandbox afterwards."""
    async with DockerProvider().session(settings, call_deadline=300) as sandbox:
        scored = await sandbox.remote(swe.score, instance, patch, **limits)
        listing = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done"
        return scored, (await sandbox.remote(bash.run, listing, timeout=30)).stdout


# script, limits, what must come out, words of the log
OUTCOMES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "resolved": (GOLD, {}, {"resolved": True, "patch_applied": True, "timed_out": False}, ""),
    "unresolved": (
        "sed -i 's/a - b/a + a/' calc/__init__.py; sed -i 's/== 5/== 4/' tests/*.py",
        {},
        {"patch_applied": True, "timed_out": False, "failure_stage": "tests", "exit_code": 1},
        "assert 4 == 5",
    ),
    "empty": ("exit 3", {}, {"patch_applied": False, "failure_stage": "apply_patch"}, "the patch is empty"),
    "broken": (
        "echo 'raise SystemError(\"no tests today\")' > conftest.py",
        {},
        {"patch_applied": True, "timed_out": False, "failure_stage": "tests", "exit_code": 4},
        "no tests today",
    ),
    "hanging": (
        "printf 'import os\\nos.system(\"setsid sleep 7185 & sleep 7185\")\\n' > conftest.py",
        {"eval_timeout": 20},
        {"patch_applied": True, "timed_out": True, "failure_stage": "tests", "exit_code": -1},
        "timed out after 20 s",
    ),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_outcomes(testbed: dict[str, Any], mender: box_bundle.Bundle, name: str) -> None:
    script, limits, expected, words = OUTCOMES[name]
    settings, instance = config(testbed, mender), testbed["calc"]

    async def main() -> None:
        patch = await agents_patch(settings, instance, script)
        assert bool(patch) == (name != "empty")
        scored, processes = await judged(settings, instance, patch, **limits)
        keys = {"resolved", "patch_applied", "timed_out", "test_status"}
        assert set(scored) == keys | set(expected) | (set() if name == "resolved" else {"log_tail"})
        assert {key: scored[key] for key in expected} == expected
        assert scored["resolved"] is (name == "resolved")
        assert words in scored.get("log_tail", "")
        assert "sleep 7185" not in processes
        assert "pytest" not in processes
        if name == "resolved":
            assert scored["test_status"]["FAIL_TO_PASS"]["success"] == instances.FAIL_TO_PASS

    asyncio.run(asyncio.wait_for(main(), 600))


def test_a_patch_that_does_not_apply(testbed: dict[str, Any], mender: box_bundle.Bundle) -> None:
    instance = testbed["calc"]
    patch = instance["patch"].replace("a - b", "a ~ b")
    scored, _ = asyncio.run(asyncio.wait_for(judged(config(testbed, mender), instance, patch), 600))
    assert (scored["resolved"], scored["patch_applied"], scored["failure_stage"]) == (False, False, "apply_patch")
    assert "calc/__init__.py" in scored["log_tail"]


def test_the_installation_is_real(testbed: dict[str, Any], mender: box_bundle.Bundle) -> None:
    """The project is installed from the work tree, by the image's pip, and the conda environment is used if there."""
    instance = testbed["calc"]
    conda = (
        "mkdir -p /opt/miniconda3/bin /opt/envs/testbed/bin\n"
        "echo 'conda() { export PATH=\"/opt/envs/$2/bin:$PATH\"; }' > /opt/miniconda3/bin/activate\n"
        "cd /opt/envs/testbed/bin\n"
        "printf '#!/bin/sh\\necho in conda >> /tmp/seen\\nexec /usr/bin/pytest \"$@\"\\n' > pytest; chmod +x pytest\n"
    )

    async def main() -> None:
        async with DockerProvider().session(config(testbed, mender), call_deadline=300) as sandbox:
            assert (await sandbox.remote(bash.run, conda, timeout=30)).exit_code == 0
            scored = await sandbox.remote(swe.score, instance, instance["patch"])
            assert scored["resolved"], scored
            script = "cat /tmp/seen; cd /; /usr/bin/python3 -c 'import calc; print(calc.__file__)'"
            seen = await sandbox.remote(bash.run, script, env={"PATH": "/usr/bin:/bin"}, timeout=30)
            assert seen.stdout == "in conda\n/testbed/calc/__init__.py\n", seen

    asyncio.run(asyncio.wait_for(main(), 600))


def test_another_project_with_settings_of_its_own(testbed: dict[str, Any], mender: box_bundle.Bundle) -> None:
    """Django's specification exports variables, and has commands that fail here; its tests have another runner."""
    instance = testbed["django"]

    async def main() -> None:
        settings = config(testbed, mender)
        scored, _ = await judged(settings, instance, instance["patch"], workdir="/django")
        assert scored["resolved"], scored
        wrong = instance["patch"].replace("a + b", "a + a")
        scored, _ = await judged(settings, instance, wrong, workdir="/django")
        assert (scored["failure_stage"], scored["exit_code"]) == ("tests", 0)
        assert "language en_US.UTF-8 en_US.UTF-8" in scored["log_tail"]

    asyncio.run(asyncio.wait_for(main(), 600))


def test_the_example(testbed: dict[str, Any], mender: box_bundle.Bundle, tmp_path: Path) -> None:
    (tmp_path / "instance.json").write_text(json.dumps(testbed["calc"]))
    (tmp_path / "script.sh").write_text(GOLD)
    words = [testbed["image"], mender.directory, str(tmp_path / "instance.json"), str(tmp_path / "script.sh")]
    command = [sys.executable, str(EXAMPLE / "host.py"), *words]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resolved"] is True, done.stdout
