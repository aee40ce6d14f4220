"""What a shape is: the offered rate as a pure rule of time, with its exact integral and its planned bursts.

    req/s                 rate_at(t)            req        expected_until(t)
      │     ┌──┐                                 │               ┌────
      │     │  │                                 │           ┌───┘ steep in the burst
      │─────┘  └─────                            │  ─────────┘
      └──────────────► t                         └────────────────────► t

Times are seconds since the start of the load. A salvo (n requests at one moment) has no finite rate; it is
a jump of n in the integral.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shapes.errors import ShapeError

FloatArray = NDArray[np.float64]

DEFAULT_RATE_RPS = 6.0
DEFAULT_DURATION_S = 100.0
LONGEST_DURATION_S = 30 * 86_400.0
HIGHEST_RATE_RPS = 1_000_000.0
SHORTEST_S = 0.001  # arrivals are fired to the millisecond: nothing shorter can be told apart


@dataclass(frozen=True)
class Burst:
    """One planned burst, [start_s, end_s) within the duration. A salvo has start_s == end_s."""

    start_s: float
    end_s: float


class Shape(Protocol):
    """The offered rate in req/s over a planned duration."""

    @property
    def duration_s(self) -> float:
        """Length of the load window in seconds."""

    @property
    def mean_rate_rps(self) -> float:
        """Expected arrivals over the duration, divided by it."""

    def rate_at(self, t_s: ArrayLike) -> FloatArray:
        """The rate in req/s at each moment (same shape as `t_s`); 0 outside [0, duration)."""

    def expected_until(self, t_s: ArrayLike) -> FloatArray:
        """Expected arrivals in [0, t]: the exact integral of the rate, right-continuous; salvos are jumps."""

    def bursts(self) -> tuple[Burst, ...]:
        """The planned bursts in order, clipped to the duration; () for a shape without bursts."""


@dataclass(frozen=True)
class ShapeSettings:
    """Everything a shape can be told. None: not given, the shape's own default holds.

    Ratios are plain numbers: `peak_ratio` is peak rate / mean rate, `base` is the level between pulses /
    mean rate, `duty` is width / period, `amplitude` is the sine's swing / mean rate. In closed loop
    `rate_rps` and `levels` are numbers of users (users.py).
    """

    rate_rps: float = DEFAULT_RATE_RPS
    duration_s: float | None = None
    period_s: float | None = None
    peak_ratio: float | None = None
    duty: float | None = None
    width_s: float | None = None
    base: float | None = None
    lead_s: float | None = None
    salvo: str | None = None
    amplitude: float | None = None
    day_profile: str | None = None
    levels: str | None = None


def checked(what: str, value: float, least: float, most: float, unit: str = "") -> float:
    """`value` when it is a number from `least` to `most`. Raises ShapeError otherwise, for NaN too."""
    if not least <= value <= most:  # false for NaN as well
        raise ShapeError(
            f"{what} {value:g}{unit} is impossible: it must be from {least:g} to {most:,.10g}{unit}"
        )
    return float(value)


def rate_and_duration(settings: ShapeSettings) -> tuple[float, float]:
    """The mean rate (req/s) and the duration (s) of a rate shape. Raises ShapeError when impossible."""
    if math.isnan(settings.rate_rps) or settings.rate_rps <= 0:
        raise ShapeError(f"rate {settings.rate_rps:g} req/s is impossible: it must be greater than 0")
    rate_rps = checked("rate", settings.rate_rps, 1e-6, HIGHEST_RATE_RPS, " req/s")
    return rate_rps, given_duration(settings, DEFAULT_DURATION_S)


def given_duration(settings: ShapeSettings, default_s: float) -> float:
    """The duration that was asked for, else `default_s`. Raises ShapeError when it is impossible."""
    asked = default_s if settings.duration_s is None else settings.duration_s
    return checked("duration", asked, SHORTEST_S, LONGEST_DURATION_S, " s")


def within(t_s: FloatArray, duration_s: float) -> NDArray[np.bool_]:
    """Which moments lie in the load window [0, duration)."""
    return (t_s >= 0.0) & (t_s < duration_s)
