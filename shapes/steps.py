"""Steps: one level after another, each for an equal part of the time. A sweep within one run.

    level
       8 │                  ┌─────
         │                  │
       4 │            ┌─────┘
       2 │      ┌─────┘
       1 │──────┘
         └────────────────────────► t
         0     T/4   T/2   3T/4   T

Written "1,2,4,8". In open loop a level is a rate in req/s, and the mean rate is the mean of the levels; in
closed loop it is a number of users (users.py). Each level is a segment of the plan, so that every request
can be told by the level that it met.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shapes.errors import ShapeError
from shapes.shape import (
    DEFAULT_DURATION_S,
    HIGHEST_RATE_RPS,
    SHORTEST_S,
    Burst,
    FloatArray,
    Shape,
    ShapeSettings,
    checked,
    given_duration,
    within,
)

DEFAULT_TEXT = "1,2,4,8"
MOST_LEVELS = 200
LEAST_SUM = 1e-6  # levels that add up to less send nothing


@dataclass(frozen=True)
class Segment:
    """One part of a plan, [start_s, end_s). `level` is what a step offers (req/s in open loop, users in
    closed loop), None where the shape has no levels.
    """

    id: int
    start_s: float
    end_s: float
    level: float | None = None


@dataclass(frozen=True)
class Steps:
    """`levels` (req/s), each for an equal part of `duration_s` (s)."""

    duration_s: float
    levels: tuple[float, ...]

    @property
    def mean_rate_rps(self) -> float:
        """The mean of the levels, in req/s."""
        return sum(self.levels) / len(self.levels)

    @cached_property
    def _edges_s(self) -> FloatArray:
        """0, T/n, 2T/n, ..., T."""
        return np.linspace(0.0, self.duration_s, len(self.levels) + 1)

    @cached_property
    def _expected_at_edges(self) -> FloatArray:
        return np.concatenate(([0.0], np.cumsum(np.diff(self._edges_s) * self.levels)))

    def rate_at(self, t_s: ArrayLike) -> FloatArray:
        """The level of the part that holds t, 0 outside [0, T); in req/s."""
        t = np.asarray(t_s, dtype=np.float64)
        part = np.searchsorted(self._edges_s, t, side="right") - 1
        level = np.array(self.levels)[np.clip(part, 0, len(self.levels) - 1)]
        return np.where(within(t, self.duration_s), level, 0.0)

    def expected_until(self, t_s: ArrayLike) -> FloatArray:
        """The sum of level x time until t, in requests."""
        return np.asarray(
            np.interp(np.asarray(t_s, dtype=np.float64), self._edges_s, self._expected_at_edges)
        )

    def bursts(self) -> tuple[Burst, ...]:
        """None: a level is a load to settle at, not a burst to recover from."""
        return ()

    def segments(self) -> tuple[Segment, ...]:
        """One per level, in order."""
        edges = self._edges_s.tolist()
        return tuple(Segment(i, edges[i], edges[i + 1], level) for i, level in enumerate(self.levels))


def steps(settings: ShapeSettings) -> Steps:
    """Steps from levels and duration; the rate is not read.

    Raises ShapeError when the levels cannot be read or are too many for the duration.
    """
    levels = parse_levels(DEFAULT_TEXT if settings.levels is None else settings.levels)
    duration_s = given_duration(settings, DEFAULT_DURATION_S)
    if duration_s / len(levels) < SHORTEST_S:
        raise ShapeError(
            f"{len(levels)} levels in {duration_s:g} s leave less than {SHORTEST_S:g} s for each: "
            f"give a longer duration or fewer levels"
        )
    return Steps(duration_s, levels)


def parse_levels(text: str) -> tuple[float, ...]:
    """1 to MOST_LEVELS levels from numbers with commas. Raises ShapeError when they cannot be read, when one
    is out of range, or when all are 0.
    """
    try:
        levels = tuple(float(part) for part in text.split(","))
    except ValueError:
        levels = ()
    if not 1 <= len(levels) <= MOST_LEVELS:
        raise ShapeError(
            f"levels {text[:40]!r} cannot be read: give 1 to {MOST_LEVELS} numbers with commas "
            f"such as 1,10,20,50"
        )
    for level in levels:
        checked("level", level, 0.0, HIGHEST_RATE_RPS)
    if sum(levels) < LEAST_SUM:
        raise ShapeError(f"levels {text[:40]!r} send nothing: at least one must be greater than 0")
    return levels


def segments_of(shape: Shape) -> tuple[Segment, ...]:
    """The parts that a plan of this shape has: one per level of steps, else the whole load as one."""
    return shape.segments() if isinstance(shape, Steps) else (Segment(0, 0.0, shape.duration_s),)


def segment_rows(shape: Shape) -> list[dict[str, Any]]:
    """`segments_of` as run.json keeps them: id, start_s, end_s, author, and level where there is one."""
    return [
        {"id": part.id, "start_s": part.start_s, "end_s": part.end_s, "author": "plan"}
        | ({} if part.level is None else {"level": part.level})
        for part in segments_of(shape)
    ]


def segment_at(shape: Shape, at_s: ArrayLike) -> NDArray[np.int64]:
    """The id of the segment that holds each moment; a moment before or after the load gets the nearest."""
    starts_s = [part.start_s for part in segments_of(shape)]
    part = np.searchsorted(starts_s, np.asarray(at_s, dtype=np.float64), side="right") - 1
    return np.maximum(part, 0).astype(np.int64)
