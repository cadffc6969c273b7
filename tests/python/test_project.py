"""What `agentix build` is told of a project: its lock, and the copy of pyproject.toml that keeps ours from an index."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from agentix import _project


def answers(verb: object, *paths: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in verb(*paths):  # type: ignore[operator]
        found.setdefault(key, []).append(value)
    return found


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


PROJECT = '[project]\nname = "p"\n'


def test_a_project_alone(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", PROJECT + 'version = "1"\nrequires-python = ">=3.11"\n')
    said = answers(_project.describe, tmp_path, tmp_path)
    assert (said["name"], said["version"], said["requires-python"]) == (["p"], ["1"], [">=3.11"])
    assert "lock" not in said
    assert "agentix" in said["own"]
    write(tmp_path / "uv.lock", "")
    assert answers(_project.describe, tmp_path, tmp_path)["lock"] == ["."]


def test_the_lock_of_a_workspace(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", '[tool.uv.workspace]\nmembers = ["libs/*"]\nexclude = ["libs/no"]\n')
    write(tmp_path / "uv.lock", "")
    write(tmp_path / "libs/a/pyproject.toml", PROJECT)
    write(tmp_path / "libs/no/pyproject.toml", PROJECT)
    write(tmp_path / "libs/no/uv.lock", "")
    write(tmp_path / "other/pyproject.toml", PROJECT)
    assert answers(_project.describe, tmp_path / "libs/a", tmp_path)["lock"] == ["."]
    assert answers(_project.describe, tmp_path / "libs/no", tmp_path)["lock"] == ["libs/no"]
    assert "lock" not in answers(_project.describe, tmp_path / "other", tmp_path)
    assert "lock" not in answers(
        _project.describe, tmp_path / "libs/a", tmp_path / "libs/a"
    )  # the root is not in reach


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("[project", "not valid TOML"), ("[tool]", "name"), ("[project]\nname = 3", "must be a string")],
)
def test_what_is_no_project(tmp_path: Path, text: str, complaint: str) -> None:
    write(tmp_path / "pyproject.toml", text)
    with pytest.raises(_project.ProjectError, match=complaint):
        answers(_project.describe, tmp_path, tmp_path)


def test_a_copy_that_asks_no_index_for_ours(tmp_path: Path) -> None:
    text = """
[project]
name = "p"
version = "1"
dependencies = ["Agentix_Provider.uv>=0", "agentix", "idna>=3"]
[project.optional-dependencies]
"a b" = ["x; python_version < '4'"]
[[tool.uv.index]]
url = "https://example.com/simple"
default = true
[tool.uv]
override-dependencies = ["kept"]
[tool.uv.sources]
agentix = { path = "../agentix" }
idna = [{ git = "https://example.com/idna", marker = "sys_platform == 'linux'" }]
[tool.other]
when = 2020-01-02T03:04:05Z
number = 1.5
text = "quote \\" tab \\t é \\u007f"
empty = {}
nested = [[1, 2], [{ a = true }]]
"""
    path = write(tmp_path / "pyproject.toml", text)
    before = tomllib.loads(text)
    answers(_project.keep_from_index, path)
    after = tomllib.loads(path.read_text())
    assert after["project"]["dependencies"][0] == "idna>=3"
    assert any(item.startswith("uv>=") for item in after["project"]["dependencies"])  # what our plugin needs itself
    overrides = after["tool"]["uv"]["override-dependencies"]
    assert overrides[0] == "kept"
    assert "agentix ; sys_platform == 'never'" in overrides
    assert after["tool"]["uv"]["sources"] == {"idna": before["tool"]["uv"]["sources"]["idna"]}
    assert after["tool"]["uv"]["index"] == before["tool"]["uv"]["index"]
    assert after["tool"]["other"] == before["tool"]["other"]
    assert after["project"]["optional-dependencies"] == before["project"]["optional-dependencies"]


ABSENT = "agentix-provider-absent"


@pytest.fixture
def one_more_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of ours that is not installed here, as all others are."""
    monkeypatch.setattr(_project, "_OURS", _project._OURS | {ABSENT})


@pytest.mark.usefixtures("one_more_of_ours")
@pytest.mark.parametrize("spelt", [ABSENT, "Agentix_Provider.Absent>=1"])
def test_ours_that_is_not_installed_is_not_looked_for(tmp_path: Path, spelt: str) -> None:
    write(tmp_path / "pyproject.toml", PROJECT + f"dependencies = ['{spelt}']\n")
    with pytest.raises(_project.ProjectError, match=f"{ABSENT}, which is one of agentix's own .* not installed"):
        answers(_project.describe, tmp_path, tmp_path)
    write(
        tmp_path / "pyproject.toml",
        PROJECT + f"dependencies = ['{spelt}']\n[tool.uv.sources]\n{ABSENT} = {{path='x'}}\n",
    )
    answers(_project.describe, tmp_path, tmp_path)


@pytest.mark.usefixtures("one_more_of_ours")
def test_ours_that_is_not_installed_is_not_taken_from_a_lock(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", PROJECT)
    package = f"[[package]]\nname = '{ABSENT}'\nversion = '1'\nsource = {{ %s }}\n"
    write(tmp_path / "uv.lock", package % "registry = 'https://example.org/simple'")
    with pytest.raises(_project.ProjectError, match="not installed beside agentix"):
        answers(_project.describe, tmp_path, tmp_path)
    write(tmp_path / "uv.lock", package % "directory = '../cape'")
    answers(_project.describe, tmp_path, tmp_path)


@pytest.mark.usefixtures("one_more_of_ours")
def test_no_name_of_ours_is_ever_resolved(tmp_path: Path) -> None:
    path = write(tmp_path / "pyproject.toml", PROJECT + "version = '1'\n")
    answers(_project.keep_from_index, path)
    overrides = tomllib.loads(path.read_text())["tool"]["uv"]["override-dependencies"]
    assert f"{ABSENT} ; sys_platform == 'never'" in overrides
    assert "agentix ; sys_platform == 'never'" in overrides
