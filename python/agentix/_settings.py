"""What `agentix` asks Python for before a command runs: the settings in files of TOML.

`python -I -m agentix._settings FILE...` prints records `KEY NUL VALUE NUL`: for each file `file` and its path, then its
settings as `=KEY`, tables joined to their keys with a dot, values in JSON. Of a `pyproject.toml` only `[tool.agentix]`
counts. What is wrong with a setting is the executable's to say; what is wrong with a file comes as the record `error`.
"""

import json
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

Record = tuple[str, str]


def settings(path: str) -> Iterator[Record]:
    """Say what a file sets. Raises OSError or ValueError if it cannot be read."""
    with open(path, "rb") as file:
        content: Any = tomllib.load(file)
    yield "file", path
    if path.endswith("/pyproject.toml"):
        tool: Any = content.get("tool", {})
        content = tool.get("agentix", {}) if isinstance(tool, dict) else {}  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    yield from _of_table("", content) if isinstance(content, dict) else [_record("", content)]  # pyright: ignore[reportUnknownArgumentType]


def _of_table(prefix: str, table: dict[str, Any]) -> Iterator[Record]:
    for key, value in table.items():
        if isinstance(value, dict) and value and not prefix:
            yield from _of_table(f"{key}.", value)  # pyright: ignore[reportUnknownArgumentType]
        else:
            yield _record(prefix + key, value)


def _record(key: str, value: Any) -> Record:
    # A NUL would end the record; no key that means anything has one. Dates have no form in JSON, nor has TOML a null.
    return "=" + key.replace("\0", "\\0"), json.dumps(value, default=lambda _: None)


def main(paths: list[str]) -> int:
    """Print what all files set; one that is at fault is a record, not a status."""
    out: list[str] = []
    for name in paths:
        try:
            for record in settings(name):
                out += record
        except OSError as error:
            out = ["error", f"{name} cannot be read: {error.strerror}"]
            break
        except (ValueError, RecursionError) as error:
            what = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else f"is not valid TOML: {error}"
            out = ["error", f"{name} {what}"]
            break
    sys.stdout.buffer.write("".join(f"{item}\0" for item in out).encode("utf-8", "surrogateescape"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
