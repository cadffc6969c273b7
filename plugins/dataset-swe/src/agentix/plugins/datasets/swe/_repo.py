"""The repository of an instance: bringing it to a commit, applying a patch, putting files back."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agentix.runtime.shared.safepickle import allow_type

from ._commands import Budget, Commands, Done, batches, git

__all__ = ["PrepareEnvResult", "apply_patch", "apply_test_patch", "prepare_env", "reset", "restore"]

PREPARE_SECONDS = 600.0

# Later ones are more lenient. Each is all or nothing here, since the tree is put back between them.
_APPLY = [
    git("apply", "--verbose", "-"),
    git("apply", "--verbose", "--3way", "-"),
    git("apply", "--verbose", "--ignore-whitespace", "-"),
    "patch --batch --forward --no-backup-if-mismatch --fuzz=5 -p1",
]


@dataclass
class PrepareEnvResult:
    """Whether the repository is at the commit asked for, the commit it is at, and what git said."""

    ok: bool
    head: str
    log: str


PrepareEnvResult.__module__ = "agentix.plugins.datasets.swe"
allow_type(PrepareEnvResult)


async def prepare_env(workdir: str = "/testbed", base_commit: str | None = None) -> PrepareEnvResult:
    """Bring the repository at `workdir` to `base_commit`, or to its own HEAD: `git reset --hard`, `git clean -fdx`.

    Changes, untracked and ignored files are lost, so `workdir` must be the top of a work tree. What git refuses is in
    the result and not raised. Takes 600 seconds at most. Raises `ValueError` if `base_commit` begins with a dash.
    """
    commands = Commands(workdir)
    head = await reset(commands, base_commit, Budget(PREPARE_SECONDS))
    return PrepareEnvResult(head is not None, head or "", "".join(commands.transcript))


async def reset(commands: Commands, base_commit: str | None, budget: Budget) -> str | None:
    """Bring the repository to `base_commit`; the commit it is then at, or None."""
    if base_commit is not None and (base_commit.startswith("-") or not base_commit):
        raise ValueError(f"base_commit must name a commit, not {base_commit!r}")
    if not await _is_own_repository(commands, budget):
        return None
    steps = [
        # A git that was killed leaves its lock.
        'rm -f -- "$(git rev-parse --git-path index.lock)"',
        git("reset", "--hard", base_commit or "HEAD"),
        git("clean", "-ffdx"),
    ]
    for step in steps:
        if not (await commands.run(step, budget)).ok:
            return None
    done = await commands.run(git("rev-parse", "--verify", "HEAD"), budget)
    return done.output.strip() if done.ok else None


async def _is_own_repository(commands: Commands, budget: Budget) -> bool:
    """Whether git may work in `workdir`, and on nothing around it."""
    # Repositories of images usually belong to another user than the one who evaluates.
    place = shlex.quote(_real(commands.workdir))
    safe = f"git config --global --get-all safe.directory | grep -qxF -e {place} -e '*'"
    await commands.run(f"{safe} || git config --global --add safe.directory {place}", budget)
    done = await commands.run(git("rev-parse", "--show-toplevel"), budget)
    if done.ok and _real(done.output.rstrip("\n")) != _real(commands.workdir):
        commands.note(f"{commands.workdir} is not the top of a work tree")
        return False
    return done.ok


def _real(path: str) -> str:
    return os.path.realpath(path)


async def apply_patch(commands: Commands, patch: str, budget: Budget) -> Done:
    """Apply an agent's patch by whatever variant takes it whole; how the last one that was tried ended."""
    done = Done(1, "", timed_out=False)
    for text in _variants(patch):
        for command in _APPLY:
            done = await commands.run(command, budget, stdin=text.encode("utf-8", "surrogateescape"))
            if done.ok or done.timed_out:
                return done
            await commands.run(git("reset", "--hard", "--quiet"), budget)
            await commands.run(git("clean", "-ffdxq"), budget)
    return done


def _variants(patch: str) -> list[str]:
    """The patch with its last line ended, and, if lines end as on Windows, also with plain ends."""
    whole = patch if patch.endswith("\n") else patch + "\n"
    return [whole] if "\r\n" not in whole else [whole, whole.replace("\r\n", "\n")]


async def apply_test_patch(commands: Commands, patch: str, budget: Budget) -> Done:
    text = patch if patch.endswith("\n") else patch + "\n"
    return await commands.run(git("apply", "--verbose", "-"), budget, stdin=text.encode("utf-8", "surrogateescape"))


async def restore(
    commands: Commands, base_commit: str, *, modified: Iterable[str], touched: Iterable[str], budget: Budget
) -> Done:
    """Remove the files `touched` and bring those that existed before, `modified`, back as `base_commit` has them."""
    await asyncio.to_thread(_remove, [Path(commands.workdir, name) for name in touched])
    done = Done(0, "", timed_out=False)
    for names in batches(modified):
        done = await commands.run(git("checkout", base_commit, "--", *names), budget)
        if not done.ok:
            break
    return done


def _remove(paths: list[Path]) -> None:
    for path in paths:
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        except OSError:
            pass  # what is in the way is git's to name
