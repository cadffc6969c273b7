"""`agentix.bash` in containers: the image's shell and the bundle's, root and somebody, trees that try to get away."""

from __future__ import annotations

import asyncio
from typing import Any

import box_bundle
import engines
import pytest
from containers import provider_of, until

from agentix import SandboxConfig, bash

pytestmark = pytest.mark.usefixtures("places", "nothing_left")

ENV = {"BASH_ENV": "/etc/rc-of-ours", "LINES": "one\ntwo=2\n", "QUOTED": "a'b\"c $HOME #"}
ESCAPE = (
    'S=$(command -v setsid) || S="/bin/busybox setsid"; ($S sh -c "trap : TERM; sleep 7001" &); '
    'sh -c "(sleep 7002 &)"; echo early; sleep 7003'
)


@pytest.mark.parametrize("image", ["bookworm", "busybox", "somebody"])
def test_commands_and_their_trees(run: Any, engine: engines.Engine, bundle: box_bundle.Bundle, image: str) -> None:
    name = engine.variant("busybox", "busybox-user", "USER 1000") if image == "somebody" else engine.image(image)
    config = SandboxConfig(image=name, bundle=bundle.directory, env=ENV)

    async def main() -> None:
        async with provider_of(engine).session(config) as sandbox:

            def left() -> list[str]:
                lines = engine("top", sandbox.sandbox_id).splitlines()
                return [line for line in lines if "sleep 700" in line and "agentix-keeper" not in line]

            assert await sandbox.remote(bash.run, "echo hi; exit 3") == bash.BashResult(3, "hi\n", "")
            who = await sandbox.remote(bash.run, 'id -u; command -v bash; printf %s "$LINES|$QUOTED"')
            uid, shell, variables = who.stdout.split("\n", 2)
            assert (uid, shell) == ("1000" if image == "somebody" else "0", "/nix/runtime/bin/bash")
            assert variables == f"{ENV['LINES']}|{ENV['QUOTED']}"
            await check_the_image(sandbox, image)

            timed = await sandbox.remote(bash.run, ESCAPE, timeout=1)
            assert timed == bash.BashResult(-1, "early\n", "Command timed out after 1s")
            assert left() == []

            task = asyncio.ensure_future(sandbox.remote(bash.run, ESCAPE))
            await until(lambda: len(left()) >= 3)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            async with asyncio.timeout(5):
                await until(lambda: left() == [])

            events = sandbox.remote(bash.run_stream, "sleep 7009 & echo a; echo b >&2")
            assert [event async for event in events] == [
                bash.BashStdout("a\n"),
                bash.BashStderr("b\n"),
                bash.BashExit(0),
            ]
            assert len(left()) == 1, "what a finished command left lives until the sandbox ends"

    run(main())


async def check_the_image(sandbox: Any, image: str) -> None:
    """With the image's own environment it is the image's own shell."""
    env = await sandbox.remote(bash.image_env, {"BASH_ENV": ""})
    assert not [value for name, value in env.items() if "/nix/" in value and name != "PWD"]
    if image == "bookworm":
        result = await sandbox.remote(bash.run, "command -v bash; grep -c /nix/ /proc/self/maps", env=env)
        assert result.stdout.split() in (["/usr/bin/bash", "0"], ["/bin/bash", "0"])
    else:
        result = await sandbox.remote(bash.run, "echo $A$((6*7))", env={**env, "A": "x"}, executable="sh")
        assert result == bash.BashResult(0, "x42\n", "")
