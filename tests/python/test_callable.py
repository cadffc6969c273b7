"""Which functions may be remote targets, what they are called, and how the worker finds them again."""

import asyncio
import functools
import math
import os
import pickle
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fresh import python

from agentix import RemoteCallable
from agentix._callable import _KNOWN_MAX, _known

ME = __name__


def plain() -> str:
    return "plain"


async def coroutine() -> None: ...


@functools.lru_cache
def cached() -> None: ...


def stream() -> Any:
    yield 1


class K:
    @staticmethod
    def static() -> str:
        return "static"

    @classmethod
    def klass(cls) -> None: ...

    def method(self) -> str:
        return "method"

    def __call__(self) -> None: ...

    class Inner:
        @staticmethod
        def deep() -> str:
            return "deep"


class Dressed:
    """A callable instance that has taken a function's names without standing in its place."""

    def __init__(self) -> None:
        functools.update_wrapper(self, plain)

    def __call__(self) -> None: ...


instance = K()
no_name = lambda: 0  # noqa: E731


def closure() -> Callable[[], None]:
    def inner() -> None: ...

    return inner


ACCEPTED = [
    (plain, f"{ME}::plain"),
    (coroutine, f"{ME}::coroutine"),
    (stream, f"{ME}::stream"),
    (cached, f"{ME}::cached"),
    (K.static, f"{ME}::K.static"),
    (K.method, f"{ME}::K.method"),
    (K.Inner.deep, f"{ME}::K.Inner.deep"),
    (len, "builtins::len"),
    (abs, "builtins::abs"),
    (math.sqrt, "math::sqrt"),
    (math.prod, "math::prod"),
    (time.sleep, "time::sleep"),
    (asyncio.sleep, "asyncio.tasks::sleep"),
    (os.path.join, "posixpath::join"),
]

REFUSED = [
    (3, ["function", "int"]),
    (None, ["function", "NoneType"]),
    ("app::run", ["function", "str", "not its name"]),
    (no_name, ["lambda"]),
    (closure(), ["closure", "closure.<locals>.inner"]),
    (instance.method, ["bound method", "K.method"]),
    (K.klass, ["bound method", "klass"]),
    ([].append, ["bound method", "append"]),
    (dict.fromkeys, ["bound method", "fromkeys"]),
    ((1).__add__, ["bound method", "__add__"]),
    (instance, ["callable instances", "K"]),
    (functools.partial(plain), ["functools.partial", "callable instances"]),
    (Dressed(), ["callable instances", "Dressed"]),
    (int, ["class", "int"]),
    (K, ["class", "K"]),
    (ValueError, ["class"]),
    (str.upper, ["C type", "str.upper"]),
    (int.__add__, ["C type", "int.__add__"]),
    (dict.__dict__["fromkeys"], ["C type"]),
    (K.__dict__["static"], ["callable instances"]),
    (list[int], ["callable instances"]),
]


@pytest.mark.parametrize(("fn", "name"), ACCEPTED, ids=[name for _, name in ACCEPTED])
def test_accepted(fn: Callable[..., Any], name: str) -> None:
    for ask in (RemoteCallable.validate, RemoteCallable._resolve, RemoteCallable._resolve):
        reference = ask(fn)
        assert type(reference) is RemoteCallable
        assert reference == name
        assert reference.resolve() is fn


@pytest.mark.parametrize(("fn", "words"), REFUSED, ids=[words[-1] for _, words in REFUSED])
def test_refused(fn: Any, words: list[str]) -> None:
    for ask in (RemoteCallable.validate, RemoteCallable._resolve, RemoteCallable._resolve):
        with pytest.raises(TypeError) as caught:
            ask(fn)
        for word in words:
            assert word in str(caught.value)


def function_named(module: Any, qualname: str) -> types.FunctionType:
    fn = types.FunctionType(plain.__code__, {}, "made")
    fn.__module__ = module
    fn.__qualname__ = qualname
    return fn


@pytest.mark.parametrize(
    ("module", "qualname"),
    [(None, "f"), ("", "f"), (3, "f"), ("m::n", "f"), ("m", ""), ("m", "a b"), ("m", "a..b"), ("m" * 4096, "f")],
)
def test_unusable_names(module: Any, qualname: str) -> None:
    with pytest.raises(TypeError):
        RemoteCallable.validate(function_named(module, qualname))


def test_builtin_of_no_module() -> None:
    assert RemoteCallable.validate(function_named("some.module", "A.b")) == "some.module::A.b"


def test_unhashable_callables_are_refused_as_such() -> None:
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self) -> None: ...

    with pytest.raises(TypeError, match="callable instances"):
        RemoteCallable._resolve(Unhashable())


def test_the_memory_of_names_is_bounded() -> None:
    for number in range(_KNOWN_MAX + 10):
        RemoteCallable._resolve(function_named("some.module", f"f{number}"))
    assert len(_known) <= _KNOWN_MAX


def test_is_a_string() -> None:
    reference = RemoteCallable.validate(plain)
    assert isinstance(reference, str)
    assert pickle.loads(pickle.dumps(reference)) == reference
    assert type(pickle.loads(pickle.dumps(reference))) is RemoteCallable


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ValueError),
        ("app.run", ValueError),
        ("::run", ValueError),
        ("app::", ValueError),
        (".app::run", ValueError),
        ("no_such_module_agx::run", ModuleNotFoundError),
        ("json.no_such_module::run", ModuleNotFoundError),
        ("json::no_such", AttributeError),
        ("json::dumps.no_such", AttributeError),
        ("json::a::b", AttributeError),
        ("json::", ValueError),
        ("math::pi", TypeError),
    ],
)
def test_resolve_errors(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        RemoteCallable(text).resolve()


def test_resolve_imports_the_submodule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agxpkg").mkdir()
    (tmp_path / "agxpkg" / "__init__.py").write_text("")
    (tmp_path / "agxpkg" / "sub.py").write_text("class A:\n    class B:\n        def f(): return 'found'\n")
    (tmp_path / "agxboom.py").write_text("raise OSError('at import')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert RemoteCallable("agxpkg.sub::A.B.f").resolve()() == "found"
    with pytest.raises(OSError, match="at import"):
        RemoteCallable("agxboom::f").resolve()


SCRIPT = """
import sys
from agentix import RemoteCallable

def run(): ...

class K:
    @staticmethod
    def m(): ...

if __name__ == "__main__":
    try:
        print(RemoteCallable.validate(run), RemoteCallable.validate(K.m))
    except TypeError as exc:
        print("TypeError", exc)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose script can be run in every way: app.py, a package, a directory with __main__.py."""
    (tmp_path / "app.py").write_text(SCRIPT)
    (tmp_path / "not-a-name.py").write_text(SCRIPT)
    (tmp_path / "pkg").mkdir()
    for name in ("__init__.py", "tool.py", "__main__.py"):
        (tmp_path / "pkg" / name).write_text("" if name == "__init__.py" else SCRIPT)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text(SCRIPT)
    return tmp_path


def test_main_as_a_script(project: Path) -> None:
    assert python("app.py", cwd=project) == "app::run app::K.m"
    assert python(str(project / "app.py"), cwd=Path("/")) == "app::run app::K.m"


def test_main_as_a_module(project: Path) -> None:
    assert python("-m", "app", cwd=project) == "app::run app::K.m"
    assert python("-m", "pkg.tool", cwd=project) == "pkg.tool::run pkg.tool::K.m"
    assert python("-m", "pkg", cwd=project) == "pkg.__main__::run pkg.__main__::K.m"


def test_main_inside_a_package(project: Path) -> None:
    assert python("pkg/tool.py", cwd=project, path=str(project)) == "pkg.tool::run pkg.tool::K.m"
    assert python("pkg/tool.py", cwd=project) == "tool::run tool::K.m"


def test_main_behind_a_link(project: Path) -> None:
    (project / "bin").mkdir()
    (project / "bin" / "start.py").symlink_to(project / "app.py")
    assert python("bin/start.py", cwd=project) == "app::run app::K.m"


@pytest.mark.parametrize("args", [["not-a-name.py"], ["folder"], ["-c", SCRIPT]])
def test_main_without_a_name(project: Path, args: list[str]) -> None:
    said = python(*args, cwd=project)
    assert said.startswith("TypeError run is defined in")
    assert "module of its own" in said


def test_main_on_standard_input(project: Path) -> None:
    assert python("-", cwd=project, stdin=SCRIPT).startswith("TypeError run is defined in")
