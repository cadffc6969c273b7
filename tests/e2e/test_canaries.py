"""The host's home and environment stay outside: modules planted there are live, and no sandbox finds them.

Each canary is first shown to sing: by the way through which it could get into a sandbox, an interpreter does import it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import box_bundle
import engines
import pytest
from agentix.provider.uv import UvProvider, UvProviderConfig
from containers import provider_of

sys.path.insert(0, str(box_bundle.BOX / "src"))

import box_targets as boxed
import uv_targets as bare

import agentix
from agentix import SandboxConfig

BASE = str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
MODULES = ("agx_canary_user", "agx_canary_path", "agx_canary_cwd")
PRELOADED = """
#include <stdlib.h>
#include <fcntl.h>
__attribute__((constructor)) static void sing(void)
{
        const char *path = getenv("AGX_CANARY");
        if (path)
                open(path, O_CREAT, 0600);
}
"""


@dataclass
class Canaries:
    home: Path  # with a user's site-packages
    path: Path  # on PYTHONPATH
    cwd: Path
    startup: Path
    library: Path  # in LD_PRELOAD

    def variables(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PYTHONPATH": str(self.path),
            "PYTHONSTARTUP": str(self.startup),
            "PYTHONUSERBASE": str(self.home / ".local"),
            "LD_PRELOAD": str(self.library),
        }


@pytest.fixture
def canaries(tmp_path: Path) -> Canaries:
    version = f"python3.{sys.version_info.minor}"
    user = tmp_path / "home" / ".local" / "lib" / version / "site-packages"
    found = Canaries(
        tmp_path / "home", tmp_path / "path", tmp_path / "cwd", tmp_path / "startup.py", tmp_path / "agx_canary.so"
    )
    for directory, name in zip((user, found.path, found.cwd), MODULES, strict=True):
        directory.mkdir(parents=True)
        (directory / f"{name}.py").write_text("")
        (directory / "numpy.py").write_text("__version__ = 'canary'")
        for custom in ("usercustomize", "sitecustomize"):
            (directory / f"{custom}.py").write_text("import builtins\nbuiltins.agx_canary = True")
    found.startup.write_text("raise SystemExit('the startup file was run')")
    source = tmp_path / "l.c"
    source.write_text(PRELOADED)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", found.library, source], check=True, timeout=60)
    return found


def sings(python: str, module: str, cwd: Path, env: dict[str, str], *flags: str) -> bool:
    """Whether an interpreter with that environment imports the module; asked in no site of ours."""
    done = subprocess.run([python, *flags, "-c", f"import {module}"], cwd=cwd, env=env, check=False, timeout=60)
    return done.returncode == 0


def system_venv(where: Path) -> Path:
    """An environment that sees its interpreter's packages, and so, unless told not to, the user's."""
    command = [BASE, "-m", "venv", "--without-pip", "--system-site-packages", str(where)]
    subprocess.run(command, check=True, timeout=60, env={"PATH": os.environ["PATH"]})
    site = next(where.glob("lib/python*/site-packages"))
    paths = [Path(__file__).parent / "targets", Path(agentix.__file__).parents[1], sysconfig.get_path("purelib")]
    (site / "tests.pth").write_text("".join(f"{path}\n" for path in paths))
    return where


def test_of_the_uv_backend(
    run: Any, canaries: Canaries, places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv, sung = system_venv(tmp_path / "venv"), tmp_path / "sung"
    env = {"PATH": os.environ["PATH"], **canaries.variables(), "AGX_CANARY": str(sung)}
    for module in MODULES:
        assert sings(str(venv / "bin/python"), module, canaries.cwd, env), module
    assert sung.exists()
    sung.unlink()
    for name, value in {**canaries.variables(), "PYTHONHOME": "/canary", "AGX_CANARY": str(sung)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(canaries.cwd)

    async def main() -> None:
        config = SandboxConfig(image="unused", bundle="unused")
        provider = UvProvider(UvProviderConfig(reuse_venv=str(venv), lease=300))
        async with provider, provider.session(config) as sandbox:
            environ = await sandbox.remote(bare.environ)
            paths = await sandbox.remote(bare.import_path)
            origins = [await sandbox.remote(bare.origin, module) for module in MODULES]
            numpy = await sandbox.remote(bare.origin, "numpy")
            maps = await sandbox.remote(bare.own_maps)
            custom = await sandbox.remote(bare.origin, "usercustomize")
        assert origins == [None] * 3
        assert custom is None
        assert numpy is not None
        assert numpy.startswith(sysconfig.get_path("purelib"))
        assert [path for path in paths if path.startswith((str(canaries.home), str(canaries.path)))] == []
        assert str(canaries.cwd) not in paths
        assert canaries.library.name not in maps
        assert environ.keys().isdisjoint({"PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONUSERBASE", "AGX_CANARY"})
        assert str(canaries.library) not in environ.get("LD_PRELOAD", "")

    run(main())
    assert not sung.exists()


@pytest.mark.usefixtures("places", "nothing_left")
def test_of_containers(
    run: Any, engine: engines.Engine, bundle: box_bundle.Bundle, canaries: Canaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host's home is the container's too, its directory the working one, and the image's variables lead there."""
    root, there = canaries.home.parent, "/canaries"
    minor = next(Path(bundle.directory).glob("nix/runtime/venv/lib/python3.*")).name
    ours = root / "home" / ".local" / "lib" / f"python3.{sys.version_info.minor}"
    if ours.name != minor:
        ours.rename(ours.parent / minor)
    inside = {
        "HOME": f"{there}/home",
        "PYTHONPATH": f"{there}/path",
        "PYTHONSTARTUP": f"{there}/startup.py",
        "PYTHONUSERBASE": f"{there}/home/.local",
    }
    arguments = ["--mount", f"type=bind,source={root},destination={there},readonly", "--workdir", f"{there}/cwd"]
    for name, value in {**inside, "LD_PRELOAD": f"{there}/agx_canary.so", "PYTHONHOME": "/canary"}.items():
        arguments += ["--env", f"{name}={value}"]
    config = SandboxConfig(image=engine.image("busybox"), bundle=bundle.directory, env={"HOME": f"{there}/home"})
    for name, value in canaries.variables().items():
        if name not in {"HOME", "LD_PRELOAD"}:  # which the engine's own client goes by
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(canaries.cwd)

    async def main() -> None:
        async with provider_of(engine, run_args=arguments).session(config) as sandbox:
            python = "/nix/closure/python/bin/python3"
            for module in MODULES:
                code, _, err = await sandbox.remote(
                    boxed.command,
                    ["/bin/busybox", "sh", "-c", f"cd {there}/cwd && {python} -c 'import {module}'"],
                    inside,
                )
                assert code == 0, (module, err)
            assert [await sandbox.remote(boxed.origin, module) for module in MODULES] == [None] * 3
            assert await sandbox.remote(boxed.origin, "usercustomize") is None
            assert str(await sandbox.remote(boxed.origin, "numpy")).startswith("/nix/")
            assert [path for path in await sandbox.remote(boxed.paths) if not path.startswith("/nix/")] == []
            environ = await sandbox.remote(boxed.environ)
            assert environ["HOME"] == f"{there}/home"
            assert environ.keys().isdisjoint({"PYTHONPATH", "PYTHONHOME", "LD_PRELOAD"})  # the image's other ones stay
            assert [name for name, value in environ.items() if str(root) in value] == []
            assert not [path for path in await sandbox.remote(boxed.own_maps) if "agx_canary" in path]

    run(main())
