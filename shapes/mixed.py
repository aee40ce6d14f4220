"""Mixed: low load for 80 % of the time, a long burst for the other 20 %.

    req/s
    3 m │           ┌─────┐                       ┌─────┐
        │           │     │                       │     │
      m │ ─ ─ ─ ─ ─ │─ ─ ─│─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─│─ ─ ─│─ ─ ─ ─ ─
    m/2 │───────────┘     └───────────────────────┘     └───────────
        └───────────────────────────────────────────────────────────► t
         ├─── 24 s ─┤12 s │
         ├───────── 60 s ─────────────┤

The two-level rule (two_level.py) with a period of 60 s, a duty of 0.2 and a peak of 3 x the mean. The low
level follows: (1 - 0.2 x 3) / (1 - 0.2) = 0.5 x the mean over whole periods. The burst sits in the middle
of its period unless a lead is given. A duration shorter than the period becomes the period, so that a short
run has its burst too.
"""

from __future__ import annotations

from shapes.errors import ShapeError
from shapes.shape import ShapeSettings, rate_and_duration
from shapes.two_level import TwoLevel, width_for_duty

PERIOD_S = 60.0
PEAK_RATIO = 3.0
DUTY = 0.2


def mixed(settings: ShapeSettings) -> TwoLevel:
    """A mixed load from rate, duration, period, peak ratio, lead, and duty or width.

    Raises ShapeError when both duty and width are given or when no such shape exists.
    """
    rate_rps, duration_s = rate_and_duration(settings)
    if settings.duty is not None and settings.width_s is not None:
        raise ShapeError("duty and width cannot be given together: duty is width / period; give one of them")
    period_s = min(PERIOD_S if settings.period_s is None else settings.period_s, duration_s)
    duty = DUTY if settings.duty is None else settings.duty
    width_s = width_for_duty(duty, period_s) if settings.width_s is None else settings.width_s
    return TwoLevel(
        duration_s=duration_s,
        mean_rate_rps=rate_rps,
        peak_ratio=PEAK_RATIO if settings.peak_ratio is None else settings.peak_ratio,
        period_s=period_s,
        width_s=width_s,
        lead_s=(period_s - width_s) / 2 if settings.lead_s is None else settings.lead_s,
    )
