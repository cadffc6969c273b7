"""The checks in tools/ find what they are for: each rule is shown a violation and a clean twin."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


layers = load("check_layers")
text = load("check_text")
fetch = load("fetch_llhttp")


def plant(root: Path, path: str, content: str) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("src/base/buf.c", '"wire/http1.h"'),
        ("src/wire/http1.c", '"proto/frame.h"'),
        ("src/proto/frame.c", '"worker/worker.h"'),
        ("src/worker/worker.c", '"server/ledger.h"'),
        ("src/server/ledger.c", '"client/session.h"'),
        ("src/client/session.c", '"provider/provider.h"'),
        ("src/client/session.c", '"worker/worker.h"'),
        ("src/io/loop.c", '"wire/http1.h"'),
        ("src/server/ledger.c", '"io/loop.h"'),
        ("src/server/ledger.c", "<uv.h>"),
        ("src/server/ledger.c", "<uv/errno.h>"),
        ("src/server/main.c", "<uv.h>"),
        ("src/server/ledger.c", '"server/listener_uv.h"'),
        ("src/server/ledger.c", '"ledger.h"'),
        ("src/server/ledger.c", "<Python.h>"),
        ("src/proto/frame.c", "<msgpack.h>"),
        ("src/proto/frame.c", '"nowhere/x.h"'),
        ("src/attic/x.c", '"base/buf.h"'),
        ("python/ext/client.c", "<uv.h>"),
        ("python/ext/client_uv.c", "<uv.h>"),
        ("python/ext/client.c", '"io/loop.h"'),
        ("python/ext/client.c", '"client/session_uv.h"'),
        ("python/ext/client.c", '"server/ledger.h"'),
    ],
)
def test_layer_violation_is_found(tmp_path: Path, path: str, include: str) -> None:
    plant(tmp_path, path, f"/* essay */\n#include <stddef.h>\n#  include {include}\n")
    (complaint,) = layers.check_tree(tmp_path)
    line = 1 if "attic" in path else 3
    assert complaint.startswith(f"{path}:{line}: ")


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("src/wire/http1.c", '"base/buf.h"'),
        ("src/wire/http1.c", "<llhttp.h>"),
        ("src/server/ledger.c", '"base/buf.h"'),
        ("src/server/listener_uv.c", "<uv.h>"),
        ("src/server/listener_uv.h", "<uv.h>"),
        ("src/server/listener_uv.c", '"io/loop.h"'),
        ("src/server/listener_uv.c", '"worker/spawn_uv.h"'),
        ("src/server/main.c", '"server/listener_uv.h"'),
        ("src/io/loop.c", "<uv.h>"),
        ("src/provider/registry.c", '"client/session.h"'),
        ("src/provider/registry.c", '"agentix/sandbox.h"'),
        ("python/ext/client.c", '"client/session.h"'),
        ("python/ext/client.c", "<Python.h>"),
        ("tests/c/base/test_buf.c", '"server/ledger.h"'),
    ],
)
def test_allowed_include_passes(tmp_path: Path, path: str, include: str) -> None:
    plant(tmp_path, path, f"#include {include}\n")
    assert layers.check_tree(tmp_path) == []


def test_layer_check_exits_nonzero_and_names_the_line(tmp_path: Path) -> None:
    plant(tmp_path, "src/base/buf.c", '\n#include "server/ledger.h"\n')
    command = [sys.executable, str(ROOT / "tools" / "check_layers.py"), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "src/base/buf.c:2: base may not know server" in result.stderr


@pytest.mark.parametrize("name", sorted(text.BANNED))
def test_banned_function_is_found(name: str) -> None:
    assert text.check_file("tests/c/base/test_x.c", f"int f(void) {{\n    return {name} (x);\n}}\n")[0].startswith(
        f"tests/c/base/test_x.c:2: {name} is banned"
    )


@pytest.mark.parametrize(
    "line",
    [
        "/* strcpy(a, b) is banned */",
        'puts("system(1)");',
        "uv_getsystem(x);",
        "snprintf(a, 1, b);",
        "vtable->system(x);",
        "strcpy(a, b); /* check-text: allow, shown on purpose */",
    ],
)
def test_words_that_only_look_banned_pass(line: str) -> None:
    assert text.check_file("src/base/x.c", f"{line}\n") == []


def test_only_main_may_end_the_process() -> None:
    assert text.check_file("src/server/ledger.c", "exit(1);") == [
        "src/server/ledger.c:1: exit in a library: return an error"
    ]
    assert text.check_file("src/server/main.c", "exit(1);") == []
    assert text.check_file("src/io/spawn.c", "_exit(1);") == []


@pytest.mark.parametrize(
    "line",
    [
        "TO" + "DO later",
        "FIX" + "ME",
        "see https://" + "registry.invalid.io/x",
        "in ../sha" + "red/spec",
        "cd /wo" + "rk/main",
        "closes issue" + " #12",
    ],
)
def test_words_that_leave_the_project_are_found(line: str) -> None:
    (complaint,) = text.check_file("docs/x.md", f"first\n{line}\n")
    assert complaint.startswith("docs/x.md:2: ")


@pytest.mark.parametrize(
    "line", ["http://127.0.0.1:8000/call", "http://localhost/", "https://www.rfc-editor.org/rfc/x"]
)
def test_local_and_specification_addresses_pass(line: str) -> None:
    assert text.check_file("docs/x.md", line) == []


def test_lock_names_only_the_default_index() -> None:
    bad = 'source = { registry = "https://' + 'mirror.invalid.io/simple" }'
    assert text.check_file("uv.lock", f"version = 1\n{bad}\n")[0].startswith("uv.lock:2: ")
    lock = ROOT / "uv.lock"
    assert text.check_file("uv.lock", lock.read_text()) == []


def archive_with(path: Path, names: tuple[str, ...]) -> None:
    source = path.parent / "file"
    source.write_text("content")
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            tar.add(source, fetch.PREFIX + name)


def test_fetch_rejects_an_archive_with_another_hash(tmp_path: Path) -> None:
    archive = tmp_path / "x.tar.gz"
    archive_with(archive, fetch.FILES)
    with pytest.raises(SystemExit, match="sha256"):
        fetch.verify(archive)


def test_fetch_extracts_only_what_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "x.tar.gz"
    archive_with(archive, (*fetch.FILES, "setup.py", "../../escape"))
    monkeypatch.setattr(fetch, "SHA256", hashlib.sha256(archive.read_bytes()).hexdigest())
    monkeypatch.setattr(fetch, "download", lambda into: archive)
    monkeypatch.setenv("AGENTIX_BUILD_CACHE", str(tmp_path / "cache"))
    home = fetch.provide()
    assert sorted(str(p.relative_to(home)) for p in home.rglob("*") if p.is_file()) == sorted(fetch.FILES)


def test_fetch_is_offline_once_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTIX_BUILD_CACHE", str(tmp_path))
    monkeypatch.setattr(fetch, "download", lambda into: pytest.fail("went to the network"))
    for name in fetch.FILES:
        plant(tmp_path / f"llhttp-{fetch.SHA256[:16]}", name, "content")
    assert fetch.provide().is_dir()
