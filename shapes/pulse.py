"""Pulse: a short burst at the same distance, again and again.

    req/s
    5 m │     ┌┐        ┌┐        ┌┐        ┌┐
        │     ││        ││        ││        ││
      m │ ─ ─ ││─ ─ ─ ─ ││─ ─ ─ ─ ││─ ─ ─ ─ ││─ ─
    m/2 │─────┘└────────┘└────────┘└────────┘└────
        └─────────────────────────────────────────► t
         ├ 10 ┤
              ├── 20 s ─┤

The two-level rule (two_level.py) with a period of 20 s, a peak of 5 x the mean, and the first pulse half a
period after the start, so that a quiet stretch comes first. One of three settings fixes the rest:

    base     level between pulses / mean     default 0.5, whence w = 20 (1 - 0.5) / (5 - 0.5) = 2.22 s
    duty     width / period                  0.2 leaves nothing between the pulses (w = 4 s, base 0)
    width    seconds
"""

from __future__ import annotations

from shapes.errors import ShapeError
from shapes.shape import ShapeSettings, rate_and_duration
from shapes.two_level import TwoLevel, width_for_base, width_for_duty

PERIOD_S = 20.0
PEAK_RATIO = 5.0
BASE = 0.5


def pulse(settings: ShapeSettings) -> TwoLevel:
    """A pulse train from rate, duration, period, peak ratio, lead, and one of base, duty and width.

    Raises ShapeError when more than one of these three is given or when no such shape exists.
    """
    rate_rps, duration_s = rate_and_duration(settings)
    period_s = PERIOD_S if settings.period_s is None else settings.period_s
    peak_ratio = PEAK_RATIO if settings.peak_ratio is None else settings.peak_ratio
    lead_s = period_s / 2 if settings.lead_s is None else settings.lead_s
    return TwoLevel(
        duration_s=duration_s,
        mean_rate_rps=rate_rps,
        peak_ratio=peak_ratio,
        period_s=period_s,
        width_s=_width(settings, duration_s, peak_ratio, period_s, lead_s),
        lead_s=lead_s,
    )


def _width(
    settings: ShapeSettings, duration_s: float, peak_ratio: float, period_s: float, lead_s: float
) -> float:
    options = {"duty": settings.duty, "width": settings.width_s, "base": settings.base}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise ShapeError(
            f"{' and '.join(given)} cannot be given together: each fixes the others; give one of them"
        )
    if settings.width_s is not None:
        return settings.width_s
    if settings.duty is not None:
        return width_for_duty(settings.duty, period_s)
    base = BASE if settings.base is None else settings.base
    return width_for_base(duration_s, peak_ratio, period_s, lead_s, base)
