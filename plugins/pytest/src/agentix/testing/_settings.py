"""What can be chosen: by an option of pytest's, else a variable, else the pytest configuration, else a default."""

from __future__ import annotations

import os
from typing import NamedTuple

import pytest


class _Setting(NamedTuple):
    name: str
    variable: str
    default: str | None
    help: str


_SETTINGS = (
    _Setting("backend", "AGENTIX_PROVIDER", None, "the backend of the fixture `sandbox`: docker, podman, uv, ..."),
    _Setting("image", "AGENTIX_IMAGE", "python:3.13-slim", "the image that sandboxes have"),
    _Setting("bundle", "AGENTIX_BUNDLE", None, "a bundle that is there already, instead of building one"),
    _Setting("project", "AGENTIX_PROJECT", None, "the project that the bundle is built from; default: the root"),
    _Setting("scope", "AGENTIX_SCOPE", "function", "how long a sandbox lives: function, class, module or session"),
    _Setting("timeout", "AGENTIX_TEST_TIMEOUT", "300", "seconds that a test which is a coroutine may take"),
)
_BY_NAME = {setting.name: setting for setting in _SETTINGS}


def declare(parser: pytest.Parser) -> None:
    """Add the options and the lines of a configuration file."""
    group = parser.getgroup("agentix", "sandboxes of Agentix")
    for setting in _SETTINGS:
        text = f"{setting.help} (also: ${setting.variable}, or agentix_{setting.name} in the configuration)"
        group.addoption(f"--agentix-{setting.name}", dest=f"agentix_{setting.name}", metavar="X", help=text)
        parser.addini(f"agentix_{setting.name}", setting.help, default=None)


def get(config: pytest.Config, name: str) -> str | None:
    """Return what was chosen, or None."""
    setting = _BY_NAME[name]
    chosen = (
        config.getoption(f"agentix_{name}", None)
        or os.environ.get(setting.variable)
        or config.getini(f"agentix_{name}")
        or setting.default
    )
    return str(chosen) if chosen else None


def backend(config: pytest.Config) -> str:
    """Return the chosen backend's name; a usage error says how to choose one."""
    from agentix import providers

    name = get(config, "backend")
    if name is None:
        there = ", ".join(providers().all()) or "none: install agentix-provider-docker or another one"
        raise pytest.UsageError(
            "no backend is chosen: give --agentix-backend NAME, set AGENTIX_PROVIDER, or write `agentix_backend = "
            f"NAME` into the pytest configuration; installed are: {there}"
        )
    return name
