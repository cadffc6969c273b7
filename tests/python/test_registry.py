"""The registry of providers, over real and broken metadata on `sys.path`."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fresh import python

from agentix import providers, register_provider
from agentix.provider import Registry
from agentix.provider._registry import RegistryConflict

Install = Callable[..., Path]


class Fake:
    pass


class Other:
    pass


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    providers().reset()
    yield
    providers().reset()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution: entry points and, perhaps, a module, in a directory of its own on sys.path."""
    modules: list[str] = []

    def make(
        dist: str,
        entries: str | bytes,
        *,
        version: str = "1.0",
        module: str | None = None,
        code: str = "",
        metadata: bool = True,
    ) -> Path:
        root = tmp_path / f"site-{dist}-{version}"
        info = root / f"{dist.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        if metadata:
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
        if isinstance(entries, str):
            entries = f"[agentix.provider]\n{entries}\n".encode()
        (info / "entry_points.txt").write_bytes(entries)
        if module is not None:
            modules.append(module)
            (root / f"{module}.py").write_text(code)
        monkeypatch.syspath_prepend(str(root))
        return root

    yield make
    for module in modules:
        sys.modules.pop(module, None)


CLASS = "class P: pass\n"


def test_an_installed_backend(install: Install) -> None:
    install("agx-fly", "fly = agxfly:P", version="2.1", module="agxfly", code=CLASS)
    assert providers().sources()["fly"].label() == "agx-fly@2.1"
    assert "agxfly" not in sys.modules
    cls = providers().get("fly")
    assert cls is sys.modules["agxfly"].P
    assert providers().get("fly") is cls
    assert providers().all()["fly"] is cls
    assert "fly" not in providers().errors()


def test_only_the_asked_one_is_imported(install: Install) -> None:
    install("agx-one", "one = agxone:P", module="agxone", code=CLASS)
    install("agx-two", "two = agxtwo:P", module="agxtwo", code=CLASS)
    providers().get("one")
    assert "agxtwo" not in sys.modules


def test_all_is_sorted_by_name(install: Install) -> None:
    install("agx-many", "zz = agxmany:P\naa = agxmany:P\nmm = agxmany:P", module="agxmany", code=CLASS)
    assert [name for name in providers().all() if name in ("aa", "mm", "zz")] == ["aa", "mm", "zz"]


def test_unknown_name(install: Install) -> None:
    install("agx-fly", "fly = agxfly:P", module="agxfly", code=CLASS)
    with pytest.raises(KeyError) as caught:
        providers().get("nope")
    for word in ("nope", "agentix.provider", "fly"):
        assert word in str(caught.value)


def test_unknown_name_when_there_is_none() -> None:
    empty: Registry[Any] = Registry("agx.no.such.group", lambda label, value: value)
    with pytest.raises(KeyError, match="none is installed"):
        empty.get("x")
    assert empty.all() == empty.errors() == empty.sources() == {}


BROKEN = [
    ("raise OSError('at import')", "agxbad:P", OSError, "at import"),
    ("import agx_not_there", "agxbad:P", ModuleNotFoundError, "agx_not_there"),
    ("def f(:", "agxbad:P", SyntaxError, "agxbad.py"),
    ("raise SystemExit(3)", "agxbad:P", ImportError, "bad.*agx-bad@1.0.*exit.*3"),
    ("", "agxbad:P", AttributeError, "P"),
    ("P = 3", "agxbad:P", TypeError, "agx-bad@1.0 is not a provider class"),
    ("", "agxbad", TypeError, "module"),
    ("", "agxbad:", ImportError, "module:attribute"),
    ("", "not a reference", ImportError, "module:attribute"),
]


@pytest.mark.parametrize(("code", "value", "error", "text"), BROKEN)
def test_a_broken_backend_hides_no_other(
    install: Install, code: str, value: str, error: type[Exception], text: str
) -> None:
    install("agx-bad", f"bad = {value}", module="agxbad", code=code)
    install("agx-fly", "fly = agxfly:P", module="agxfly", code=CLASS)
    assert "fly" in providers().all()
    assert "bad" not in providers().all()
    assert set(providers().errors()) >= {"bad"}
    assert "fly" not in providers().errors()
    for _ in range(2):
        with pytest.raises(error, match=text) as caught:
            providers().get("bad")
        assert caught.value is providers().errors()["bad"]
    assert providers().sources()["bad"].label() == "agx-bad@1.0"


def test_a_failure_is_kept_with_where_it_happened_until_reset(install: Install) -> None:
    root = install("agx-bad", "bad = agxbad:P", module="agxbad", code="raise OSError('at import')")
    depths: list[int] = []
    for _ in range(3):
        with pytest.raises(OSError, match="at import") as caught:
            providers().get("bad")
        assert any("agxbad.py" in str(entry.path) for entry in caught.traceback)
        depths.append(len(caught.traceback))
    assert len(set(depths[1:])) == 1
    (root / "agxbad.py").write_text(CLASS + "# now longer than before, so that its bytecode is made anew\n")
    with pytest.raises(OSError, match="at import"):
        providers().get("bad")
    providers().reset()
    assert providers().get("bad").__name__ == "P"


def test_two_distributions_with_one_name(install: Install) -> None:
    install("agx-a", "dup = agxa:P", version="1.2", module="agxa", code=CLASS)
    install("agx-b", "dup = agxb:P", version="3.4", module="agxb", code="raise OSError")
    with pytest.raises(RegistryConflict) as caught:
        providers().get("dup")
    for word in ("dup", "agentix.provider", "agx-a@1.2", "agx-b@3.4"):
        assert word in str(caught.value)
    assert not {"agxa", "agxb"} & set(sys.modules)
    assert isinstance(providers().errors()["dup"], RegistryConflict)
    assert "dup" not in providers().all()
    label = providers().sources()["dup"].label()
    assert "agx-a@1.2" in label
    assert "agx-b@3.4" in label
    register_provider("dup", Fake)  # type: ignore[arg-type]
    assert providers().get("dup") is Fake


def test_two_distributions_with_one_reference_still_conflict(install: Install) -> None:
    install("agx-a", "dup = agxa:P", module="agxa", code=CLASS)
    install("agx-b", "dup = agxa:P")
    with pytest.raises(RegistryConflict, match=r"agx-b@1\.0 and agx-a@1\.0"):
        providers().get("dup")


def test_the_same_distribution_twice_is_no_conflict(install: Install) -> None:
    install("agx-fly", "fly = agxold:P", version="1.0", module="agxold", code=CLASS)
    install("agx-fly", "fly = agxnew:P", version="2.0", module="agxnew", code=CLASS)
    assert providers().sources()["fly"].label() == "agx-fly@2.0"
    assert providers().get("fly").__module__ == "agxnew"


def test_an_entry_said_twice_is_no_conflict(install: Install) -> None:
    install("agx-fly", "fly = agxfly:P\nfly = agxfly:P", module="agxfly", code=CLASS)
    assert providers().get("fly").__name__ == "P"


@pytest.mark.parametrize(
    "entries",
    [b"\xff\xfe\x00", b"[agentix.provider\nx", b"", b"no section at all", b"[agentix.provider]\nno equals sign\n"],
)
def test_unreadable_entry_points_hide_no_other(install: Install, entries: bytes) -> None:
    install("agx-torn", entries)
    install("agx-fly", "fly = agxfly:P", module="agxfly", code=CLASS)
    assert providers().get("fly").__name__ == "P"
    providers().errors()


def test_a_distribution_without_metadata(install: Install) -> None:
    install("agx-bare", "bare = agxbare:P", module="agxbare", code=CLASS, metadata=False)
    assert providers().get("bare").__name__ == "P"
    assert providers().sources()["bare"].label().startswith("agx_bare@")


def test_in_process(install: Install) -> None:
    install("agx-fly", "fly = agxfly:P", module="agxfly", code=CLASS)
    installed = providers().get("fly")
    register_provider("fly", Fake)  # type: ignore[arg-type]
    register_provider("mine", Fake)  # type: ignore[arg-type]
    assert providers().get("fly") is providers().get("mine") is Fake
    assert providers().sources()["fly"].label() == "(in-process)"
    register_provider("mine", Other)  # type: ignore[arg-type]
    assert providers().get("mine") is Other
    providers().reset()
    assert providers().get("fly") is installed
    assert providers().sources()["fly"].label() == "agx-fly@1.0"
    with pytest.raises(KeyError):
        providers().get("mine")


def test_in_process_over_a_broken_one(install: Install) -> None:
    install("agx-bad", "bad = agxbad:P", module="agxbad", code="raise OSError")
    with pytest.raises(OSError):  # noqa: PT011
        providers().get("bad")
    register_provider("bad", Fake)  # type: ignore[arg-type]
    assert providers().get("bad") is Fake
    assert "bad" not in providers().errors()


def test_a_factory_is_called_once_and_late() -> None:
    calls: list[int] = []

    def factory() -> Any:
        calls.append(1)
        return Fake

    providers().register("late", factory)
    assert not calls
    assert providers().get("late") is providers().get("late") is Fake
    assert calls == [1]


def test_a_failing_factory() -> None:
    def factory() -> Any:
        raise ValueError("cannot")

    providers().register("bad", factory)
    with pytest.raises(ValueError, match="cannot"):
        providers().get("bad")
    assert "bad" in providers().errors()


@pytest.mark.parametrize(("name", "cls"), [("", Fake), (None, Fake), ("x", 3), ("x", Fake())])
def test_bad_registrations(name: Any, cls: Any) -> None:
    with pytest.raises(TypeError):
        register_provider(name, cls)
    with pytest.raises(TypeError):
        providers().register("x", Fake())  # type: ignore[arg-type]


def test_a_backend_that_registers_itself_when_imported(install: Install) -> None:
    install(
        "agx-self",
        "me = agxself:P",
        module="agxself",
        code=f"import agentix\n{CLASS}agentix.register_provider('also', P)",
    )
    assert providers().get("me") is providers().get("also")


def test_one_registry() -> None:
    assert providers() is providers()
    assert isinstance(providers(), Registry)


def test_a_class_taken_by_import_needs_no_metadata() -> None:
    code = "from agentix.provider import base; import sys; print('importlib.metadata' in sys.modules)"
    assert python("-S", "-c", code) == "False"
