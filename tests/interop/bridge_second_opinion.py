"""What litellm makes of the shapes in `tests/python/bridge_shapes.py`, for `tests/python/bridge_second_opinion.json`.

litellm is no dependency of the project. To write the file again, in an environment of its own:

    uv venv build/litellm && uv pip install --python build/litellm/bin/python litellm
    build/litellm/bin/python tests/interop/bridge_second_opinion.py

It is run as its users run it: asked by its Messages interface, with a Chat Completions service on loopback behind it.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # pyright: ignore[reportMissingImports]
from aiohttp import web

PYTHON = Path(__file__).resolve().parents[1] / "python"
sys.path.insert(0, str(PYTHON))

import bridge_shapes as shapes  # noqa: E402

heard: list[dict[str, Any]] = []
to_say: Any = None


async def answer(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    heard.append(body)
    if not isinstance(to_say, list):
        return web.json_response(to_say)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for piece in [*(json.dumps(piece) for piece in to_say), "[DONE]"]:
        await response.write(f"data: {piece}\n\n".encode())
    return response


async def ask(url: str, shape: dict[str, Any], said: Any) -> tuple[Any, Any]:
    """The request that came, and what litellm made of the answer."""
    global to_say
    to_say = said
    heard.clear()
    asked = {**shapes.asked(shape), "model": "hosted_vllm/m"}
    try:
        async with asyncio.timeout(60):
            got: Any = await litellm.anthropic_messages(api_base=url + "/v1", api_key="k", num_retries=0, **asked)
            if asked.get("stream"):
                parts = [part async for part in got]
                text = "".join(part.decode() if isinstance(part, bytes) else str(part) for part in parts)
                got = shapes.message_of_events(text)
            elif hasattr(got, "model_dump"):
                got = got.model_dump()
            return (heard[0] if heard else None), shapes.gist_of_message(got)
    except Exception as failure:
        print(f"{shape}: {type(failure).__name__}: {str(failure)[:300]}", file=sys.stderr)
        return (heard[0] if heard else None), f"failed: {type(failure).__name__}"


async def main() -> None:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    plain = shapes.REPLIES["text"]
    opinion: dict[str, Any] = {"litellm": importlib.metadata.version("litellm")}
    opinion["requests"] = {
        name: (await ask(url, shape, shapes.STREAMS["text"] if shape.get("stream") else plain))[0]
        for name, shape in shapes.REQUESTS.items()
    }
    opinion["replies"] = {name: (await ask(url, {}, said))[1] for name, said in shapes.REPLIES.items()}
    opinion["streams"] = {name: (await ask(url, {"stream": True}, said))[1] for name, said in shapes.STREAMS.items()}
    await runner.cleanup()
    target = PYTHON / "bridge_second_opinion.json"
    target.write_text(json.dumps(opinion, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    print(f"{sum(len(part) for part in opinion.values() if isinstance(part, dict))} shapes in {target}")


asyncio.run(main())
