"""The most that a plan can spend, told before anything is sent: many servers bill by the token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from client.calibration import UNCALIBRATED, PromptCalibration
from shapes.schedule import Schedule


@dataclass(frozen=True)
class Budget:
    """Requests, and tokens as the schedule asks for them. The prompt is made of about that many tokens (as
    the server counted before the load), and is never shorter than the server's own template; the answer is
    cut there by every server that keeps to max_tokens."""

    requests: int
    input_tokens: int
    output_tokens: int

    def __str__(self) -> str:
        requests = "1 request" if self.requests == 1 else f"{self.requests:,} requests"
        given, made = f"{self.input_tokens:,} prompt tokens", f"{self.output_tokens:,} output tokens"
        return f"at most {requests}, {given} and {made}"


def budget_of(
    schedule: Schedule, most: int | None = None, calibration: PromptCalibration = UNCALIBRATED
) -> Budget:
    """The sum over the arrivals of a schedule, or over the first `most` of them (--max-requests)."""
    least = round(calibration.tokens_of(1))
    return Budget(
        requests=len(schedule.at_s[:most]),
        input_tokens=int(np.maximum(schedule.asked_input_tokens[:most], least).sum()),
        output_tokens=int(schedule.asked_output_tokens[:most].sum()),
    )
