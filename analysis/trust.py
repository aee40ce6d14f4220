"""Was the load what was asked for, and is it timed rightly? Findings for the questions of validity.CHECKS.

Only findings, with the limits of the table of checks; what follows from them is decided in validity. The
findings about our own machines and about how the run ended are in trust_run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis import burstiness
from analysis.client_bound import BoundWindow, bound_windows, read_limit_s
from analysis.load import Run
from analysis.lumps import Lumps, lumps
from analysis.metrics import exact_quantile
from analysis.numbers import plain, seconds
from analysis.phases import Window, inside
from analysis.users import Occupancy, Reached

LEAST_LOAD_RATIO = 0.95
LEAST_LAG_LIMIT_S = 0.050
LAG_LIMIT_OF_WIDTH = 0.10
ON_TIME_S = 0.010
BURSTINESS_TOLERANCE = 0.10
CV_TOLERANCE = 0.05
LEAST_TOLERANCE = 0.05
LEAST_USER_STAMPS = 0.01
NO_REQUEST = "give a higher --rate, more --users or a longer --run-time"


@dataclass(frozen=True)
class Finding:
    """What a check saw: `value` against `limit` (None = not judged), and a sentence with the figures.

    `cause`: an outside cause that explains by itself why the limit was missed, "" when there is none.
    `advice`: what to do next, where that of the check does not fit.
    """

    value: float | None
    limit: float | None
    detail: str = ""
    cause: str = ""
    advice: str = ""


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
    def bound(self) -> list[BoundWindow]:
        """When the load generator was the bottleneck."""
        return bound_windows(self.run, self.lag_limit_s)

    @cached_property
    def lumps(self) -> Lumps:
        """How many events came at a time."""
        return lumps(self.run, self.bound)

    @cached_property
    def occupancy(self) -> Occupancy:
        """Users wanted and requests in flight."""
        return Occupancy(self.run)

    @cached_property
    def offered_at_s(self) -> np.ndarray:
        """When each request of the load was offered to the server, NaN for those that never were: the moment
        of sending, or where a connection had to be opened first, the moment of asking for it.

        Connecting is no lag of ours, nor is a connection that the server or the network refused: a failure of
        theirs without a send stamp counts as offered when it was due.
        """
        load = self.run.load
        turned_away = (load["outcome"] == "failed") & load["whose"].isin(("server", "network"))
        offered = load["sent_at_s"].mask(load["sent_at_s"].isna() & turned_away, load["scheduled_at_s"])
        connecting_s = load["connect_s"].where(load["attempts"] <= 1).fillna(0.0)
        return (offered - connecting_s).to_numpy(dtype=float)

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
    lost = run.requests["failure_class"] == "record_lost"  # the row is there, the record is not
    missing = int((~asked.isin(arrivals)).sum() + lost.sum())
    twice = recorded_twice(run)
    unasked = int((~arrivals.isin(asked)).sum()) if len(asked) else 0
    planned = run.info.counts.get("planned")
    uncounted = abs(planned - len(asked)) if planned is not None and len(asked) else 0
    detail = f"{missing} scheduled requests without a record, {twice} recorded twice"
    if unasked or uncounted:
        detail += f", {unasked} recorded but not scheduled, {uncounted} more or fewer than run.json counts"
    return Finding(missing + twice + unasked + uncounted, 0, detail)


def recorded_twice(run: Run) -> int:
    """Records of an arrival that has one already; without an arrival, of a worker's request that has one."""
    arrivals = run.requests["arrival"]
    others = run.requests.loc[arrivals.isna(), ["worker", "request_id"]]
    return int(arrivals.dropna().duplicated().sum() + others.duplicated().sum())


def success(evidence: Evidence) -> Finding:
    """Requests that succeeded."""
    load = evidence.run.load
    succeeded = int((load["outcome"] == "succeeded").sum())
    if not len(load):
        return Finding(0, 1, "there was no request", advice=NO_REQUEST)
    return Finding(succeeded, 1, f"{succeeded} of {len(load)} requests succeeded")


def load_whole(evidence: Evidence) -> Finding:
    """Requests offered in time / scheduled; in a closed loop requests in flight / users wanted."""
    if evidence.run.closed:
        return _users_reached(evidence.occupancy.reached((0.0, evidence.run.window_s)), "the run")
    ratio = evidence.load_ratio()
    if ratio is None:
        return Finding(None, LEAST_LOAD_RATIO, "no schedule to compare with")
    within = f"within {evidence.lag_limit_s * 1000:.0f} ms of their moment"
    return Finding(
        ratio, LEAST_LOAD_RATIO, f"{rounded_down(ratio)} of the scheduled requests were sent {within}"
    )


def load_worst_burst(evidence: Evidence) -> Finding:
    """The same ratio in the burst where it is lowest."""
    if evidence.run.closed:
        return _users_reached_in_worst_burst(evidence)
    by_burst = [(evidence.load_ratio(window), index) for index, window in enumerate(evidence.bursts)]
    known = [(ratio, index) for ratio, index in by_burst if ratio is not None]
    if not known:
        return Finding(None, LEAST_LOAD_RATIO, "no bursts in the plan")
    ratio, index = min(known)
    within = f"within {evidence.lag_limit_s * 1000:.0f} ms of its moment"
    return Finding(ratio, LEAST_LOAD_RATIO, f"{rounded_down(ratio)} of burst {index + 1} was sent {within}")


def _users_reached_in_worst_burst(evidence: Evidence) -> Finding:
    window_s = evidence.run.window_s
    by_burst = [
        (evidence.occupancy.reached_in_burst((start_s, min(end_s, window_s))), index)
        for index, (start_s, end_s) in enumerate(evidence.bursts)
        if start_s < window_s
    ]
    known = [(seen.ratio, index, seen) for seen, index in by_burst if seen.ratio is not None]
    if not known:
        return Finding(None, LEAST_LOAD_RATIO, "no bursts in the plan")
    _, index, worst = min(known, key=lambda row: row[:2])
    return _users_reached(worst, f"burst {index + 1}")


def _users_reached(seen: Reached, where: str) -> Finding:
    """Requests in flight / users wanted; pauses after failures of the server's can be the cause of a gap."""
    if seen.ratio is None or seen.pause_ratio is None:
        return Finding(None, LEAST_LOAD_RATIO, "closed loop without users to compare with")
    detail = (
        f"in {where} the users wanted had a request in flight for {rounded_down(seen.ratio)} of their time: "
        f"{plain(seen.in_flight_mean)} of {plain(seen.users_mean)} on average, "
        f"{plain(seen.in_flight_peak)} of {plain(seen.users_peak)} at the peak"
    )
    explained = seen.ratio < LEAST_LOAD_RATIO <= seen.ratio + seen.pause_ratio
    cause = (
        f"users paused after failures of the server for {rounded_down(seen.pause_ratio)}" if explained else ""
    )
    return Finding(seen.ratio, LEAST_LOAD_RATIO, detail, cause)


def idc(window_s: int) -> Callable[[Evidence], Finding]:
    """How far the IDC at this window of what was sent is from that of the schedule."""

    def find(evidence: Evidence) -> Finding:
        label = f"IDC({window_s} s)"
        return _burstiness_differs(
            evidence,
            label,
            lambda at_s, duration_s: burstiness.idc(at_s, window_s, duration_s),
            BURSTINESS_TOLERANCE,
            LEAST_LAG_LIMIT_S,
        )

    return find


def cv(evidence: Evidence) -> Finding:
    """How far the CV of what was sent is from that of the schedule."""
    return _burstiness_differs(evidence, "CV", _cv_within, CV_TOLERANCE, ON_TIME_S)


def _cv_within(at_s: np.ndarray, duration_s: float) -> float | None:
    return burstiness.cv(at_s[(at_s >= 0) & (at_s < duration_s)])


def _burstiness_differs(
    evidence: Evidence,
    label: str,
    measure: Callable[[np.ndarray, float], float | None],
    tolerance: float,
    on_time_s: float,
) -> Finding:
    """How far a burst measure of the sent load is from that of the schedule, both over the same windows.

    A send within `on_time_s` of its moment is put at its moment: how late sends are is another check's
    question, and a few milliseconds across the border of a counting window must not look like a lost burst
    (50 ms are a twentieth of the narrowest window).
    """
    run = evidence.run
    if run.closed:
        return Finding(None, None, f"closed loop: no {label} was asked for")
    asked_at_s = run.schedule["at_s"].to_numpy(dtype=float)
    due_at_s = run.load["scheduled_at_s"].to_numpy(dtype=float)
    judged_at_s = np.where(evidence.lag_within(on_time_s), due_at_s, evidence.offered_at_s)
    judged_at_s = np.sort(judged_at_s[~np.isnan(judged_at_s)])
    duration_s = run.info.duration_s
    asked = measure(asked_at_s, duration_s) if len(asked_at_s) else None
    if asked is None:
        return Finding(None, None, f"{label} needs more time or requests than this run has")
    limit = max(tolerance * asked, LEAST_TOLERANCE)
    sent = measure(judged_at_s, duration_s) if len(judged_at_s) else None
    if sent is None:
        return Finding(asked, limit, f"{label} asked {asked:.2f}, sent: too little to measure")
    return Finding(abs(sent - asked), limit, f"{label} asked {asked:.2f}, sent {sent:.2f}")


def lag_p99(limit_of: Callable[[Evidence], float]) -> Callable[[Evidence], Finding]:
    """The p99 of the send lag against a limit in seconds."""

    def find(evidence: Evidence) -> Finding:
        lags_s, limit_s = evidence.lags_s, limit_of(evidence)
        if not len(lags_s):
            return Finding(None, limit_s, "nothing that had a scheduled moment was sent")
        p99_s, late = exact_quantile(lags_s, 0.99), int((lags_s > limit_s).sum())
        more = f"{late} of {len(lags_s)} requests went out more than {limit_s * 1000:.0f} ms late"
        return Finding(p99_s, limit_s, f"send lag p99 is {seconds(p99_s)}; {more}")

    return find


def read_lag(evidence: Evidence) -> Finding:
    """The p99 of the read lag against the median chunk gap (20 ms without one).

    Where the kernel did not stamp (over 1 % of the requests), the event loop's lag is looked at too: there
    it is in the stamps.
    """
    load, limit_s = evidence.run.load, read_limit_s(evidence.run.load)
    stamped = load["stamp"].dropna()
    lags_s = np.sort(load.loc[load["stamp"] == "kernel", "read_lag_s"].dropna().to_numpy())
    loop_lags_s = [row.loop_lag_p99_s for row in evidence.run.info.workers if row.loop_lag_p99_s is not None]
    seen: list[tuple[float, str]] = []
    if len(lags_s):
        seen.append((exact_quantile(lags_s, 0.99), "read lag p99"))
    if loop_lags_s and (not len(lags_s) or (stamped == "user").mean() > LEAST_USER_STAMPS):
        seen.append((max(loop_lags_s), "event loop lag p99"))
    if not seen:
        return Finding(None, limit_s, "the client did not say how late it read")
    value_s, what = max(seen)
    return Finding(value_s, limit_s, f"{what} is {seconds(value_s)} beside a chunk gap of {seconds(limit_s)}")


def rounded_down(ratio: float) -> str:
    """Rounded down, so that what misses a limit never reads as if it reached it."""
    return f"{math.floor(ratio * 1000 + 1e-9) / 10:.1f} %"
