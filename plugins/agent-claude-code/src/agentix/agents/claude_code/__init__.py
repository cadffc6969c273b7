"""Claude Code in a sandbox.

    result = await sandbox.remote(claude_code.run, claude_code.ClaudeCodeInput(
        instruction="Make the tests pass.", model="claude-sonnet-4-5", workdir="/workspace", base_url=handle.url))

It is run by the sandbox's runtime, not by its Python: it ends with the call, and everything it has started with it.
"""

from agentix.runtime.shared.safepickle import allow_type

from ._run import ClaudeCodeInput, ClaudeCodeResult, run

__all__ = ["ClaudeCodeInput", "ClaudeCodeResult", "run"]

for _type in (ClaudeCodeInput, ClaudeCodeResult):
    _type.__module__ = __name__
allow_type(ClaudeCodeResult)
del _type
