"""Hostile pickles, one a row: none is executed, changes anything of the host, or costs it much; honest controls load.

An audit hook listens while each is loaded: an import, a compilation, an opened file, a started process or a call of
exec would be heard. The stock loaders are out of order meanwhile.
"""

import builtins
import collections
import copyreg
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import os
import pathlib
import pickle
import struct
import sys
import tempfile
import time
import tracemalloc
import types
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from pickle_asm import MARKER, line_global, no_stock_loader, number, reduce, stack_global, text, whole

from agentix import RestrictedUnpickleError
from agentix.runtime.shared import safepickle
from agentix.runtime.shared.safepickle import ReturnLoader, allow_type, restricted_loads

SECONDS = 2.0
MEMORY_BASE, MEMORY_PER_BYTE = 14 << 20, 44  # the limits, and a tenth

heard: list[str] | None = None
QUIET = ("object.__getattr__", "gc.", "sys._getframe", "cpython.")


def listen(event: str, args: tuple[Any, ...]) -> None:
    if heard is not None and not event.startswith(QUIET):
        heard.append(f"{event} {args!r:.100}")


sys.addaudithook(listen)


@dataclasses.dataclass
class Plain:
    x: int = 0


class Colour(enum.Enum):
    RED = 1


class Admitted:
    pass


def declared() -> list[Plain | Colour]:
    raise NotImplementedError


LOADS: dict[str, Callable[[bytes], Any]] = {"restricted_loads": restricted_loads, "declared": ReturnLoader(declared)}

# ---- the rows ----

g, l = stack_global, line_global  # noqa: E741
NAMES: list[tuple[str, str]] = [
    # numpy
    *(("numpy", n) for n in ("load", "fromfile", "memmap", "save", "savetxt", "loadtxt", "genfromtxt", "vectorize")),
    *(
        ("numpy", n)
        for n in ("frompyfunc", "apply_along_axis", "fromiter", "zeros", "ones", "void", "matrix", "recarray")
    ),
    ("numpy.testing._private.utils", "runstring"),
    ("numpy.f2py.crackfortran", "getlincoef"),
    ("numpy.lib.npyio", "load"),
    ("numpy.lib.utils", "source"),
    ("numpy.core", "multiarray._reconstruct"),
    ("numpy._core._internal", "_ctypes"),
    ("numpy.core.records", "fromfile"),
    ("numpy.ma.core", "_mareconstruct"),
    ("numpy.random._pickle", "__randomstate_ctor"),
    ("numpy.distutils.exec_command", "exec_command"),
    ("numpy", "ndarray.__reduce__"),
    # copyreg and pickle's own
    *(("copyreg", n) for n in ("__newobj__", "__newobj_ex__", "_reduce_ex", "pickle", "add_extension", "constructor")),
    *(("copy_reg", n) for n in ("__newobj__", "_reconstructor.__class__", "constructor")),
    *(("pickle", n) for n in ("loads", "load", "Unpickler", "_Unpickler", "_loads")),
    *(("_pickle", n) for n in ("Unpickler", "loads")),
    ("cPickle", "loads"),
    ("shelve", "open"),
    ("marshal", "loads"),
    # functools, operator, itertools
    *(("functools", n) for n in ("partial", "partialmethod", "reduce", "lru_cache", "cached_property", "cmp_to_key")),
    *(("operator", n) for n in ("attrgetter", "itemgetter", "methodcaller", "setitem", "call", "iconcat", "imul")),
    *(("_operator", n) for n in ("attrgetter", "methodcaller", "delitem")),
    *(("itertools", n) for n in ("count", "repeat", "cycle", "starmap", "product", "permutations")),
    # builtins that call, fetch or set
    *(("builtins", n) for n in ("eval", "exec", "compile", "open", "getattr", "setattr", "delattr", "hasattr", "vars")),
    *(("builtins", n) for n in ("globals", "locals", "dir", "map", "filter", "iter", "next", "sorted", "sum", "max")),
    *(("builtins", n) for n in ("type", "super", "property", "classmethod", "staticmethod", "memoryview", "print")),
    *(("builtins", n) for n in ("__import__", "__build_class__", "__loader__", "input", "breakpoint", "help", "exit")),
    *(("builtins", n) for n in ("enumerate", "zip", "reversed", "format", "repr", "hash", "id", "callable", "pow")),
    # by the names of Python 2
    *(("__builtin__", n) for n in ("eval", "execfile", "file", "apply", "reduce", "buffer", "reload", "raw_input")),
    *(("__builtin__", n) for n in ("getattr", "type", "map", "compile", "open", "intern", "coerce")),
    *(("commands", n) for n in ("getoutput", "getstatusoutput")),
    ("os", "popen3"),
    ("UserDict", "UserDict"),
    ("exceptions", "os.system"),
    ("urllib2", "urlopen"),
    # processes, files, network
    *(("os", n) for n in ("system", "popen", "execv", "fork", "spawnl", "remove", "rename", "putenv", "mkdir", "kill")),
    *(("posix", n) for n in ("system", "mkdir", "unlink", "_exit", "open", "fork", "execve")),
    *(("subprocess", n) for n in ("Popen", "run", "call", "check_call", "check_output", "getoutput")),
    *(("shutil", n) for n in ("rmtree", "copy", "move", "which")),
    *(("socket", n) for n in ("socket", "create_connection", "gethostbyname")),
    *(("pathlib", n) for n in ("Path", "Path.unlink", "PosixPath.mkdir", "WindowsPath", "os.system")),
    *(("io", n) for n in ("open", "FileIO", "BytesIO", "open_code")),
    ("_io", "FileIO"),
    ("tempfile", "mktemp"),
    ("pty", "spawn"),
    ("pdb", "run"),
    ("timeit", "timeit"),
    ("code", "InteractiveInterpreter"),
    ("codecs", "open"),
    ("webbrowser", "open"),
    ("ctypes", "CDLL"),
    ("_ctypes", "PyObj_FromPtr"),
    ("ssl", "get_server_certificate"),
    ("http.client", "HTTPConnection"),
    ("urllib.request", "urlopen"),
    ("smtplib", "SMTP"),
    ("sqlite3", "connect"),
    ("multiprocessing.pool", "Pool"),
    ("threading", "Thread"),
    ("asyncio", "run"),
    ("signal", "raise_signal"),
    ("atexit", "register"),
    ("sys", "exit"),
    ("sys", "modules"),
    ("sys", "setrecursionlimit"),
    ("gc", "get_objects"),
    ("weakref", "finalize"),
    ("importlib", "import_module"),
    ("importlib._bootstrap", "_load"),
    ("runpy", "run_path"),
    ("inspect", "currentframe"),
    ("logging.config", "dictConfig"),
    ("logging", "FileHandler"),
    ("types", "FunctionType"),
    ("types", "CodeType"),
    ("types", "MethodType"),
    ("types", "ModuleType"),
    ("typing", "get_type_hints"),
    ("re", "_compile"),
    ("re", "compile"),
    ("zoneinfo", "ZoneInfo._unpickle"),
    ("enum", "Enum"),
    ("enum", "EnumMeta"),
    ("dataclasses", "make_dataclass"),
    ("collections", "namedtuple"),
    ("collections", "UserDict"),
    ("collections", "ChainMap"),
    # ours
    ("agentix", "RuntimeClient"),
    ("agentix._core", "restricted_loads"),
    ("agentix._declared", "plans_of"),
    ("agentix._declared", "_known"),
    ("agentix.runtime.shared.safepickle", "allow_type"),
    ("agentix.runtime.shared.safepickle", "_allowed"),
    ("agentix.runtime.shared.safepickle", "ReturnLoader"),
    ("agentix.testing", "serve"),
    (__name__, "declared"),
    (__name__, "Admitted.__init__"),
    (__name__, "Plain.__init__.__globals__"),
    (__name__, "pickle.loads"),
]


def calls(canary: str) -> Iterator[tuple[str, bytes]]:
    """Each name called, by each way of calling that fits its place in the list."""
    argument = text(canary)
    forms = [
        lambda m, n: whole(reduce(g(m, n), argument)),
        lambda m, n: whole(g(m, n) + argument + b"\x85\x81"),
        lambda m, n: whole(g(m, n) + argument + b"\x85}\x92"),
        lambda m, n: whole(g(m, n) + MARKER + b"b"),
        lambda m, n: l(m, n) + b"(V" + canary.encode() + b"\ntR.",
        lambda m, n: b"(V" + canary.encode() + b"\ni" + m.encode() + b"\n" + n.encode() + b"\n.",
        lambda m, n: b"(" + l(m, n) + b"V" + canary.encode() + b"\no.",
        lambda m, n: b"\x80\x02" + l(m, n) + b"}V" + canary.encode() + b"\nNsb.",
        lambda m, n: whole(reduce(g("collections", "defaultdict"), g(m, n))),
        lambda m, n: whole(b"]" + g(m, n) + b"a"),
        lambda m, n: whole(reduce(g("copyreg", "_reconstructor"), g(m, n), g("builtins", "object"), b"N")),
    ]
    for i, (module, name) in enumerate(NAMES):
        yield f"{module}.{name}, form {i % len(forms)}", forms[i % len(forms)](module, name)


M = b"\x940"
F8 = reduce(g("numpy", "dtype"), text("f8"), b"\x89\x88")
O8 = reduce(g("numpy", "dtype"), text("O8"), b"\x89\x88")
RECONSTRUCT = reduce(g("numpy._core.multiarray", "_reconstruct"), g("numpy", "ndarray"), b"K\x00\x85C\x01b")
SYSTEM = reduce(g("os", "system"), text("true"))

TRICKS: dict[str, bytes] = {
    "a call inside an array of objects": whole(RECONSTRUCT + b"(K\x01K\x01\x85" + O8 + b"\x89]" + SYSTEM + b"atb"),
    "an array of objects over bytes": whole(RECONSTRUCT + b"(K\x01K\x01\x85" + O8 + b"\x89C\x08AAAAAAAAtb"),
    "a scalar that is a pointer": whole(reduce(g("numpy._core.multiarray", "scalar"), O8, b"C\x08AAAAAAAA")),
    "a buffer of pointers": whole(
        reduce(g("numpy._core.numeric", "_frombuffer"), b"C\x08AAAAAAAA", O8, b"K\x01\x85", text("C"))
    ),
    "an array that is a class": whole(
        reduce(g("numpy._core.multiarray", "_reconstruct"), g("builtins", "set"), b"K\x00\x85", b"C\x01b")
    ),
    "a buffer that is a callable": whole(reduce(g("numpy._core.numeric", "_frombuffer"), g("os", "system"))),
    "an array with a state twice": whole(
        RECONSTRUCT + (b"(K\x01K\x01\x85" + F8 + b"\x89C\x08AAAAAAAAtb") + b"(K\x01K\x02\x85" + F8 + b"\x89C\x08AtAb"
    ),
    "a dtype that gets objects later": whole(
        F8 + b"(K\x03" + text("|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x3ftb"
    ),
    "a dtype of nested lists": whole(reduce(g("numpy", "dtype"), b"]]a", b"\x89\x88")),
    "a dtype by a name with commas": whole(reduce(g("numpy", "dtype"), text("i4,O"), b"\x89\x88")),
    "a dtype of eval": whole(reduce(g("numpy", "dtype"), g("builtins", "eval"), b"\x89\x88")),
    "an encoding that runs code": whole(reduce(g("_codecs", "encode"), text("a"), text("hex"))),
    "an encoding that imports": whole(reduce(g("_codecs", "encode"), text("a"), text("xml.dom.minidom"))),
    "reconstructor with a state": whole(
        reduce(g("copyreg", "_reconstructor"), g("uuid", "UUID"), g("builtins", "int"), b"K\x05")
    ),
    "reconstructor of a callable": whole(
        reduce(g("copyreg", "_reconstructor"), g("os", "system"), g("builtins", "object"), b"N")
    ),
    "reconstructor of itself": whole(
        reduce(g("copyreg", "_reconstructor"), g("copyreg", "_reconstructor"), g("builtins", "object"), b"N")
    ),
    "extension 1": b"\x80\x02\x82\x01.",
    "extension 2": b"\x80\x02\x83\x01\x01.",
    "extension 4": b"\x80\x02\x84\x01\x01\x01\x01.",
    "persistent id": b"\x80\x02" + text("x") + b"Q.",
    "persistent id of protocol 0": b"Pos.system\n.",
    "a buffer": b"\x80\x05\x97.",
    "a read-only buffer": b"\x80\x05]\x98.",
    "two pickles": whole(b"N") + whole(SYSTEM),
    "a pickle after its frame": b"\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00N." + whole(SYSTEM),
    "a pickle in a string": whole(reduce(g("pickle", "loads"), b"C\x03" + b"N.." + b"")),
    "a frame that hides an opcode": b"\x80\x04\x95\x01\x00\x00\x00\x00\x00\x00\x00\x8c\x01N.",
    "a frame of all memory": b"\x80\x04\x95" + b"\xff" * 8 + b"N.",
    "protocol 6": b"\x80\x06N.",
    "protocol in the middle": b"\x80\x04N\x80\x02.",
    "a name in bytes": b"\x80\x04C\x02osC\x06system\x93.",
    "a name that is a list": b"\x80\x04]]\x93.",
    "a name with a NUL": whole(g("builtins\x00", "eval")),
    "a name with a newline": whole(g("os\nsystem", "x")),
    "a name that is empty": whole(g("", "")),
    "a name with blanks": whole(g(" os", "system ")),
    "a name in full width": whole(g("\uff4f\uff53", "system")),
    "a name in surrogates": whole(b"\x8c\x03\xed\xb2\x80" + text("x") + b"\x93"),
    "a memoized name": whole(text("os") + M + text("system") + M + b"h\x00h\x01\x93" + text("true") + b"\x85R"),
    "a name duplicated": whole(text("os") + b"2\x93"),
    "a class called by INST": b"(K\x01ibuiltins\nset\n.",
    "a class called by OBJ": b"(cbuiltins\nset\nK\x01o.",
    "a class of a class": whole(reduce(g("builtins", "type"), text("X"), g("builtins", "object") + b"\x85", b"}")),
    "a call of a number": b"\x80\x02K\x01)R.",
    "a call of a string": b"\x80\x02" + text("os.system") + b")R.",
    "a call of an instance": whole(reduce(g("fractions", "Fraction"), b"K\x01K\x03") + b")R"),
    "a call of an exception": whole(g("builtins", "ValueError") + b")R)R"),
    "a call with a list": whole(g("builtins", "set") + b"]]aR"),
    "a call with a subclass of tuple": whole(g("builtins", "set") + reduce(g("collections", "Counter"), b"}") + b"R"),
    "new of a number": b"\x80\x02K\x01)\x81.",
    "new of a function": whole(g("_codecs", "encode") + b")\x81"),
    "new of an exception": whole(g("builtins", "ValueError") + b")\x81"),
    "new with keywords": whole(g("uuid", "UUID") + b")" + b"}" + text("hex") + text("a" * 32) + b"s\x92"),
    "state for a class": whole(g("decimal", "Decimal") + MARKER + b"b"),
    "state for our error": whole(g("agentix", "RestrictedUnpickleError") + MARKER + b"b"),
    "state for None": whole(b"N" + MARKER + b"b"),
    "state for Ellipsis": whole(g("builtins", "Ellipsis") + MARKER + b"b"),
    "state for True": whole(b"\x88" + MARKER + b"b"),
    "state for a function": whole(g("_codecs", "encode") + MARKER + b"b"),
    "state for a shared zone": whole(
        reduce(g("datetime", "timezone"), reduce(g("datetime", "timedelta"), b"K\x00" * 3)) + MARKER + b"b"
    ),
    "a traceback by state": whole(g("builtins", "ValueError") + b")R}" + text("__traceback__") + b"Nsb"),
    "a cause by state": whole(g("builtins", "ValueError") + b")R}" + text("__cause__") + b"Nsb"),
    "a class by state": whole(
        g("builtins", "ValueError") + b")R}" + text("__class__") + g("builtins", "KeyError") + b"sb"
    ),
    "a key that is a list": whole(b"}]Ns"),
    "a key that is a dict": whole(b"}}Ns"),
    "an element that is a set": whole(b"\x8f(\x8f\x90"),
    "items for a tuple": whole(b")K\x01a"),
    "items for a class": whole(g("builtins", "list") + b"K\x01a"),
    "items for a module name": whole(g("sys", "path") + text("x") + b"a"),
    "pairs for a list": whole(b"]K\x01K\x02s"),
    "pairs for an environment": whole(g("os", "environ") + text("A") + text("B") + b"s"),
    "elements for a frozenset": whole(b"(\x91(K\x01\x90"),
    "a factory that is a class": whole(reduce(g("collections", "defaultdict"), g("builtins", "ValueError"))),
    "a factory that is a number": whole(reduce(g("collections", "defaultdict"), b"K\x05")),
    "a counter of a counter": whole(reduce(g("collections", "Counter"), reduce(g("collections", "Counter"), b"}"))),
    "a deque over a set": whole(reduce(g("collections", "deque"), b"\x8f", b"N")),
    "an ordered dict of pairs": whole(reduce(g("collections", "OrderedDict"), b"]")),
    "bytes from a list": whole(reduce(g("builtins", "bytes"), b"]")),
    "bytearray from itself": whole(reduce(g("builtins", "bytearray"), reduce(g("builtins", "bytearray"), b"C\x01a"))),
    "an int from text": whole(reduce(g("builtins", "int"), text("1" * 1000))),
    "a str from bytes": whole(reduce(g("builtins", "str"), b"C\x01a", text("rot13"))),
    "complex from text": whole(reduce(g("builtins", "complex"), text("1" * 100))),
    "range of floats": whole(reduce(g("builtins", "range"), b"G" + bytes(8))),
    "slice of lists": whole(reduce(g("builtins", "slice"), b"]")),
    "date from numbers": whole(reduce(g("datetime", "date"), b"K\x01K\x01K\x01")),
    "date out of range": whole(reduce(g("datetime", "date"), b"C\x04\xff\xff\xff\xff")),
    "datetime with a zone of its own": whole(
        reduce(g("datetime", "datetime"), b"C\x0a\x07\xe4\x01\x01" + bytes(6), g("datetime", "timezone"))
    ),
    "timedelta of a huge number": whole(reduce(g("datetime", "timedelta"), number(10**40), b"K\x00K\x00")),
    "uuid from text": whole(reduce(g("uuid", "UUID"), text("0" * 32))),
    "uuid of too many bits": whole(g("uuid", "UUID") + b")\x81}" + text("int") + number(1 << 128) + b"sb"),
    "path from a path": whole(reduce(g("pathlib", "PosixPath"), reduce(g("pathlib", "PosixPath"), text("a")))),
    "OSError with a file name that is a list": whole(reduce(g("builtins", "OSError"), b"K\x02" + text("a") + b"]")),
    "SyntaxError at no place": whole(reduce(g("builtins", "SyntaxError"), text("a"), b"]")),
    "a group of no exceptions": whole(reduce(g("builtins", "ExceptionGroup"), text("a"), b"]K\x01a")),
    "stack underflow": b"\x80\x020.",
    "memo never set": b"\x80\x02h\x05.",
    "memo of a huge index": b"\x80\x02Nr\xff\xff\xff\xff.",
    "an open mark": b"\x80\x02(N.",
    "two values": b"\x80\x02NN.",
    "no end": b"\x80\x02N",
    "nothing": b"",
    "an opcode that is none": b"\x80\x02\xfe.",
    "a negative length": b"\x80\x02T\xff\xff\xff\xff.",
    "bad UTF-8": b"\x80\x04\x8c\x01\xff.",
    "a high surrogate": b"\x80\x04\x8c\x03\xed\xa0\x80.",
    "an integer as text with a sign twice": b"I--1\n.",
    "an integer as text in hex": b"I0x10\n.",
    "an octal float": b"F0777_1\n.",
    "a string of Python 2 with an escape": b"S'\\x41'\n.",
    "a field of a declared class that is its class": whole(
        g(__name__, "Plain") + b")\x81}" + text("__class__") + g("builtins", "int") + b"sb"
    ),
    "a declared class without its field": whole(g(__name__, "Plain") + b")\x81"),
    "a member that is none": whole(reduce(g(__name__, "Colour"), b"K\x02")),
    "a member made": whole(reduce(g(__name__, "Colour"), text("X"), text("A"))),
    "an admitted class called": whole(reduce(g(__name__, "Admitted"), text("a"))),
    "an admitted class with a class as state": whole(
        g(__name__, "Admitted") + b")\x81N}" + text("__class__") + g("builtins", "int") + b"s\x86b"
    ),
}

ONE = b"B" + struct.pack("<I", 100_000) + bytes(100_000) + M
THOUSAND_TREE = b"I300\n" + b"2\x86" * 60
SAME = b"".join(number(i * (2**61 - 1)) for i in range(4_000))
BOMBS: dict[str, bytes] = {
    "lists": b"(" + b"]" * 400_000 + b"t",
    "dicts": b"(" + b"}" * 400_000 + b"t",
    "sets": b"(" + b"\x8f" * 400_000 + b"t",
    "frozensets": b"(" + b"(K\x01\x91" * 150_000 + b"t",
    "dicts of one": b"(" + b"}NNs" * 150_000 + b"t",
    "sets of five": b"(" + b"\x8f(K\x01K\x02K\x03K\x04K\x05\x90" * 60_000 + b"t",
    "deques": g("collections", "deque") + M + b"(" + b"h\x00)R" * 80_000 + b"t",
    "copies of bytes": ONE + g("builtins", "bytearray") + M + b"h\x00\x85" + M + b"(" + b"h\x01h\x02R" * 20_000 + b"t",
    "copies of text": (
        b"X"
        + struct.pack("<I", 100_000)
        + b"a" * 100_000
        + M
        + g("_codecs", "encode")
        + M
        + b"h\x00"
        + text("latin1")
        + b"\x86"
        + M
        + b"("
        + b"h\x01h\x02R" * 20_000
        + b"t"
    ),
    "copies of decimals": g("decimal", "Decimal")
    + M
    + text("1" * 9_999)
    + b"\x85"
    + M
    + b"h\x00h\x01R0" * 90_000
    + b"N",
    "large fractions": (
        g("fractions", "Fraction")
        + M
        + number(3**8_000)
        + number(2**14_000)
        + b"\x86"
        + M
        + b"h\x00h\x01R0" * 90_000
        + b"N"
    ),
    "long paths": g("pathlib", "PosixPath") + M + text("a/" * 50_000) + b"\x85" + M + b"h\x00h\x01R0" * 20_000 + b"N",
    "arrays of no data": (
        g("numpy._core.numeric", "_frombuffer")
        + M
        + b"(C\x00"
        + F8
        + b"("
        + b"K\x00" * 60
        + b"t"
        + text("C")
        + b"t"
        + M
        + b"("
        + b"h\x00h\x01R" * 90_000
        + b"t"
    ),
    "an array of a shape": reduce(
        g("numpy._core.numeric", "_frombuffer"), b"C\x08aaaaaaaa", F8, number(2**40) + b"\x85", text("C")
    ),
    "a bytearray of a size": reduce(g("builtins", "bytearray"), number(2**33)),
    "bytes of a size": g("builtins", "bytes") + number(2**33) + b"\x85}\x92",
    "a list of a range": reduce(g("builtins", "list"), reduce(g("builtins", "range"), number(10**9))),
    "a set of a range": reduce(g("builtins", "set"), reduce(g("builtins", "range"), number(10**9))),
    "a fraction with an exponent": reduce(g("fractions", "Fraction"), text("1e99999999")),
    "an integer of many digits": b"I" + b"9" * 300_000 + b"\n",
    "an integer of many bytes": b"\x8b" + struct.pack("<i", 1 << 21) + b"\x7f" * (1 << 21),
    "a float of many digits": b"F" + b"9" * 300_000 + b"\n",
    "marks": b"(" * 500_000,
    "nested tuples": b")" + b"\x85" * 300_000,
    "a shared tree as a key": b"}" + THOUSAND_TREE + b"Ns",
    "a shared tree as an element": b"\x8f(" + THOUSAND_TREE + b"\x90",
    "a shared tree as a member": reduce(g(__name__, "Colour"), THOUSAND_TREE),
    "a memo of a far index": b"N" * 600_000 + b"r" + struct.pack("<I", 599_000),
    "a memo of everything": b"N" + b"\x94" * 900_000 + b"N",
    "a stack of everything": b"N" + b"2" * 900_000,
    "a name of megabytes": b"c" + b"a" * 3_000_000 + b"\nb\n",
    "a name of megabytes in Greek": b"X" + struct.pack("<I", 3_000_000) + b"\xce\xb1" * 1_500_000 + text("b") + b"\x93",
    "declared instances without end": b"(" + (g(__name__, "Plain") + b")\x81") * 20_000 + b"t",
    "what is refused after much": b"(" + b"]" * 200_000 + b"t0" + g("os", "system"),
    "an error of megabytes": reduce(g("datetime", "date"), b"B" + struct.pack("<I", 2_000_000) + bytes(2_000_000)),
    "an attribute of megabytes": (
        g(__name__, "Plain") + b")\x81}X" + struct.pack("<I", 2_000_000) + b"a" * 2_000_000 + b"Nsb"
    ),
    "chains of deques": (
        g("collections", "deque")
        + M
        + b"".join(b"h\x00)Rr" + struct.pack("<I", i) + b"0" for i in range(1, 3_000))
        + b"".join(b"j" + struct.pack("<I", i) + b"j" + struct.pack("<I", i + 1) + b"a0" for i in range(1, 2_999))
        + b"h\x01"
    ),
}

# Loads, but may not cost much.
DEAR: dict[str, bytes] = {
    "sets filled in two goes": b"(" + b"\x8f(NK\x01\x90(K\x02K\x03K\x04\x90" * 60_000 + b"t",
    "ordered dicts": g("collections", "OrderedDict") + M + b"(" + b"h\x00)RNNs" * 80_000 + b"t",
    "default dicts": g("collections", "defaultdict") + M + b"(" + b"h\x00)RNNs" * 80_000 + b"t",
    "counters": g("collections", "Counter") + M + b"(" + b"h\x00}\x85R" * 50_000 + b"t",
    "namespaces": g("types", "SimpleNamespace") + M + b"}" + text("a") + b"Ns\x940(" + b"h\x00)Rh\x01b" * 60_000 + b"t",
    "bytearrays": g("builtins", "bytearray") + M + b"(" + b"h\x00)R" * 80_000 + b"t",
    "colliding keys": b"}(" + b"".join(number(i * (2**61 - 1)) + b"N" for i in range(3_000)) + b"u",
    "a large exponent": reduce(g("decimal", "Decimal"), text("1e999999999")),
    "a long range": reduce(g("builtins", "range"), number(10**30)),
    "deep lists": b"]" * 200_000 + b"a" * 199_999,
    "wide characters": b"X" + struct.pack("<I", 1_000_004) + b"a" * 1_000_000 + "\U0001f600".encode(),
    "a tree of shared lists": b"]" + b"q\x050]h\x05ah\x05a" * 60,
}


def host_state() -> tuple[Any, ...]:
    classes = [
        fractions.Fraction,
        decimal.Decimal,
        uuid.UUID,
        ValueError,
        RestrictedUnpickleError,
        Plain,
        Colour,
        Admitted,
    ]
    return (
        set(sys.modules),
        dict(os.environ),
        sys.getrecursionlimit(),
        dict(safepickle._allowed),
        dict(copyreg.dispatch_table),
        [{name: id(value) for name, value in vars(cls).items() if name != "__slotnames__"} for cls in classes],
        set(vars(builtins)),
        [hasattr(thing, "agx_marker") for thing in (None, ..., dt.UTC, Colour.RED, restricted_loads)],
    )


def run(load: Callable[[bytes], Any], data: bytes) -> tuple[str, list[str], float, int]:
    """Load; return what became of it, what was heard, the CPU time and the peak of memory."""
    global heard
    with no_stock_loader():
        tracemalloc.start()
        began = time.thread_time()
        heard = []
        try:
            load(data)
            outcome = ""
        except RestrictedUnpickleError as exc:
            outcome = str(exc)
        finally:
            events, heard = heard, None
            spent = time.thread_time() - began
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    return outcome, events, spent, peak


@pytest.fixture(autouse=True)
def admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safepickle, "_allowed", {})
    monkeypatch.delenv("AGENTIX_PICKLE_TRUST", raising=False)
    allow_type(Admitted)


CANARY = pathlib.Path(tempfile.gettempdir()) / f"agx-canary-{os.getpid()}"
ROWS = {**dict(calls(str(CANARY))), **TRICKS, **{f"bomb: {name}": whole(body) for name, body in BOMBS.items()}}


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """What the loader itself imports when it first needs it is not the sandbox's doing."""
    for load in LOADS.values():
        with pytest.raises(RestrictedUnpickleError):
            load(whole(g("no", "where")))
        with pytest.raises(RestrictedUnpickleError):
            load(whole(RECONSTRUCT + b"(K\x01K\x02\x85" + F8 + b"\x89C\x00tb"))
    for value in (uuid.uuid4(), decimal.Decimal(1), fractions.Fraction(1, 2), collections.Counter("a"), np.arange(3)):
        restricted_loads(pickle.dumps([value, pathlib.PurePosixPath("a"), dt.datetime.now(dt.UTC), Colour.RED.value]))
    restricted_loads(pickle.dumps([None] * 300_000))  # large: the garbage collector is asked to rest


def test_there_are_enough() -> None:
    assert len(ROWS) >= 350
    assert len(set(ROWS.values())) >= 350


@pytest.mark.parametrize("name", ROWS)
def test_hostile(name: str) -> None:
    data, before = ROWS[name], host_state()
    for load in LOADS.values():
        outcome, events, spent, peak = run(load, data)
        assert outcome, "it was loaded"
        assert outcome.startswith(("refused: ", "malformed pickle: "))
        assert outcome.isprintable()
        assert len(outcome) < 1200
        assert events == []
        assert spent < SECONDS
        assert peak < min(100 << 20, MEMORY_BASE + MEMORY_PER_BYTE * len(data))
    assert host_state() == before
    assert not CANARY.exists()


@pytest.mark.parametrize("name", DEAR)
def test_dear(name: str) -> None:
    data = whole(DEAR[name])
    outcome, events, spent, peak = run(restricted_loads, data)
    assert (outcome, events) == ("", [])
    assert spent < SECONDS
    assert peak < MEMORY_BASE + MEMORY_PER_BYTE * len(data)


BENIGN: list[Any] = [
    [None, True, 2**1000, 1.5, "é", b"a", bytearray(b"b"), (1, (2,)), {"a": {1}}, frozenset({1})],
    [[] for _ in range(1_000)],
    [{"id": i, "name": str(i), "tags": [str(i)]} for i in range(20_000)],
    [{i} for i in range(20_000)],
    dict.fromkeys(range(100000)),
    [fractions.Fraction(i, 7) for i in range(3_000)],
    [pathlib.PurePosixPath(f"/a/{i}") for i in range(3_000)],
    [uuid.UUID(int=i) for i in range(3_000)],
    [collections.deque([i]) for i in range(10_000)],
    [collections.Counter({i: 1}) for i in range(3_000)],
    [types.SimpleNamespace(a=i) for i in range(3_000)],
    [bytearray(100) for _ in range(10_000)],
    [np.arange(i % 5) for i in range(3_000)],
    ["\udcff", os.fsdecode(b"a\xff\xfe")],
    [2**64 + i for i in range(50_000)],
    "x" * 3_000_000,
    b"x" * 3_000_000,
]


@pytest.mark.parametrize("value", BENIGN, ids=lambda v: f"{type(v).__name__} of {type(next(iter(v))).__name__}")
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_benign_controls(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    assert repr(restricted_loads(data)) == repr(value)
