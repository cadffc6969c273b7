"""`agentix build` with npm packages: a real one, by the real npm, from a registry of the test's own on loopback."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import engines
import pytest
from bundles import bundle_digest
from bundletools import agentix, build, environment, project, run_alone, unpack

sys.path.append(str(Path(__file__).parents[1] / "interop"))
from stock_peers import TINY, archive, npm_program

NAME, VERSION = TINY
PLUGIN = "agx-npm-plugin"


def integrity_of(data: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


@dataclass
class Registry:
    """Serves one package, and remembers what it was asked for."""

    data: bytes
    url: str = ""
    asked: list[str] = field(default_factory=list)

    @property
    def integrity(self) -> str:
        return integrity_of(self.data)

    @property
    def fetched(self) -> int:
        return sum(path.endswith(".tgz") for path in self.asked)

    def answer(self, path: str) -> tuple[str, bytes] | None:
        self.asked.append(path)
        if path.endswith(".tgz"):
            return "application/octet-stream", self.data
        if path != f"/{NAME}":
            return None
        dist = {"tarball": f"{self.url}/{NAME}/-/{NAME}-{VERSION}.tgz", "integrity": self.integrity}
        version = {"name": NAME, "version": VERSION, "dist": dist}
        about = {"name": NAME, "dist-tags": {"latest": VERSION}, "versions": {VERSION: version}}
        return "application/json", json.dumps(about).encode()


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    served = Registry(archive(*TINY).read_bytes())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, data = served.answer(self.path) or ("application/json", b"{}")
            self.send_response(200 if data != b"{}" else 404)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    thread.start()
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def env(build_cache: Path, tmp_path: Path, registry: Registry) -> dict[str, str]:
    """A build's environment, in which npm knows nothing but our registry."""
    (tmp_path / "npm-home").mkdir()
    # The machine's own settings would count, in whatever case.
    kept = {name: value for name, value in environment(build_cache).items() if not name.lower().startswith("npm_")}
    return {
        **kept,
        "AGENTIX_NPM": str(npm_program(tmp_path / "npm-home")),
        "npm_config_registry": registry.url,
        "npm_config_cache": str(tmp_path / "npm-home" / "cache"),
        "npm_config_userconfig": str(tmp_path / "npm-home" / "npmrc"),
        "npm_config_fetch_retries": "0",
        "npm_config_noproxy": "127.0.0.1",
    }


def table(registry: Registry, **changes: Any) -> str:
    """A declaration, as TOML."""
    about = {"name": NAME, "version": VERSION, "integrity": registry.integrity, **changes}
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in about.items() if value is not None)


def declare(*tables: str) -> str:
    return f"[tool.agentix]\nnpm = [{', '.join(f'{{ {one} }}' for one in tables)}]\n"


def forget(cache: Path) -> None:
    """Other tests may have fetched it."""
    for kept in (cache / "agentix/build").glob("npm-*"):
        kept.unlink()


def test_a_package_and_its_program(tmp_path: Path, build_cache: Path, env: dict[str, str], registry: Registry) -> None:
    forget(build_cache)
    registry.asked.clear()
    arm = table(registry, name="other", platform="linux/arm64")
    where = project(tmp_path / "p", more=declare(table(registry), arm))
    assert build("--dry-run", cwd=where, env=env)["npm"] == [f"{NAME}@{VERSION}"]
    assert registry.asked == []
    said = build(cwd=where, env=env)
    assert said["npm"] == [f"{NAME}@{VERSION}"]
    assert registry.fetched == 1

    tree = unpack(where / said["bundle"], tmp_path / "tree")
    assert json.loads((tree / "manifest.json").read_text())["npm"] == {f"{NAME}@{VERSION}": registry.integrity}
    parts = json.loads((tree / "nix/runtime/sbom.cdx.json").read_text())["components"]
    (part,) = [part for part in parts if part.get("purl") == f"pkg:npm/{NAME}@{VERSION}"]
    assert part["hashes"] == [{"alg": "SHA-512", "content": hashlib.sha512(registry.data).hexdigest()}]
    assert not (tree / "nix/npm/node_modules/other").exists()
    with tarfile.open(archive(*TINY)) as tar:
        names = sorted(member.name.partition("/")[2] for member in tar if member.isreg())
    package = tree / "nix/npm/node_modules" / NAME
    assert sorted(str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()) == names
    assert str((tree / "nix/runtime/bin" / NAME).readlink()) == f"/nix/npm/node_modules/{NAME}/bin/{NAME}"
    done = run_alone(tree, tmp_path, f"/nix/runtime/bin/{NAME}", "--version")  # nothing but the bundle is there
    assert (done.returncode, done.stdout) == (0, f"{VERSION}\n"), done.stderr

    # Equal bytes, and nothing is asked for again, though npm would not even find its registry.
    assert bundle_digest(tree) == said["digest"]
    gone = {**env, "npm_config_registry": "http://127.0.0.1:9", "AGENTIX_NPM": "/nonexistent"}
    again = build("--fresh", "--output", tmp_path / "again.tar", cwd=where, env=gone)
    assert again["digest"] == said["digest"]
    assert (tmp_path / "again.tar").read_bytes() == (where / said["bundle"]).read_bytes()
    assert registry.fetched == 1


def test_what_is_refused(tmp_path: Path, env: dict[str, str], registry: Registry) -> None:
    where = project(tmp_path / "p", more=declare(table(registry, version="^10.2")))
    done = agentix("build", "--dry-run", cwd=where, env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert "[tool.agentix]: npm: n needs an exact version, not '^10.2'" in done.stderr


def test_what_cannot_be_had(tmp_path: Path, env: dict[str, str], registry: Registry) -> None:
    """One that is not what was declared, and registries that are not there or do not have it."""
    other = integrity_of(b"something else")
    where = project(tmp_path / "p", more=declare(table(registry, integrity=other)))
    done = agentix("build", cwd=where, env=env)
    assert done.returncode == 1
    assert (
        f"{NAME}@{VERSION} is not what was declared: its integrity is {registry.integrity}, not {other}" in done.stderr
    )

    done = agentix("build", cwd=where, env={**env, "npm_config_registry": "http://127.0.0.1:9"})
    assert done.returncode == 1
    assert f"{NAME}@{VERSION} could not be fetched: npm exited with code 1: npm error code ECONNREFUSED" in done.stderr
    assert "npm config get registry" in done.stderr

    done = agentix("build", cwd=where, env={**env, "AGENTIX_NPM": "/nonexistent"})
    assert done.returncode == 1
    assert f"npm not found, which fetches {NAME}@{VERSION}" in done.stderr
    assert not (where / "dist").exists()


def native(directory: Path) -> tuple[str, bytes]:
    """A package with a program of this machine's, once more with data at its end; its declaration and that program."""
    program = Path("/bin/echo").read_bytes()
    payload = program + b"payload!" * 1000
    about = {"name": "@agx/native", "bin": {"agx-echo": "echo", "agx-payload": "payload"}}
    with tarfile.open(directory / "x.tgz", "w:gz") as tar:
        for name, data in (("package.json", json.dumps(about).encode()), ("echo", program), ("payload", payload)):
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    integrity = integrity_of((directory / "x.tgz").read_bytes())
    (directory / "x.tgz").rename(directory / f"npm-{hashlib.sha256(integrity.encode()).hexdigest()[:32]}.tgz")
    return f'name = "@agx/native"\nversion = "1.0.0"\nintegrity = "{integrity}"\n', payload


def test_a_plugin_declares_what_it_needs(tmp_path: Path, env: dict[str, str], registry: Registry) -> None:
    """A distribution that the project depends on: a script under its own name, and native programs."""
    plugin = project(
        tmp_path / "p" / "plugin", name=PLUGIN, more='[project.entry-points."agentix.npm"]\nthing = "agx_npm_plugin"\n'
    )
    about, payload = native(tmp_path)
    text = f"[[npm]]\n{table(registry)}\n".replace(", ", "\n") + f'bin = {{ agx-n = "bin/n" }}\n[[npm]]\n{about}'
    (plugin / "src/agx_npm_plugin/npm.toml").write_text(text)
    source = f'[tool.uv.sources]\n{PLUGIN} = {{ path = "plugin" }}\n'
    where = project(tmp_path / "p", dependencies=(PLUGIN,), more=source)
    done = agentix("build", "-o", "x.tar", cwd=where, env={**env, "AGENTIX_BUILD_NPM": str(tmp_path)})
    assert done.returncode == 0, done.stderr

    tree = unpack(where / "x.tar", tmp_path / "tree")
    assert str((tree / "nix/runtime/bin/agx-n").readlink()) == f"/nix/npm/node_modules/{NAME}/bin/n"
    echo = run_alone(tree, tmp_path, "/nix/runtime/bin/agx-echo", "it runs")
    assert (echo.stdout, echo.stderr) == ("it runs\n", ""), "with the bundle's loader and libraries"
    assert (tree / "nix/npm/node_modules/@agx/native/payload").read_bytes() == payload
    assert "warning: /nix/npm/node_modules/@agx/native/payload carries data at its end" in done.stderr


@pytest.mark.long
def test_a_program_that_is_there_already(tmp_path: Path, env: dict[str, str], registry: Registry) -> None:
    where = project(tmp_path / "p", more=declare(table(registry) + ', bin = { bash = "bin/n" }'))
    done = agentix("build", cwd=where, env=env)
    assert done.returncode == 1
    assert f"collision: {NAME}@{VERSION} gives the program bash, which the bundle has already" in done.stderr


ENGINE = """#!/bin/sh
for word; do
  case $word in
    *target=/archives,*) from=${word#*source=}; cp -R "${from%%,*}" "$0.archives" ;;
    AGENTIX_BUILD_NPM=*) echo "$word" >"$0.env" ;;
  esac
done
exit 7
"""


def test_a_build_in_a_container_is_given_the_archives(
    tmp_path: Path, build_cache: Path, env: dict[str, str], registry: Registry
) -> None:
    engine = tmp_path / "engine"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    where = project(tmp_path / "p", more=declare(table(registry)))
    done = agentix("build", "--container-engine", engine, cwd=where, env=env)
    assert done.returncode == 7, done.stderr
    assert (tmp_path / "engine.env").read_text() == "AGENTIX_BUILD_NPM=/archives\n"
    (given,) = (tmp_path / "engine.archives").iterdir()
    assert given.read_bytes() == registry.data
    assert given.name == f"npm-{hashlib.sha256(registry.integrity.encode()).hexdigest()[:32]}.tgz"

    # As the build inside would: npm is not there, nor the archive in its cache. It gets as far as the stale lock.
    forget(build_cache)
    (where / "uv.lock").write_text('version = 1\nrequires-python = ">=3.11"\n')
    inside = {**env, "AGENTIX_NPM": "/nonexistent"}
    assert "npm not found" in agentix("build", cwd=where, env={**inside, "AGENTIX_BUILD_NPM": str(tmp_path)}).stderr
    offered = agentix("build", cwd=where, env={**inside, "AGENTIX_BUILD_NPM": str(tmp_path / "engine.archives")})
    assert "uv.lock is out of date" in offered.stderr


@pytest.mark.long
def test_a_build_in_a_container(
    tmp_path: Path, env: dict[str, str], registry: Registry, docker_engine: engines.Engine
) -> None:
    """A real one, in an image that has neither npm nor a way to the registry; the bundle is the same as from here."""
    where = project(tmp_path / "p", more=declare(table(registry)))
    here = build("--output", tmp_path / "here.tar", cwd=where, env=env)
    cache = f"type=bind,source={env['UV_CACHE_DIR']},target=/uv-cache"
    inside = ["--network=none", f"--mount={cache}", "--env=UV_CACHE_DIR=/uv-cache"]
    options = ["--container-engine", docker_engine.program, "--container-image", docker_engine.image("testbed")]
    said = build(
        *options, *(f"--container-run-arg={word}" for word in inside), cwd=where, env={**env, "UV_OFFLINE": "1"}
    )
    assert said["npm"] == here["npm"] == [f"{NAME}@{VERSION}"]
    tree = unpack(where / said["bundle"], tmp_path / "tree")
    assert json.loads((tree / "manifest.json").read_text())["npm"] == {f"{NAME}@{VERSION}": registry.integrity}
    done = run_alone(tree, tmp_path, f"/nix/runtime/bin/{NAME}", "--version")
    assert (done.returncode, done.stdout) == (0, f"{VERSION}\n"), done.stderr
    done = run_alone(tree, tmp_path, "/nix/runtime/venv/bin/python", "-c", "import proj; print(proj.where())")
    assert done.stdout.startswith("/nix/"), done.stderr
