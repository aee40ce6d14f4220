"""What each burst did beside its recovery time: area under degradation, backlog, drain; and over bursts.

area      sum over the requests that arrived from the burst's start until the next of max(0, TTFT - theta)
          in request-seconds, theta being the threshold of recovery; failures have no TTFT and are counted
          apart, unfinished requests enter with their age
backlog   requests in flight at the burst's end
drain     from the burst's end until the last of its own requests had its first token
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.metrics import BY_KEY, distribution, values_of
from analysis.phases import SAME_MOMENT_S, held
from analysis.recovery import Recovery
from analysis.users import in_flight
from analysis.waits import Waits, waits_of

AMPLIFIED = ("p50", "p95", "p99")


@dataclass(frozen=True)
class BurstEffect:
    """Of one burst. `degraded_request_s` and `degraded_requests` (later than the threshold) leave out
    `lost_requests`, those that failed or were rejected; None without a threshold. `drain_s` is None when the
    run cut off one of the burst's requests, or none had a first token; `drain_at_least_s` then says what was
    seen."""

    degraded_request_s: float | None
    degraded_requests: int | None
    lost_requests: int
    backlog_at_end: int
    drain_s: float | None
    drain_at_least_s: float | None


def burst_effects(load: pd.DataFrame, bursts: Sequence[Recovery]) -> list[BurstEffect]:
    """The effect of each burst of `load` (Run.load: in order of arrival)."""
    waits, steps = waits_of(load), in_flight(load)
    starts_s = [burst.start_s for burst in bursts]
    first = np.searchsorted(waits.at_s, np.array(starts_s) - SAME_MOMENT_S)
    edges = [*first.tolist(), len(waits.at_s)]
    return [
        _effect(
            waits.where(slice(edges[k], edges[k + 1])),
            burst,
            int(steps.at(np.array([burst.end_s]))[0]),
        )
        for k, burst in enumerate(bursts)
    ]


def _effect(since: Waits, burst: Recovery, backlog: int) -> BurstEffect:
    lost = np.isinf(since.ttft_s)
    area_s = late = None
    if burst.threshold_s is not None:
        excess_s = since.ttft_s[~lost & ~np.isnan(since.ttft_s)] - burst.threshold_s
        area_s, late = float(np.maximum(excess_s, 0.0).sum()), int((excess_s > 0).sum())
    own = since.where(held(since.at_s, (burst.start_s, burst.end_s)))
    answered = np.isfinite(own.ttft_s)
    drain_s = None
    if answered.any():
        drain_s = max(0.0, float((own.at_s + own.ttft_s)[answered].max()) - burst.end_s)
    return BurstEffect(
        degraded_request_s=area_s,
        degraded_requests=late,
        lost_requests=int(lost.sum()),
        backlog_at_end=backlog,
        drain_s=None if own.unfinished.any() else drain_s,
        drain_at_least_s=drain_s,
    )


def over_bursts(effects: Sequence[BurstEffect], bursts: Sequence[Recovery]) -> dict[str, Any]:
    """Median and range, over the bursts for which each is known."""
    columns: dict[str, list[float | None]] = {
        "peak_ttft_s": [burst.peak_ttft_s for burst in bursts],
        "overshoot_s": [burst.overshoot_s for burst in bursts],
        **{
            name: [getattr(effect, name) for effect in effects]
            for name in ("degraded_request_s", "backlog_at_end", "drain_s")
        },
    }
    return {
        name: _spread([value for value in column if value is not None]) for name, column in columns.items()
    }


def _spread(values: Sequence[float]) -> dict[str, float | int | None]:
    if not values:
        return {"n": 0, "median": None, "low": None, "high": None}
    return {"n": len(values), "median": float(np.median(values)), "low": min(values), "high": max(values)}


def amplification(load: pd.DataFrame, phase: np.ndarray, lead_ttft: str) -> dict[str, float | None]:
    """How many times each quantile of TTFT in bursts is that of quiet times, over successes; None where one
    of them has too few values to be shown."""
    waits = load[["outcome", BY_KEY[lead_ttft].column]]
    burst, quiet = (
        distribution(values_of(waits[phase == name], BY_KEY[lead_ttft])).quantiles
        for name in ("burst", "quiet")
    )
    ratios: dict[str, float | None] = {}
    for name in AMPLIFIED:
        above, below = burst[name], quiet[name]
        shown = not (above.n_too_small or below.n_too_small) and above.value is not None and below.value
        ratios[name] = above.value / below.value if shown and above.value and below.value else None
    return ratios
