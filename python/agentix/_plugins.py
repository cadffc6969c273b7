"""What the command `agentix` has Python do: import one plugin, and say on descriptor 3 how that went.

    python -P -m agentix._plugins probe GROUP NAME VALUE
    python -P -m agentix._plugins deploy GROUP NAME VALUE BUNDLE NAME PLATFORM

The answer is one JSON object. Whatever a plugin prints or raises, even SystemExit, does not disturb it.
"""

import functools
import importlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

_ANSWER_FD = 3
_NIX = "agentix.nix"


_VALUE = re.compile(r"(?P<module>[\w.]+)\s*(:\s*(?P<attribute>[\w.]+))?\s*(\[.*\])?$")


def _load(value: str) -> Any:
    """Import what an entry point names. importlib.metadata, which would do the same, is slower to import than most."""
    match = _VALUE.match(value)
    if match is None:
        raise ImportError(f"not of the form module:attribute: {value!r}")
    attributes = filter(None, (match["attribute"] or "").split("."))
    return functools.reduce(getattr, attributes, importlib.import_module(match["module"]))


def _probe(group: str, _name: str, value: str) -> dict[str, Any]:
    loaded = _load(value)
    if group == _NIX:
        _check_nix(loaded)
        return {"ok": True, "deploys": False, "summary": _summary(loaded)}
    if not isinstance(loaded, type):
        raise TypeError(f"{value} is not a provider class but of type {type(loaded).__name__}")
    return {"ok": True, "deploys": callable(getattr(loaded, "deploy_bundle", None)), "summary": _summary(loaded)}


def _check_nix(module: Any) -> None:
    from importlib.resources import files

    if not files(module).joinpath("default.nix").is_file():
        raise FileNotFoundError(f"{module.__name__} has no default.nix beside it")


def _summary(thing: Any) -> str:
    lines = (getattr(thing, "__doc__", None) or "").strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else ""


def _deploy(_group: str, _name: str, value: str, bundle: str, label: str, platform: str) -> dict[str, Any]:
    import asyncio

    provider = _load(value)()
    deployed = asyncio.run(provider.deploy_bundle(Path(bundle), name=label or None, platform=platform or None))
    return {
        "bundle": str(deployed.bundle),
        "platform": deployed.platform,
        "metadata": {str(key): str(text) for key, text in deployed.metadata.items()},
        "hints": {str(key): str(text) for key, text in deployed.hints.items()},
    }


def _error(exc: BaseException) -> str:
    if isinstance(exc, SystemExit):
        return f"SystemExit: the plugin tried to exit the process (code {exc.code})"
    # The text of a KeyError is the repr of what was looked up; what it was called with reads better.
    text = str(exc.args[0]) if isinstance(exc, KeyError) and exc.args else str(exc)
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def main(argv: list[str]) -> int:
    """Do what the command line says; the exit code is 0 whenever there is an answer."""
    verb, *arguments = argv
    try:
        os.set_inheritable(_ANSWER_FD, False)  # noqa: FBT003
        answer = _probe(*arguments) if verb == "probe" else _deploy(*arguments)
    except BaseException as exc:
        answer = {"ok": False, "error": _error(exc)}
    with open(_ANSWER_FD, "w", encoding="utf-8") as stream:
        json.dump(answer, stream)
    sys.stdout.flush()
    # A plugin's threads and exit handlers have nothing to say any more.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
