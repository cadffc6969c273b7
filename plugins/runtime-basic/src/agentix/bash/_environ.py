"""The environment that an image's own programs expect: what was added for the worker is taken out again."""

from __future__ import annotations

import os

_ADDED = "AGENTIX_ADDED_"
_SAVED = "AGENTIX_SAVED_"


def image_env(extra: dict[str, str] | None = None) -> dict[str, str]:
    """Return the environment of the image, as it was before the runtime prepared it for the worker.

    Entries that were put in front of search paths are removed, variables that were set aside are restored, and the
    variables that keep track of both are gone. If there is a `.bashrc` in HOME, it becomes `BASH_ENV`, unless that is
    set; `extra` wins over everything. Call it in the sandbox: `bash.run(command, env=bash.image_env())`.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith((_ADDED, _SAVED))}
    for name, value in os.environ.items():
        if name.startswith(_ADDED):
            _remove(env, name.removeprefix(_ADDED), value.split(":"))
    for name, value in os.environ.items():
        if name.startswith(_SAVED):
            env.setdefault(name.removeprefix(_SAVED), value)
    env.update(extra or {})
    home = env.get("HOME", "")
    if "BASH_ENV" not in env and home and os.path.isfile(bashrc := os.path.join(home, ".bashrc")):
        env["BASH_ENV"] = bashrc
    return env


def _remove(env: dict[str, str], name: str, added: list[str]) -> None:
    if name not in env:
        return
    kept = [entry for entry in env[name].split(":") if entry not in added]
    if any(kept):
        env[name] = ":".join(kept)
    else:
        del env[name]
