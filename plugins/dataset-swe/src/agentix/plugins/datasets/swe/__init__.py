"""SWE-bench in a sandbox: bring a repository to an instance's commit, and score a patch.

Both functions are meant for `sandbox.remote`; they work on the sandbox's files and start the image's programs. See
`prepare_env` and `score`.
"""

from ._repo import PrepareEnvResult, prepare_env
from ._score import score

__all__ = ["PrepareEnvResult", "prepare_env", "score"]
