"""The public names, pinned: adding or removing one is a decision, not an accident."""

import tomllib
from pathlib import Path

import pytest
from fresh import python

import agentix
import agentix.provider
import agentix.provider.base
import agentix.runtime.shared
import agentix.utils
import agentix.utils.trace

NAMES = {
    "AsyncClientNamespace",
    "BundleDeployer",
    "CallCancelled",
    "CallTimeout",
    "DeployedBundle",
    "Failed",
    "Namespace",
    "Ok",
    "RemoteCallError",
    "RemoteCallable",
    "RemoteSioError",
    "RestrictedUnpickleError",
    "Result",
    "RuntimeClient",
    "RuntimeUnreachable",
    "Sandbox",
    "SandboxConfig",
    "SandboxId",
    "SandboxInfo",
    "SandboxProvider",
    "SandboxResource",
    "WorkerExited",
    "__version__",
    "context",
    "configure_logging",
    "log",
    "providers",
    "register_namespace",
    "register_provider",
    "trace",
    "request_handler",
}

PACKAGES = [
    agentix,
    agentix.provider,
    agentix.provider.base,
    agentix.runtime.shared,
    agentix.utils,
    agentix.utils.trace,
]


def test_agentix() -> None:
    assert set(agentix.__all__) == NAMES
    assert len(agentix.__all__) == len(NAMES)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_name_is_there(package: object) -> None:
    for name in package.__all__:  # type: ignore[attr-defined]
        assert getattr(package, name) is getattr(package, name)
        assert name in dir(package)


def test_no_other_name() -> None:
    with pytest.raises(AttributeError, match="module 'agentix' has no attribute 'Sandbx'"):
        _ = agentix.Sandbx  # type: ignore[attr-defined]
    with pytest.raises(ImportError):
        from agentix import Sandbx  # type: ignore[attr-defined]  # noqa: F401


def test_one_object_under_all_its_names() -> None:
    assert agentix.SandboxConfig is agentix.provider.SandboxConfig is agentix.provider.base.SandboxConfig
    assert agentix.RemoteCallable is agentix.runtime.shared.RemoteCallable
    assert agentix.runtime.shared.CallId("x") == "x"
    assert agentix.runtime.shared.MAX_MESSAGE_BYTES == 256 * 1024 * 1024
    assert issubclass(agentix.runtime.shared.FrameTooLarge, ValueError)


def test_the_client_has_its_own_module() -> None:
    from agentix.runtime.client import RuntimeClient

    assert RuntimeClient is agentix.RuntimeClient


def test_star_import() -> None:
    namespace: dict[str, object] = {}
    exec("from agentix import *", namespace)
    assert set(namespace) >= NAMES


def test_version_is_that_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert agentix.__version__ == project["project"]["version"]


def test_typed() -> None:
    assert (Path(agentix.__path__[0]) / "py.typed").exists()


@pytest.mark.parametrize("name", ["agents", "plugins"])
def test_namespace_packages_have_no_init(name: str) -> None:
    assert not (Path(agentix.__path__[0]) / name / "__init__.py").exists()


def test_other_distributions_add_siblings(tmp_path: Path) -> None:
    """Two directories and a zip file each hold a part of `agentix`, as separately installed wheels do."""
    import zipfile

    one, two, archive = tmp_path / "one", tmp_path / "two", tmp_path / "three.zip"
    (one / "agentix" / "provider" / "fly").mkdir(parents=True)
    (one / "agentix" / "provider" / "fly" / "__init__.py").write_text("WHERE = 'fly'\n")
    (one / "agentix" / "sibling.py").write_text("WHERE = 'sibling'\n")
    (two / "agentix" / "agents").mkdir(parents=True)
    (two / "agentix" / "agents" / "coder.py").write_text("WHERE = 'coder'\n")
    with zipfile.ZipFile(archive, "w") as file:
        file.mkdir("agentix")
        file.writestr("agentix/zipped.py", "WHERE = 'zipped'\n")
    code = (
        f"import sys; sys.path[:0] = [{str(one)!r}]; sys.path += [{str(two)!r}, {str(archive)!r}, 'gone']\n"
        "from agentix import sibling, zipped, SandboxConfig\n"
        "from agentix.provider import fly, base\n"
        "from agentix.agents import coder\n"
        "print(sibling.WHERE, zipped.WHERE, fly.WHERE, coder.WHERE, SandboxConfig is base.SandboxConfig)\n"
    )
    assert python("-c", code) == "sibling zipped fly coder True"
