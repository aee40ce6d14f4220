"""Diurnal: a whole day of traffic squeezed into the load window, night first.

    req/s
  1.8 m │             .-''-.
      m │ ─ ─ ─ ─ ─ .'─ ─ ─ '. ─ ─ ─ ─ ─
  0.2 m │ -.___..-'           '-..___.-
        └─────────────────────────────────► t
         0 (night)   T/2 (noon)        T

    sine     rate(t) = m (1 - A cos(2 pi t / T)), A = 0.8: trough at both ends, peak in the middle
    table    weights at equal distances over the day, joined by straight lines, the last one to the first;
             divided by their mean, so that the mean rate is m

The slopes are 86,400 / T times steeper than on a real day: ten minutes of load rise 144 times as fast. The
shape tests how a server follows a swing of this size, not how it follows it at a day's pace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shapes.errors import ShapeError
from shapes.shape import Burst, FloatArray, ShapeSettings, checked, rate_and_duration, within

AMPLITUDE = 0.8
MOST_WEIGHTS = 1_440

BURSTGPT_HOURS = (
    940.3, 892.6, 571.6, 513.0, 368.2, 341.5, 193.8, 153.3, 177.7, 415.9, 878.8, 1286.5,
    1744.3, 1501.1, 1795.9, 1401.1, 1475.5, 1355.8, 1181.2, 1567.6, 1352.8, 1175.0, 1129.0, 1025.8,
)  # fmt: skip
"""Mean requests per hour of day (local time, from midnight) over the 61 days of the BurstGPT trace.

Source: BurstGPT_1.csv (HPMLL/BurstGPT, CC-BY-4.0), as added up by IsabellaLiu99/burstgpt_analysis (commit
745962c). Peak / mean 1.84, trough / mean 0.157, peak / trough 11.7.
"""

DAY_PROFILES = {"burstgpt": BURSTGPT_HOURS}


@dataclass(frozen=True)
class DaySine:
    """m (1 - A cos(2 pi t / T)): `amplitude` A is the swing / mean, from 0 to 1."""

    duration_s: float
    mean_rate_rps: float
    amplitude: float

    def rate_at(self, t_s: ArrayLike) -> FloatArray:
        """m (1 - A cos(2 pi t / T)) within [0, T), else 0; in req/s."""
        t = np.asarray(t_s, dtype=np.float64)
        turn = 2 * np.pi * np.clip(t, 0.0, self.duration_s) / self.duration_s
        rate = self.mean_rate_rps * (1 - self.amplitude * np.cos(turn))
        return np.where(within(t, self.duration_s), rate, 0.0)

    def expected_until(self, t_s: ArrayLike) -> FloatArray:
        """m (t - A T / (2 pi) sin(2 pi t / T)), in requests."""
        t = np.clip(t_s, 0.0, self.duration_s)
        turn = 2 * np.pi * t / self.duration_s
        swing = self.amplitude * self.duration_s / (2 * np.pi) * np.sin(turn)
        return np.asarray(np.maximum(self.mean_rate_rps * (t - swing), 0.0))

    def bursts(self) -> tuple[Burst, ...]:
        """None: the day's peak is part of the swing, not a burst."""
        return ()


@dataclass(frozen=True)
class DayTable:
    """Weights w_0 ... w_(n-1) at the times i T / n, straight lines between them, and from the last to the
    first.

    Any unit will do: the weights are divided by their mean.
    """

    duration_s: float
    mean_rate_rps: float
    weights: tuple[float, ...]

    @cached_property
    def _knots(self) -> tuple[FloatArray, FloatArray]:
        """The rate (req/s) at each of the n + 1 knots, and the expected arrivals until there."""
        weights = np.append(self.weights, self.weights[0])
        rates = self.mean_rate_rps * weights / np.mean(self.weights)
        step_s = self.duration_s / len(self.weights)
        return rates, np.concatenate(([0.0], np.cumsum((rates[1:] + rates[:-1]) / 2 * step_s)))

    def _place(self, t: FloatArray) -> tuple[NDArray[np.int64], FloatArray]:
        """Which stretch between two knots each moment lies in, and how far along it is (0 to 1)."""
        along = np.clip(t / self.duration_s, 0.0, 1.0) * len(self.weights)
        stretch = np.minimum(along.astype(np.int64), len(self.weights) - 1)
        return stretch, along - stretch

    def rate_at(self, t_s: ArrayLike) -> FloatArray:
        """The straight line between the two weights around t; 0 outside [0, T); in req/s."""
        t = np.asarray(t_s, dtype=np.float64)
        rates, _ = self._knots
        stretch, part = self._place(t)
        rate = rates[stretch] * (1 - part) + rates[stretch + 1] * part
        return np.where(within(t, self.duration_s), rate, 0.0)

    def expected_until(self, t_s: ArrayLike) -> FloatArray:
        """The exact area under the straight lines, in requests."""
        rates, expected = self._knots
        stretch, part = self._place(np.asarray(t_s, dtype=np.float64))
        step_s = self.duration_s / len(self.weights)
        rise = rates[stretch + 1] - rates[stretch]
        return np.asarray(expected[stretch] + step_s * part * (rates[stretch] + rise * part / 2))

    def bursts(self) -> tuple[Burst, ...]:
        """None: the day's peak is part of the swing, not a burst."""
        return ()


def diurnal(settings: ShapeSettings) -> DaySine | DayTable:
    """A day from rate and duration, as a sine (amplitude) or from an hour table (day profile).

    `day_profile` is "sine", a name of DAY_PROFILES, or numbers with commas such as "1,1,2,4,2".
    Raises ShapeError when it cannot be read, or when an amplitude is given with a table.
    """
    rate_rps, duration_s = rate_and_duration(settings)
    profile = "sine" if settings.day_profile is None else settings.day_profile.strip().lower()
    if profile == "sine":
        amplitude = AMPLITUDE if settings.amplitude is None else settings.amplitude
        return DaySine(duration_s, rate_rps, checked("amplitude", amplitude, 0.0, 1.0))
    if settings.amplitude is not None:
        raise ShapeError(
            "amplitude belongs to the sine and cannot be given with a day profile: give one of them"
        )
    return DayTable(duration_s, rate_rps, DAY_PROFILES.get(profile) or parse_weights(profile))


def parse_weights(text: str) -> tuple[float, ...]:
    """At least two weights from numbers with commas. Raises ShapeError when they make no day."""
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        weights = ()
    if not 2 <= len(weights) <= MOST_WEIGHTS:
        raise ShapeError(
            f"day profile {text[:40]!r} cannot be read: give sine, {', '.join(DAY_PROFILES)}, "
            f"or 2 to {MOST_WEIGHTS:,} numbers with commas such as 1,1,2,4,2"
        )
    if not all(math.isfinite(weight) and 0 <= weight <= 1e9 for weight in weights) or sum(weights) < 1e-9:
        raise ShapeError(f"day profile {text[:40]!r} needs numbers from 0 to 1e9 that are not all 0")
    return weights
