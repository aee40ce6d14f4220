"""The loads that every client is measured under.

All streams of a load start together and each follows on its last answer, so they tick in lumps at first.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """`streams` requests at a time, each answered after `ttft_ms` with `chunks` chunks `gap_ms` apart.

    `once`: each stream asks once, so that it is a burst; else for as long as the run goes on.
    """

    name: str
    streams: int
    chunks: int
    ttft_ms: float
    gap_ms: float
    once: bool = False

    @property
    def answer_s(self) -> float:
        """How long the server takes for one answer."""
        return (self.ttft_ms + (self.chunks - 1) * self.gap_ms) / 1000

    @property
    def offered_chunks_per_s(self) -> float | None:
        """What a client without lag would get; a burst has no rate."""
        return None if self.once else self.streams * self.chunks / self.answer_s


LOADS = {
    "streams-30": Load("200 streams of 30 chunks", 200, 30, ttft_ms=200, gap_ms=40),
    "streams-50": Load("200 streams of 50 chunks", 200, 50, ttft_ms=200, gap_ms=40),
    "burst": Load("burst of 500", 500, 50, ttft_ms=200, gap_ms=40, once=True),
    "requests": Load("requests of 1 chunk, 50 at a time", 50, 1, ttft_ms=20, gap_ms=0),
}
