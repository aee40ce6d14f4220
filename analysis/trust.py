"""What a run shows about the quality of its own figures: one finding for each question of validity.CHECKS.

Only findings, with the limits of the table of checks; what follows from them is decided in validity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.burstiness import burstiness
from analysis.load import Run
from analysis.metrics import exact_quantile
from analysis.phases import Window, inside

LEAST_LOAD_RATIO = 0.95
LEAST_LAG_LIMIT_S = 0.050
LAG_LIMIT_OF_WIDTH = 0.10
ON_TIME_S = 0.010
BURSTINESS_TOLERANCE = 0.10
CV_TOLERANCE = 0.05
LEAST_TOLERANCE = 0.05
USUAL_GAP_S = 0.020
LUMPED_GAP_S = 0.001
MOST_CPU_RATIO = 0.90
MOST_OWN_FAILURES_RATIO = 0.001
MOST_CANCELLED_RATIO = 0.01
CLOCK_OF_PEAK_GAP = 0.1
LEAST_CLOCK_LIMIT_S = 0.001


@dataclass(frozen=True)
class Finding:
    """What a check saw: `value` against `limit` (None = not judged), and a sentence with the figures."""

    value: float | None
    limit: float | None
    detail: str = ""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the checks look at: the run and its burst windows."""

    run: Run
    bursts: Sequence[Window]

    @cached_property
    def lag_limit_s(self) -> float:
        """The lag up to which a request was sent in time: max(50 ms, 10 % of the narrowest burst's width)."""
        narrowest = min((end_s - start_s for start_s, end_s in self.bursts), default=0.0)
        return max(LEAST_LAG_LIMIT_S, LAG_LIMIT_OF_WIDTH * narrowest)

    @cached_property
    def lags_s(self) -> np.ndarray:
        """Known send lags, sorted."""
        return np.sort(self.run.load["send_lag_s"].dropna().to_numpy())

    @cached_property
    def offered_at_s(self) -> np.ndarray:
        """When each request of the load was offered to the server, NaN for those that never were.

        A connection that the server or the network refused is no lag of ours: a failure of theirs without a
        send stamp counts as offered when it was due.
        """
        load = self.run.load
        turned_away = (load["outcome"] == "failed") & load["whose"].isin(("server", "network"))
        offered = load["sent_at_s"].mask(load["sent_at_s"].isna() & turned_away, load["scheduled_at_s"])
        return offered.to_numpy(dtype=float)

    @cached_property
    def in_time(self) -> np.ndarray:
        """Which requests of the load were offered within the lag limit."""
        return self.lag_within(self.lag_limit_s)

    def lag_within(self, limit_s: float) -> np.ndarray:
        """Which requests of the load were offered at most `limit_s` after they were due."""
        lag_s = np.round(self.offered_at_s - self.run.load["scheduled_at_s"].to_numpy(dtype=float), 9)
        return np.where(np.isnan(lag_s), math.inf, lag_s) <= limit_s

    def load_ratio(self, window: Window | None = None) -> float | None:
        """Requests offered in time / scheduled, in all or due in a burst window; None without a schedule."""
        asked_at_s = self.run.schedule["at_s"].to_numpy(dtype=float)
        due_at_s = self.run.load["scheduled_at_s"].to_numpy(dtype=float)
        due = np.ones(len(due_at_s), dtype=bool)
        if window is not None:
            asked_at_s, due = asked_at_s[inside(asked_at_s, window)], inside(due_at_s, window)
        return int((self.in_time & due).sum()) / len(asked_at_s) if len(asked_at_s) else None


def records(evidence: Evidence) -> Finding:
    """Scheduled requests without a record, recorded twice, not scheduled, or not in run.json's count."""
    run = evidence.run
    arrivals = run.requests["arrival"].dropna()
    asked = run.schedule["arrival"].dropna()
    missing = int((~asked.isin(arrivals)).sum())
    twice = int(arrivals.duplicated().sum())
    unasked = int((~arrivals.isin(asked)).sum()) if len(asked) else 0
    planned = run.info.counts.get("planned")
    uncounted = abs(planned - len(asked)) if planned is not None and len(asked) else 0
    detail = f"{missing} scheduled requests without a record, {twice} recorded twice"
    if unasked or uncounted:
        detail += f", {unasked} recorded but not scheduled, {uncounted} more or fewer than run.json counts"
    return Finding(missing + twice + unasked + uncounted, 0, detail)


def success(evidence: Evidence) -> Finding:
    """Requests that succeeded."""
    load = evidence.run.load
    succeeded = int((load["outcome"] == "succeeded").sum())
    return Finding(succeeded, 1, f"{succeeded} of {len(load)} requests succeeded")


def load_whole(evidence: Evidence) -> Finding:
    """Requests offered in time / scheduled."""
    ratio = evidence.load_ratio()
    if ratio is None:
        return Finding(None, LEAST_LOAD_RATIO, "no schedule to compare with")
    within = f"within {evidence.lag_limit_s * 1000:.0f} ms of their moment"
    return Finding(ratio, LEAST_LOAD_RATIO, f"{_percent(ratio)} of the scheduled requests were sent {within}")


def load_worst_burst(evidence: Evidence) -> Finding:
    """The same ratio in the burst where it is lowest."""
    by_burst = [(evidence.load_ratio(window), index) for index, window in enumerate(evidence.bursts)]
    known = [(ratio, index) for ratio, index in by_burst if ratio is not None]
    if not known:
        return Finding(None, LEAST_LOAD_RATIO, "no bursts in the plan")
    ratio, index = min(known)
    within = f"within {evidence.lag_limit_s * 1000:.0f} ms of its moment"
    return Finding(ratio, LEAST_LOAD_RATIO, f"{_percent(ratio)} of burst {index + 1} was sent {within}")


def idc(window_s: int) -> Callable[[Evidence], Finding]:
    """How far the IDC at this window of what was sent is from that of the schedule."""

    def find(evidence: Evidence) -> Finding:
        label = f"IDC({window_s} s)"
        return _burstiness_differs(
            evidence, label, lambda seen: seen.idc.get(window_s), BURSTINESS_TOLERANCE, LEAST_LAG_LIMIT_S
        )

    return find


def cv(evidence: Evidence) -> Finding:
    """How far the CV of what was sent is from that of the schedule."""
    return _burstiness_differs(evidence, "CV", lambda seen: seen.cv, CV_TOLERANCE, ON_TIME_S)


def _burstiness_differs(
    evidence: Evidence,
    label: str,
    measure: Callable[..., float | None],
    tolerance: float,
    on_time_s: float,
) -> Finding:
    """How far a burst measure of the sent load is from that of the schedule, both over the same windows.

    A send within `on_time_s` of its moment is put at its moment: how late sends are is another check's
    question, and a few milliseconds across the border of a counting window must not look like a lost burst
    (50 ms are a twentieth of the narrowest window).
    """
    run = evidence.run
    asked_at_s = run.schedule["at_s"].to_numpy(dtype=float)
    due_at_s = run.load["scheduled_at_s"].to_numpy(dtype=float)
    judged_at_s = np.where(evidence.lag_within(on_time_s), due_at_s, evidence.offered_at_s)
    judged_at_s = np.sort(judged_at_s[~np.isnan(judged_at_s)])
    duration_s = run.info.duration_s
    asked = measure(burstiness(asked_at_s, duration_s)) if len(asked_at_s) else None
    if asked is None:
        return Finding(None, None, f"{label} needs more time or requests than this run has")
    limit = max(tolerance * asked, LEAST_TOLERANCE)
    sent = measure(burstiness(judged_at_s, duration_s)) if len(judged_at_s) else None
    if sent is None:
        return Finding(asked, limit, f"{label} asked {asked:.2f}, sent: too little to measure")
    return Finding(abs(sent - asked), limit, f"{label} asked {asked:.2f}, sent {sent:.2f}")


def lag_p99(limit_of: Callable[[Evidence], float]) -> Callable[[Evidence], Finding]:
    """The p99 of the send lag against a limit in seconds."""

    def find(evidence: Evidence) -> Finding:
        lags_s, limit_s = evidence.lags_s, limit_of(evidence)
        if not len(lags_s):
            return Finding(None, limit_s, "nothing was sent")
        p99_s, late = exact_quantile(lags_s, 0.99), int((lags_s > limit_s).sum())
        more = f"{late} of {len(lags_s)} requests went out more than {limit_s * 1000:.0f} ms late"
        return Finding(p99_s, limit_s, f"send lag p99 is {p99_s * 1000:.1f} ms; {more}")

    return find


def read_lag(evidence: Evidence) -> Finding:
    """The p99 of the read lag (without kernel stamps: the event loop's) against the median chunk gap.

    Without gaps, or with gaps so short that chunks came in lumps, the limit is 20 ms.
    """
    load = evidence.run.load
    lags_s = np.sort(load.loc[load["stamp"] == "kernel", "read_lag_s"].dropna().to_numpy())
    loop_lags_s = [row.loop_lag_p99_s for row in evidence.run.info.workers if row.loop_lag_p99_s is not None]
    gap_s = float(load.loc[load["outcome"] == "succeeded", "gap_p50_s"].median())
    limit_s = gap_s if gap_s >= LUMPED_GAP_S else USUAL_GAP_S
    if len(lags_s):
        value_s, what = exact_quantile(lags_s, 0.99), "read lag p99"
    elif loop_lags_s:
        value_s, what = max(loop_lags_s), "event loop lag p99"
    else:
        return Finding(None, limit_s, "the client did not say how late it read")
    beside = f"beside a chunk gap of {limit_s * 1000:.1f} ms"
    return Finding(value_s, limit_s, f"{what} is {value_s * 1000:.1f} ms {beside}")


def cpu(evidence: Evidence) -> Finding:
    """CPU use of the busiest worker in its busiest second, as a share of one core."""
    workers = evidence.run.info.workers
    peak = max((row.cpu_peak_ratio for row in workers if row.cpu_peak_ratio is not None), default=None)
    if peak is None:
        return Finding(None, MOST_CPU_RATIO, "the workers' CPU was not measured")
    detail = f"the busiest worker used {_percent(peak)} of a core in its busiest second"
    if peak > MOST_CPU_RATIO:
        needed = max(math.ceil(len(workers) * peak / MOST_CPU_RATIO), len(workers) + 1)
        detail += f"; use at least {needed} workers instead of {len(workers)}"
    return Finding(peak, MOST_CPU_RATIO, detail)


def own_failures(evidence: Evidence) -> Finding:
    """Requests that failed through our own machine / all; those of a lost worker are another check's."""
    load = evidence.run.load
    failed = (load["outcome"] == "failed") & (load["failure_class"] != "worker_lost")
    own = failed & (load["whose"] == "client")
    classes = ", ".join(sorted(load.loc[own, "failure_class"].unique()))
    named = f" ({classes})" if classes else ""
    detail = f"{int(own.sum())} requests failed through our own machine{named}"
    return Finding(int(own.sum()) / len(load) if len(load) else None, MOST_OWN_FAILURES_RATIO, detail)


def clocks(evidence: Evidence) -> Finding:
    """The least sure worker clock against a tenth of the gap between requests at the peak rate."""
    info = evidence.run.info
    known = [row.clock_uncertainty_s for row in info.workers if row.clock_uncertainty_s is not None]
    if len(info.workers) < 2:
        return Finding(None, None, "one worker, one clock")
    if not known:
        return Finding(None, None, "the workers' clocks were not compared")
    peak_rps = max((point[1] for point in info.rate_curve), default=0.0)
    limit_s = max(CLOCK_OF_PEAK_GAP / peak_rps if peak_rps > 0 else 0.0, LEAST_CLOCK_LIMIT_S)
    detail = f"the workers' clocks agree within {max(known) * 1000:.2f} ms (limit {limit_s * 1000:.2f} ms)"
    return Finding(max(known), limit_s, detail)


def cancelled(evidence: Evidence) -> Finding:
    """Requests that the run cancelled / sent."""
    outcome = evidence.run.load["outcome"]
    sent, cut_off = int((outcome != "not_sent").sum()), int((outcome == "cancelled").sum())
    detail = f"{cut_off} requests were still in flight when the run cancelled them"
    return Finding(cut_off / sent if sent else None, MOST_CANCELLED_RATIO, detail)


def ended(evidence: Evidence) -> Finding:
    """0 when the run ended as planned, 1 when it was stopped, broke off or is still going on."""
    info = evidence.run.info
    if info.state == "finished":
        return Finding(0, 0, "the run ended as planned")
    if info.state == "running":
        return Finding(1, 0, "the run had not ended when it was read, or it broke off")
    why = f" ({info.stop_reason})" if info.stop_reason else ""
    return Finding(1, 0, f"stopped after {evidence.run.window_s:.1f} of {info.duration_s:.1f} s{why}")


def workers_lost(evidence: Evidence) -> Finding:
    """How many workers were lost, by run.json or, when the run broke off before it was written,
    events.csv."""
    events, workers = evidence.run.events, evidence.run.info.workers
    lost_events = events[events["kind"] == "worker_lost"]
    lost = dict(zip(lost_events["worker"].fillna(-1).astype(int), lost_events["at_s"], strict=True))
    lost |= {row.index: row.lost_at_s for row in workers if row.lost_at_s is not None}
    if not lost:
        return Finding(0, 0, "no worker was lost")
    when = ", ".join(f"worker {index} at {at_s:.1f} s" for index, at_s in sorted(lost.items()))
    return Finding(len(lost), 0, f"{len(lost)} of {len(workers)} workers were lost: {when}")


def amended(evidence: Evidence) -> Finding:
    """How many times the plan was amended during the run."""
    amendments = int((evidence.run.events["kind"] == "amendment").sum())
    return Finding(amendments, 0, f"the plan was amended {amendments} times while the run went on")


def _percent(ratio: float) -> str:
    """Rounded down, so that what misses a limit never reads as if it reached it."""
    return f"{math.floor(ratio * 1000 + 1e-9) / 10:.1f} %"
