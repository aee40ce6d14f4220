"""The two-level rule: a base rate with a higher peak rate in a window of each period, at an exact mean.

    req/s
    R m │        ┌──┐              ┌──┐              ┌──┐
        │        │  │              │  │              │  │
      m │ ─ ─ ─ ─│─ │─ ─ ─ ─ ─ ─ ─ │─ │─ ─ ─ ─ ─ ─ ─ │─ │─ ─
      b │────────┘  └──────────────┘  └──────────────┘  └──
        └──────────────────────────────────────────────────► t
         ├─ lead ─┤w │             │                       T
                  ├──── period ────┤

The peak is R times the mean m of the whole load. What remains is spread over the rest of the time, so that
the mean holds for any duration T, also when the last burst is cut off: with B seconds of burst within T,

    b = (m T - R m B) / (T - B)            possible while R B <= T

For whole periods this is the textbook form b = m (1 - D R) / (1 - D) with the duty D = w / period.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from shapes.errors import ShapeError
from shapes.shape import LONGEST_DURATION_S, SHORTEST_S, Burst, FloatArray, checked, within

MOST_BURSTS = 100_000
HIGHEST_RATIO = 10_000.0
ROUNDING = 1e-9  # slack for figures that meet a limit exactly, such as duty 0.2 x peak ratio 5


@dataclass(frozen=True)
class TwoLevel:
    """Bursts of `width_s` every `period_s`, the first at `lead_s`; the peak is `peak_ratio` x the mean rate.

    Times in seconds, rates in req/s. Raises ShapeError when no such shape exists.
    """

    duration_s: float
    mean_rate_rps: float
    peak_ratio: float
    period_s: float
    width_s: float
    lead_s: float

    def __post_init__(self) -> None:
        check_periods(self.duration_s, self.peak_ratio, self.period_s, self.lead_s)
        checked("width", self.width_s, SHORTEST_S, LONGEST_DURATION_S, " s")
        if self.width_s >= self.period_s:
            raise ShapeError(
                f"width {self.width_s:g} s leaves no time between bursts every {self.period_s:g} s: "
                f"the width must be less than the period"
            )
        share = self.burst_time_s / self.duration_s
        if share * self.peak_ratio <= 1 + ROUNDING:
            return
        duty = self.width_s / self.period_s
        if duty * self.peak_ratio > 1 + ROUNDING:
            raise ShapeError(
                f"duty {duty:.4g} x peak ratio {self.peak_ratio:g} = {duty * self.peak_ratio:.4g}: "
                f"the peaks alone would exceed the mean; lower one so that their product is at most 1"
            )
        raise ShapeError(
            f"bursts fill {self.burst_time_s:.4g} s of {self.duration_s:g} s, "
            f"x peak ratio {self.peak_ratio:g} = {share * self.peak_ratio:.4g}: "
            f"the peaks alone would exceed the mean; a duration of whole periods ({self.period_s:g} s) "
            f"or a peak ratio of at most {1 / share:.4g} is possible"
        )

    @cached_property
    def _knots_s(self) -> FloatArray:
        """0, start, end, start, end, ..., T: the moments at which the level changes."""
        starts = burst_starts(self.duration_s, self.period_s, self.lead_s)
        ends = np.minimum(starts + self.width_s, np.append(starts[1:], self.duration_s))
        inner = np.column_stack((starts, ends)).ravel()
        return np.concatenate(([0.0], inner, [self.duration_s]))

    @cached_property
    def burst_time_s(self) -> float:
        """B: seconds of burst within the duration."""
        return float(np.sum(np.diff(self._knots_s)[1::2]))

    @property
    def peak_rate_rps(self) -> float:
        """R m, in req/s."""
        return self.peak_ratio * self.mean_rate_rps

    @cached_property
    def base_rate_rps(self) -> float:
        """b = (m T - R m B) / (T - B), in req/s."""
        rest = self.mean_rate_rps * self.duration_s - self.peak_rate_rps * self.burst_time_s
        return max(rest / (self.duration_s - self.burst_time_s), 0.0)

    @cached_property
    def _levels_rps(self) -> FloatArray:
        """The rate after each knot but the last: base, peak, base, peak, ..., base."""
        levels = np.full(len(self._knots_s) - 1, self.base_rate_rps)
        levels[1::2] = self.peak_rate_rps
        return levels

    @cached_property
    def _expected_at_knots(self) -> FloatArray:
        return np.concatenate(([0.0], np.cumsum(np.diff(self._knots_s) * self._levels_rps)))

    def rate_at(self, t_s: ArrayLike) -> FloatArray:
        """R m in a burst, b between bursts, 0 outside [0, T); in req/s."""
        t = np.asarray(t_s, dtype=np.float64)
        index = np.searchsorted(self._knots_s, t, side="right") - 1
        level = self._levels_rps[np.clip(index, 0, len(self._levels_rps) - 1)]
        return np.where(within(t, self.duration_s), level, 0.0)

    def expected_until(self, t_s: ArrayLike) -> FloatArray:
        """b t + (R m - b) x (burst time until t), in requests."""
        return np.asarray(
            np.interp(np.asarray(t_s, dtype=np.float64), self._knots_s, self._expected_at_knots)
        )

    def bursts(self) -> tuple[Burst, ...]:
        """The windows at the peak rate; the last one may be cut off by the end of the load."""
        pairs = self._knots_s[1:-1].reshape(-1, 2).tolist()
        return tuple(Burst(start, end) for start, end in pairs)


def check_periods(duration_s: float, peak_ratio: float, period_s: float, lead_s: float) -> None:
    """Raises ShapeError unless at least one burst of a true peak begins within the duration."""
    checked("period", period_s, SHORTEST_S, LONGEST_DURATION_S, " s")
    checked("lead", lead_s, 0.0, LONGEST_DURATION_S, " s")
    if not 1 < peak_ratio <= HIGHEST_RATIO:
        raise ShapeError(
            f"peak ratio {peak_ratio:g} is impossible: peak rate / mean rate must be greater than 1 "
            f"and at most {HIGHEST_RATIO:,.0f}"
        )
    if lead_s >= duration_s:
        raise ShapeError(
            f"no burst begins within {duration_s:g} s, since the first is due at {lead_s:g} s: "
            f"give a longer duration or a shorter lead"
        )
    if (duration_s - lead_s) / period_s > MOST_BURSTS:
        raise ShapeError(
            f"a period of {period_s:g} s makes more than {MOST_BURSTS:,} bursts in {duration_s:g} s: "
            f"give a longer period"
        )


def width_for_duty(duty: float, period_s: float) -> float:
    """duty x period, in seconds. Raises ShapeError unless the duty is between 0 and 1."""
    if not 0 < duty < 1:
        raise ShapeError(f"duty {duty:g} is impossible: width / period must be greater than 0 and below 1")
    return duty * period_s


def burst_starts(duration_s: float, period_s: float, lead_s: float) -> FloatArray:
    """lead, lead + period, ... while less than the duration, in seconds."""
    count = int((duration_s - lead_s) / period_s) + 2
    starts = lead_s + period_s * np.arange(count, dtype=np.float64)
    return starts[starts < duration_s]


def width_for_base(
    duration_s: float, peak_ratio: float, period_s: float, lead_s: float, base: float
) -> float:
    """The width in seconds with which the level between bursts is `base` x the mean, for the actual duration.

    From m T = R m B + base m (T - B) the burst time is B = T (1 - base) / (R - base), to be shared by n
    bursts of which the end of the load may cut the last one off after r seconds: w = B / n if that fits
    into r, else w = (B - r) / (n - 1). Raises ShapeError when no width does it.
    """
    check_periods(duration_s, peak_ratio, period_s, lead_s)
    if not 0 <= base < 1:
        raise ShapeError(
            f"base {base:g} is impossible: the level between bursts / mean must be from 0 to below 1"
        )
    burst_time_s = duration_s * (1 - base) / (peak_ratio - base)
    starts = burst_starts(duration_s, period_s, lead_s)
    count, last_s = len(starts), duration_s - float(starts[-1])
    if burst_time_s / count <= last_s:
        width_s = burst_time_s / count
    elif count > 1:
        width_s = (burst_time_s - last_s) / (count - 1)
    else:
        raise ShapeError(
            f"base {base:g} with peak ratio {peak_ratio:g} needs {burst_time_s:.4g} s of burst "
            f"in {duration_s:g} s, but only {last_s:.4g} s remain after the lead of {lead_s:g} s: "
            f"give a longer duration, a shorter lead, or a width instead of the base"
        )
    if width_s >= period_s:
        raise ShapeError(
            f"base {base:g} with peak ratio {peak_ratio:g} and lead {lead_s:g} s needs bursts "
            f"of {width_s:.4g} s, but the period is {period_s:g} s: "
            f"give a shorter lead, a higher base or a higher peak ratio"
        )
    return width_s
