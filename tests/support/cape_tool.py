"""The `cape` program as it is documented: it hands requests to a controller and refuses whatever is not documented.

    cape run --controller-url URL --pool P --user U --task-id T --image I --gpus N [--cpu-cores N] [--memory-gb N]
             --isolation-policy P [--runtime-adapter A] --max-duration-seconds N --session-key K
             [--bind HERE:THERE[:ro]]... [--env NAME=VALUE]... -- COMMAND...
    cape status | logs --controller-url URL REQUEST
    cape cancel --controller-url URL --reason R REQUEST

The token is in CAPE_TOKEN. It imports nothing of what it is used to test.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from typing import Any


class Once(argparse.Action):
    """An option that may be given once."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        if getattr(namespace, self.dest, None) is not None:
            parser.error(f"{option} was given twice")
        setattr(namespace, self.dest, values)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("cape", allow_abbrev=False)
    verbs = top.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", allow_abbrev=False)
    for name in ("pool", "user", "task-id", "image", "isolation-policy", "session-key"):
        run.add_argument(f"--{name}", required=True, action=Once)
    for name in ("gpus", "max-duration-seconds"):
        run.add_argument(f"--{name}", required=True, action=Once, type=int)
    for name in ("cpu-cores", "memory-gb"):
        run.add_argument(f"--{name}", action=Once, type=int)
    run.add_argument("--runtime-adapter", action=Once)
    run.add_argument("--bind", action="append", default=[])
    run.add_argument("--env", action="append", default=[])
    run.add_argument("command", nargs="+")
    for verb in ("status", "logs", "cancel"):
        one = verbs.add_parser(verb, allow_abbrev=False)
        one.add_argument("request")
        if verb == "cancel":
            one.add_argument("--reason", required=True, action=Once)
    for one in verbs.choices.values():
        one.add_argument("--controller-url", required=True, action=Once)
    return top


def ask(url: str, method: str, token: str, body: Any = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=300) as answer:
        return json.load(answer)


def main() -> int:
    token = os.environ.get("CAPE_TOKEN")
    if not token:
        print("cape: CAPE_TOKEN is not set", file=sys.stderr)
        return 2
    if any(token in word for word in sys.argv):
        print("cape: a token in the command line", file=sys.stderr)
        return 2
    asked = vars(parser().parse_args())
    verb, url = asked.pop("verb"), asked.pop("controller_url")
    try:
        if verb == "run":
            answer = ask(f"{url}/requests", "POST", token, asked)
            print(f"cape: session {asked['session_key']}", file=sys.stderr)
            print(*[answer["request_id"], *answer.get("also", [])], sep="\n")
            return 0
        there = f"{url}/requests/{asked['request']}"
        if verb == "logs":
            print(ask(f"{there}/logs", "GET", token)["logs"], end="")
        elif verb == "status":
            print(json.dumps(ask(there, "GET", token), indent=2))
        else:
            ask(f"{there}/cancel", "POST", token, {"reason": asked["reason"]})
        return 0
    except urllib.error.HTTPError as error:
        print(json.dumps({"status": error.code, "error": error.read().decode(errors="replace")}), file=sys.stderr)
    except OSError as error:
        print(f"cape: the controller cannot be reached with token {token}: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
