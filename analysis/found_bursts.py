"""Bursts found in the arrivals, for a load whose plan names none: a replayed trace, another tool's log.

Counts of 1 s against a base rate b, in requests per second:

    a burst holds a second with at least    max(2 b, c, 5), where P(Poisson(b) >= c) <= 0.001 / seconds
    and lasts while counts stay at least    max(1.5 b, b + 2 sqrt(b)); bursts one second apart are one

so that Poisson arrivals of one rate show a burst in one run of a thousand, and twice the rate is needed
however many there are. b is the mean of the seconds outside bursts, which is circular: it starts from the
lower quartile of all and is repeated until nothing changes; it is never taken below a quarter of the mean of
all, so that single requests in a silent load are none. What lasts longer than half of the load is a change
of level, no burst. Edges are whole seconds: up to 1 s off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from analysis.load import Run
from analysis.phases import Window, burst_windows

FALSE_ALARM = 0.001
LEAST_RATIO = 2.0
LEAST_COUNT = 5
LASTING_RATIO = 1.5
LASTING_SIGMA = 2.0
LEAST_BASE_OF_MEAN = 0.25
LONGEST_OF_LOAD = 0.5
EVEN_RATE = 1.2
MOST_BRIDGED = 1
_MOST_ROUNDS = 20


@dataclass(frozen=True)
class Bursts:
    """The burst windows of a run, and whether they were found in its arrivals instead of planned."""

    windows: list[Window]
    found: bool


def bursts_of(run: Run) -> Bursts:
    """The plan's bursts; where it has none and asks for no other change of rate, those in the arrivals."""
    planned = burst_windows(run.info.bursts)
    rates = [rate for _, rate in run.info.rate_curve]
    changing = bool(rates) and max(rates) > EVEN_RATE * min(rates)
    levels = any(row.get("level") is not None for row in run.info.segments)
    if planned or run.closed or changing or levels:
        return Bursts(planned, found=False)
    windows = found_bursts(run.load["arrived_at_s"].to_numpy(dtype=float), run.window_s)
    return Bursts(windows, found=bool(windows))


def found_bursts(at_s: np.ndarray, duration_s: float) -> list[Window]:
    """Windows [start_s, end_s) of bursts among arrivals at `at_s` in [0, duration_s)."""
    seconds = math.ceil(duration_s)
    inside = at_s[(at_s >= 0) & (at_s < duration_s)]
    if not len(inside):
        return []
    counts = np.bincount(inside.astype(int), minlength=seconds)
    least_base = LEAST_BASE_OF_MEAN * float(counts.mean())
    base = max(float(np.quantile(counts, 0.25)), least_base)
    spans: list[tuple[int, int]] = []
    for _ in range(_MOST_ROUNDS):
        before, spans = spans, _spans(counts, base)
        outside = np.ones(seconds, dtype=bool)
        for first, end in spans:
            outside[first:end] = False
        base = max(float(counts[outside].mean()), least_base) if outside.any() else base
        if spans == before:
            break
    longest = LONGEST_OF_LOAD * seconds
    return [(float(first), min(float(end), duration_s)) for first, end in spans if end - first <= longest]


def _spans(counts: np.ndarray, base: float) -> list[tuple[int, int]]:
    """Runs [first, end) of seconds that last and hold at least one that is high."""
    high = counts >= max(LEAST_RATIO * base, poisson_limit(base, FALSE_ALARM / len(counts)), LEAST_COUNT)
    lasting = counts >= max(LASTING_RATIO * base, base + LASTING_SIGMA * math.sqrt(base))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], (lasting | high).astype(int), [0]])))
    spans: list[tuple[int, int]] = []
    for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if not high[first:end].any():
            continue
        bridged = bool(spans) and first - spans[-1][1] <= MOST_BRIDGED
        spans[-1:] = [(spans[-1][0], end)] if bridged else [*spans[-1:], (first, end)]
    return spans


def poisson_limit(mean: float, probability: float) -> int:
    """The least c with P(Poisson(mean) >= c) <= probability."""
    most = math.ceil(mean + 12 * math.sqrt(mean) + 40)
    k = np.arange(1, most)
    log_mass = np.concatenate([[-mean], -mean + np.cumsum(np.log(mean) - np.log(k))]) if mean > 0 else [0.0]
    tail = np.cumsum(np.exp(log_mass)[::-1])[::-1]
    return int((tail > probability).sum())
