"""Which requests were harmed, and by what: the yardstick that causes are measured on.

With an SLO a request is harmed when it missed it. Without one it is harmed when it failed or was turned away,
when its wait for the first token was longer than alone by max(0.2 s, half of alone) (the tolerance of the
recovery time), or when its TPOT was above 1.5 times the run's lowest tenth and 5 ms more than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from analysis.load import Run
from analysis.metrics import decided, exact_quantile
from analysis.recovery import TOLERANCE_RATIO, TOLERANCE_S
from analysis.slo import Judged, Limit, Slo
from analysis.time_parts import TimeParts

LEAST_TPOT_RISE_S = 0.005
LOWEST_TENTH = 0.1

FIRST_TOKEN = ("ttft_s", "ttft_from_schedule_s", "answer_ttft_s", "normalized_ttft_s")
WHOLE = ("e2e_s", "e2e_from_schedule_s", "normalized_latency_s")


@dataclass(frozen=True, eq=False)
class Harm:
    """Arrays aligned with Run.load. `harmed` of the `of` decided; `late_first`: because its first token was
    late after it was sent; `slow_steps`: because its tokens came slowly; `lost`: it did not succeed."""

    judged_by: Literal["slo", "calm"]
    of: int
    harmed: np.ndarray
    late_first: np.ndarray
    slow_steps: np.ndarray
    lost: np.ndarray

    @property
    def requests(self) -> int:
        """How many were harmed."""
        return int(self.harmed.sum())


def harm(run: Run, parts: TimeParts, slo: Slo | None, joint: Judged | None) -> Harm:
    """Judge every request of the load; `joint` is slo.judge by all limits of `slo`."""
    load = run.load
    own_end = decided(load).to_numpy(dtype=bool)
    lost = own_end & (load["outcome"] != "succeeded").to_numpy()
    alone_s = parts.alone_s
    wait_s = parts.waited_until_first_s
    waited = wait_s - alone_s > np.maximum(TOLERANCE_S, (TOLERANCE_RATIO - 1) * alone_s)
    tpot_s = load["tpot_s"].to_numpy(dtype=float, na_value=np.nan)
    known = np.sort(tpot_s[~np.isnan(tpot_s)])
    low_s = exact_quantile(known, LOWEST_TENTH)
    slowed = tpot_s > max(TOLERANCE_RATIO * low_s, low_s + LEAST_TPOT_RISE_S)
    if slo is None or joint is None:
        late = own_end & waited
        slow = own_end & slowed
        return Harm("calm", int(own_end.sum()), lost | late | slow, late, slow, lost)
    judged = joint.decided.to_numpy(dtype=bool)
    harmed = judged & ~joint.met.to_numpy(dtype=bool)
    late, slow = (np.zeros(len(load), dtype=bool) for _ in range(2))
    for limit in slo.attained_by:
        missed = _missed(run, limit, wait_s)
        if limit.metric.key in FIRST_TOKEN:
            late |= missed & (waited | (wait_s > limit.limit_s))
        elif limit.metric.key in WHOLE:
            late |= missed & waited
            slow |= missed & slowed
        else:
            slow |= missed
    return Harm("slo", int(judged.sum()), harmed, harmed & late, harmed & slow, harmed & lost)


def _missed(run: Run, limit: Limit, wait_s: np.ndarray) -> np.ndarray:
    """Which requests were over one limit; one that ended without a first token has waited its age."""
    value = run.load[limit.metric.column].to_numpy(dtype=float, na_value=np.nan)
    if limit.metric.key in FIRST_TOKEN:
        value = np.where(np.isnan(value), wait_s, value)
    missed: np.ndarray = value > limit.limit_s
    return missed
