"""Where the command's settings come from: line, environment, the project's file, the user's file, default."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from bundles import write_bundle
from cli import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return Cli(home)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


def set_project(project: Path, text: str) -> Path:
    file = project / "pyproject.toml"
    file.write_text(f'[project]\nname = "demo"\nversion = "1"\n{text}\n')
    return file


def set_user(cli: Cli, text: str) -> Path:
    file = cli.home / ".config/agentix/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def shown(cli: Cli, *argv: str | Path, cwd: Path | None = None, **env: str) -> dict[str, dict[str, Any]]:
    done = cli.run("config", "show", "--format", "json", *argv, cwd=cwd, **env)
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)["settings"]}


def complaint(cli: Cli, *argv: str, cwd: Path, **env: str) -> tuple[str, str | None]:
    """The message and the hint of a command that must refuse what it finds."""
    done = cli.run("--format", "json", *(argv or ("bundle", "list")), cwd=cwd, **env)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    error = json.loads(done.stderr)["error"]
    assert (error["kind"], error["exit_code"]) == ("settings", 1)
    return error["message"], error["hint"]


# ---- who comes first


@pytest.mark.parametrize(
    ("name", "values", "variable"),
    [
        ("color", ("never", "always", "auto"), "AGENTIX_COLOR"),
        ("build.name", ("a", "b:1", "c"), "AGENTIX_BUILD_NAME"),
        ("build.zstd", ("true", "false", "true"), "AGENTIX_BUILD_ZSTD"),
        ("build.uv-args", (["1", "2"], ["3"], ["4", "5"]), "AGENTIX_BUILD_UV_ARGS"),
        ("bundle-cache-dir", ("/a", "/b", "/c"), "AGENTIX_BUNDLE_CACHE_DIR"),
        ("container-engine", ("podman", "docker", "other"), "AGENTIX_CONTAINER_ENGINE"),
    ],
)
def test_the_order(cli: Cli, project: Path, name: str, values: tuple[Any, Any, Any], variable: str) -> None:
    def toml(value: Any) -> str:
        return value if value in ("true", "false") else json.dumps(value)

    def seen(value: Any) -> Any:
        return json.loads(value) if value in ("true", "false") else value

    def row(**env: str) -> tuple[Any, str, str]:
        found = shown(cli, cwd=project, **env)[name]
        return found["value"], found["source"], found["from"]

    user, ours, variables = values
    table, _, key = f"tool.agentix.{name}".rpartition(".")
    assert row()[1:] == ("default", "default")
    users = set_user(cli, f"{name} = {toml(user)}")
    assert row() == (seen(user), "user", str(users))
    file = set_project(project, f"[{table}]\n{key} = {toml(ours)}")
    assert row() == (seen(ours), "project", str(file))
    said = " ".join(variables) if isinstance(variables, list) else variables
    assert row(**{variable: said}) == (seen(variables), "environment", variable)
    assert row(**{variable: ""}) == (seen(ours), "project", str(file))


def test_the_line_comes_first(cli: Cli, project: Path) -> None:
    set_project(project, '[tool.agentix]\ncolor = "never"\nquiet = true\nformat = "text"')
    rows = shown(cli, "--color", "always", "--no-quiet", "-v", cwd=project, AGENTIX_COLOR="auto")
    assert {name: (rows[name]["value"], rows[name]["source"]) for name in ("color", "quiet", "verbose", "format")} == {
        "color": ("always", "flag"),
        "quiet": (False, "flag"),
        "verbose": (True, "flag"),
        "format": ("json", "flag"),
    }
    assert rows["color"]["from"] == "flag"


def test_as_text(cli: Cli, project: Path) -> None:
    file = set_project(project, '[tool.agentix]\nbundle-cache-dir = "/x"')
    lines = cli.run("config", "show", cwd=project, AGENTIX_BUILD_ZSTD="yes").stdout.splitlines()
    assert f"bundle-cache-dir -> /x  ({file})" in lines
    assert "build.zstd -> true  (AGENTIX_BUILD_ZSTD)" in lines
    assert "build.uv-args -> none  (default)" in lines
    assert f"build-cache-dir -> {cli.home}/.cache/agentix/build  (default)" in lines


def test_the_conventions_for_colours_are_of_the_environment(cli: Cli, project: Path) -> None:
    set_project(project, '[tool.agentix]\ncolor = "always"')
    row = shown(cli, cwd=project, NO_COLOR="1")["color"]
    assert (row["value"], row["from"]) == ("never", "NO_COLOR")
    row = shown(cli, cwd=project, NO_COLOR="1", AGENTIX_COLOR="always")["color"]
    assert (row["value"], row["from"]) == ("always", "AGENTIX_COLOR")


def test_every_setting_is_shown_and_documented(cli: Cli) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()
    rows = shown(cli)
    assert len(rows) == 25
    for name, row in rows.items():
        assert row.keys() == {"name", "value", "source", "from"}
        assert f"| `{name}` |" in page, name


# ---- which file


def test_the_nearest_project_upwards(cli: Cli, project: Path) -> None:
    file = set_project(project, '[tool.agentix]\nbuild.name = "outer"')
    below = project / "a/b"
    below.mkdir(parents=True)
    assert shown(cli, cwd=below)["build.name"]["from"] == str(file)
    assert shown(cli, project)["build.name"]["value"] == "outer"
    inner = set_project(project / "a", "")
    assert shown(cli, cwd=below)["build.name"]["source"] == "default", inner


def test_xdg_config_home(cli: Cli, tmp_path: Path) -> None:
    set_user(cli, 'build.name = "home"')
    (tmp_path / "xdg/agentix").mkdir(parents=True)
    (tmp_path / "xdg/agentix/config.toml").write_text('build.name = "xdg"')
    assert shown(cli, XDG_CONFIG_HOME=str(tmp_path / "xdg"))["build.name"]["value"] == "xdg"


@pytest.mark.parametrize(
    "text",
    [
        '[tool.agentix]\nbuild.name = "n"',
        '[ tool . "agentix" ]\nbuild = { name = "n" }',
        "[tool]\nagentix = { build = { name = 'n' } }",
        '[tool]\nagentix.build.name = "n"',
        '["tool"."agentix"."build"]\n"name" = """n"""',
        "[tool.'agentix'.build]\nname = \"n\"",
        '[tool."agenti\\u0078".build]\nname = "n"',
    ],
)
def test_however_it_is_written(cli: Cli, project: Path, text: str) -> None:
    set_project(project, text)
    assert shown(cli, cwd=project)["build.name"]["value"] == "n"


def test_a_project_that_says_nothing_costs_no_python(cli: Cli, project: Path) -> None:
    text = '[tool.uv]\ndev-dependencies = ["agentix==1"]\n[tool.other]\nx = [\n "agentix",\n "agentix >= 1",\n]'
    set_project(project, text)
    assert cli.run("bundle", "list", cwd=project, PATH="/nowhere", AGENTIX_PYTHON="/nowhere/python").returncode == 0
    set_project(project, "[tool.agentix]\nquiet = true")
    message, _ = complaint(cli, cwd=project, PATH="/nowhere", AGENTIX_PYTHON="/nowhere/python")
    assert "pyproject.toml cannot be read: that takes Python" in message


# ---- what is wrong


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ('bundel-cache-dir = "x"', "[tool.agentix] bundel-cache-dir: there is no such setting", "'bundle-cache-dir'?"),
        ('build.plattform = "x"', "[tool.agentix.build] plattform: there is no such setting", "'build.platform'?"),
        ("whatever = 1", "[tool.agentix] whatever: there is no such setting", "config show"),
        ("quiet = 1", "[tool.agentix] quiet: it must be true or false, not a number", None),
        ('quiet = "yes"', "[tool.agentix] quiet: it must be true or false, not a string", None),
        ("color = 1979-05-27", "[tool.agentix] color: it must be a string, not something else", None),
        ('color = "green"', "[tool.agentix] color: 'green' is not one of auto|always|never", None),
        ('build.uv-args = "--x"', "[tool.agentix.build] uv-args: it must be an array of strings, not a string", None),
        ('build.uv-args = ["a", 1]', "uv-args: it must be an array of strings, not a number", None),
        ("build = true", "[tool.agentix] build: it must be a table, not a boolean", None),
        ('build.platform = "plan9/mips"', "[tool.agentix.build] platform: unknown platform 'plan9/mips'", None),
        ('build.name = ""', "[tool.agentix.build] name: it is empty", None),
        ('build.name = "a\\u0000b"', "[tool.agentix.build] name: there is a NUL in it", None),
        ("build.name = ", "is not valid TOML: ", None),
        ('uv = "uv"', "[tool.agentix] uv: it may not be set here", "~/.config/agentix/config.toml"),
        ('container-engine = "./evil"', "a project may not choose a program by its path", "PATH"),
        ('error = "x"', "[tool.agentix] error: there is no such setting", None),
        ('file = "x"', "[tool.agentix] file: there is no such setting", None),
        ('"" = "x"', "it must be a table, not a string", None),
    ],
)
def test_what_a_project_may_not_say(cli: Cli, project: Path, text: str, says: str, hint: str | None) -> None:
    file = set_project(project, f"[tool.agentix]\n{text}")
    message, told = complaint(cli, cwd=project)
    assert message.startswith(str(file))
    assert says in message
    assert hint is None or hint in (told or "")
    assert "Traceback" not in message


def test_what_the_user_may_not_say(cli: Cli) -> None:
    file = set_user(cli, 'nix = "default.nix"')
    message, hint = complaint(cli, cwd=cli.home)
    assert message == f"{file}: nix: it may not be set here"
    assert "pyproject.toml" in (hint or "")
    file.write_bytes(b'color = "\xff"')
    assert complaint(cli, cwd=cli.home)[0] == f"{file} is not UTF-8"
    file.write_text("x = " + "[" * 100000)
    assert complaint(cli, cwd=cli.home)[0].startswith(f"{file} is not valid TOML")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("AGENTIX_FORMAT", "yaml", "AGENTIX_FORMAT: 'yaml' is not one of text|json"),
        ("AGENTIX_QUIET", "maybe", "AGENTIX_QUIET: 'maybe' is neither true nor false"),
        ("AGENTIX_BUILD_PLATFORM", "x", "AGENTIX_BUILD_PLATFORM: unknown platform 'x'"),
    ],
)
def test_what_the_environment_may_not_say(cli: Cli, project: Path, name: str, value: str, says: str) -> None:
    assert says in complaint(cli, cwd=project, **{name: value})[0]


def test_what_must_work_does(cli: Cli, project: Path) -> None:
    """Help, the version and completion do not depend on files."""
    set_project(project, "[tool.agentix]\nwhatever = 1")
    for line in (["--help"], ["build", "--help"], ["version"], ["--version"], ["completion", "bash"]):
        assert cli.run(*line, cwd=project).returncode == 0


# ---- what they do


def test_the_cache_beside_the_file(cli: Cli, project: Path, tmp_path: Path) -> None:
    set_project(project, '[tool.agentix]\nbundle-cache-dir = "here"')
    (project / "below").mkdir()
    tar = write_bundle(tmp_path / "x.tar")
    done = cli.run("deploy", "docker", tar, "--format", "json", cwd=project / "below")
    assert done.returncode == 0, done.stderr
    assert Path(json.loads(done.stdout)["bundle"]).parent == project / "here"
    done = cli.run("--format", "json", "bundle", "list", cwd=project)
    assert len(json.loads(done.stdout)["bundles"]) == 1
    done = cli.run("deploy", "docker", tar, "--bundle-cache-dir", tmp_path / "line", cwd=project)
    assert f"bundle -> {tmp_path}/line/" in done.stdout
    set_user(cli, 'bundle-cache-dir = "~/mine"')
    assert f"bundle -> {cli.home}/mine/" in cli.run("deploy", "docker", tar).stdout


def test_the_form_of_results(cli: Cli, project: Path) -> None:
    set_user(cli, 'format = "json"')
    assert json.loads(cli.run("bundle", "list").stdout) == {"bundles": []}
    assert cli.run("bundle", "list", "--format", "text").stdout == ""
    assert cli.run("bundle", "list", AGENTIX_FORMAT="text").stdout == ""
    assert "error" in json.loads(cli.run("nosuch", AGENTIX_FORMAT="json").stderr)
    set_project(project, "[tool.agentix]\nquiet = true")
    assert cli.run("bundle", "list", "--format=text", cwd=project).stderr == ""
    assert cli.run("bundle", "list", "--format=text", "--no-quiet", cwd=project).stderr == "no bundle is deployed\n"


def test_a_build(cli: Cli, project: Path) -> None:
    text = '[tool.agentix.build]\nname = "tasks:7"\nzstd = true\nplatform = "aarch64"\noutput = "out/"'
    set_project(project, text)
    (project / "out").mkdir()

    def plan(*argv: str, env: str = "") -> dict[str, Any]:
        done = cli.run("build", project, "--dry-run", "--format", "json", *argv, AGENTIX_BUILD_PLATFORM=env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    said = plan()
    assert (said["name"], said["tag"], said["platform"], said["format"]) == ("tasks", "7", "linux/arm64", "tar.zst")
    assert said["bundle"] == f"{project}/out/tasks-7-linux-arm64.bundle.tar.zst"
    said = plan("--no-zstd", "--name", "x:1", env="amd64")
    assert (said["name"], said["platform"], said["format"]) == ("x", "linux/amd64", "tar")


def test_a_build_in_a_container_reads_no_files(cli: Cli, project: Path) -> None:
    """Whoever started it has; or the container would look for an engine in its turn."""
    set_project(project, '[tool.agentix.build]\ncontainer-engine = "nosuch"')
    inner = shown(cli, cwd=project, AGENTIX_BUILD_CONTEXT=str(project))
    assert inner["build.container-engine"]["source"] == "default"
    done = cli.run("build", project)
    assert (done.returncode, "container engine 'nosuch' not found on PATH" in done.stderr) == (4, True)


def test_which_engine_is_asked(cli: Cli, tmp_path: Path) -> None:
    set_user(cli, 'container-engine = "~/engine"')
    engine = cli.home / "engine"
    engine.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    engine.chmod(0o755)
    assert cli.run("ps").returncode == 0
    assert (tmp_path / "asked").exists()
    assert cli.run("ps", "--container-engine", "/nowhere/x").returncode == 4


def test_secrets_are_not_shown(cli: Cli) -> None:
    secret = "hush-5d1f"
    arguments = [
        f"https://me:{secret}@example.org/simple/?a=b@c",
        f"--index-url=https://{secret}@example.org/simple",
        f"--env=API_TOKEN={secret}",
        f"PASSWORD={secret}",
        f"--config=https://me:{secret}=1@example.org/?token={secret}",
        "--api-key",
        secret,
        "--plain=1",
    ]
    set_user(cli, f"build.container-run-args = {json.dumps(arguments)}")
    done = cli.run("config", "show")
    assert "--plain=1" in done.stdout
    assert "https://***@example.org/simple/?a=b@c" in done.stdout
    assert secret not in done.stdout + done.stderr
    assert secret not in json.dumps(shown(cli))
    assert shown(cli)["build.container-run-args"]["value"][4] == "--config=https://***@example.org/?token=***"


def test_programs_of_a_plugin_see_them_too(cli: Cli, tmp_path: Path) -> None:
    """What is read deeper down is in the environment of whatever is started."""
    set_user(cli, 'bundle-cache-dir = "/from/the/file"\npython = "~/python"')
    python = cli.home / "python"
    python.write_text(f'#!/bin/sh\necho "$AGENTIX_BUNDLE_CACHE_DIR" >{tmp_path}/seen\n')
    python.chmod(0o755)
    site = tmp_path / "site/x-1.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text("Name: x\nVersion: 1\n")
    (site / "entry_points.txt").write_text("[agentix.provider]\nx = x:X\n")
    cli.run("plugin", "list", AGENTIX_PYTHON_PATH=str(site.parent))
    assert (tmp_path / "seen").read_text() == "/from/the/file\n"


# ---- common options, wherever they stand


@pytest.mark.parametrize(
    "line", ["--format json bundle list", "bundle --format=json list", "bundle list --format json"]
)
def test_format_before_and_after(cli: Cli, line: str) -> None:
    assert json.loads(cli.run(*line.split()).stdout) == {"bundles": []}


def test_format_where_it_does_not_belong(cli: Cli) -> None:
    assert cli.run("--format", "json", "completion", "bash").returncode == 2
    assert cli.run("--format", "yaml", "bundle", "list").returncode == 2
    assert cli.run("--format").returncode == 2
    assert json.loads(cli.run("--format", "json", "version").stdout).keys() == {"version"}
    assert cli.run("--format", "json", "bundle", "list", "--format", "text").stdout == ""


def test_a_verb_on_path_hears_of_them(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "bin/agentix-greet"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\necho "$AGENTIX_FORMAT $AGENTIX_COLOR $AGENTIX_QUIET $*"\n')
    script.chmod(0o755)
    path = f"{script.parent}:{os.environ['PATH']}"
    done = cli.run("--format", "json", "--color=never", "-q", "greet", "--format", "x", PATH=path)
    assert done.stdout == "json never 1 --format x\n"
