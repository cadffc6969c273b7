"""docs/reference/limits.md is what tools/limits.py makes of the header."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def limits() -> ModuleType:
    spec = importlib.util.spec_from_file_location("agentix_limits_tool", ROOT / "tools/limits.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_page_is_up_to_date(limits: ModuleType) -> None:
    assert limits.main(["--check"]) == 0, "run tools/limits.py"


def test_every_define_is_on_the_page(limits: ModuleType) -> None:
    header = limits.HEADER.read_text()
    names = [line.split()[1].removeprefix("AGX_") for line in header.splitlines() if line.startswith("#define AGX_")]
    names.remove("PROTO_LIMITS_H")
    page = limits.PAGE.read_text()
    assert len(names) > 50
    assert [name for name in names if f"| `{name}` |" not in page] == []


def test_values_and_units(limits: ModuleType) -> None:
    page = limits.render(
        "/* Things: and more. */\n"
        "#define AGX_SIZE (3u << 20) /* bytes of it */\n"
        "#define AGX_ODD 1025 /* bytes of that */\n"
        "#define AGX_MANY 65536 /* of them */\n"
        "#define AGX_LONG_MS 1500 /* until then */\n"
        "#define AGX_SHORT_MS 20 /* until now | then */\n"
        "#define AGX_CPU_NS 1000000000u /* at work */\n"
        "#define AGX_DAY_S 86400 /* a day */\n"
    )
    assert page.startswith("# Limits\n")
    assert page.split("## ", 1)[1].splitlines() == [
        "Things",
        "",
        "And more.",
        "",
        "| limit | value | what it bounds |",
        "|---|---|---|",
        "| `SIZE` | 3 MiB | bytes of it |",
        "| `ODD` | 1,025 | bytes of that |",
        "| `MANY` | 65,536 | of them |",
        "| `LONG_MS` | 1.5 s | until then |",
        r"| `SHORT_MS` | 20 ms | until now \| then |",
        "| `CPU_NS` | 1 s | at work |",
        "| `DAY_S` | 86,400 s | a day |",
    ]


@pytest.mark.parametrize(
    "line", ["#define AGX_BARE 5", "#define AGX_SUM (1 + 2) /* three */", "#define OTHER 1 /* x */"]
)
def test_a_line_that_says_too_little_is_an_error(limits: ModuleType, line: str) -> None:
    with pytest.raises(limits.LimitsError):
        limits.render(line + "\n")
