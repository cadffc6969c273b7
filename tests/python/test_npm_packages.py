"""npm packages in bundles: what may be declared, whose word counts, and archives that are taken apart."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from agentix import _npm_packages as npm
from agentix import _project

GOOD = "sha512-" + base64.b64encode(bytes(64)).decode()
OTHER = "sha512-" + base64.b64encode(bytes(range(64))).decode()


def one(**changes: Any) -> dict[str, Any]:
    about = {"name": "@a/b.c-d", "version": "1.2.3-rc.1+x", "integrity": GOOD, **changes}
    return {key: value for key, value in about.items() if value is not None}


def test_what_may_be_declared() -> None:
    (package,) = npm.declared([one(platform="linux/arm64", bin={"z": "./bin/z", "a": "x//y"})], "p")
    assert list(package.records()) == [
        ("npm", f"@a/b.c-d\t1.2.3-rc.1+x\t{GOOD}\tlinux/arm64"),
        ("npm-bin", "a\tx/y"),
        ("npm-bin", "z\tbin/z"),
    ]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        *(({"version": wrong}, "exact version") for wrong in ("^1.2.3", "1.2", "latest", "*", ">=1.0.0", "", None, 1)),
        *(
            ({"version": wrong}, "exact version")
            for wrong in (
                "\u0661.2.3",
                "1.2.\u00b2",
                "01.2.3",
                "1.2.3-",
                "1.2.3-a..b",
                "1.2.3-01",
                "1.2.3+",
                "1.2.3+a+b",
            )
        ),
        *(({"version": wrong}, "exact version") for wrong in ("1.2.3\n", "1.2.3-\u00e9", "1.2." + "3" * 300)),
        *(
            ({"name": wrong}, "no name of a package")
            for wrong in ("", "../x", "@a", "a/b", ".x", "a b", "a@1", "@a/..", 3, "-g", "a" * 215, "a\n", "\u00e9")
        ),
        ({"integrity": None}, r"npm view @a/b.c-d@1.2.3-rc.1\+x dist.integrity"),
        *(
            ({"integrity": wrong}, "needs its integrity")
            for wrong in ("sha1-AA==", "sha512-AA==", "sha512-!", GOOD + " " + GOOD, "sha512-\u00e9", GOOD[:-3] + "B==")
        ),
        *(({"bin": {"x": wrong}}, "no program of the package") for wrong in ("../x", "/x", "", ".", "a/../..")),
        *(({"bin": {wrong: "x"}}, "no program of the package") for wrong in ("../x", "a/b", "", ".", "..", "-x")),
        *(({"bin": {wrong: "x"}}, "no program of the package") for wrong in ("a" * 256, "a\n", "\u00e9", "a b")),
        *(({"bin": {"x": wrong}}, "no program of the package") for wrong in (1, True, None, ["a"], {"a": "b"})),
        *(({"bin": {"x": wrong}}, "no program of the package") for wrong in ("a\nb", "a\r", "a\tb", "a\0", "a\ud800")),
        ({"bin": "x"}, "must be a table"),
        ({"platform": "linux/mips"}, "unknown platform"),
        ({"colour": "red"}, "unknown key"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(npm.NpmError, match=complaint):
        list(npm.declared([one(**changes)], "p"))


@pytest.mark.parametrize("wrong", ["left-pad@1.3.0", {"name": "x"}, ["left-pad@1.3.0"]])
def test_what_is_no_list_of_tables(wrong: object) -> None:
    with pytest.raises(npm.NpmError, match="must be a list of tables"):
        list(npm.declared(wrong, "p"))


def test_whose_word_counts() -> None:
    def of(who: str, *tables: dict[str, Any]) -> list[npm.Package]:
        return list(npm.declared(list(tables), who))

    mine, theirs = one(), one(version="2.0.0", integrity=OTHER)
    assert [p.version for p in npm.settled(of("project", mine), of("plugin", theirs))] == ["1.2.3-rc.1+x"]
    assert len(npm.settled([], of("one", mine) + of("two", mine))) == 1
    with pytest.raises(npm.NpmError, match=r"wanted as 1.2.3-rc.1\+x by one and as 2.0.0 by two"):
        npm.settled([], of("one", mine) + of("two", theirs))
    arm, amd = one(platform="linux/arm64"), {**theirs, "platform": "linux/amd64"}
    assert len(npm.settled([], of("one", arm, amd))) == 2
    with pytest.raises(npm.NpmError, match="wanted as"):
        npm.settled([], of("one", arm, theirs))


def archive_of(path: Path, files: dict[str, bytes], *more: tarfile.TarInfo) -> str:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o775 if "bin" in name else 0o600
            tar.addfile(info, io.BytesIO(data))
        for info in more:
            tar.addfile(info)
    return "sha512-" + base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()


def test_taking_an_archive_apart(tmp_path: Path) -> None:
    about = json.dumps({"name": "@a/tool", "bin": "./bin/t.js"}).encode()
    link = tarfile.TarInfo("package/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    files = {"package/package.json": about, "package/bin/t.js": b"old", "package/./bin/t.js": b"js"}
    integrity = archive_of(tmp_path / "x.tgz", files, link)
    to = tmp_path / "to"
    assert list(npm.unpack(str(tmp_path / "x.tgz"), OTHER, str(to))) == [("other", integrity)]
    assert not to.exists()
    said = list(npm.unpack(str(tmp_path / "x.tgz"), integrity, str(to)))
    assert said == [("unpacked", str(to)), ("npm-bin", "tool\tbin/t.js")]
    assert sorted(path.name for path in to.rglob("*")) == ["bin", "package.json", "t.js"]
    assert (to / "bin/t.js").read_bytes() == b"js"
    assert [oct((to / name).stat().st_mode & 0o777) for name in ("bin/t.js", "package.json")] == ["0o755", "0o644"]


@pytest.mark.parametrize("name", ["package/../../agx-out", "package//../../agx-out", "package/", "alone"])
def test_nothing_is_written_elsewhere(tmp_path: Path, name: str) -> None:
    integrity = archive_of(tmp_path / "x.tgz", {"package/package.json": b"{}", name: b"x"})
    with pytest.raises(npm.NpmError, match="outside of it"):
        list(npm.unpack(str(tmp_path / "x.tgz"), integrity, str(tmp_path / "a" / "to")))
    assert not list(tmp_path.rglob("agx-out"))


def test_archives_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x.tgz").write_bytes(b"no archive")
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(b"no archive").digest()).decode()
    with pytest.raises(npm.NpmError, match="could not be unpacked"):
        list(npm.unpack(str(tmp_path / "x.tgz"), integrity, str(tmp_path / "to")))
    integrity = archive_of(tmp_path / "y.tgz", {"package/x": b"x"})
    with pytest.raises(npm.NpmError, match=r"no package\.json"):
        list(npm.unpack(str(tmp_path / "y.tgz"), integrity, str(tmp_path / "to")))


@pytest.mark.parametrize(
    ("about", "complaint"),
    [
        (b"[" * 200_000, "no package.json that can be read"),
        (b'{"a": ' * 200_000, "no package.json that can be read"),
        (b'{"bin": "a.js", "name": ' + b"9" * 5000 + b"}", "no package.json that can be read"),
        (b'{"bin": {"x": "a\\ud800.js"}}', r"package.json: bin: 'x' = 'a\\ud800.js' is no program"),
        (b'{"bin": {"\\ud800": "a.js"}}', r"package.json: bin: '\\ud800' = 'a.js' is no program"),
        (b'{"bin": {"x": 1}}', "is no program of the package"),
        (b'{"bin": ["a.js"]}', "must be a table"),
        (b'{"bin": {"%s": "a.js"}}' % (b"x" * 5000), r"xxx\.\.\. = 'a.js' is no program"),
        (b'{"name": "@a/..", "bin": "a.js"}', "'..' = 'a.js' is no program"),
        (b"[1]", "no package.json that can be read"),
        (b" " * (5 << 20), "larger than 4 MiB"),
    ],
    ids=lambda value: value[:20].decode() if isinstance(value, bytes) else "",
)
def test_what_a_package_says_of_itself(tmp_path: Path, about: bytes, complaint: str) -> None:
    integrity = archive_of(tmp_path / "x.tgz", {"package/package.json": about, "package/a.js": b"x"})
    with pytest.raises(npm.NpmError, match=complaint):
        list(npm.unpack(str(tmp_path / "x.tgz"), integrity, str(tmp_path / "to")))
    assert _project.main(["unpack-npm", str(tmp_path / "x.tgz"), integrity, str(tmp_path / "again")]) == 0


def test_a_project_that_is_nested_too_deep(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    (tmp_path / "pyproject.toml").write_text("a = " + "[" * 100_000)
    assert _project.main(["describe", str(tmp_path), str(tmp_path)]) == 0
    assert capfdbinary.readouterr().out.startswith(b"error\0pyproject.toml is not valid TOML")
