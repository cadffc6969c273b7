"""`agentix build` on real projects: bundles run where nothing else is, say what they are, come out the same twice."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import math
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bundletools import agentix, build, environment, git, project, run_alone, serve_alone, unpack

from agentix import RuntimeClient

EXAMPLE = Path(__file__).parents[2] / "examples" / "hello-world"
Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Built(NamedTuple):
    """A bundle, what `agentix build` said of it, and its unpacked tree."""

    said: dict[str, Any]
    bundle: Path
    tree: Path
    source: Path
    env: dict[str, str]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The hello-world example (numpy), built outside of git, without a lock."""
    base = tmp_path_factory.mktemp("built")
    source = base / "hello-world"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__", ".venv", "dist"))
    env = environment(base / "cache")
    said = build(source, cwd=base, env=env)
    return Built(said, base / said["bundle"], unpack(base / said["bundle"], base / "tree"), source, env)


def files(tree: Path) -> list[Path]:
    return [Path(root, name) for root, _, names in os.walk(tree) for name in names]


def test_the_manifest_says_what_it_is(built: Built) -> None:
    manifest = json.loads((built.tree / "manifest.json").read_text())
    path = "/nix/runtime/venv/bin:/nix/runtime/bin"
    assert {key: manifest[key] for key in ("schema_version", "format", "name", "tag", "platform", "nix_system")} == {
        "schema_version": 1,
        "format": "agentix-bundle",
        "name": "hello-world",
        "tag": "0.1.0",
        "platform": "linux/amd64",
        "nix_system": "x86_64-linux",
    }
    assert manifest["entrypoint"] == "/nix/runtime/bootstrap.sh"
    assert manifest["digest"] == built.said["digest"]
    assert manifest["runtime_env"]["PATH"] == path
    assert manifest["agentix_added_env"]["AGENTIX_ADDED_PATH"] == path


def test_the_tar_has_the_manifest_first_and_nobodys_name(built: Built) -> None:
    listing = subprocess.run(
        ["tar", "--numeric-owner", "-tvf", built.bundle], capture_output=True, text=True, check=True
    )
    lines = listing.stdout.splitlines()
    assert lines[0].endswith(" manifest.json")
    assert {line.split()[1] for line in lines} == {"0/0"}
    assert {line.split()[0] for line in lines} == {"-rw-r--r--", "-rwxr-xr-x", "drwxr-xr-x", "lrwxrwxrwx"}
    assert {line.split()[3] for line in lines} == {"1980-01-01"}


def test_calls_run_with_nothing_but_the_bundle(built: Built, tmp_path: Path, run: Run) -> None:
    import hello_world.tasks as tasks

    async def calls(url: str) -> None:
        async with RuntimeClient(url) as client:
            assert await client.remote(math.factorial, 20) == math.factorial(20)
            line = await client.remote(tasks.fit_line, [(0.0, 1.0), (1.0, 3.0)])
            assert line == pytest.approx({"slope": 2.0, "intercept": 1.0})

    with serve_alone(built.tree, tmp_path) as url:
        run(calls(url))


def test_the_images_own_programs_run_with_their_own_libraries(built: Built, tmp_path: Path, run: Run) -> None:
    async def maps(url: str, program: str) -> str:
        async with RuntimeClient(url) as client:
            return (await client.remote(subprocess.check_output, [program, "/proc/self/maps"])).decode()

    with serve_alone(built.tree, tmp_path, image="bin lib lib64 usr etc") as url:
        mapped = run(maps(url, "/bin/cat"))
        assert "libc" in mapped
        assert "/nix/" not in mapped
    code = "import sys, numpy; sys.stdout.write(open('/proc/self/maps').read())"
    done = run_alone(built.tree, tmp_path, "/nix/runtime/venv/bin/python", "-c", code)
    lines = [line.split(None, 5)[5] for line in done.stdout.splitlines() if len(line.split(None, 5)) == 6]
    assert [line for line in lines if line.startswith("/") and not line.startswith("/nix/")] == []


def test_the_environment_is_made_fit_before_anything_dynamic_starts(built: Built, tmp_path: Path, run: Run) -> None:
    bad = {"LD_PRELOAD": "/lib/none.so", "PYTHONHOME": "/none", "NIX_PATH": "a b\nc", "CPATH": "/image/include:*"}

    script = (built.tree / "nix/runtime/bootstrap.sh").read_text()
    assert script.startswith("#!/nix/closure/bin/busybox sh\n")
    with serve_alone(built.tree, tmp_path, PATH="/usr/bin:/nix/runtime/bin", **bad) as url:
        env = run(look_env(url))
    assert env["AGENTIX_SAVED_LD_PRELOAD"] == "/lib/none.so"
    assert env["AGENTIX_SAVED_NIX_PATH"] == "a b\nc"
    assert {"LD_PRELOAD", "PYTHONHOME", "NIX_PATH"}.isdisjoint(env)
    assert env["PATH"] == "/nix/runtime/venv/bin:/nix/runtime/bin:/usr/bin"
    assert env["AGENTIX_ADDED_PATH"] == "/nix/runtime/venv/bin:/nix/runtime/bin"
    assert env["CPATH"] == "/nix/runtime/include:/image/include:*"
    assert env["AGENTIX_ADDED_CPATH"] == "/nix/runtime/include"


async def look_env(url: str) -> dict[str, str]:
    """The worker's environment, as `env -0` of the bundle's busybox prints it."""
    async with RuntimeClient(url) as client:
        text = await client.remote(subprocess.check_output, ["/nix/closure/bin/busybox", "env", "-0"])
    return dict(item.split("=", 1) for item in text.decode().split("\0") if item)


def test_no_link_and_no_shebang_leaves_the_bundle(built: Built) -> None:
    for path in files(built.tree / "nix"):
        if path.is_symlink():
            target = os.readlink(path)
            inner = target.startswith("/nix/") or not target.startswith("/")
            assert inner, (path, target)
            there = built.tree / target.lstrip("/") if target.startswith("/") else path.parent / target
            assert os.path.lexists(there), (path, target)
            assert there.resolve().is_relative_to(built.tree / "nix") or os.readlink(there).startswith("/nix/")
            continue
        with path.open("rb") as file:
            head = file.read(200)
        if head.startswith(b"#!"):
            interpreter = head[2:].split()[0].decode()
            assert interpreter.startswith("/nix/"), (path, interpreter)
            assert os.path.lexists(built.tree / interpreter.lstrip("/")), (path, interpreter)


def test_executables_and_libraries_look_only_into_the_bundle(built: Built) -> None:
    loaders = set()
    for path in files(built.tree / "nix"):
        if path.is_symlink() or path.read_bytes()[:4] != b"\x7fELF":
            continue
        done = subprocess.run(
            ["patchelf", "--print-rpath", path], capture_output=True, text=True, env=built.env, check=False
        )
        for entry in filter(None, done.stdout.strip().split(":")):
            assert entry.startswith(("$ORIGIN", "/nix/closure/lib")), (path, entry)
        done = subprocess.run(
            ["patchelf", "--print-interpreter", path], capture_output=True, text=True, env=built.env, check=False
        )
        if done.returncode == 0 and "/bin/" in str(path):
            loaders.add(done.stdout.strip())
    assert len(loaders) == 1
    loader = loaders.pop()
    assert loader.startswith("/nix/closure/lib/")
    assert (built.tree / loader.lstrip("/")).is_file()


def test_installed_files_are_what_their_records_say(built: Built) -> None:
    site = next(built.tree.glob("nix/runtime/venv/lib/python3.*/site-packages"))
    records = list(site.glob("*.dist-info/RECORD"))
    assert len(records) == 3
    for record in records:
        rows = list(csv.reader(io.StringIO(record.read_text())))
        assert rows == sorted(rows)
        for name, digest, size in rows:
            data = (site / name).read_bytes()
            if digest:
                value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
                assert (digest, int(size)) == (f"sha256={value}", len(data)), name
        assert not {"direct_url.json", "uv_cache.json", "REQUESTED"} & {path.name for path in record.parent.iterdir()}


def test_ours_come_from_this_installation_and_only_what_is_needed(built: Built) -> None:
    site = next(built.tree.glob("nix/runtime/venv/lib/python3.*/site-packages"))
    import agentix as here

    assert (site / "agentix/__init__.py").read_bytes() == Path(here.__file__).read_bytes()
    assert sorted(path.name for path in site.glob("agentix*")) == ["agentix", f"agentix-{here.__version__}.dist-info"]
    assert not (site / "agentix/provider/uv").exists()


def test_the_list_of_what_is_inside(built: Built) -> None:
    sbom = json.loads((built.tree / "nix/runtime/sbom.cdx.json").read_text())
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.5")
    purls = {part.get("purl", "").split("@")[0] for part in sbom["components"]}
    assert {"pkg:pypi/numpy", "pkg:pypi/agentix", "pkg:pypi/hello-world"} <= purls
    for part in sbom["components"]:
        if part["type"] == "file":
            data = (built.tree / part["name"].lstrip("/")).read_bytes()
            assert part["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}]


def test_python_and_bash_of_the_bundle_run_alone(built: Built, tmp_path: Path) -> None:
    code = "import agentix, numpy, ssl, sqlite3, ctypes, sys; print(sys.prefix, numpy.arange(3).sum())"
    done = run_alone(built.tree, tmp_path, "/nix/runtime/venv/bin/python", "-c", code)
    assert done.stdout == "/nix/runtime/venv 3\n", done.stderr
    assert run_alone(built.tree, tmp_path, "/nix/runtime/venv/bin/numpy-config", "--version").returncode == 0
    assert run_alone(built.tree, tmp_path, "/nix/runtime/bin/bash", "-c", "echo $((6 * 7))").stdout == "42\n"


def test_an_unchanged_project_is_not_built_again(built: Built) -> None:
    base = built.bundle.parents[1]
    again = build(built.source, cwd=base, env=built.env)
    assert again["reused"] is True
    assert {key: again[key] for key in ("digest", "size", "bundle")} == {
        key: built.said[key] for key in ("digest", "size", "bundle")
    }


def test_the_same_inputs_give_the_same_bytes_and_a_change_another_digest(built: Built, tmp_path: Path) -> None:
    source = tmp_path / "elsewhere" / "a longer name"
    shutil.copytree(built.source, source)
    env = environment(tmp_path / "cache")
    os_umask = os.umask(0o077)
    try:
        said = build(source, "--output", tmp_path / "x.bundle.tar", cwd=tmp_path, env=env)
    finally:
        os.umask(os_umask)
    assert said["reused"] is False
    assert said["digest"] == built.said["digest"]
    assert (tmp_path / "x.bundle.tar").read_bytes() == built.bundle.read_bytes()
    tasks = source / "src" / "hello_world" / "tasks.py"
    tasks.write_text(tasks.read_text() + "\nADDED = 1\n")
    changed = build(source, "--output", tmp_path / "y.bundle.tar", cwd=tmp_path, env=env)
    assert changed["digest"] != built.said["digest"]
    tree = unpack(tmp_path / "y.bundle.tar", tmp_path / "tree")
    installed = next(tree.glob("nix/runtime/venv/lib/*/site-packages/hello_world/tasks.py"))
    assert installed.read_text() == tasks.read_text()
    small = build(source, "--output", tmp_path / "y.bundle.tar.zst", cwd=tmp_path, env=env)
    assert small["digest"] == changed["digest"]
    assert small["size"] < 60_000_000


def test_nothing_is_left_of_a_build(built: Built) -> None:
    cache = Path(built.env["XDG_CACHE_HOME"]) / "agentix" / "build"
    assert [path.name for path in cache.iterdir() if path.name.startswith("stage-")] == []
    assert [path.name for path in built.bundle.parent.iterdir()] == [built.bundle.name]


# --- locks ---


@pytest.fixture
def locked(tmp_path: Path, build_cache: Path) -> tuple[Path, dict[str, str]]:
    """A locked project with one small dependency, in git."""
    where = project(tmp_path / "p", dependencies=("iniconfig",))
    env = environment(build_cache)
    git(where, "init")
    subprocess.run(["uv", "lock", "--quiet"], cwd=where, env=env, check=True)
    return where, env


def test_a_lock_is_kept_to(locked: tuple[Path, dict[str, str]]) -> None:
    where, env = locked
    version = re.findall(r'name = "iniconfig"\nversion = "(.*)"', (where / "uv.lock").read_text())[0]
    said = build(cwd=where, env=env)
    tree = unpack(where / said["bundle"], where.parent / "tree")
    assert list(tree.glob(f"nix/runtime/venv/lib/*/site-packages/iniconfig-{version}.dist-info"))


def test_a_stale_lock_is_an_error_and_leaves_nothing(locked: tuple[Path, dict[str, str]]) -> None:
    where, env = locked
    toml = where / "pyproject.toml"
    toml.write_text(toml.read_text().replace('["iniconfig"]', '["iniconfig", "idna"]'))
    done = agentix("build", cwd=where, env=env)
    assert done.returncode == 1
    assert "uv.lock is out of date" in done.stderr
    assert "hint: run `uv lock`" in done.stderr
    assert not (where / "dist").exists()


def test_ours_are_never_asked_for_from_an_index(tmp_path: Path, build_cache: Path) -> None:
    """`agentix` may be anybody's on an index; the project names it and has no lock."""
    where = project(tmp_path / "p", dependencies=("agentix", "agentix-provider-uv", "iniconfig"))
    env = environment(build_cache)
    done = agentix("build", "--verbose", cwd=where, env=env)
    assert done.returncode == 0, done.stderr
    assert len([line for line in done.stderr.splitlines() if "uv.lock" in line]) == 1
    tree = unpack(next((where / "dist").iterdir()), tmp_path / "tree")
    site = next(tree.glob("nix/runtime/venv/lib/*/site-packages"))
    assert (site / "agentix/provider/uv/__init__.py").is_file()
    assert list(site.glob("iniconfig-*.dist-info"))


def test_uv_fails_with_its_own_words_and_code(tmp_path: Path, build_cache: Path) -> None:
    where = project(tmp_path / "p")
    done = agentix("build", "--uv-arg=--no-such-flag", cwd=where, env=environment(build_cache))
    assert done.returncode == 2
    assert "--no-such-flag" in done.stderr
    assert "exited with code 2" in done.stderr


def test_a_library_from_outside_the_bundle_fails_the_build(tmp_path: Path, build_cache: Path) -> None:
    """An extension whose library nobody brings cannot be imported in an empty root."""
    where = project(tmp_path / "p")
    source = tmp_path / "m.c"
    source.write_text("extern int agx_gone(void); int PyInit_broken(void) { return agx_gone(); }\n")
    library = tmp_path / "libagxgone.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-xc", "-", "-o", library], input=b"int agx_gone(void){return 0;}", check=True
    )
    name = "broken.abi3.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", source, "-o", where / "src/proj" / name, f"-L{tmp_path}", "-lagxgone"], check=True
    )
    done = agentix("build", cwd=where, env=environment(build_cache))
    assert done.returncode == 1
    assert "proj.broken" in done.stderr
    assert "libagxgone.so" in done.stderr
    assert not (where / "dist").exists()


def test_search_paths_are_rewritten_by_their_kind(tmp_path: Path, build_cache: Path) -> None:
    """Named like no extension module, so that only the closure looks at them."""
    where = project(tmp_path / "p")
    package = where / "src" / "proj"
    source = tmp_path / "m.c"
    source.write_text("int main(void) { return 0; }\n")
    objects = {
        "lib_plain.so": ["-shared", "-fPIC"],
        "lib_build.so": ["-shared", "-fPIC", "-Wl,--enable-new-dtags,-rpath,/opt/build/lib"],
        "lib_origin.so": ["-shared", "-fPIC", "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../x:/opt/build/lib"],
        "lib_old.so": ["-shared", "-fPIC", "-Wl,--disable-new-dtags,-rpath,$ORIGIN"],
        "program": ["-Wl,--enable-new-dtags,-rpath,$ORIGIN/y"],
        "static": ["-static"],
    }
    for name, options in objects.items():
        subprocess.run(["gcc", source, "-o", package / name, *options], check=True)
    before = {name: (package / name).read_bytes() for name in objects}
    said = build(cwd=where, env=environment(build_cache))
    site = next(unpack(where / said["bundle"], tmp_path / "tree").glob("nix/runtime/venv/lib/*/site-packages/proj"))

    def paths(name: str) -> list[tuple[str, str]]:
        text = subprocess.run(["readelf", "-d", site / name], capture_output=True, text=True, check=True).stdout
        return re.findall(r"\((RPATH|RUNPATH)\).*\[(.*)\]", text)

    assert {name: paths(name) for name in objects} == {
        "lib_plain.so": [],
        "lib_build.so": [],
        "lib_origin.so": [("RPATH", "$ORIGIN/../x")],
        "lib_old.so": [("RPATH", "$ORIGIN")],
        "program": [("RPATH", "$ORIGIN/y:/nix/closure/lib")],
        "static": [],
    }
    for name in ("lib_plain.so", "lib_old.so", "static"):
        assert (site / name).read_bytes() == before[name], name
    assert subprocess.run([package / "program"], check=False).returncode == 0  # the project's own is not touched
