"""A prompt's words -> the names of its whole KV-cache blocks.

A block's hash covers its own words and, through the hash before it, all words in front of it: two prompts
share a block only where everything up to its end is the same (vLLM's block hash).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from simserver.request import BLOCK_TOKENS


def block_hashes(tokens: Sequence[str]) -> tuple[int, ...]:
    """One hash per whole block of 16 tokens; the rest of the prompt has none. The same in every process."""
    found: list[int] = []
    before = b""
    for start in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        text = "\0".join(tokens[start : start + BLOCK_TOKENS]).encode("utf-8", "surrogatepass")
        before = blake2b(before + text, digest_size=8).digest()
        found.append(int.from_bytes(before, "big"))
    return tuple(found)
