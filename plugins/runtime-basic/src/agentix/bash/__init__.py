"""Shell commands in a sandbox.

    result = await sandbox.remote(bash.run, "make test", cwd="/workspace", timeout=600)

    async for event in sandbox.remote(bash.run_stream, "make test"):
        ...

The commands are run by the sandbox's runtime, not by its Python: they end with the call, whatever the worker is doing.
"""

from agentix.runtime.shared.safepickle import allow_type

from ._environ import image_env
from ._events import BashError, BashExit, BashResult, BashStderr, BashStdout
from ._run import run, run_stream

__all__ = [
    "BashError",
    "BashExit",
    "BashResult",
    "BashStderr",
    "BashStdout",
    "image_env",
    "run",
    "run_stream",
]

for _event in (BashResult, BashStdout, BashStderr, BashExit, BashError):
    _event.__module__ = __name__
    allow_type(_event)
del _event
