"""Targets for the tests of scoring."""

from typing import Any


def register(specs: dict[str, Any], language: str = "py") -> bool:
    """Add the repository `toy/calc`, version 1, to the tables of SWE-bench's package in this process."""
    from swebench.harness import constants
    from swebench.harness.log_parsers import MAP_REPO_TO_PARSER

    constants.MAP_REPO_VERSION_TO_SPECS["toy/calc"] = {"1": specs}
    constants.MAP_REPO_TO_EXT["toy/calc"] = language
    MAP_REPO_TO_PARSER["toy/calc"] = MAP_REPO_TO_PARSER["pytest-dev/pytest"]
    return True


def imported(name: str) -> bool:
    import sys

    return name in sys.modules
