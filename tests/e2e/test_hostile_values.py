"""Values that would be options, mounts or other requests, said to the backends that are no container engine's."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agentix.provider.apptainer import ApptainerProviderConfig
from agentix.provider.cape import CapeProviderConfig
from agentix.provider.daytona import DaytonaProviderConfig
from agentix.provider.e2b import E2BProviderConfig

from agentix import SandboxConfig, SandboxProvider

NOBODY = "http://127.0.0.1:1"
KEY = "k" * 40


class Site:
    """Where a program is that only writes down that it was started; services cannot be reached at all."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.program = root / "program"
        self.program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{root}/said\nexit 1\n')
        self.program.chmod(0o755)
        self.bundle = self.make_bundle("bundle")

    def make_bundle(self, name: str) -> str:
        bootstrap = self.root / name / "nix" / "runtime" / "bootstrap.sh"
        bootstrap.parent.mkdir(parents=True)
        bootstrap.touch()
        return str(self.root / name)

    def said(self) -> str:
        path = self.root / "said"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    root = tempfile.mkdtemp(prefix="agx-")
    for name, value in {"XDG_RUNTIME_DIR": root, "E2B_API_URL": NOBODY, "CAPE_TOKEN": KEY}.items():
        monkeypatch.setenv(name, value)
    yield Site(tmp_path)
    left = [path.name for path in Path(root).glob("agentix-*/*") if not path.name.startswith("host-")]
    shutil.rmtree(root)
    assert left == []


def apptainer(site: Site, **settings: Any) -> SandboxProvider:
    settings = {"binary": str(site.program), "cache_dir": str(site.root / "cache"), **settings}
    return ApptainerProviderConfig(**settings).to_provider()


def cape(site: Site, **settings: Any) -> SandboxProvider:
    settings = {"binary": str(site.program), "controller_url": NOBODY, "pool": "p", "user": "me", **settings}
    return CapeProviderConfig(**settings).to_provider()


def daytona(site: Site, **settings: Any) -> SandboxProvider:
    return DaytonaProviderConfig(**{"api_key": KEY, "api_url": NOBODY, **settings}).to_provider()


def e2b(site: Site, **settings: Any) -> SandboxProvider:
    return E2BProviderConfig(**{"api_key": KEY, "template_id": "base", **settings}).to_provider()


BACKENDS = [apptainer, cape, daytona, e2b]
Maker = Callable[..., SandboxProvider]


def refused(site: Site, made: SandboxProvider, field: str, value: Any) -> None:
    """Neither a configuration nor one that was changed later is taken, and nobody is told of it."""
    settings: dict[str, Any] = {"image": "alpine", "bundle": site.bundle}
    with pytest.raises(ValueError, match=r"SandboxConfig\.|env"):
        SandboxConfig(**{**settings, field: value})
    config = SandboxConfig(**settings)
    setattr(config, field, value)
    with pytest.raises(ValueError, match=r"SandboxConfig\.|env"):
        asyncio.run(asyncio.wait_for(made.create(config), 60))


@pytest.mark.parametrize("make", BACKENDS, ids=lambda make: make.__name__)
def test_configurations(site: Site, make: Maker) -> None:
    made = make(site)
    for image in ("--privileged", "-v=/:/host", "--env-file=/etc/hostname", " alpine", "", "a b", "a\nb", "a\0b"):
        refused(site, made, "image", image)
    refused(site, made, "platform", "linux/amd64 --privileged")
    for bundle in ("-x", "", "a\nb", " a"):
        refused(site, made, "bundle", bundle)
    for env in ({"": "1"}, {"A B": "1"}, {"A=B": "1"}, {"A\nB": "1"}, {"-A": "1"}, {"A": "x\0y"}):
        refused(site, made, "env", env)
    assert site.said() == ""


@pytest.mark.parametrize("make", BACKENDS, ids=lambda make: make.__name__)
def test_ids(site: Site, make: Maker) -> None:
    made = make(site)

    async def main() -> None:
        for name in ("--all", "-f", "a b", "", "../x", "a/b", "a\nb", "a?b=c", "x" * 129):
            for verb in (made.get, made.delete):
                with pytest.raises(ValueError, match="sandbox id"):
                    await verb(name)  # pyright: ignore[reportArgumentType]

    asyncio.run(asyncio.wait_for(main(), 60))
    assert site.said() == ""


@pytest.mark.parametrize("make", [apptainer, cape], ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", ["a:b", "a,b"])
def test_bundles_that_would_be_other_mounts(site: Site, make: Maker, name: str) -> None:
    image = site.root / "image.sif"
    image.touch()
    config = SandboxConfig(image=str(image), bundle=site.make_bundle(name))
    with pytest.raises(ValueError, match="bundle"):
        asyncio.run(asyncio.wait_for(make(site).create(config), 60))
    assert site.said() == ""


def test_settings(site: Site) -> None:
    for binary in ("apptainer --debug", "-x", "", "a\nb"):
        with pytest.raises(ValueError, match="binary"):
            apptainer(site, binary=binary)
    for setting, values in {
        "controller_url": ("-x", "http://x --insecure"),
        "pool": ("--all", "a b"),
        "user": ("-u",),
        "runtime_adapter": ("--x",),
        "isolation_policy": ("",),
        "workspace_root": ("relative", "-x"),
        "url_template": ("file://{host}", "http://nobody"),
        "extra_binds": (("-v",), ("no mount",)),
        "meta_root": ("relative",),
        "token_env": ("A=B", ""),
        "runtime_port_base": (0, 65536),
    }.items():
        for value in values:
            with pytest.raises(ValueError, match=setting):
                cape(site, **{setting: value})
    with pytest.raises(ValueError, match="template_id"):
        e2b(site, template_id="--x")
    with pytest.raises(ValueError, match="target"):
        daytona(site, target="a b")
    for make in (daytona, e2b):
        with pytest.raises(ValueError, match="api_key") as caught:
            make(site, api_key=f"{KEY}\r\nX-Other: 1")
        assert KEY not in str(caught.value)
    assert site.said() == ""


def test_nothing_listens_where_services_should(site: Site) -> None:
    """So that what was refused above would have been seen: these fail, and in time."""

    async def main() -> None:
        for make in (daytona, e2b):
            with pytest.raises(RuntimeError, match="looking for sandbox"):
                await make(site).get("abc")  # pyright: ignore[reportArgumentType]

    asyncio.run(asyncio.wait_for(main(), 60))
    assert os.listdir(site.root) != []
