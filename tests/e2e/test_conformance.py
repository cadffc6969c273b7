"""The suite for backends, on each of ours."""

from __future__ import annotations

import os
import shutil
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import box_bundle
import engines
import pytest
from agentix.provider.apptainer._conformance import Apptainer
from agentix.provider.docker._conformance import Docker, Podman
from agentix.provider.uv._conformance import Uv

from agentix.testing import conformance


@pytest.fixture(scope="class", autouse=True)
def places() -> Iterator[None]:
    """The backends' directory on the host, this class's own."""
    root = tempfile.mkdtemp(prefix="agx-")  # a short name: the path of a socket must fit
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", root)
        yield
        left = [path.name for path in Path(root, f"agentix-{os.getuid()}").glob("*")]
        assert [name for name in left if not name.startswith("host-")] == []
    shutil.rmtree(root)


class TestUv(conformance.Suite):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls, places: None, worker_python: str) -> Uv:
        return Uv(venv=str(Path(worker_python).parents[1]))


class TestDocker(conformance.Suite):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls, places: None, docker_engine: engines.Engine, bundle: box_bundle.Bundle) -> Docker:
        return Docker(engine=docker_engine.program, image=docker_engine.image("busybox"), bundle=bundle.directory)


class TestPodman(conformance.Suite):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls, places: None, podman_engine: engines.Engine, bundle: box_bundle.Bundle) -> Podman:
        return Podman(engine=podman_engine.program, image=podman_engine.image("busybox"), bundle=bundle.directory)


def seldom(test: types.FunctionType) -> types.FunctionType:
    """A test of its own that is run with the long ones."""
    copy = types.FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__)
    copy.__kwdefaults__, copy.__annotations__, copy.__doc__ = test.__kwdefaults__, test.__annotations__, test.__doc__
    return pytest.mark.long(copy)


# What takes longest of docker's brain is shown with docker.
for name in ("another_process", "killed_from_outside", "a_lease_ends", "a_create_that_is_cancelled"):
    setattr(TestPodman, f"test_{name}", seldom(getattr(conformance.Suite, f"test_{name}")))


APPTAINER = Path(__file__).parents[1] / "support" / "apptainer.py"


class TestApptainer(conformance.Suite):
    """On a stand-in for the program, which runs what it is told to in user namespaces."""

    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls, places: None, bundle: box_bundle.Bundle, tmp_path_factory: Any) -> Iterator[Apptainer]:
        root = tmp_path_factory.mktemp("apptainer")
        (root / "busybox.tar").symlink_to(engines.tree("busybox"))
        settings = {"binary": str(APPTAINER), "cache_dir": str(root / "cache")}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("APPTAINER_TEST_REGISTRY", str(root))
            yield Apptainer(image="busybox", bundle=bundle.directory, **settings)
