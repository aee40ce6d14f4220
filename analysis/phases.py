"""Which phase each request was scheduled in: burst, recovery or quiet.

burst     inside a planned burst window [start, end); a salvo's window has no width and holds what is due at
it recovery  after a burst's end until the server has recovered, or until the next burst when it never did
quiet     everything else
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

Phase = Literal["burst", "recovery", "quiet"]
PHASES: tuple[Phase, ...] = get_args(Phase)

Window = tuple[float, float]
SAME_MOMENT_S = 1e-6
"""Times are written with microseconds; two that differ by less than this are the same."""


def burst_windows(bursts: Sequence[Sequence[float]]) -> list[Window]:
    """run.json's bursts as (start_s, end_s), in order of time; windows that overlap are one burst."""
    joined: list[Window] = []
    for start_s, end_s in sorted((float(start), float(end)) for start, end in bursts):
        if joined and start_s < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end_s))
        else:
            joined.append((start_s, end_s))
    return joined


def inside(at_s: np.ndarray, window: Window) -> np.ndarray:
    """Which of the times lie in a burst window: [start, end), or exactly at it when it has no width."""
    start_s, end_s = window
    if end_s - start_s < SAME_MOMENT_S:
        return np.abs(at_s - start_s) < SAME_MOMENT_S
    return (at_s >= start_s - SAME_MOMENT_S / 2) & (at_s < end_s - SAME_MOMENT_S / 2)


def between(at_s: np.ndarray, start_s: float, end_s: float) -> slice:
    """Where in times that rise (unknown ones last) those in [start, end) stand."""
    first, last = np.searchsorted(at_s, (start_s, end_s)).tolist()
    return slice(first, max(first, last))


def held(at_s: np.ndarray, window: Window) -> slice:
    """Where in times that rise (unknown ones last) those `inside` a burst window stand."""
    start_s, end_s = window
    if end_s - start_s >= SAME_MOMENT_S:
        return between(at_s, start_s - SAME_MOMENT_S / 2, end_s - SAME_MOMENT_S / 2)
    near = between(at_s, start_s - 2 * SAME_MOMENT_S, start_s + 2 * SAME_MOMENT_S)
    found = near.start + np.flatnonzero(inside(at_s[near], window))
    return slice(int(found[0]), int(found[-1]) + 1) if len(found) else slice(near.start, near.start)


def label_phases(at_s: np.ndarray, bursts: Sequence[Window], affected_until_s: Sequence[float]) -> np.ndarray:
    """The phase of each scheduled time, as an array of PHASES.

    `affected_until_s` holds for each burst the moment until which it still hurt: its end plus its recovery
    time, or the next burst's start (or the run's end) when it did not recover.
    """
    order = np.argsort(at_s, kind="stable")
    rising_s = at_s[order]
    phase = np.full(len(at_s), "quiet", dtype=object)
    for (_, end_s), until_s in zip(bursts, affected_until_s, strict=True):
        phase[order[between(rising_s, end_s - SAME_MOMENT_S / 2, until_s)]] = "recovery"
    for window in bursts:
        phase[order[held(rising_s, window)]] = "burst"
    return phase
