"""An agent with a command line, as a function for `sandbox.remote`."""

import os
import sys

from agentix import bash

AGENT = [sys.executable, "-m", "coder.tiny"]
# mini-swe-agent instead, if the project depends on it:
# AGENT = ["mini", "-y", "--exit-immediately", "-m", "openai/any", "-t"]


async def run(task: str, workdir: str, env: dict[str, str], timeout: float = 600) -> bash.BashResult:
    """Let the agent work on `task` in `workdir`; `env` says where its model is.

    The shell quotes nothing for us, so what varies goes through the environment. If the call is cancelled or takes too
    long, the agent is ended with everything that it has started.
    """
    os.makedirs(workdir, exist_ok=True)
    words = " ".join(f'"{word}"' for word in AGENT)
    return await bash.run(f'{words} "$TASK"', cwd=workdir, env={**os.environ, **env, "TASK": task}, timeout=timeout)
