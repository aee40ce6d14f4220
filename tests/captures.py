"""The captured answers in tests/data/streams, and how to read them."""

from __future__ import annotations

from pathlib import Path

STREAMS = Path(__file__).parent / "data" / "streams"

RAW = "_raw_chunked"
"""Ends the name of a capture that holds the transfer chunks too."""

CAPTURES = {path.stem: path for path in sorted(STREAMS.glob("*.txt"))}


def head_and_body(name: str) -> tuple[bytes, bytes]:
    """A capture's head, with CRLF as on the wire and the blank line, and its body as the client got it."""
    captured = CAPTURES[name].read_bytes()
    head, _, body = captured.partition(b"\r\n\r\n" if b"\r\n\r\n" in captured else b"\n\n")
    return b"\r\n".join(head.splitlines()) + b"\r\n\r\n", body


def endpoint_of(name: str) -> str:
    """Which endpoint a capture is an answer of."""
    if "_completions_stream" in name:
        return "completions"
    return "responses" if "_responses_" in name else "chat"


def _without_transfer_chunks(body: bytes) -> bytes:
    joined = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        if not int(size, 16):
            return joined
        joined, body = joined + body[: int(size, 16)], body[int(size, 16) + 2 :]


def _streams() -> dict[str, bytes]:
    found = {}
    for name in CAPTURES:
        head, body = head_and_body(name)
        plain = _without_transfer_chunks(body) if name.endswith(RAW) else body
        if head.startswith(b"HTTP/1.1 200") and plain.startswith((b"data:", b"event:", b":")):
            found[name] = plain
    return found


EVENT_STREAMS = _streams()
"""The body of each capture that is an event stream."""
