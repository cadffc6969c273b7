"""The proof vectors that the C test checks against, made anew with the standard library."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from pathlib import Path

VECTORS = Path(__file__).parents[1] / "c/proto/proof_vectors.h"


def proof(token: bytes, nonce: bytes, instance: bytes) -> str:
    digest = hmac.new(token, b"agentix/1 server" + nonce + instance, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def test_vectors_are_what_hmac_says() -> None:
    text = re.sub(r'"\s+"', "", VECTORS.read_text().replace("\\\n", " "))  # one string, one literal
    rows = re.findall(r'X\(\s*"([^"]*)",\s*"([0-9a-f]{64})",\s*"([^"]*)",\s*"([^"]*)"\)', text)
    assert len(rows) == text.count('X("') >= 4
    for token, nonce, instance, expected in rows:
        assert proof(token.encode(), bytes.fromhex(nonce), instance.encode()) == expected
