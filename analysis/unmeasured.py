"""Successes that lack what an SLO limits: nobody measured it, so they neither meet nor miss the limit.

An answer in one piece has no first token, hence no TTFT, no TPOT and no gaps; in a closed loop only some
requests have a scheduled moment to count from. An answer of one token has no TPOT for good: that is no lack.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from analysis.metrics import Metric

_STREAM = "needs streaming: leave --no-stream out"
_SCHEDULE = "needs a scheduled moment, which only a user's first request has: limit the time from sending"


def unmeasured(requests: pd.DataFrame, metric: Metric) -> pd.Series[bool]:
    """True for each success whose `metric` is unknown although it could have had one."""
    lacking = (requests["outcome"] == "succeeded") & requests[metric.column].isna()
    if metric.since is None:
        too_short = (requests["output_tokens"] <= 1).fillna(False).astype(bool)
        return lacking & ~too_short
    unseen = requests[metric.since].isna()
    if not metric.column.startswith("e2e"):
        unseen |= requests["first_token_at_s"].isna()
    return lacking & unseen


def never_measured(requests: pd.DataFrame, metric: Metric) -> bool:
    """True when successes lack `metric` and not one has it."""
    known = (requests["outcome"] == "succeeded") & requests[metric.column].notna()
    return bool(unmeasured(requests, metric).any()) and not bool(known.any())


def why_unmeasured(requests: pd.DataFrame, metrics: Iterable[Metric]) -> str | None:
    """What was not measured, for how many, and what to do; None when nothing is lacking."""
    succeeded = int((requests["outcome"] == "succeeded").sum())
    lacks: dict[tuple[str, int], list[str]] = {}
    for metric in dict.fromkeys(metrics):
        lacking = unmeasured(requests, metric)
        if not lacking.any():
            continue
        unscheduled = metric.since is not None and bool(requests.loc[lacking, metric.since].isna().any())
        advice = _SCHEDULE if unscheduled else _STREAM
        lacks.setdefault((advice, int(lacking.sum())), []).append(metric.label)
    said = [
        f"{' and '.join(labels)} not measured for {n} of {succeeded} successes ({advice})"
        for (advice, n), labels in lacks.items()
    ]
    return "; ".join(said) or None
