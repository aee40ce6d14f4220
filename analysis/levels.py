"""Steps, level by level: what the server did at 1, 10, 20, 50 ... req/s or users, one row each.

A request belongs to the level in whose time it arrived. Throughput is of the requests that ended in that
time, whichever level they came from: what a level leaves over ends in the next one.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.accounts import error_ratio
from analysis.load import Run
from analysis.metrics import BY_KEY, distribution, values_of
from analysis.phases import inside
from analysis.slo import Judged, attainment


def levels(run: Run, lead_ttft: str, joint: Judged | None) -> list[dict[str, Any]]:
    """One entry for each of the plan's segments with a level, in order; [] when there is none.

    `lead_ttft` is the TTFT to show, `joint` the load as judged by the SLO. What the run did not get to has no
    requests and no rate.
    """
    segments = [row for row in run.info.segments if row.get("level") is not None]
    return [_level(run, row, lead_ttft, joint) for row in sorted(segments, key=lambda row: row["start_s"])]


def _level(run: Run, segment: dict[str, Any], lead_ttft: str, joint: Judged | None) -> dict[str, Any]:
    load = run.load
    start_s, end_s = float(segment["start_s"]), float(segment["end_s"])
    here = inside(load["arrived_at_s"].to_numpy(dtype=float), (start_s, end_s))
    requests = load[here]
    until_s = max(start_s, min(end_s, run.window_s))
    seen_s, ended_at_s = until_s - start_s, load["ended_at_s"]
    ended = (load["outcome"] == "succeeded") & (ended_at_s >= start_s) & (ended_at_s < until_s)
    return {
        "level": segment["level"],
        "start_s": start_s,
        "end_s": end_s,
        "requests": len(requests),
        "requests_per_s": int(ended.sum()) / seen_s if seen_s else None,
        "ttft": _quantiles(requests, lead_ttft),
        "tpot_s": _quantiles(requests, "tpot_s"),
        "attainment": None if joint is None else attainment(joint, pd.Series(here, index=load.index)),
        "error_ratio": error_ratio(requests),
    }


def _quantiles(requests: pd.DataFrame, key: str) -> dict[str, Any]:
    row = distribution(values_of(requests, BY_KEY[key]))
    return {name: row.quantiles[name] for name in ("p50", "p95")}
