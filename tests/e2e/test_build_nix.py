"""`agentix build` with a default.nix: local derivations, which need no channel, built by the machine's Nix."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bundletools import AGENTIX, agentix, build, environment, project, run_alone, unpack

OFFLINE = ("--nix-arg=--option", "--nix-arg=substitute", "--nix-arg=false")


def derivation(script: str, name: str = "tool") -> str:
    """A derivation that runs a shell script; busybox-like programs come from the machine."""
    return (
        f'derivation {{ name = "{name}"; system = builtins.currentSystem; builder = "/bin/sh"; '
        f"args = [ \"-c\" ''export PATH=/usr/bin:/bin; {script}'' ]; }}\n"
    )


def tool(text: str) -> str:
    """A derivation's script that makes bin/agx-tool."""
    return (
        "mkdir -p $out/bin $out/lib $out/nix-support; echo x > $out/lib/thing; echo x > $out/nix-support/x; "
        f"printf '#!/nix/closure/bin/sh\\necho {text}\\n' > $out/bin/agx-tool; chmod +x $out/bin/agx-tool"
    )


@pytest.fixture
def env(build_cache: Path) -> dict[str, str]:
    """A build's environment."""
    return environment(build_cache)


def test_what_a_default_nix_provides_is_linked_into_the_runtime(tmp_path: Path, env: dict[str, str]) -> None:
    had_store = Path("/nix").exists()
    where = project(tmp_path / "p")
    (where / "default.nix").write_text(derivation(tool("one")))
    said = build(*OFFLINE, cwd=where, env=env)
    tree = unpack(where / said["bundle"], tmp_path / "tree")
    link = tree / "nix/runtime/bin/agx-tool"
    assert str(link.readlink()).startswith("/nix/store/")
    assert (tree / "nix/runtime/lib/thing").is_symlink()
    assert not (tree / "nix/runtime/nix-support").exists()
    assert run_alone(tree, tmp_path, "/nix/runtime/bin/agx-tool").stdout == "one\n"
    assert Path("/nix").exists() == had_store
    assert build(*OFFLINE, cwd=where, env=env)["reused"] is True


def test_another_path_and_a_plugin_closure_collide(tmp_path: Path, env: dict[str, str]) -> None:
    where = project(
        tmp_path / "p",
        more='[project.entry-points."agentix.nix"]\nthing = "proj"\n[tool.agentix]\nnix = "nix/tools.nix"\n',
    )
    (where / "nix").mkdir()
    (where / "nix" / "tools.nix").write_text(derivation(tool("one")))
    (where / "src/proj/default.nix").write_text(derivation(tool("two")))
    done = agentix("build", *OFFLINE, cwd=where, env=env)
    assert done.returncode == 1
    assert "collision: thing gives bin/agx-tool" in done.stderr
    assert not (where / "dist").exists()


@pytest.mark.parametrize(("target", "complaint"), [("/etc/passwd", "outside of /nix"), ("nowhere", "dangling")])
def test_links_that_lead_out_or_nowhere_fail_by_name(
    tmp_path: Path, env: dict[str, str], target: str, complaint: str
) -> None:
    where = project(tmp_path / "p")
    (where / "default.nix").write_text(derivation(f"mkdir -p $out/share; ln -s {target} $out/share/agx-link"))
    done = agentix("build", *OFFLINE, cwd=where, env=env)
    assert done.returncode == 1
    assert "agx-link" in done.stderr
    assert complaint in done.stderr
    assert not (where / "dist").exists()


def test_without_nix_the_error_says_what_to_install(tmp_path: Path, env: dict[str, str]) -> None:
    where = project(tmp_path / "p")
    (where / "default.nix").write_text("{}")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("busybox", "bash", "git", "sh"):
        (programs / name).symlink_to(shutil.which(name) or name)
    done = agentix("build", cwd=where, env={**env, "PATH": f"{AGENTIX.parent}:{programs}"})
    assert done.returncode == 1
    assert "nix-build was not found" in done.stderr
    assert "nix-bin" in done.stderr
