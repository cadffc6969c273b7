"""Scoring a patch, in stages: the repository, the patch, the tests' files and what they need, the tests."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path
from typing import Any

from . import _harness
from ._commands import Budget, Commands, Done
from ._patch import FileChange, changes_of
from ._repo import apply_patch, apply_test_patch, reset, restore

__all__ = ["score"]

TAIL = 8000  # characters

_logger = logging.getLogger("agentix.plugins.datasets.swe")
_NEEDED = ("repo", "version", "base_commit", "test_patch", "FAIL_TO_PASS", "PASS_TO_PASS")


async def score(
    instance: dict[str, Any],
    patch: str,
    workdir: str = "/testbed",
    apply_timeout: float = 120,
    eval_timeout: float = 1800,
) -> dict[str, Any]:
    """Say whether `patch` resolves a SWE-bench `instance`, by its tests, in the repository at `workdir`.

    `instance` is a row of a SWE-bench data set; the lists of tests may be lists or JSON texts. The repository is
    brought to the base commit (see `prepare_env`), the patch applied, whatever it did to the tests' files undone, and
    the test patch applied; then the tests run as SWE-bench's specification for the repository and version says, and
    its grading tells what their output means. Afterwards the tests' files are as in the base commit.

    `apply_timeout` is in seconds, for each of: the reset, all attempts to apply the patch, each change of the tests'
    files. `eval_timeout`, too, bounds installation and tests together.

    The dict returned has `resolved`, `patch_applied`, `timed_out` and `test_status` (SWE-bench's lists of successes and
    failures; empty if the tests were not reached). If not resolved, `failure_stage` is one of `prepare_env`,
    `apply_patch`, `prepare_tests`, `tests`, and `log_tail` the end of what was said until then; in the stage `tests`
    there is the `exit_code` of the test command, too.

    Raises `ValueError` for an instance that lacks a field, or for which SWE-bench has no specification.
    """
    missing = [key for key in _NEEDED if instance.get(key) is None]
    if missing:
        raise ValueError(f"the instance lacks {', '.join(missing)}")
    evaluation = _Evaluation(_plain(instance), patch or "", Commands(workdir), apply_timeout, eval_timeout)
    # It starts a process that is busy with imports for seconds; meanwhile git works.
    plan = asyncio.ensure_future(_harness.ask("plan", instance=evaluation.instance, workdir=workdir))
    try:
        return await evaluation.run(plan)
    finally:
        plan.cancel()
        await asyncio.gather(plan, return_exceptions=True)


def _plain(instance: dict[str, Any]) -> dict[str, Any]:
    """What the harness needs of the instance, in types that JSON has."""
    plain = {key: instance[key] for key in (*_NEEDED, "image_assets") if instance.get(key) is not None}
    for key in ("FAIL_TO_PASS", "PASS_TO_PASS"):
        plain[key] = plain[key] if isinstance(plain[key], str) else [str(name) for name in plain[key]]
    return {"instance_id": str(instance.get("instance_id") or "instance"), **plain}


class _Stopped(Exception):  # noqa: N818
    """The evaluation ends in this stage."""

    def __init__(self, stage: str, done: Done) -> None:
        super().__init__(stage)
        self.stage = stage
        self.done = done


class _Evaluation:
    def __init__(
        self, instance: dict[str, Any], patch: str, commands: Commands, apply_timeout: float, eval_timeout: float
    ) -> None:
        self.instance = instance
        self._base: str = instance["base_commit"]
        self._changes: list[FileChange] = changes_of(instance["test_patch"])
        self._patch = patch
        self._applied = False
        self._commands = commands
        self._apply_timeout = apply_timeout
        self._eval_timeout = eval_timeout

    async def run(self, plan: asyncio.Future[dict[str, Any]]) -> dict[str, Any]:
        try:
            await self._apply()
            steps = await plan
            budget = Budget(self._eval_timeout)
            await self._prepare(steps, budget)
            done = await self._test(steps, budget)
        except _Stopped as stopped:
            return self._unresolved(stopped.stage, stopped.done, self._commands.tail(TAIL), {})
        tail = self._commands.tail(TAIL)
        await self._restore()
        answer = await self._grade(done)
        if answer["resolved"] and not done.timed_out:
            return {"resolved": True, "patch_applied": True, "timed_out": False, "test_status": answer["test_status"]}
        return self._unresolved("tests", done, tail, answer["test_status"])

    def _unresolved(self, stage: str, done: Done, tail: str, test_status: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {
            "resolved": False,
            "patch_applied": self._applied,
            "timed_out": done.timed_out,
            "test_status": test_status,
            "failure_stage": stage,
            "log_tail": tail,
        }
        if stage == "tests":
            result["exit_code"] = done.exit_code
        _logger.info("%s: not resolved, stage %s", self.instance["instance_id"], stage)
        return result

    # ---- stages ----

    async def _apply(self) -> None:
        if not self._patch.strip():
            self._commands.note("the patch is empty")
            raise _Stopped("apply_patch", _FAILED)
        budget = self._apply_budget()
        if await reset(self._commands, self._base, budget) is None:
            raise _Stopped("prepare_env", _FAILED if budget.left else _OUT_OF_TIME)
        done = await apply_patch(self._commands, self._patch, self._apply_budget())
        if not done.ok:
            raise _Stopped("apply_patch", done)
        self._applied = True

    async def _prepare(self, steps: dict[str, Any], budget: Budget) -> None:
        """Install what the tests need, and bring in their files."""
        _logger.info("%s: patch applied; installing", self.instance["instance_id"])
        await self._run_all(steps["settings"] + steps["pre_install"] + steps["install"], steps, budget)
        self._stop_unless(await self._restore())
        await self._run_all(steps["assets"], steps, budget)
        if self._changes:
            test_patch: str = self.instance["test_patch"]
            self._stop_unless(await apply_test_patch(self._commands, test_patch, self._apply_budget()))
        await self._run_all(steps["build"], steps, budget)

    async def _test(self, steps: dict[str, Any], budget: Budget) -> Done:
        _logger.info("%s: testing", self.instance["instance_id"])
        return await self._commands.run_in_testbed("\n".join(steps["test"]), budget, conda=steps["conda"])

    async def _grade(self, done: Done) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="agentix-swe-") as directory:
            file = Path(directory, "output")
            await asyncio.to_thread(file.write_text, done.output, "utf-8", "replace")
            return await _harness.ask("grade", instance=self.instance, output=str(file), exit_code=done.exit_code)

    # ---- parts of stages ----

    def _apply_budget(self) -> Budget:
        return Budget(self._apply_timeout)

    async def _run_all(self, lines: list[str], steps: dict[str, Any], budget: Budget) -> None:
        """Run all of these, whether or not one fails: as in SWE-bench, the tests are the judge of what is missing."""
        for line in lines:
            if not self._commands.keep(line):
                done = await self._commands.run_in_testbed(line, budget, conda=steps["conda"])
                if done.timed_out:
                    raise _Stopped("prepare_tests", done)

    async def _restore(self) -> Done:
        """Bring the files of the test patch to what they are in the base commit."""
        old = [change.old for change in self._changes if change.old is not None]
        new = [change.new for change in self._changes if change.new is not None]
        both = dict.fromkeys(old + new)
        return await restore(
            self._commands, self._base, modified=dict.fromkeys(old), touched=both, budget=self._apply_budget()
        )

    @staticmethod
    def _stop_unless(done: Done) -> None:
        if not done.ok:
            raise _Stopped("prepare_tests", done)


_FAILED = Done(1, "", timed_out=False)
_OUT_OF_TIME = Done(-1, "", timed_out=True)
