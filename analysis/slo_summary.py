"""summary.json's `slo`: attainment whole, by phase and by burst, goodput, each limit by itself, and gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from analysis.clusters import around_bursts, in_bursts, judged_interval
from analysis.conditions import concerned
from analysis.load import Run
from analysis.metrics import decided
from analysis.phases import PHASES, Window, held
from analysis.slo import (
    Attainment,
    Judged,
    Limit,
    PercentileResult,
    Slo,
    attainment,
    judge,
    percentile_result,
)
from analysis.unmeasured import why_unmeasured


def slo_summary(
    run: Run, slo: Slo, joint: Judged, phase: np.ndarray, bursts: Sequence[Window]
) -> dict[str, Any]:
    """`joint` is the load as judged by the SLO, `phase` each request's; `met` is None when nothing gates or a
    gate cannot be judged."""
    load, window_s = run.load, run.window_s
    by_phase = {name: pd.Series(phase == name, index=load.index) for name in PHASES}
    whole = attainment(joint)
    alone = [
        (limit, joint if len(slo.per_request) == 1 else judge(load, (limit,))) for limit in slo.per_request
    ]
    percentiles = [percentile_result(load, limit) for limit in slo.percentiles]
    gates = [row.met for row in percentiles]
    if slo.share is not None:
        gates.append(whole.holds(slo.share))
    met = False if False in gates else True if gates and None not in gates else None
    burst_s = sum(end_s - start_s for start_s, end_s in bursts)
    met_in_bursts = attainment(joint, by_phase["burst"]).met
    told = bool(whole.decided or not whole.unmeasured)
    return {
        "text": slo.text,
        "share": slo.share,
        "gates": slo.gates,
        "met": met,
        "unjudged": _unjudged(load, slo, whole) if (slo.gates and met is None) or not whole.decided else None,
        "limits": [_limit(load, limit, judged, by_phase["burst"]) for limit, judged in alone],
        "percentiles": [_percentile(load, row) for row in percentiles],
        "attainment": {
            "whole": whole,
            **{name: attainment(joint, among) for name, among in by_phase.items()},
        },
        "by_burst": _by_burst(load, joint, bursts),
        "goodput_rps": whole.met / window_s if told and window_s > 0 else None,
        "goodput_in_bursts_rps": met_in_bursts / burst_s if told and burst_s > 0 else None,
    }


def attainment_in(load: pd.DataFrame, joint: Judged | None, window: Window) -> Attainment | None:
    """The attainment of the requests of Run.load due in a window; None without an SLO."""
    if joint is None:
        return None
    due = held(load["arrived_at_s"].to_numpy(dtype=float), window)
    return attainment(Judged(joint.decided[due], joint.met[due], joint.unmeasured[due], joint.concerned[due]))


def condition_notices(load: pd.DataFrame, slo: Slo) -> list[str]:
    """A sentence for each limit whose condition could not be looked up for some requests."""
    limits = slo.per_request + slo.percentiles
    return [f"SLO {text}" for limit in limits if (text := _unknown_words(load, limit))]


def _unknown_words(load: pd.DataFrame, limit: Limit) -> str | None:
    unknown = _unknown(load, limit)
    if not unknown:
        return None
    fields = " and ".join(dict.fromkeys(condition.field for condition in limit.where))
    return f"{limit.text}: {unknown} of {len(load)} requests have no {fields} to compare and are left out"


def _limit(load: pd.DataFrame, limit: Limit, judged: Judged, in_burst: pd.Series[bool]) -> dict[str, Any]:
    return {
        "text": limit.text,
        "metric": limit.metric.key,
        "limit_s": limit.limit_s,
        **_where(load, limit),
        **asdict(attainment(judged)),
        "burst": attainment(judged, in_burst),
    }


def _percentile(load: pd.DataFrame, row: PercentileResult) -> dict[str, Any]:
    return {
        "text": row.limit.text,
        "metric": row.limit.metric.key,
        "quantile": row.limit.quantile,
        "limit_s": row.limit.limit_s,
        **_where(load, row.limit),
        "value_s": row.value_s,
        "n": row.n,
        "met": row.met,
    }


def _where(load: pd.DataFrame, limit: Limit) -> dict[str, Any]:
    where = " and ".join(condition.text for condition in limit.where) or None
    return {"where": where, "where_unknown": _unknown(load, limit)}


def _unknown(load: pd.DataFrame, limit: Limit) -> int:
    if not limit.where:
        return 0
    return int((concerned(load, limit.where).unknown & decided(load).to_numpy()).sum())


def _by_burst(load: pd.DataFrame, joint: Judged, bursts: Sequence[Window]) -> dict[str, Any] | None:
    """Intervals that count bursts, of the attainment in bursts and of the whole run's; None without any."""
    if not bursts:
        return None
    at_s = load["arrived_at_s"].to_numpy(dtype=float)
    return {
        "burst": judged_interval(joint, in_bursts(at_s, bursts), len(bursts)),
        "whole": judged_interval(joint, around_bursts(at_s, bursts), len(bursts)),
    }


def _unjudged(load: pd.DataFrame, slo: Slo, whole: Attainment) -> str:
    limits = slo.per_request + slo.percentiles
    reasons = [why_unmeasured(load, [limit.metric for limit in limits if not limit.where])]
    for limit in (row for row in limits if row.where):
        among = concerned(load, limit.where)
        lacking = why_unmeasured(load[among.yes], [limit.metric])
        reasons.append(f"{limit.text}: {lacking}" if lacking else None)
        reasons.append(_unknown_words(load, limit))
        if not among.yes.any():
            reasons.append(f"{limit.text}: it is about no request of this run")
    nothing = "no request was decided" if not whole.decided else "no request has what it limits"
    return "; ".join(reason for reason in reasons if reason) or nothing
