"""A whole agent: asks the model what to do, does it in a shell, tells what came of it, until nothing is left to do.

python -m coder.tiny TASK
"""

import json
import os
import subprocess
import sys
import urllib.request

SHELL = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Run a command",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


def ask(messages: list[dict]) -> dict:
    """Ask the model, at the address that the environment names."""
    body = json.dumps({"model": "any", "messages": messages, "tools": [SHELL]}).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)["choices"][0]["message"]


def main(task: str) -> None:
    messages = [{"role": "user", "content": task}]
    while True:
        said = ask(messages)
        messages.append(said)
        if not said.get("tool_calls"):
            print(said["content"])
            return
        for call in said["tool_calls"]:
            command = json.loads(call["function"]["arguments"])["command"]
            print("$", command, flush=True)
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout + done.stderr})


if __name__ == "__main__":
    main(sys.argv[1])
