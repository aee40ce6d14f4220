"""A plain asyncio client: the least that a Python load generator does, with aiohttp.

    PYTHON bench/aiohttp_loop.py URL STREAMS CHUNKS SECONDS OUTPUT       SECONDS 0: each stream asks once

The work that a chunk costs in `vllm bench serve` is imitated: what is left of the buffer is tried as whole
JSON, then parsed again. OUTPUT gets a JSON object a line: request_id, ttft_ms, gaps_ms.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from itertools import pairwise

import aiohttp

PROMPT = "the quick brown fox jumps over the lazy dog and " * 4


async def ask(session: aiohttp.ClientSession, url: str, request_id: str, chunks: int) -> list[float]:
    """Send one request; returns when it was sent and when each chunk was seen, in seconds."""
    body = {
        "model": "truth",
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": chunks,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    text, stamps_s = "", [time.perf_counter()]
    headers = {"x-request-id": request_id}
    async with session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as answer:
        async for piece in answer.content.iter_any():
            *events, text = (text + piece.decode()).split("\n\n")
            for event in events:
                data = event.removeprefix("data: ")
                if data == "[DONE]":
                    continue
                now_s = time.perf_counter()
                json.loads(data)
                choices = json.loads(data)["choices"]
                if choices and choices[0]["delta"].get("content"):
                    stamps_s.append(now_s)
    return stamps_s


async def run(url: str, streams: int, chunks: int, seconds: float, output: str) -> None:
    """Let every stream ask, once or for some seconds, and write what was measured."""
    lines = []
    until_s = time.monotonic() + seconds

    async def stream(number: int, session: aiohttp.ClientSession) -> None:
        turn = 0
        while not turn or time.monotonic() < until_s:
            request_id = f"{number}-{turn}"
            sent_s, *seen_s = await ask(session, url, request_id, chunks)
            gaps_ms = [(late - early) * 1e3 for early, late in pairwise(seen_s)]
            ttft_ms = (seen_s[0] - sent_s) * 1e3
            lines.append(json.dumps({"request_id": request_id, "ttft_ms": ttft_ms, "gaps_ms": gaps_ms}))
            turn += 1

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(stream(number, session) for number in range(streams)))
    with open(output, "w") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    _, to, how_many, length, for_s, into = sys.argv
    asyncio.run(run(to, int(how_many), int(length), float(for_s), into))
