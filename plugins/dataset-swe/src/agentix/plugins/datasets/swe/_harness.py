"""What SWE-bench's own package says: how an instance is tested, and what the tests' output means.

Nothing else imports `swebench`, which brings along what it builds images and loads data sets with: about two seconds
and 200 MB. So it is asked in a process that ends afterwards (`ask`) and that imports only the modules which know
repositories and grade, a tenth of that. If this process has imported it anyway, for instance to add repositories to its
tables, it is asked here. It needs no network for what it is asked.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ._patch import without_deletions

__all__ = ["GRADE_SECONDS", "ask", "grade", "plan"]

GRADE_SECONDS = 600.0  # parsers meet output that an agent's code has written
LARGEST_ANSWER = 64 * 1024 * 1024


async def ask(verb: str, **arguments: Any) -> dict[str, Any]:
    """Return what the function named `verb` returns for `arguments`.

    Raises `ValueError` for an instance that it cannot use, `RuntimeError` if the process fails or takes too long.
    """
    if "swebench.harness.constants" in sys.modules:
        return await asyncio.to_thread(_VERBS[verb], **arguments)
    from agentix.bash import run

    command = "exec " + shlex.join([sys.executable, "-I", "-m", __name__, verb])
    environ = {**os.environ, "PYTHONUTF8": "1", "HF_HUB_OFFLINE": "1"}
    answer = await run(
        command,
        env=environ,
        timeout=GRADE_SECONDS,
        max_output=LARGEST_ANSWER,
        stdin=json.dumps(arguments).encode(),
    )
    if answer.exit_code:
        raise RuntimeError(f"SWE-bench's package failed ({answer.exit_code}): {answer.stderr[-4000:]}")
    value: dict[str, Any] = json.loads(answer.stdout)
    if "error" in value:
        raise ValueError(value["error"])
    return value


def plan(instance: Mapping[str, Any], workdir: str) -> dict[str, Any]:
    """Return the commands for an instance, as lists: `settings`, `pre_install`, `install`, `assets`, `build`, `test`.

    `conda` is whether they are for the conda environment.
    """
    constants = _module("constants")
    specs = _specs(instance)
    # A file that the test patch deletes cannot be run.
    tests = without_deletions(instance["test_patch"])
    evaluated = {**instance, "test_patch": tests}
    script: list[str] = _module("test_spec.create_scripts").make_eval_script_list(
        evaluated, specs, "testbed", workdir, instance["base_commit"], tests
    )
    start, end = (script.index(f": '{mark}'") for mark in (constants.START_TEST_OUTPUT, constants.END_TEST_OUTPUT))
    language: str = constants.MAP_REPO_TO_EXT[instance["repo"]]
    return {
        "conda": language == "py",
        "settings": _list(specs.get("eval_commands")),
        "pre_install": _list(specs.get("pre_install")),
        "install": _list(specs.get("install")),
        "build": _list(specs.get("build")),
        "assets": _module("test_spec.javascript").get_download_img_commands(instance) if language == "js" else [],
        "test": script[start + 1 : end],
    }


def grade(instance: Mapping[str, Any], output: str, exit_code: int) -> dict[str, Any]:
    """Return `resolved` and `test_status` for what the tests printed, in the file `output`, and their exit code."""
    constants, grading = _module("constants"), _module("grading")
    name = instance["instance_id"]
    expected = {key: _tests(instance, key) for key in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    empty: dict[str, Any] = {"repo_script_list": [], "eval_script_list": [], "env_script_list": [], "docker_specs": {}}
    spec = _module("test_spec.test_spec").TestSpec(
        instance_id=name,
        repo=instance["repo"],
        version=instance["version"],
        arch="x86_64",
        language="",
        namespace=None,
        **expected,
        **empty,
    )
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="replace", suffix=".txt") as log:
        printed = _defused(Path(output).read_text("utf-8", "replace"))
        log.write(f"{constants.START_TEST_OUTPUT}\n{printed}\n{constants.END_TEST_OUTPUT}\n")
        log.flush()
        prediction = {"instance_id": name, "model_name_or_path": "agentix", "model_patch": "applied"}
        report: dict[str, Any] = grading.get_eval_report(spec, prediction, log.name, include_tests_status=True)[name]
        resolved = bool(report["resolved"])
        if resolved and exit_code:
            # Where only failures are listed, tests that never started would count as passed.
            resolved = bool(grading.get_logs_eval(spec, log.name)[0])
    return {"resolved": resolved, "test_status": report.get("tests_status", {})}


def _module(name: str) -> Any:
    """A module of `swebench`, which has no types."""
    return importlib.import_module(f"swebench.harness.{name}")


def _specs(instance: Mapping[str, Any]) -> dict[str, Any]:
    repositories: dict[str, dict[str, Any]] = _module("constants").MAP_REPO_VERSION_TO_SPECS
    versions = repositories.get(instance["repo"], {})
    if instance["version"] not in versions:
        raise ValueError(f"SWE-bench has no specification for {instance['repo']} {instance['version']}")
    return versions[instance["version"]]


def _tests(instance: Mapping[str, Any], key: str) -> list[str]:
    value = instance[key]
    return json.loads(value) if isinstance(value, str) else list(value)


def _list(value: str | list[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else value


def _defused(output: str) -> str:
    """The output without the words by which the harness itself tells how an evaluation went."""
    return output.replace(">>>>> ", ">>>>_")


_VERBS: dict[str, Callable[..., dict[str, Any]]] = {"plan": plan, "grade": grade}


# ---- the process that is asked ----


class _Absent(ModuleType):
    """A module of which only the names are needed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def _import_what_is_needed() -> None:
    """Import the part of `swebench` that is asked, past its packages' initialisers, which import all the rest."""
    try:
        for name in ("swebench", "swebench.harness"):
            spec = importlib.util.find_spec(name)
            assert spec is not None
            module = sys.modules[name] = importlib.util.module_from_spec(spec)  # made, but not run
            module.__dict__.setdefault("__path__", spec.submodule_search_locations)
        sys.modules["datasets"] = _Absent("datasets")
        importlib.import_module("swebench.harness.grading")
    except Exception:  # another layout than that of 4.1: then all of it
        for name in [name for name in sys.modules if name.partition(".")[0] in {"swebench", "datasets"}]:
            del sys.modules[name]


def _main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is none
    _import_what_is_needed()
    try:
        value = _VERBS[sys.argv[1]](**json.load(sys.stdin))
    except ValueError as error:
        value = {"error": str(error)}
    json.dump(value, answers)
    answers.close()


if __name__ == "__main__":
    _main()
