"""SWE-bench in a sandbox of the uv backend: small repositories, real git, real pytest, SWE-bench's own grading.

What the image would have is in a directory of its own at the front of PATH: `pytest`, and a `python` that cannot
install anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import swe_instances as instances
import swe_targets as t
from agentix.plugins.datasets import swe
from agentix.plugins.datasets.swe._commands import Output
from agentix.provider.uv import UvProvider, UvProviderConfig
from swe_instances import MENDED, diff, git

from agentix import RemoteCallError, SandboxConfig
from agentix.runtime.shared.safepickle import restricted_loads

CALC = "calc/__init__.py"
WHOLE = {"resolved", "patch_applied", "timed_out", "test_status"}
UNRESOLVED = WHOLE | {"failure_stage", "log_tail"}


class Place:
    """A directory with an instance's repository, and a sandbox beside it."""

    def __init__(self, root: Path, venv: str) -> None:
        self.root = root
        self.repo = root / "repo"
        self._venv = venv
        self._bin = root / "bin"
        self._bin.mkdir()
        run = f'exec {sys.executable} -m pytest -p no:cacheprovider "$@"'
        self.program("pytest", f"echo pytest begins; export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1; {run}")
        self.program("python", f"echo python $* >> {root}/installed; exit 1")

    def program(self, name: str, script: str) -> None:
        path = self._bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    @contextlib.asynccontextmanager
    async def sandbox(self, **environ: str) -> AsyncIterator[Any]:
        env = {"PATH": f"{self._bin}:/usr/local/bin:/usr/bin:/bin", "HOME": str(self.root), **environ}
        config = SandboxConfig(image="local", bundle="local", env=env)
        async with (
            UvProvider(UvProviderConfig(reuse_venv=self._venv)) as provider,
            provider.session(config, call_deadline=100) as sandbox,
        ):
            yield sandbox

    async def score(self, sandbox: Any, instance: dict[str, Any], patch: str, **settings: Any) -> dict[str, Any]:
        return await sandbox.remote(swe.score, instance, patch, str(self.repo), **settings)

    def status(self) -> str:
        return git(self.repo, "status", "--short", "--untracked-files=all")


@pytest.fixture
def place(worker_python: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="agx-") as root:  # a short name: the path of a socket must fit
        monkeypatch.setenv("XDG_RUNTIME_DIR", root)
        Path(root, "p").mkdir()
        yield Place(Path(root, "p"), str(Path(worker_python).parents[1]))


def spoilt(instance: dict[str, Any]) -> str:
    return instance["patch"].replace("a - b", "a ~ b")


# ---- outcomes ----


def test_the_outcomes(run: Any, place: Place) -> None:
    instance = instances.make(place.repo)
    wrong = diff(place.repo, {CALC: MENDED.replace("a + b", "a + a")})
    broken = diff(place.repo, {"conftest.py": "raise SystemError('no tests today')\n"})
    in_json = {key: json.dumps(instance[key]) for key in ("FAIL_TO_PASS", "PASS_TO_PASS")}

    async def main() -> None:
        async with place.sandbox() as sandbox:
            resolved = await place.score(sandbox, instance | in_json, instance["patch"])
            assert set(resolved) == WHOLE
            assert (resolved["resolved"], resolved["patch_applied"], resolved["timed_out"]) == (True, True, False)
            assert resolved["test_status"]["FAIL_TO_PASS"] == {"success": instances.FAIL_TO_PASS, "failure": []}
            assert resolved["test_status"]["PASS_TO_PASS"] == {"success": instances.PASS_TO_PASS, "failure": []}
            assert place.status() == f" M {CALC}\n"  # the agent's change, and nothing of the test patch
            assert await sandbox.remote(t.imported, "swebench") is False  # nor is the worker's memory any larger
            assert (place.root / "installed").read_text() == "python -m pip install -e .\n"

            unresolved = await place.score(sandbox, instance, wrong)
            assert set(unresolved) == UNRESOLVED | {"exit_code"}
            assert (unresolved["resolved"], unresolved["patch_applied"], unresolved["timed_out"]) == (
                False,
                True,
                False,
            )
            assert (unresolved["failure_stage"], unresolved["exit_code"]) == ("tests", 1)
            assert unresolved["test_status"]["FAIL_TO_PASS"] == {"success": [], "failure": instances.FAIL_TO_PASS}
            assert unresolved["test_status"]["PASS_TO_PASS"] == {"success": instances.PASS_TO_PASS, "failure": []}
            assert "assert 4 == 5" in unresolved["log_tail"]

            cannot_start = await place.score(sandbox, instance, broken)
            assert set(cannot_start) == UNRESOLVED | {"exit_code"}
            assert (cannot_start["failure_stage"], cannot_start["exit_code"]) == ("tests", 4)
            assert cannot_start["test_status"]["PASS_TO_PASS"]["failure"] == instances.PASS_TO_PASS
            assert "no tests today" in cannot_start["log_tail"]

            for patch, words in (("", "the patch is empty"), (" \n", "the patch is empty"), (spoilt(instance), CALC)):
                refused = await place.score(sandbox, instance, patch)
                assert set(refused) == UNRESOLVED
                assert (refused["resolved"], refused["patch_applied"], refused["test_status"]) == (False, False, {})
                assert refused["failure_stage"] == "apply_patch"
                assert words in refused["log_tail"]
            assert place.status() == ""

    run(main())


def test_tests_that_hang_end_with_all_their_processes(run: Any, place: Place) -> None:
    instance = instances.make(place.repo)
    body = (
        "import signal, subprocess\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.run('setsid sleep 7183 & (trap \"\" TERM; sleep 7183; sleep 7183)', shell=True)\n"
    )
    hanging = diff(place.repo, {"conftest.py": body})

    async def main() -> None:
        async with place.sandbox() as sandbox:
            scored = await place.score(sandbox, instance, hanging, eval_timeout=4)
            assert set(scored) == UNRESOLVED | {"exit_code"}
            assert (scored["resolved"], scored["patch_applied"], scored["timed_out"]) == (False, True, True)
            assert (scored["failure_stage"], scored["exit_code"]) == ("tests", -1)
            assert "timed out after 4 s" in scored["log_tail"]
            assert "pytest begins" in scored["log_tail"]
            assert await ended("sleep 7183")

    run(main())


def test_a_cancelled_score_ends_its_tests(run: Any, place: Place) -> None:
    instance = instances.make(place.repo)
    hanging = diff(place.repo, {"conftest.py": "import subprocess\nsubprocess.run(['sleep', '7184'])\n"})

    async def main() -> None:
        async with place.sandbox() as sandbox:
            task = asyncio.ensure_future(place.score(sandbox, instance, hanging))
            async with asyncio.timeout(60):
                while not processes("sleep 7184"):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await ended("sleep 7184")

    run(main())


async def ended(command: str) -> bool:
    """Whether no process with this command line is there any more, within five seconds."""
    for _ in range(50):
        if not processes(command):
            return True
        await asyncio.sleep(0.1)
    return False


def processes(command: str) -> list[str]:
    lines: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip())
    return [line for line in lines if line == command]


# ---- patches ----


def test_patches_as_agents_write_them(run: Any, place: Place) -> None:
    """Each must apply; the tests say whether it did right."""
    instance = instances.make(place.repo)
    gold: str = instance["patch"]
    drifted = gold.replace("def mul(a, b)", "def mul(x, y)")  # context that has changed: only `patch` takes it
    several = gold + diff(place.repo, {"a\u00e4.txt": "\u00fc\n", "img": bytes(range(256)), "setup.py": None})
    patches = {
        "no end of line": gold.rstrip("\n"),
        "CRLF": gold.replace("\n", "\r\n"),
        "drifted": drifted,
        "indented otherwise": gold.replace("-    return", "-\treturn"),
        "several": several,
    }

    async def main() -> None:
        async with place.sandbox() as sandbox:
            for name, patch in patches.items():
                scored = await place.score(sandbox, instance, patch)
                assert scored["resolved"], (name, scored["log_tail"])
                assert not list(place.repo.rglob("*.rej")) + list(place.repo.rglob("*.orig"))
            assert (place.repo / "img").read_bytes() == bytes(range(256))

    assert drifted != gold
    run(main())


def test_a_file_with_windows_ends_of_lines(run: Any, place: Place) -> None:
    windows = instances.FILES[CALC].replace("\n", "\r\n")
    instance = instances.make(place.repo, files={CALC: windows})
    exact = diff(place.repo, {CALC: MENDED.replace("\n", "\r\n")})

    async def main() -> None:
        async with place.sandbox() as sandbox:
            for patch in (exact, exact.replace("\r\n", "\n")):
                scored = await place.score(sandbox, instance, patch)
                assert scored["resolved"], scored["log_tail"]

    run(main())


def test_what_the_agent_did_to_the_tests_does_not_count(run: Any, place: Place) -> None:
    """It weakens one, removes another, and puts its own where the test patch puts new ones."""
    instance = instances.make(place.repo)
    gold = {CALC: MENDED}
    meddling: dict[str, Any] = {
        "tests/test_calc.py": "def test_mul():\n    pass\n\n\ndef test_add():\n    pass\n",
        "tests/test_old_names.py": None,
        "tests/test_new.py/test_sum.py": "def test_sum():\n    pass\n",
        "tests/test_names.py": "def test_name():\n    pass\n",
    }
    lazy, diligent = diff(place.repo, meddling), diff(place.repo, meddling | gold)

    async def main() -> None:
        async with place.sandbox() as sandbox:
            scored = await place.score(sandbox, instance, lazy)
            assert scored["failure_stage"] == "tests"
            assert scored["test_status"]["FAIL_TO_PASS"]["failure"] == instances.FAIL_TO_PASS
            scored = await place.score(sandbox, instance, diligent)
            assert scored["resolved"], scored["log_tail"]
            assert place.status() == f" M {CALC}\n"

    run(main())


# ---- specifications ----


def test_settings_installation_and_what_may_fail(run: Any, place: Place) -> None:
    """`export` and the like hold for all later commands; nothing but the tests decides."""
    seen = place.root / "seen"
    specs = {
        "eval_commands": ["export LANG=en_US.UTF-8", 'export FIRST="a b"', "export SECOND=$FIRST/c"],
        "pre_install": ["false | cat", 'WHERE="x y"', f'echo "pre $WHERE $LANG $FIRST" >> {seen}', "no && && good"],
        "install": f'echo "install $SECOND" >> {seen}; env | grep -c ^FIRST=; exit 3',
        "test_cmd": f'echo "test $FIRST $WHERE" >> {seen}; pytest -rA',
    }
    instance = instances.make(place.repo, key=("toy/calc", "1"))

    async def main() -> None:
        async with place.sandbox() as sandbox:
            assert await sandbox.remote(t.register, specs)
            scored = await place.score(sandbox, instance, instance["patch"])
            assert scored["resolved"], scored["log_tail"]
            assert seen.read_text() == "pre x y en_US.UTF-8 a b\ninstall a b/c\ntest a b x y\n"

    run(main())


def test_a_flood_of_output_does_not_hide_the_results(run: Any, place: Place) -> None:
    """Tests that print 100 MB; what became of them stands at the end."""
    instance = instances.make(place.repo)
    noisy = {
        CALC: MENDED,
        "conftest.py": "import os\nfor _ in range(100):\n    os.write(2, b'noise ' * 170000 + b'\\n')\n",
    }
    patch = diff(place.repo, noisy)
    place.program("pytest", f'PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 exec {sys.executable} -m pytest --capture=no "$@"')

    async def main() -> None:
        async with place.sandbox() as sandbox:
            assert (await place.score(sandbox, instance, patch))["resolved"]

    run(main())


def test_the_beginning_and_the_end_of_a_text() -> None:
    output = Output(8)
    for piece in ("ab", "", "cde", "fgh"):
        output.add(piece)
    assert output.text() == "abcdefgh"
    for piece in ("i", "jkl", "m", "nop"):
        output.add(piece)
    assert output.text() == "abcd\n[8 characters left out]\nmnop"


def test_stages_that_run_out_of_time(run: Any, place: Place) -> None:
    instance = instances.make(place.repo, key=("toy/calc", "1"))

    async def main() -> None:
        async with place.sandbox() as sandbox:
            assert await sandbox.remote(t.register, {"install": "echo begun; sleep 100", "test_cmd": "pytest -rA"})
            scored = await place.score(sandbox, instance, instance["patch"], eval_timeout=1)
            assert set(scored) == UNRESOLVED
            assert (scored["failure_stage"], scored["timed_out"], scored["patch_applied"]) == (
                "prepare_tests",
                True,
                True,
            )
            assert "begun" in scored["log_tail"]
            scored = await place.score(sandbox, instance, instance["patch"], apply_timeout=0)
            assert (scored["failure_stage"], scored["timed_out"], scored["patch_applied"]) == (
                "prepare_env",
                True,
                False,
            )

    run(main())


def test_a_test_patch_that_does_not_apply(run: Any, place: Place) -> None:
    instance = instances.make(place.repo)
    other = instance | {"test_patch": instance["test_patch"].replace("calc.mul(2, 3)", "calc.mul(3, 3)")}

    async def main() -> None:
        async with place.sandbox() as sandbox:
            scored = await place.score(sandbox, other, instance["patch"])
            assert set(scored) == UNRESOLVED
            assert (scored["failure_stage"], scored["patch_applied"]) == ("prepare_tests", True)
            assert "tests/test_calc.py" in scored["log_tail"]

    run(main())


def test_instances_that_cannot_be_used(run: Any, place: Place) -> None:
    instance = instances.make(place.repo)
    unknown = instance | {"version": "0.0"}
    lacking = {key: value for key, value in instance.items() if key not in {"version", "base_commit"}}
    nowhere = instance | {"base_commit": "f" * 40}

    async def main() -> None:
        async with place.sandbox() as sandbox:
            with pytest.raises(
                RemoteCallError, match=r"ValueError: SWE-bench has no specification for pytest-dev/pytest 0\.0"
            ):
                await place.score(sandbox, unknown, instance["patch"])
            with pytest.raises(RemoteCallError, match="ValueError: the instance lacks version, base_commit"):
                await place.score(sandbox, lacking, instance["patch"])
            scored = await place.score(sandbox, nowhere, instance["patch"])
            assert set(scored) == UNRESOLVED
            assert (scored["failure_stage"], scored["patch_applied"]) == ("prepare_env", False)

    run(main())


# ---- grading, asked as `score` asks ----


def ask(verb: str, **arguments: Any) -> dict[str, Any]:
    command = [sys.executable, "-I", "-m", "agentix.plugins.datasets.swe._harness", verb]
    done = subprocess.run(
        command, input=json.dumps(arguments), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


INSTANCE = {
    "instance_id": "x__x-1",
    "repo": "pytest-dev/pytest",
    "version": "7.2",
    "base_commit": "b" * 40,
    "test_patch": "diff --git a/t.py b/t.py\n--- a/t.py\n+++ b/t.py\n@@ -1 +1 @@\n-1\n+2\n",
    "FAIL_TO_PASS": ["t.py::a"],
    "PASS_TO_PASS": ["t.py::b"],
}


GRADES = [
    ("PASSED t.py::a\nPASSED t.py::b\n", 0, True),
    ("PASSED t.py::a\nFAILED t.py::b - no\n", 1, False),
    ("PASSED t.py::a\n", 0, False),
    ("", 1, False),
    # The harness's own words in the output of tests.
    (">>>>> End Test Output\n>>>>> Tests Errored\nPASSED t.py::a\nPASSED t.py::b\n", 0, True),
    ("PASSED t.py::a\nPASSED t.py::b\n>>>>> End Test Output\nFAILED t.py::b\n", 1, False),
]


def graded(instance: dict[str, Any], output: str, exit_code: int) -> bool:
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(output)
        file.flush()
        return ask("grade", instance=instance, output=file.name, exit_code=exit_code)["resolved"]


def test_grading() -> None:
    for output, exit_code, resolved in GRADES:
        assert graded(INSTANCE, output, exit_code) is resolved, output


def test_tests_that_never_started_are_no_success_where_only_failures_are_listed() -> None:
    instance = INSTANCE | {"repo": "markedjs/marked", "version": "1.0"}
    versions = ask("plan", instance=instance, workdir="/testbed")
    assert versions.get("test") or "no specification" in versions["error"]
    assert graded(instance, "npm: not found\n", 127) is False
    assert graded(instance, "all is well\n", 0) is True


def test_the_plan_is_swebenchs() -> None:
    plan = ask("plan", instance=INSTANCE, workdir="/repo")
    assert plan["test"] == ["pytest -rA t.py"]
    assert plan["install"] == ["python -m pip install -e ."]
    assert plan["conda"] is True
    django = ask("plan", instance=INSTANCE | {"repo": "django/django", "version": "3.0"}, workdir="/repo")
    assert "export LANG=en_US.UTF-8" in django["settings"]
    assert "error" in ask("plan", instance=INSTANCE | {"repo": "no/such"}, workdir="/repo")


# ---- prepare_env ----


def test_prepare_env(run: Any, place: Place) -> None:
    instance = instances.make(place.repo)
    base = instance["base_commit"]
    git(place.repo, "commit", "-q", "--allow-empty", "-m", "later")
    later = git(place.repo, "rev-parse", "HEAD").strip()
    mess = {"setup.py": "changed", "new.py": "x", "x.log": "ignored", "tests/test_gone.py": None}

    def litter() -> None:
        instances.write(place.repo, mess)
        (place.repo / "inner").mkdir()
        git(place.repo / "inner", "init", "-q")
        (place.repo / ".git" / "index.lock").touch()

    async def main() -> None:
        async with place.sandbox() as sandbox:
            prepare = swe.prepare_env
            litter()
            result = await sandbox.remote(prepare, str(place.repo))
            assert isinstance(result, swe.PrepareEnvResult)
            assert (result.ok, result.head) == (True, later)
            assert place.status() == ""
            assert not (place.repo / "x.log").exists()
            assert not (place.repo / "inner").exists()

            instances.write(place.repo, mess)
            result = await sandbox.remote(prepare, workdir=str(place.repo), base_commit=base)
            assert (result.ok, result.head) == (True, base)
            assert git(place.repo, "rev-parse", "HEAD").strip() == base

            for commit, words in (("f" * 40, "f" * 40), ("no-such-branch", "no-such-branch")):
                result = await sandbox.remote(prepare, str(place.repo), commit)
                assert (result.ok, result.head) == (False, "")
                assert words in result.log
            with pytest.raises(RemoteCallError, match="ValueError: base_commit must name a commit"):
                await sandbox.remote(prepare, str(place.repo), "--hard")

    run(main())


def test_prepare_env_leaves_what_is_around_alone(run: Any, place: Place) -> None:
    """A directory inside of another repository is none itself."""
    instances.make(place.repo)
    instances.write(place.repo, {"sub/precious": "untracked"})

    async def main() -> None:
        async with place.sandbox() as sandbox:
            for workdir, words in (
                ("repo/sub", "not the top of a work tree"),
                ("nowhere", "nowhere"),
                ("", "not a git"),
            ):
                result = await sandbox.remote(swe.prepare_env, str(place.root / workdir))
                assert (result.ok, result.head) == (False, "")
                assert words in result.log
            assert (place.repo / "sub" / "precious").exists()

    run(main())


# ---- the plugin ----


def test_importing_it_costs_nothing_of_swebench() -> None:
    code = (
        "import sys, agentix.plugins.datasets.swe as s; print(s.__all__, {'swebench', 'datasets'} & sys.modules.keys())"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "['PrepareEnvResult', 'prepare_env', 'score'] set()\n"


def test_the_result_is_on_the_allowlist() -> None:
    result = swe.PrepareEnvResult(True, "a" * 40, "log")
    assert restricted_loads(pickle.dumps(result, protocol=5)) == result
    assert pickle.dumps(result, protocol=0).startswith(b"ccopy_reg")


def test_namespace_packages_have_no_initialiser() -> None:
    import agentix.plugins
    import agentix.plugins.datasets

    assert agentix.plugins.__file__ is None
    assert agentix.plugins.datasets.__file__ is None
