"""The agent: it takes its model's address and key from the environment, as the SDKs do by themselves."""

from __future__ import annotations

import json
import sys
from typing import Any

import anthropic
import openai

HI: Any = [{"role": "user", "content": "hi"}]


def anthropics() -> list[Any]:
    how: Any = {"max_tokens": 50, "messages": HI}
    with anthropic.Anthropic(max_retries=0) as model:
        heard: list[Any] = [model.messages.create(model="m", **how).content[0].text]  # type: ignore[union-attr]
        with model.messages.stream(model="m", **how) as stream:
            said = stream.get_final_message()
        heard.append([said.stop_reason, said.content[1].input])  # type: ignore[union-attr]
        try:
            model.messages.create(model="limited", **how)
        except anthropic.RateLimitError as error:
            heard.append([error.status_code, error.response.text, dict(error.response.headers)])
        heard.append(model.messages.count_tokens(model="m", messages=HI).input_tokens)
    return heard


def openais() -> list[Any]:
    with openai.OpenAI(max_retries=0) as model:
        heard: list[Any] = [model.chat.completions.create(model="m", messages=HI).choices[0].message.content]
        pieces = model.chat.completions.create(model="m", messages=HI, stream=True)
        heard.append("".join(part.choices[0].delta.content or "" for part in pieces if part.choices))
        listed = model.models.with_raw_response.list()
        heard.append([[one.id for one in listed.parse()], dict(listed.headers)])
        try:
            model.embeddings.create(model="m", input="x")
        except openai.AuthenticationError as error:
            heard.append([error.status_code, error.response.text])
    return heard


if __name__ == "__main__":
    print(json.dumps([anthropics(), openais()]), flush=True)
    sys.stdin.read()
