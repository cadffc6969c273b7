"""`agentix build --dry-run` and what is refused before anything is built: names, platforms, Pythons, files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bundletools import agentix, build, environment, git, project


@pytest.fixture
def env(build_cache: Path) -> dict[str, str]:
    """A build's environment."""
    return environment(build_cache)


def staged(cwd: Path, name: str) -> list[str]:
    """Files and directories below build/<name>/repo."""
    repo = cwd / "build" / name / "repo"
    return sorted(str(path.relative_to(repo)) for path in repo.rglob("*") if not path.is_dir() or path.is_symlink())


def dry(cwd: Path, env: dict[str, str], *arguments: str | Path) -> dict[str, object]:
    return build("--dry-run", *arguments, cwd=cwd, env=env)


def test_says_what_would_be_built(tmp_path: Path, env: dict[str, str]) -> None:
    where = project(tmp_path / "p", name="agentix-my-tasks")
    done = agentix("build", "p", "--dry-run", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "bundle -> my-tasks:1.2",
        "format -> tar",
        "output -> dist/my-tasks-1.2-linux-amd64.bundle.tar",
        "platform -> linux/amd64",
        "python -> 3.11",
        f"context root -> {where}",
        "project sub-path -> .",
        "staged -> build/my-tasks",
    ]
    assert not (tmp_path / "dist").exists()
    assert staged(tmp_path, "my-tasks") == ["pyproject.toml", "src/agentix_my_tasks/__init__.py"]


@pytest.mark.parametrize(
    ("wish", "name", "tag"), [(None, "proj", "1.2"), ("x", "x", "1.2"), ("x:3", "x", "3"), ("a/b:1 2", "a/b", "1 2")]
)
def test_names(tmp_path: Path, env: dict[str, str], wish: str | None, name: str, tag: str) -> None:
    project(tmp_path / "p")
    said = dry(tmp_path, env, "p", *(["--name", wish] if wish else []))
    assert (said["name"], said["tag"]) == (name, tag)
    safe = f"{name}-{tag}".replace("/", "-").replace(" ", "-")
    assert said["bundle"] == f"dist/{safe}-linux-amd64.bundle.tar"


@pytest.mark.parametrize("wish", [":1", "x:", ":", ""])
def test_an_empty_side_of_the_colon_is_refused(tmp_path: Path, env: dict[str, str], wish: str) -> None:
    project(tmp_path / "p")
    done = agentix("build", "p", "--dry-run", "--name", wish, cwd=tmp_path, env=env)
    assert done.returncode != 0
    assert "NAME:TAG" in done.stderr


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_does_not_leave_the_staging_directory(tmp_path: Path, env: dict[str, str], name: str) -> None:
    project(tmp_path / "p")
    (tmp_path / "kept").write_text("x")
    done = agentix("build", "p", "--dry-run", "--name", name, cwd=tmp_path, env=env)
    assert done.returncode != 0
    assert (tmp_path / "kept").exists()


def test_output_paths(tmp_path: Path, env: dict[str, str]) -> None:
    project(tmp_path / "p")
    (tmp_path / "there.d").mkdir()
    name = "proj-1.2-linux-amd64.bundle.tar"
    for wish, expected in [
        ("there.d", f"there.d/{name}"),
        ("plain", f"plain/{name}"),
        ("slash/", f"slash/{name}"),
        ("f.tar", "f.tar"),
        ("f.tar.zst", "f.tar.zst"),
    ]:
        said = dry(tmp_path, env, "p", "--output", wish)
        assert said["bundle"] == expected
        assert said["format"] == ("tar.zst" if wish.endswith(".zst") else "tar")
    assert dry(tmp_path, env, "p", "--zstd")["bundle"] == f"dist/{name}.zst"


@pytest.mark.parametrize("spelling", ["arm64", "aarch64", "linux/arm64", "linux/arm64/v8", "linux/aarch64"])
def test_platform_spellings(tmp_path: Path, env: dict[str, str], spelling: str) -> None:
    project(tmp_path / "p")
    assert dry(tmp_path, env, "p", "--platform", spelling)["platform"] == "linux/arm64"


def test_an_unknown_platform_names_both(tmp_path: Path, env: dict[str, str]) -> None:
    project(tmp_path / "p")
    done = agentix("build", "p", "--dry-run", "--platform", "windows", cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "linux/amd64" in done.stderr
    assert "linux/arm64" in done.stderr


@pytest.mark.parametrize(
    ("requires", "minor"),
    [
        (None, "3.11"),
        (">=3.9", "3.11"),
        (">=3.12", "3.12"),
        (">3.11.4,<3.13", "3.11"),
        ("==3.12.*", "3.12"),
        ("~=3.11", "3.11"),
        ("~=3.12.1", "3.12"),
        ("!=3.11.*,>=3.10", "3.12"),
        (">=3.13,<3.14", "3.13"),
    ],
)
def test_python_from_requires_python(tmp_path: Path, env: dict[str, str], requires: str | None, minor: str) -> None:
    project(tmp_path / "p", requires=requires)
    assert dry(tmp_path, env, "p")["python"] == minor


@pytest.mark.parametrize("requires", ["<3.11", "==3.10.*", ">=3.14"])
def test_pythons_that_are_not_supported(tmp_path: Path, env: dict[str, str], requires: str) -> None:
    project(tmp_path / "p", requires=requires)
    done = agentix("build", "p", "--dry-run", cwd=tmp_path, env=env)
    assert done.returncode == 1
    assert requires in done.stderr
    assert "3.11" in done.stderr


def test_what_is_no_project(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "empty").mkdir()
    gone = agentix("build", "gone", cwd=tmp_path, env=env)
    assert (gone.returncode, "not a directory" in gone.stderr) == (1, True)
    empty = agentix("build", "empty", cwd=tmp_path, env=env)
    assert (empty.returncode, "missing pyproject.toml" in empty.stderr) == (1, True)
    assert agentix("build", "--nonsense", cwd=tmp_path, env=env).returncode == 2


def test_errors_are_json_when_asked(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "pyproject.toml").write_text("[project\n")
    done = agentix("build", "p", "--dry-run", "--format", "json", cwd=tmp_path, env=env)
    assert done.returncode == 1
    error = json.loads(done.stderr)["error"]
    assert (error["kind"], error["exit_code"]) == ("project", 1)
    assert "TOML" in error["message"]


def test_git_decides_what_is_ignored(tmp_path: Path, env: dict[str, str]) -> None:
    repo = tmp_path / "repo"
    inner = project(repo / "sub" / "p")
    git(repo, "init")
    (repo / ".gitignore").write_text("*.secret\n")
    for path in ["a.secret", "untracked.txt", "build/x", "dist/x", "result/x", "sub/dist/x", "sub/build/x"]:
        (repo / path).parent.mkdir(exist_ok=True)
        (repo / path).write_text("x")
    for path in [".venv/x", "sub/.venv/x", "sub/__pycache__/x.pyc", "sub/.ruff_cache/x"]:
        (repo / path).parent.mkdir(exist_ok=True)
        (repo / path).write_text("x")
    (repo / "tracked.txt").write_text("x")
    (repo / "gone.txt").write_text("x")
    (repo / "link").symlink_to("nowhere")
    git(repo, "add", "tracked.txt", "gone.txt")
    git(repo, "commit", "-m", "x")
    (repo / "gone.txt").unlink()
    said = dry(tmp_path, env, inner)
    assert (said["context"], said["project"]) == (str(repo), "sub/p")
    assert staged(tmp_path, "proj") == [
        ".gitignore",
        "link",
        "sub/build/x",
        "sub/dist/x",
        "sub/p/pyproject.toml",
        "sub/p/src/proj/__init__.py",
        "tracked.txt",
        "untracked.txt",
    ]


def test_submodules_and_inner_repositories_are_left_out(tmp_path: Path, env: dict[str, str]) -> None:
    other = project(tmp_path / "other", name="other")
    git(other, "init")
    git(other, "add", ".")
    git(other, "commit", "-m", "x")
    repo = project(tmp_path / "repo")
    git(repo, "init")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", str(other), "module")
    dry(tmp_path, env, repo)
    assert staged(tmp_path, "proj") == [".gitmodules", "pyproject.toml", "src/proj/__init__.py"]


def test_outside_git_everything_but_caches_counts(tmp_path: Path, env: dict[str, str]) -> None:
    where = project(tmp_path / "p")
    for path in [".venv/x", "a/__pycache__/x", "a/.pytest_cache/x", "dist/x", "a/dist/x", "old.bundle.tar"]:
        (where / path).parent.mkdir(exist_ok=True, parents=True)
        (where / path).write_text("x")
    dry(tmp_path, env, where)
    assert staged(tmp_path, "proj") == ["a/dist/x", "pyproject.toml", "src/proj/__init__.py"]


def test_staging_twice_does_not_stage_the_stage(tmp_path: Path, env: dict[str, str]) -> None:
    repo = tmp_path / "repo"
    inner = project(repo / "sub")
    git(repo, "init")
    for _ in range(2):
        dry(inner, env)
        assert staged(inner, "proj") == ["sub/pyproject.toml", "sub/src/proj/__init__.py"]


@pytest.mark.parametrize(
    ("nix", "complaint"),
    [
        ("3", "must be a string"),
        ('"../x.nix"', "leaves the project"),
        ('"/x.nix"', "leaves"),
        ('"x.nix"', "no such file"),
    ],
)
def test_nix_settings_that_are_wrong(tmp_path: Path, env: dict[str, str], nix: str, complaint: str) -> None:
    project(tmp_path / "p", more=f"[tool.agentix]\nnix = {nix}\n")
    done = agentix("build", "p", "--dry-run", cwd=tmp_path, env=env)
    assert done.returncode == 1
    assert complaint in done.stderr


def test_another_platform_needs_an_engine(tmp_path: Path, env: dict[str, str]) -> None:
    project(tmp_path / "p")
    done = agentix("build", "p", "--platform", "arm64", cwd=tmp_path, env=env)
    assert done.returncode == 1
    assert "--container-engine" in done.stderr
