"""Which files a patch touches: against git's own diffs, and by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from agentix.plugins.datasets.swe._patch import changes_of, without_deletions

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import swe_instances as instances


def names(patch: str) -> list[tuple[str | None, str | None]]:
    return [(change.old, change.new) for change in changes_of(patch)]


def test_gits_own_diff(tmp_path: Path) -> None:
    instance = instances.make(tmp_path)
    assert names(instance["test_patch"]) == [
        ("tests/test_calc.py", "tests/test_calc.py"),
        ("tests/test_gone.py", None),
        ("tests/test_old_names.py", "tests/test_names.py"),
        (None, "tests/test_new.py"),
    ]
    assert "".join(change.text for change in changes_of(instance["test_patch"])) == instance["test_patch"]
    kept = without_deletions(instance["test_patch"])
    assert "test_gone" not in kept
    assert len(changes_of(kept)) == 3


def test_names_that_git_quotes_and_contents_that_are_not_text(tmp_path: Path) -> None:
    odd = {
        "tests/t\u00e4st a.py": "1\n",
        'tests/"q"\t.py': "2\n",
        "pure": "same\n" * 9,
        "mode": "m\n",
        "bin": b"\0" * 99,
    }
    instances.make(tmp_path, files=odd, tests={})
    (tmp_path / "mode").chmod(0o755)
    changes = {
        "tests/t\u00e4st a.py": "3\n",
        'tests/"q"\t.py': None,
        "pure": None,
        "dir/pure too": "same\n" * 9,
        "bin": b"\0\1" * 99,
        "new bin": b"\0\2" * 99,
        "empty": "",
    }
    assert sorted(names(instances.diff(tmp_path, changes)), key=str) == sorted(
        [
            ("tests/t\u00e4st a.py", "tests/t\u00e4st a.py"),
            ('tests/"q"\t.py', None),
            ("pure", "dir/pure too"),
            ("mode", "mode"),
            ("bin", "bin"),
            (None, "new bin"),
            (None, "empty"),
        ],
        key=str,
    )


def test_lines_of_hunks_are_not_headers() -> None:
    patch = (
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n keep\n--- a/etc\n+++ b/etc\n \n"
        "diff --git a/y b/y\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-diff --git a/p b/p\n+q\n\\ No newline at end of file\n"
    )
    assert names(patch) == [("x", "x"), ("y", "y")]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_plain_patches(end: str) -> None:
    lines = ["--- a/x\t2020-01-01", "+++ b/x\t2020-01-02", "@@ -1 +1 @@", "-1", "+2"]
    lines += [
        "--- /dev/null",
        "+++ b/new",
        "@@ -0,0 +1 @@",
        "+--- a/no",
        "--- src/y.py",
        "+++ src/y.py",
        "@@ -2,0 +3 @@",
        "+3",
        "",
    ]
    assert names(end.join(lines)) == [("x", "x"), (None, "new"), ("src/y.py", "src/y.py")]


def test_a_mail_around_the_patch() -> None:
    mail = "From 1\nSubject: x\n\ntext\n---\n x | 2 +-\n\n"
    assert names(mail + "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-1\n+2\n-- \n2.1\n") == [("x", "x")]


@pytest.mark.parametrize("text", ["", "\n", "no patch at all\n", "@@ -1,9 +1,9 @@\n"])
def test_what_is_no_patch(text: str) -> None:
    assert names(text) == []


@pytest.mark.parametrize("name", ["../x", "d/../../x", "/etc/passwd"])
def test_names_outside_are_refused(name: str) -> None:
    patch = f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-1\n+2\n"
    with pytest.raises(ValueError, match="may only name files below the repository"):
        changes_of(patch)
