"""Uniform: the same rate all the time. The yardstick that bursts are compared with.

req/s
  m │────────────────────
    └────────────────────► t
    0                    T

rate(t) = m                  expected arrivals until t = m t
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from shapes.shape import Burst, FloatArray, ShapeSettings, rate_and_duration, within


@dataclass(frozen=True)
class Uniform:
    """`mean_rate_rps` (req/s) over `duration_s` (s)."""

    duration_s: float
    mean_rate_rps: float

    def rate_at(self, t_s: ArrayLike) -> FloatArray:
        """m within [0, T), else 0; in req/s."""
        t = np.asarray(t_s, dtype=np.float64)
        return np.where(within(t, self.duration_s), self.mean_rate_rps, 0.0)

    def expected_until(self, t_s: ArrayLike) -> FloatArray:
        """m t, in requests."""
        return np.asarray(self.mean_rate_rps * np.clip(t_s, 0.0, self.duration_s))

    def bursts(self) -> tuple[Burst, ...]:
        """None: the rate never changes."""
        return ()


def uniform(settings: ShapeSettings) -> Uniform:
    """A uniform shape from rate and duration. Raises ShapeError when one of them is impossible."""
    rate_rps, duration_s = rate_and_duration(settings)
    return Uniform(duration_s, rate_rps)
