"""Streams that are refused: what they name, where they put state and items, how they are broken."""

import builtins
import copyreg
import datetime as dt
import decimal
import importlib
import pathlib
import pickle
import struct
import sys
import traceback
import uuid

import pytest
from pickle_asm import (
    MARKER,
    STATES,
    line_global,
    no_stock_loader,
    number,
    reduce,
    refuse,
    stack_global,
    text,
    whole,
)

from agentix import RestrictedUnpickleError
from agentix.runtime.shared.safepickle import restricted_loads

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


# --- refusals ---------------------------------------------------------------------------------------------------------


FOREIGN = [
    *(("posix", "mkdir"), ("os", "mkdir"), ("nt", "mkdir"), ("os", "system"), ("posix", "system"), ("shutil", "copy")),
    *(("subprocess", "Popen"), ("subprocess", "call"), ("subprocess", "check_output"), ("subprocess", "run")),
    *(("importlib", "import_module"), ("marshal", "loads"), ("pickle", "loads"), ("_pickle", "loads")),
    *(("functools", "partial"), ("functools", "reduce"), ("operator", "methodcaller"), ("operator", "attrgetter")),
    *(
        ("operator", "itemgetter"),
        ("_operator", "attrgetter"),
        ("operator", "getitem"),
        ("_io", "FileIO"),
        ("io", "open"),
    ),
    *(("builtins", name) for name in ("eval", "exec", "getattr", "setattr", "__import__", "compile", "open", "vars")),
    *(("builtins", name) for name in ("type", "map", "filter", "print", "input", "breakpoint", "globals", "property")),
    *(("__builtin__", name) for name in ("eval", "getattr", "file", "apply", "reduce")),
    *(("collections", "_itemgetter"), ("collections", "namedtuple"), ("collections", "UserDict")),
    *(("copyreg", "__newobj__"), ("copyreg", "_reduce_ex"), ("copyreg", "add_extension"), ("copy_reg", "pickle")),
    *(("re", "_compile"), ("types", "FunctionType"), ("types", "CodeType"), ("types", "MethodType")),
    *(("agentix.runtime.shared.safepickle", "allow_type"), ("agentix.runtime.shared.safepickle", "restricted_loads")),
    *(("agentix._core", "restricted_loads"), ("agentix", "RuntimeClient"), ("agentix.provider", "providers")),
    *(("numpy", "load"), ("numpy", "f2py.diagnose.run"), ("xml.dom.minidom", "Document"), ("", ""), ("", "os.mkdir")),
]


@pytest.mark.parametrize(("module", "name"), FOREIGN, ids=lambda x: x or "empty")
def test_foreign_names(module: str, name: str, tmp_path: pathlib.Path) -> None:
    canary = tmp_path / "made"
    before = set(sys.modules)
    for protocol, named in ((2, line_global(module, name)), (4, stack_global(module, name))):
        words = "allowlist", "agentix.runtime.shared.safepickle.allow_type", "AGENTIX_PICKLE_TRUST"
        with no_stock_loader():
            message = refuse(whole(reduce(named, text(str(canary))), protocol), f"{module}.{name}", *words)
            refuse(whole(named, protocol), f"{module}.{name}")
        assert "\n" not in message
    assert not canary.exists()
    assert set(sys.modules) == before


def test_refusal_comes_before_the_arguments() -> None:
    """The stream ends right after the name: nothing behind it was needed to refuse."""
    refuse(b"\x80\x04" + stack_global("posix", "mkdir"), "posix.mkdir")


def test_refusal_imports_nothing() -> None:
    for name in [n for n in sys.modules if n.startswith("xml.dom")]:
        del sys.modules[name]
    refuse(whole(stack_global("xml.dom.minidom", "Document")))
    refuse(whole(line_global("xml.dom.minidom", "Document")))
    assert "xml.dom.minidom" not in sys.modules


DOTTED = [
    *(("uuid", "os.mkdir"), ("pathlib", "os.mkdir"), ("logging", "os.mkdir"), ("random", "_os.mkdir")),
    *(
        ("tempfile", "_os.mkdir"),
        ("collections", "_sys.modules"),
        ("tempfile", "_sys.modules"),
        ("datetime", "sys.modules"),
    ),
    *(("enum", "sys.modules"), ("fractions", "sys.modules"), ("dataclasses", "sys.modules")),
    *(
        ("uuid", "__builtins__"),
        ("decimal", "__builtins__.eval"),
        ("uuid", "UUID.__subclasses__"),
        ("uuid", "UUID.hex"),
    ),
    *(("collections", "OrderedDict.fromkeys"), ("builtins", "dict.get"), ("builtins", "int.from_bytes")),
    *(("builtins", "object.__subclasses__"), ("datetime", "datetime.now"), ("datetime", "datetime.datetime")),
    *(("builtins.int", ""), ("builtins", "int "), ("builtins", " int"), ("Builtins", "int"), ("builtins", "int\x00")),
    *(
        ("agentix", "pickle.loads"),
        ("agentix._failures", "re.compile"),
        ("numpy", "__builtins__"),
        ("numpy", "ndarray.tofile"),
    ),
]


@pytest.mark.parametrize(("module", "name"), DOTTED, ids=lambda x: repr(x))
def test_only_exact_pairs(module: str, name: str) -> None:
    refuse(whole(reduce(stack_global(module, name), b"K\x01")), "allowlist")


def test_names_in_messages_are_harmless() -> None:
    message = refuse(whole(stack_global("a\n\x1b[2J\u202e", "b" * 100_000)), "a\\n\\x1b[2J\\u202e.bbb")
    assert message.isprintable()
    assert len(message) < 1000


def test_getattr_chain(tmp_path: pathlib.Path) -> None:
    canary = tmp_path / "made"
    posix = reduce(stack_global("builtins", "__import__"), text("posix"))
    mkdir = reduce(stack_global("builtins", "getattr"), posix, text("mkdir"))
    refuse(whole(reduce(mkdir, text(str(canary)))), "builtins.getattr")
    assert not canary.exists()


@pytest.mark.parametrize(
    "body",
    [
        b"(V{}\niposix\nmkdir\n",
        b"(cposix\nmkdir\nV{}\no",
        b"(cbuiltins\nset\nV{}\no",
        b"(V{}\nibuiltins\nset\n",
        b"(V{}\nidatetime\ndate\n",
    ],
)
@pytest.mark.parametrize("protocol", [None, 0, 2, 4])
def test_old_call_forms(body: bytes, protocol: int | None, tmp_path: pathlib.Path) -> None:
    canary = tmp_path / "made"
    head = b"" if protocol is None else b"\x80" + bytes([protocol])
    refuse(head + body.replace(b"{}", str(canary).encode()) + b".")
    assert not canary.exists()


class Plain:
    """A class nobody has admitted."""

    touched = False


@pytest.mark.parametrize("make", [b")\x81", b")}\x92"], ids=["NEWOBJ", "NEWOBJ_EX"])
@pytest.mark.parametrize(
    ("module", "name"),
    [
        (__name__, "Plain"),
        ("subprocess", "Popen"),
        ("builtins", "list"),
        ("builtins", "object"),
        ("datetime", "datetime"),
        ("collections", "OrderedDict"),
        ("builtins", "ValueError"),
    ],
)
def test_new_only_where_the_table_says(module: str, name: str, make: bytes) -> None:
    refuse(whole(stack_global(module, name) + make), f"{module}.{name}")


@pytest.mark.parametrize("name", ["list", "dict", "int", "str", "float", "bool", "tuple", "object"])
def test_builtins_that_are_only_values(name: str) -> None:
    refuse(whole(reduce(stack_global("builtins", name))), f"builtins.{name}")


@pytest.mark.parametrize("code", [b"\x82\xf0", b"\x83\xf0\x00", b"\x84\xf0\x00\x00\x00"])
def test_extension_codes_with_a_warm_cache(code: bytes, tmp_path: pathlib.Path) -> None:
    copyreg.add_extension("os", "mkdir", 240)
    try:
        import os

        assert pickle.loads(b"\x80\x02\x82\xf0.") is os.mkdir
        canary = tmp_path / "made"
        refuse(whole(reduce(code, text(str(canary)))), "extension opcodes")
        assert not canary.exists()
    finally:
        copyreg.remove_extension("os", "mkdir", 240)


# --- state ------------------------------------------------------------------------------------------------------------

CLASSES = [
    *(("fractions", "Fraction"), ("uuid", "UUID"), ("decimal", "Decimal"), ("collections", "Counter")),
    *(("collections", "OrderedDict"), ("builtins", "ValueError"), ("builtins", "int"), ("pathlib", "PosixPath")),
    *(("datetime", "datetime"), ("types", "SimpleNamespace"), ("numpy", "ndarray"), ("numpy", "dtype")),
]


@pytest.mark.parametrize("state", STATES, ids=str)
@pytest.mark.parametrize(("module", "name"), CLASSES)
def test_classes_take_no_state(module: str, name: str, state: str) -> None:
    refuse(whole(stack_global(module, name) + STATES[state] + b"b"))
    assert not hasattr(getattr(importlib.import_module(module), name), "agx_marker")


@pytest.mark.parametrize(
    "made",
    [
        b"]",
        b"}",
        b"\x8f",
        b")",
        b"K\x01",
        b"N",
        text("a"),
        b"C\x01a",
        stack_global("builtins", "Ellipsis"),
        reduce(stack_global("datetime", "timedelta"), b"K\x00K\x00K\x00"),
        reduce(stack_global("collections", "deque")),
        reduce(stack_global("datetime", "timezone"), reduce(stack_global("datetime", "timedelta"), b"K\x00K\x00K\x00")),
        reduce(stack_global("fractions", "Fraction"), b"K\x01K\x03"),
        reduce(stack_global("pathlib", "PosixPath"), text("a")),
    ],
)
def test_values_that_take_no_state(made: bytes) -> None:
    refuse(whole(made + MARKER + b"b"))


def test_state_of_an_exception_is_its_own() -> None:
    error = stack_global("builtins", "ValueError") + b")R"
    for name in ("__traceback__", "__cause__", "__context__", "__class__", "__setstate__", "__notes__", "__dict__"):
        refuse(whole(error + b"}" + text(name) + b"Nsb"), "builtins.ValueError")
    for name in ("with_traceback", "add_note", "args", "agx_marker"):
        got = restricted_loads(whole(error + b"}" + text(name) + b"K\x01sb"))
        assert got.args == ()
        assert not hasattr(ValueError, "agx_marker")


@pytest.mark.parametrize(
    "target",
    [
        b"K\x01",
        b")",
        text("a"),
        b"\x96\x00\x00\x00\x00\x00\x00\x00\x00",
        reduce(stack_global("collections", "Counter"), b"}"),
        reduce(stack_global("types", "SimpleNamespace")),
        stack_global("builtins", "list"),
        stack_global("collections", "deque"),
    ],
)
@pytest.mark.parametrize("fill", [b"K\x01a", b"(K\x01e", b"K\x01K\x02s", b"(K\x01K\x02u", b"(K\x01\x90"])
def test_only_containers_are_filled(target: bytes, fill: bytes) -> None:
    refuse(whole(target + fill))


@pytest.mark.parametrize(
    ("target", "fill"),
    [
        (b"]", b"K\x01K\x02s"),
        (b"]", b"(K\x01\x90"),
        (b"}", b"K\x01a"),
        (b"}", b"(K\x01\x90"),
        (b"\x8f", b"K\x01a"),
        (b"\x8f", b"K\x01K\x02s"),
        (b"}", b"(K\x01u"),
        (reduce(stack_global("collections", "deque")), b"K\x01K\x02s"),
        (reduce(stack_global("collections", "OrderedDict")), b"K\x01a"),
        (b"(\x91", b"(K\x01\x90"),
    ],
)
def test_containers_are_filled_their_own_way(target: bytes, fill: bytes) -> None:
    refuse(whole(target + fill))


def test_factories_are_builtin() -> None:
    for module, name in [
        ("builtins", "ValueError"),
        ("builtins", "object"),
        ("datetime", "date"),
        ("collections", "deque"),
        ("collections", "defaultdict"),
        ("uuid", "UUID"),
        ("types", "SimpleNamespace"),
    ]:
        refuse(whole(reduce(stack_global("collections", "defaultdict"), stack_global(module, name))), "factory")
    for argument in (b"K\x01", text("a"), b"]", line_global("_codecs", "encode")):
        refuse(whole(reduce(stack_global("collections", "defaultdict"), argument)))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("_codecs", "encode"),
        ("copyreg", "_reconstructor"),
        ("copy_reg", "_reconstructor"),
        ("numpy._core.multiarray", "scalar"),
    ],
)
@pytest.mark.parametrize(
    "use",
    [
        b"{}",
        b"]{}a",
        b"](K\x01{}e",
        b"{}\x85",
        b"K\x01{}\x86",
        b"({}t",
        b"}K\x01{}s",
        b"}({}K\x01u",
        b"\x8f({}\x90",
        b"({}\x91",
        b"({}l",
        b"(K\x01{}d",
        b"{}2\x86",
        b"{}\x940h\x00\x85",
    ],
)
def test_functions_of_the_table_are_no_values(module: str, name: str, use: bytes) -> None:
    refuse(whole(use.replace(b"{}", stack_global(module, name))))


@pytest.mark.parametrize(
    "args",
    [
        (text("a"), text("utf-8")),
        (text("a"), text("rot13")),
        (text("a"),),
        (b"C\x01a", text("latin1")),
        (b"K\x05", text("latin1")),
        (text("a"), text("latin1"), text("ignore")),
        (text("\u0100"), text("latin1")),
    ],
)
def test_encode_is_latin1_of_a_str(args: tuple[bytes, ...]) -> None:
    refuse(whole(reduce(stack_global("_codecs", "encode"), *args)))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("date", [b"C\x04\x07\xe4\x02\x1e"]),
        ("date", [b"C\x04\x00\x00\x01\x01"]),
        ("date", [b"K\x01", b"K\x01", b"K\x01"]),
        ("time", [b"C\x06\x18\x00\x00\x00\x00\x00"]),
        ("time", [b"C\x06\x00\x3c\x00\x00\x00\x00"]),
        ("time", [b"C\x06\x00\x00\x00\x0f\x42\x40"]),
        ("datetime", [b"C\x0a\x07\xe4\x02\x1f\x00\x00\x00\x00\x00\x00"]),
        ("datetime", [b"C\x0a\x07\xe4\x01\x01\xff\x00\x00\x00\x00\x00"]),
        ("datetime", [b"C\x0a\x07\xe4\x01\x01\x00\x00\x00\x00\x00\x00", b"K\x01"]),
        ("datetime", [b"C\x0a\x07\xe4\x01\x01\x00\x00\x00\x00\x00\x00", stack_global("datetime", "timezone")]),
        ("timedelta", [number(10**30), b"K\x00", b"K\x00"]),
        ("timedelta", [number(10**10), b"K\x00", b"K\x00"]),
        ("timedelta", [b"G" + struct.pack(">d", 1.5), b"K\x00", b"K\x00"]),
        ("timezone", [b"K\x01"]),
        ("timezone", [reduce(stack_global("datetime", "timedelta"), b"K\x05K\x00K\x00")]),
    ],
)
def test_dates_out_of_range(name: str, args: list[bytes]) -> None:
    refuse(whole(reduce(stack_global("datetime", name), *args)), f"datetime.{name}")


def test_uuid_state_is_checked() -> None:
    made = stack_global("uuid", "UUID") + b")\x81"
    assert restricted_loads(whole(made)) == uuid.UUID(int=0)
    for state in (
        b"}" + text("int") + text("x") + b"s",
        b"}" + text("int") + number(-1) + b"s",
        b"}" + text("int") + number(2**128) + b"s",
        b"}" + text("int") + b"K\x01s" + text("hex") + b"K\x01s",
        b"}",
        b"N",
        b"]",
    ):
        refuse(whole(made + state + b"b"), "uuid.UUID")


def test_exceptions_with_odd_arguments_print() -> None:
    odd = [b"N", b"]", b"}", b"K\x01", text("\x1b"), reduce(stack_global("builtins", "KeyError"), b"N")]

    for name in (n for n in dir(builtins) if isinstance(getattr(builtins, n), type)):
        if not issubclass(getattr(builtins, name), BaseException):
            continue
        for argument in odd:
            for count in range(6):
                data = whole(reduce(stack_global("builtins", name), *[argument] * count))
                try:
                    error = restricted_loads(data)
                except RestrictedUnpickleError:
                    continue
                assert isinstance(repr(error) + str(error), str)
                assert traceback.format_exception(error)


def test_a_name_that_is_no_type(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps(decimal.Decimal(1))
    monkeypatch.setattr(decimal, "Decimal", lambda text: pytest.fail("called"))
    refuse(data, "decimal.Decimal", "did not resolve to a type")


def test_a_name_this_python_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps(decimal.Decimal(1))
    monkeypatch.delattr(decimal, "Decimal")
    refuse(data, "decimal.Decimal", "does not have it")


# --- malformed streams ------------------------------------------------------------------------------------------------

MALFORMED = {
    "empty": b"",
    "only a protocol": b"\x80\x04",
    "no STOP": b"\x80\x04N",
    "nothing to stop at": b".",
    "protocol 6": b"\x80\x06N.",
    "protocol 255": b"\x80\xffN.",
    "protocol in the middle": b"N\x80\x02.",
    "two pickles": b"N." + b"N.",
    "a second pickle is not read": b"N." + whole(reduce(stack_global("os", "mkdir"), text("x"))),
    "unknown opcode": b"\xff.",
    "persistent id": b"Pxyz\n.",
    "binary persistent id": b"NQ.",
    "next buffer": b"\x80\x05\x97.",
    "read-only buffer": b"\x80\x05\x97\x98.",
    "read-only flag on bytes": b"\x80\x05C\x01a\x98.",
    "memo never set": b"h\x05.",
    "memo far away": b"Nj\xff\xff\xff\xff.",
    "memo put far away": b"Nr\xff\xff\xff\x7f.",
    "memo put nothing": b"q\x00.",
    "memo index with a sign": b"Np-1\n.",
    "memo index not a number": b"Npx\n.",
    "bad UTF-8": b"\x8c\x01\xff.",
    "overlong UTF-8": b"\x8c\x02\xc0\xaf.",
    "lone surrogate": b"\x8c\x03\xed\xa0\x80.",
    "lone surrogate as an escape": b"V\\ud800\n.",
    "half an escape": b"V\\u12\n.",
    "Latin-1 in a Python 2 string": b"U\x01\xff.",
    "text without an end": b"Vabc",
    "global without an end": b"cos\nmkdir",
    "pop of nothing": b"0N.",
    "pop mark of nothing": b"1N.",
    "dup of nothing": b"2.",
    "a mark left over": b"(N.",
    "only a mark": b"(.",
    "two values": b"NN.",
    "tuple without a mark": b"Nt.",
    "tuple over a mark": b"N(N\x86.",
    "append to nothing": b"Na.",
    "append over a mark": b"](Na.",
    "appends at the bottom": b"(Ne.",
    "appends over a mark": b"]((Ne.",
    "setitem with too little": b"}Ns.",
    "reduce of nothing": b"R.",
    "reduce of a number": b"K\x01)R.",
    "reduce of a list": b"])R.",
    "reduce with a list": stack_global("builtins", "set") + b"]R.",
    "build with nothing": b"b.",
    "global from numbers": b"K\x01K\x02\x93.",
    "global from bytes": b"C\x02osC\x05mkdir\x93.",
    "global from nothing": b"\x93.",
    "global with bad UTF-8": b"c\xff\nx\n.",
    "unhashable key": b"}]Ns.",
    "unhashable element": b"\x8f(]\x90.",
    "unhashable inside a tuple": b"}]\x85Ns.",
    "bytes longer than the data": b"B\xff\xff\xff\x7fa.",
    "bytes8 longer than the data": b"\x8e\xff\xff\xff\xff\xff\xff\xff\xffa.",
    "bytearray8 longer than the data": b"\x96\x00\x00\x00\x00\x02\x00\x00\x00a.",
    "str8 longer than the data": b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7fa.",
    "negative length": b"T\xff\xff\xff\xffa.",
    "negative integer length": b"\x8b\xff\xff\xff\xff.",
    "frame longer than the data": b"\x80\x04\x95\xff\x00\x00\x00\x00\x00\x00\x00N.",
    "frame in a frame": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x95\x02\x00\x00\x00\x00\x00\x00\x00N.",
    "argument across a frame's end": b"\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00\x8c\x01a.",
    "integer with blanks": b"I 1\n.",
    "integer with an underscore": b"I1_0\n.",
    "integer that is a float": b"I1.5\n.",
    "no integer": b"I\n.",
    "float with junk": b"F1.5x\n.",
    "float in hex": b"F0x1p3\n.",
    "no float": b"F\n.",
    "float of operators": b"F+-+\n.",
    "string without quotes": b"Sabc\n.",
    "string with one quote": b"S'\n.",
    "string with an escape": b"S'\\x41'\n.",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name: str) -> None:
    with no_stock_loader():
        assert "byte" in refuse(MALFORMED[name])


def test_every_cut_of_a_stream() -> None:
    value = [dt.datetime.now(dt.UTC), uuid.uuid4(), {"a": b"b" * 300}, ValueError(1), 2**100, 1.5, {1}]
    for protocol in PROTOCOLS:
        data = pickle.dumps(value, protocol)
        for cut in range(len(data)):
            refuse(data[:cut])


def test_message_says_where_and_what() -> None:
    refuse(b"\x80\x04]h\x07.", "malformed", "memo", "byte 3", "BINGET")
