"""`agentix.bash.image_env`: what was added for the worker is taken out, what was set aside comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentix import bash


def image_env(extra: dict[str, str] | None = None) -> dict[str, str]:
    return {name: value for name, value in bash.image_env(extra).items() if not name.startswith("PYTEST_")}


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    import os

    for name in list(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch


def test_nothing_recorded_changes_nothing(environ: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environ.setenv("PATH", "/nix/runtime/bin:/bin")
    assert image_env() == {"PATH": "/nix/runtime/bin:/bin", "HOME": str(tmp_path)}


def test_recorded_entries_go_and_no_others(environ: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environ.setenv("PATH", "/venv/bin:/nix/runtime/bin:/usr/bin::/bin")
    environ.setenv("AGENTIX_ADDED_PATH", "/venv/bin:/nix/runtime/bin")
    environ.setenv("LD_LIBRARY_PATH", "/nix/runtime/lib")
    environ.setenv("AGENTIX_ADDED_LD_LIBRARY_PATH", "/nix/runtime/lib")
    environ.setenv("AGENTIX_ADDED_GONE", "/nix/runtime/lib")
    environ.setenv("AGENTIX_WORKER_ID", "12345678")
    assert image_env() == {"PATH": "/usr/bin::/bin", "HOME": str(tmp_path), "AGENTIX_WORKER_ID": "12345678"}


def test_saved_variables_come_back_unless_there_is_a_live_one(environ: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environ.setenv("AGENTIX_SAVED_LD_PRELOAD", "/lib/of-the-image.so")
    environ.setenv("AGENTIX_SAVED_PYTHONPATH", "old")
    environ.setenv("PYTHONPATH", "live")
    expected = {"LD_PRELOAD": "/lib/of-the-image.so", "PYTHONPATH": "live", "HOME": str(tmp_path)}
    assert image_env() == expected
    assert image_env({"LD_PRELOAD": "mine", "NEW": "1"}) == {**expected, "LD_PRELOAD": "mine", "NEW": "1"}


def test_a_bashrc_becomes_bash_env_unless_one_is_set(environ: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / ".bashrc").touch()
    assert "BASH_ENV" not in image_env()
    assert image_env({"HOME": str(other)})["BASH_ENV"] == str(other / ".bashrc")
    assert image_env({"HOME": str(other), "BASH_ENV": "x"})["BASH_ENV"] == "x"
    environ.setenv("BASH_ENV", "inherited")
    assert image_env({"HOME": str(other)})["BASH_ENV"] == "inherited"
