"""The command `agentix`: its voice, its exit codes, plugins, and `agentix.cli.main`.

Help and error texts are held against `snapshots/`; with `AGENTIX_UPDATE_SNAPSHOTS=1` they are written anew, for a
person to look at the difference.
"""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bundles import write_bundle
from cli import AGENTIX, Cli, environment

import agentix.cli

SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return Cli(home)


def hold_against(name: str, text: str) -> None:
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("AGENTIX_UPDATE_SNAPSHOTS"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


# ---- help and usage

COMMANDS = [
    "",
    "build",
    "deploy",
    "deploy docker",
    "deploy podman",
    "deploy apptainer",
    "deploy list",
    "bundle",
    "bundle inspect",
    "bundle verify",
    "bundle list",
    "bundle rm",
    "bundle prune",
    "cache",
    "cache dir",
    "cache size",
    "cache clean",
    "plugin",
    "plugin list",
    "ps",
    "rm",
    "prune",
    "doctor",
    "config",
    "config show",
    "completion",
    "version",
]
GROUPS = ["", "deploy", "bundle", "cache", "plugin", "config"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help(cli: Cli, command: str) -> None:
    done = cli.run(*command.split(), "--help", AGENTIX_PYTHON_PATH="/nowhere")
    assert (done.returncode, done.stderr) == (0, "")
    hold_against("help/" + (command.replace(" ", "-") or "agentix"), done.stdout)
    assert cli.run(*command.split(), "-h", AGENTIX_PYTHON_PATH="/nowhere").stdout == done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 120


def test_help_covers_every_command(cli: Cli) -> None:
    def names(*path: str) -> list[str]:
        text = cli.run(*path, "--help", AGENTIX_PYTHON_PATH="/nowhere").stdout
        return [line.split()[0] for line in text.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()]

    found = {"", *names()}
    for group in GROUPS[1:]:
        found |= {f"{group} {child}" for child in names(group)}
    assert found == set(COMMANDS)


@pytest.mark.parametrize("group", GROUPS)
def test_without_a_command_help_goes_to_stderr(cli: Cli, group: str) -> None:
    done = cli.run(*group.split(), AGENTIX_PYTHON_PATH="/nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == cli.run(*group.split(), "--help", AGENTIX_PYTHON_PATH="/nowhere").stdout


def test_help_whatever_else_is_wrong(cli: Cli) -> None:
    assert cli.run("deploy", "docker", "--nope", "-h").returncode == 0


USAGE = [
    "nosuch",
    "deploy nosuch x.tar",
    "bundle nosuch",
    "--nosuch",
    "deploy --nosuch",
    "deploy docker",
    "deploy docker a.tar b.tar",
    "deploy docker a.tar --nosuch",
    "deploy docker a.tar --name",
    "deploy docker a.tar --format yaml",
    "version --quiet=yes",
    "version --color maybe",
    "bundle prune --all",
    "bundle inspect 0123456789",
]


@pytest.mark.parametrize("line", USAGE)
def test_errors(cli: Cli, line: str) -> None:
    done = cli.run(*line.split(), AGENTIX_PYTHON_PATH="/nowhere")
    assert done.stdout == ""
    hold_against("errors/" + line.replace(" ", "_"), f"exit code {done.returncode}\n{done.stderr}")


def test_unknown_commands_are_said_as_such(cli: Cli) -> None:
    assert cli.error("nosuch", code=2) == "No such command 'nosuch'"
    assert cli.error("deploy", "nosuch", "x.tar", code=2) == "No such command 'nosuch'"


def test_a_verb_on_path(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "bin/agentix-greet"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\necho "hello $*"\nexit 7\n')
    script.chmod(0o755)
    done = cli.run("greet", "--format", "x y", PATH=f"{script.parent}:{os.environ['PATH']}")
    assert (done.returncode, done.stdout) == (7, "hello --format x y\n")
    assert cli.run("../bin/agentix-greet").returncode == 2


# ---- version, streams, colour


def test_version(cli: Cli) -> None:
    assert cli.run("--version").stdout == f"agentix {agentix.__version__}\n"
    assert cli.run("version").stdout == f"agentix {agentix.__version__}\n"
    assert cli.json("version") == {"version": agentix.__version__}


def test_a_full_standard_output_is_a_failure(cli: Cli) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([AGENTIX, "version"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert b"standard output" in done.stderr


def test_closed_descriptors_do_no_harm(cli: Cli, tmp_path: Path) -> None:
    tar = write_bundle(tmp_path / "x.tar")
    line = f'exec "{AGENTIX}" deploy docker "{tar}" -q <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", line], env=environment(cli.home), check=False).returncode == 0
    (entry,) = cli.entries()
    assert (cli.cache / entry / "nix/runtime/bootstrap.sh").read_bytes() == b"#!/bin/sh\n"


def test_colour(cli: Cli) -> None:
    red = "\x1b[31m"
    assert red not in cli.run("nosuch").stderr
    assert red in cli.run("--color", "always", "nosuch").stderr
    assert red in cli.run("nosuch", CLICOLOR_FORCE="1").stderr
    assert red not in cli.run("nosuch", CLICOLOR_FORCE="1", NO_COLOR="1").stderr
    assert red not in cli.run("--color=never", "nosuch", CLICOLOR_FORCE="1").stderr


def on_terminal(cli: Cli, *argv: str, **env: str) -> str:
    """Run with standard error on a terminal; return what it shows."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [AGENTIX, *argv], stdout=subprocess.DEVNULL, stderr=theirs, env=environment(cli.home, **env)
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    process.wait(timeout=20)
    return shown.decode()


def test_progress_on_a_terminal_only(cli: Cli, tmp_path: Path) -> None:
    tar = str(write_bundle(tmp_path / "x.tar"))
    assert "unpacking" in on_terminal(cli, "deploy", "docker", tar, TERM="xterm")
    assert "unpacking" not in on_terminal(cli, "deploy", "docker", tar, TERM="dumb")
    assert "unpacking" not in on_terminal(cli, "deploy", "docker", tar, "--quiet", TERM="xterm")
    assert "unpacking" not in on_terminal(cli, "deploy", "docker", tar, "--format", "json", TERM="xterm")
    assert "unpacking" not in cli.run("deploy", "docker", tar).stderr
    assert "\x1b[31m" in on_terminal(cli, "nosuch", TERM="xterm")
    assert "\x1b" not in on_terminal(cli, "nosuch", TERM="xterm", NO_COLOR="1")


def test_foreign_text_does_not_reach_the_terminal_raw(cli: Cli, tmp_path: Path) -> None:
    tar = write_bundle(tmp_path / "x.tar", name="demo\x1b]0;evil\x07", tag="\u009b1m")
    done = cli.run("deploy", "docker", tar)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\u009b" not in done.stdout
    assert "name -> demo\\x1b]0;evil\\x07:\\xc2\\x9b1m\n" in done.stdout
    assert "\x1b" not in cli.run("bundle", "list").stdout


# ---- agentix.cli.main


def test_main_returns_or_raises(capfd: pytest.CaptureFixture[str]) -> None:
    assert agentix.cli.main(["version"]) == 0
    assert capfd.readouterr().out == f"agentix {agentix.__version__}\n"
    with pytest.raises(SystemExit) as exit_:
        agentix.cli.main(["nosuch"])
    assert exit_.value.code == 2
    assert "No such command 'nosuch'" in capfd.readouterr().err


def test_main_writes_to_what_sys_stdout_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert agentix.cli.main(["version"]) == 0
    assert capsys.readouterr().out == f"agentix {agentix.__version__}\n"
    with pytest.raises(SystemExit):
        agentix.cli.main([])
    assert "Commands:" in capsys.readouterr().err


def test_main_takes_its_own_arguments() -> None:
    line = [sys.executable, "-m", "agentix.cli", "nosuch"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


# ---- plugins


class Site:
    """A directory of installed distributions, for one interpreter's path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def add(self, dist: str, entries: str, *, version: str = "1.0", **modules: str) -> None:
        info = self.path / f"{dist.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(entries)
        for name, text in modules.items():
            (self.path / f"{name}.py").write_text(text)

    def env(self) -> dict[str, str]:
        ours = str(Path(agentix.__file__).parents[1])
        return {"AGENTIX_PYTHON": sys.executable, "AGENTIX_PYTHON_PATH": f"{self.path}:{ours}"}


GOOD = '''
from agentix.provider.base import DeployedBundle
print("noise at import")
class Acme:
    """Run on Acme's cloud."""
    async def deploy_bundle(self, bundle, *, name=None, platform=None):
        print("noise while deploying")
        if name == "fail":
            raise RuntimeError("the cloud says no")
        hints = {"look": "acme ls", "drop": "acme rm"}
        return DeployedBundle(f"acme:{bundle.name}", platform, {"b": "2", "a": "1"}, hints)
class Plain:
    """Cannot deploy."""
'''


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path / "site")
    site.add("acme-agentix", "[agentix.provider]\nacme = acme:Acme\nplain = acme:Plain\n", acme=GOOD)
    site.add("broken", "[agentix.provider]\nbroken = broken:Nothing\n", broken="raise ImportError('no such luck')\n")
    site.add("exits", "[agentix.provider]\nexits = exits:Nothing\n", exits="raise SystemExit(3)\n")
    site.add("dies", "[agentix.provider]\ndies = dies:Nothing\n", dies="import os; os.kill(os.getpid(), 9)\n")
    site.add("odd", "[agentix.provider]\nodd = odd:thing\nlist = odd:List\n", odd="thing = 3\nclass List: pass\n")
    return site


def without_us(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [row for row in rows if not str(row["source"]).startswith(("agentix", "own-backend"))]


def test_plugin_list(cli: Cli, site: Site) -> None:
    done = cli.run("plugin", "list", **site.env())
    assert (done.returncode, done.stderr) == (0, "")
    providers, closures = done.stdout.split("\n\n")
    heading, *rows = providers.splitlines()
    assert heading == "providers (host-side sandbox backends)"
    assert "  acme  ok  (acme-agentix@1.0)" in rows
    assert "  broken  ERROR  ImportError: no such luck" in rows
    assert "  exits  ERROR  SystemExit: the plugin tried to exit the process (code 3)" in rows
    assert "  dies  ERROR  ProcessDied: killed by signal 9 while it was imported" in rows
    assert "  odd  ERROR  TypeError: odd:thing is not a provider class but of type int" in rows
    assert closures == "nix closures (sandbox-side system deps)\n  none installed\n"
    rows_ = without_us(cli.json("plugin", "list", **site.env())["providers"])
    assert [row["name"] for row in rows_] == ["acme", "broken", "dies", "exits", "list", "odd", "plain"]


def test_plugin_list_with_nothing(cli: Cli, tmp_path: Path) -> None:
    done = cli.run("plugin", "list", AGENTIX_PYTHON_PATH=str(tmp_path))
    assert done.returncode == 0
    assert done.stdout.startswith("no Agentix plugins installed\n")
    assert "agentix-provider-docker" in done.stdout
    assert "agentix-runtime-basic" in done.stdout
    assert cli.json("plugin", "list", AGENTIX_PYTHON_PATH=str(tmp_path)) == {"providers": [], "nix": []}


def test_nix_axis(cli: Cli, site: Site) -> None:
    for name in ("basic", "bare"):
        (site.path / name).mkdir()
        (site.path / name / "__init__.py").touch()
    (site.path / "basic/default.nix").touch()
    site.add("agentix-runtime-basic", "[agentix.nix]\nbasic = basic\nbare = bare\n", version="2")
    rows = {row["name"]: row for row in cli.json("plugin", "list", **site.env())["nix"]}
    assert rows["basic"]["status"] == "ok"
    assert "default.nix" in rows["bare"]["error"]


def test_deploy_list(cli: Cli, site: Site) -> None:
    done = cli.run("deploy", "list", **site.env())
    assert (done.returncode, done.stderr) == (0, "")
    rows, _, without = done.stdout.partition("\n\ninstalled providers without a deploy subcommand\n")
    assert "acme  acme-agentix@1.0  Run on Acme's cloud" in rows.splitlines()
    assert "broken  broken@1.0  ERROR  ImportError: no such luck" in rows.splitlines()
    assert "  plain  acme-agentix@1.0" in without.splitlines()
    listing = cli.json("deploy", "list", **site.env())
    assert {row["name"] for row in listing["deploy"]} >= {"docker", "podman", "acme", "broken"}
    assert set(listing["deploy"][0]) == {"name", "source", "version", "summary"}
    assert {"plain", "list"} <= set(listing["providers_without_deploy"])
    help_ = cli.run("deploy", "--help", **site.env()).stdout
    assert "Run on Acme's cloud (acme-agentix@1.0)" in help_
    assert "ERROR  ImportError: no such luck" in help_


def test_deploy_to_a_plugin(cli: Cli, site: Site, tmp_path: Path) -> None:
    tar = tmp_path / "x.tar"
    tar.touch()
    done = cli.run("deploy", "acme", tar, "--platform", "linux/arm64", **site.env())
    assert done.returncode == 0
    assert done.stdout == (
        "bundle -> acme:x.tar\nplatform -> linux/arm64\na -> 1\nb -> 2\n\n# look\nacme ls\n# drop\nacme rm\n"
    )
    assert "noise while deploying" in done.stderr
    assert cli.json("deploy", "acme", tar, **site.env()) == {
        "bundle": "acme:x.tar",
        "platform": None,
        "metadata": {"a": "1", "b": "2"},
        "hints": {"look": "acme ls", "drop": "acme rm"},
    }
    done = cli.run("deploy", "acme", tar, "--name", "fail", **site.env())
    assert (done.returncode, done.stdout) == (1, "")
    assert "backend 'acme' could not deploy the bundle: RuntimeError: the cloud says no" in done.stderr
    assert "Traceback" not in done.stderr


def test_deploy_to_what_cannot(cli: Cli, site: Site, tmp_path: Path) -> None:
    done = cli.run("deploy", "broken", tmp_path / "x.tar", **site.env())
    assert done.returncode == 4
    assert "error: backend 'broken' cannot be loaded: ImportError: no such luck" in done.stderr
    assert cli.run("deploy", "plain", tmp_path / "x.tar", **site.env()).returncode == 2


def test_two_distributions_with_one_name(cli: Cli, site: Site) -> None:
    site.add("other", "[agentix.provider]\nbroken = acme:Acme\n", version="3")
    (row,) = [row for row in cli.json("plugin", "list", **site.env())["providers"] if row["name"] == "broken"]
    assert row["status"] == "error"
    assert "broken@1.0 and other@3" in row["error"]


def test_plugins_of_this_environment(cli: Cli) -> None:
    """The executable finds its own environment's plugins, without help."""
    rows = {row["name"]: row for row in cli.json("plugin", "list")["providers"]}
    assert rows["uv"]["status"] == "ok"
    assert rows["uv"]["source"] == "agentix-provider-uv"


def test_listing_built_in_backends_needs_no_python(cli: Cli, tmp_path: Path) -> None:
    rows = cli.json("deploy", "list", AGENTIX_PYTHON_PATH=str(tmp_path), AGENTIX_PYTHON="/nowhere/python")["deploy"]
    assert [row["name"] for row in rows] == ["docker", "podman", "apptainer"]


# ---- sandboxes, by an engine that a script plays


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """Answers `ps` with one row a file in a directory, and `rm` by removing the file."""
    script = tmp_path / "engine/docker"
    script.parent.mkdir()
    (tmp_path / "boxes").mkdir()
    script.write_text(
        f"""#!/bin/sh
cd {tmp_path}/boxes || exit 1
case $1 in
ps) echo "WARNING: something" >&2; for format; do :; done
    for box in *; do
      test -f "$box" || continue
      . "./$box"
      echo "$format" | sed -e "s/{{{{.Names}}}}/$box/" -e "s/{{{{.State}}}}/$state/" \\
        -e "s/{{{{.Label \\"agentix.host\\"}}}}/$host/" -e "s/{{{{.Label \\"agentix.lease\\"}}}}/$lease/" \\
        -e "s/{{{{.Label \\"agentix.sandbox\\"}}}}/$box/"
    done ;;
rm) for box; do :; done; rm "$box" ;;
esac
"""
    )
    script.chmod(0o755)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    started = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    boxes = {
        "agentix-00000001": ("running", f"{boot}:{os.getpid()}:{started}", "900.000"),
        "agentix-00000002": ("running", f"{boot}:{os.getpid()}:1", "0"),
        "agentix-00000003": ("exited", f"{boot}:{os.getpid()}:{started}", "0"),
    }
    for name, (state, host, lease) in boxes.items():
        (tmp_path / "boxes" / name).write_text(f"state={state} host={host} lease={lease}\n")
    return script


def test_ps(cli: Cli, engine: Path) -> None:
    done = cli.run("ps", "--container-engine", engine)
    assert done.stdout.splitlines() == [
        f"agentix-00000001  {engine}  running  host alive  lease 900.000 s",
        f"agentix-00000002  {engine}  running  host gone",
    ]
    rows = cli.json("ps", "--all", "--container-engine", engine)["sandboxes"]
    assert [(row["sandbox"], row["status"], row["host_alive"]) for row in rows] == [
        ("agentix-00000001", "running", True),
        ("agentix-00000002", "running", False),
        ("agentix-00000003", "exited", True),
    ]


def test_rm_and_prune(cli: Cli, engine: Path) -> None:
    option = ["--container-engine", str(engine)]
    cli.error("rm", "agentix-00000001", *option)
    cli.error("rm", "agentix-0000000f", *option, code=3)
    assert cli.json("prune", "--dry-run", "--force", *option)["removed"] == ["agentix-00000002", "agentix-00000003"]
    assert cli.json("prune", *option)["removed"] == ["agentix-00000003"]
    assert cli.run("prune", "--force", *option).stdout == "agentix-00000002\n"
    assert cli.json("rm", "--force", "agentix-00000001", *option)["removed"] == ["agentix-00000001"]
    assert cli.run("ps", "-a", *option).stdout == ""


def test_no_engine(cli: Cli, tmp_path: Path) -> None:
    assert cli.run("ps", PATH=str(tmp_path)).returncode == 4
    assert cli.run("ps", "--container-engine", tmp_path / "none").returncode == 4


# ---- doctor, completion, config


def test_doctor(cli: Cli) -> None:
    checks = cli.json("doctor")["checks"]
    assert {"docker", "podman", "uv", "python", "kernel", "bundle cache", "loopback"} <= {row["name"] for row in checks}
    for row in checks:
        assert row["status"] in ("ok", "warning", "failure")
        assert row["found"]
        assert row["status"] == "ok" or row["mend"], row
    cli.cache.mkdir(parents=True)
    cli.cache.chmod(0o777)
    done = cli.run("doctor")
    assert done.returncode == 1
    assert f"to mend: chmod go-w {cli.cache}" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(cli: Cli, shell: str, tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(cli.run("completion", shell).stdout)
    assert "agentix" in script.read_text()
    if found := shutil.which(shell):
        subprocess.run([found, "-n", str(script)], check=True)


def complete(script: Path, line: str) -> list[str]:
    words = line.split(" ")
    ask = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _agentix; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", ask, "bash", str(script), *words], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(cli.run("completion", "bash").stdout)
    assert complete(script, "agentix de") == ["deploy"]
    assert complete(script, "agentix deploy p") == ["podman"]
    assert complete(script, "agentix deploy docker --pl") == ["--platform"]
    assert complete(script, "agentix version --format j") == ["json"]


def test_config_show(cli: Cli) -> None:
    def cache(**env: str) -> dict[str, str]:
        rows = cli.json("config", "show", **env)["settings"]
        return next(row for row in rows if row["name"] == "bundle-cache-dir")

    default = {"name": "bundle-cache-dir", "value": str(cli.cache), "source": "default", "from": "default"}
    assert cache() == default
    assert cache(AGENTIX_BUNDLE_CACHE_DIR="/x")["value"] == "/x"
    assert cache(AGENTIX_BUNDLE_CACHE_DIR="/x")["from"] == "AGENTIX_BUNDLE_CACHE_DIR"
    assert f"bundle-cache-dir -> {cli.cache}  (default)\n" in cli.run("config", "show").stdout
