"""Safety valves: what ends a run before it costs more than was meant. A tripped valve stops and drains it,
exit code 5.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST_ENDED = 20
"""A failure ratio is judged from this many ended requests on."""


@dataclass(frozen=True)
class Spent:
    """What a run has spent so far, by the records that have come in and the workers' own counts."""

    sent: int
    ended: int
    failed: int
    tokens: int


@dataclass(frozen=True)
class Valves:
    """The limits; None is no limit. `max_total_tokens` counts input and output as the server reports them."""

    max_requests: int | None = None
    max_total_tokens: int | None = None
    failure_ratio: float | None = None

    def tripped(self, spent: Spent) -> str | None:
        """Why the run must stop now, or None."""
        if self.max_requests is not None and spent.sent >= self.max_requests:
            return f"safety valve: --max-requests {self.max_requests} reached"
        if self.max_total_tokens is not None and spent.tokens >= self.max_total_tokens:
            return f"safety valve: --max-total-tokens {self.max_total_tokens} reached"
        if self.failure_ratio is not None and spent.ended >= LEAST_ENDED:
            ratio = spent.failed / spent.ended
            if ratio >= self.failure_ratio:
                return (
                    f"safety valve: {ratio:.0%} of {spent.ended} requests failed or were rejected, "
                    f"--stop-at-failure-ratio is {self.failure_ratio:g}"
                )
        return None
