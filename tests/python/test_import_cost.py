"""What an import brings with it: a worker pays for it before its first call, a command line before its first word."""

import pytest
from fresh import python

HEAVY = {"asyncio", "inspect", "dataclasses", "typing", "importlib.metadata", "pickle", "re", "logging", "pkgutil"}


def modules_after(code: str) -> set[str]:
    # -S: what the .pth files of this environment import is not ours.
    script = f"import sys; before = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    return set(python("-S", "-c", script).split())


def test_the_package_alone() -> None:
    loaded = modules_after("import agentix")
    assert {name for name in loaded if name.startswith("agentix")} == {"agentix", "agentix._lazy"}
    assert not loaded & HEAVY


def test_what_a_worker_uses() -> None:
    loaded = modules_after("from agentix._callable import RemoteCallable\nRemoteCallable('math::sqrt').resolve()")
    assert not loaded & (HEAVY | {"types", "functools"})


def test_packages_of_the_call_path() -> None:
    loaded = modules_after("import agentix.runtime.shared, agentix.provider, agentix.runtime.shared.framing")
    assert not loaded & HEAVY


@pytest.mark.parametrize("name", ["SandboxConfig", "SandboxProvider", "RemoteCallError", "Ok", "RemoteCallable"])
def test_a_name_that_target_modules_use_does_not_bring_asyncio(name: str) -> None:
    assert "asyncio" not in modules_after(f"from agentix import {name}")


@pytest.mark.parametrize(
    "module",
    ["agentix", "agentix.provider", "agentix.provider.base", "agentix.provider._registry", "agentix.runtime.shared"],
)
def test_each_module_first(module: str) -> None:
    assert module in modules_after(f"import {module}")
