"""The sandbox's side: an agent that does what it was told, and the patch that comes of it."""

from agentix import bash


async def mend(script: str, workdir: str = "/testbed", timeout: float = 60) -> str:
    """Run the agent's script in the repository, and return all it has changed there as a patch."""
    environ = bash.image_env()
    done = await bash.run(script, cwd=workdir, env=environ, timeout=timeout)
    print(f"the agent ended with exit code {done.exit_code}")
    diff = "git add -A && git diff --cached --binary HEAD"
    return (await bash.run(diff, cwd=workdir, env=environ, timeout=60)).stdout
