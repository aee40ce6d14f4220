"""Histograms that cost little to fill, and the bucket edges that vLLM 0.32 publishes."""

from __future__ import annotations

from bisect import bisect_left

FIRST_TOKEN_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
PER_TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)
STEP_TOKENS = (1.0, 8.0, 16.0, 32.0, 64.0, *(128.0 * 2**power for power in range(8)))
CHOICES = (1.0, 2.0, 5.0, 10.0, 20.0)
PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


def request_tokens(max_model_len: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50 ... up to the context length."""
    edges = (float(digit * 10**power) for power in range(12) for digit in (1, 2, 5))
    return tuple(edge for edge in edges if edge <= max_model_len)


class Histogram:
    """Counts per bucket and a sum; `observe` is a bisection and two additions."""

    __slots__ = ("_counts", "_edges", "_total", "about", "name")

    def __init__(self, name: str, about: str, edges: tuple[float, ...]) -> None:
        self.name = name
        self.about = about
        self._edges = edges
        self._counts = [0] * (len(edges) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._edges, value)] += 1
        self._total += value

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative counts by upper edge, as Prometheus wants them, and the sum of all values."""
        edges = [str(edge) for edge in self._edges] + ["+Inf"]
        reached = 0
        rows: list[tuple[str, float]] = []
        for edge, count in zip(edges, self._counts, strict=True):
            reached += count
            rows.append((edge, reached))
        return rows, self._total
