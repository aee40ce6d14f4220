"""Bursts found in a Locust history, and an upper bound of how long each kept hurting.

A burst is a stretch in which the load lies above the middle between its quiet level (lower quartile) and
its peak, where the peak is at least twice the quiet level; a rise that never falls again is none. It is
looked for in the User Count, which says when load began and ended, and only where that shows none in the
rebuilt counts of finished requests (over 6 s, for workers report each 3 s). Those come out when requests
*end*: a queue that is worked off keeps them high until the server has recovered. So recovery is counted from
such a burst's start.

Recovered is the first row from which on the windows' median stays within max(baseline + 200 ms, 1.5 baseline)
for 10 s. A row's window holds what ended in the 10 s before, workers report each 3 s, rows come each second:
all of that is in the figure and nothing is subtracted, so it is an upper bound, -0/+14 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from analysis.locust_history import WINDOW_S, Floats, History

LEAST_RATIO = 2.0
COUNT_WINDOW_S = 6.0
HOLD_S = 10.0
FLOOR_MS = 200.0
BASELINE_RATIO = 1.5
LEAST_BASELINE_ROWS = 5
SETTLED_AFTER_S = 30.0
REPORT_S = 3.0
ROW_S = 1.0
UNCERTAINTY_S = WINDOW_S + REPORT_S + ROW_S

Source = Literal["users", "counts"]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CsvBurst:
    """A burst and its aftermath, in seconds since the history's first row.

    `recovery_at_most_s`: from the burst's end (source users) or start (counts) until the windows were back;
    None when that was not seen, or the percentiles are no windows. `watched_s`: how long it could have been
    seen.
    `peak`: users, or requests/s. `peak_p50_ms`: the worst window until the next burst, None when unknown.
    """

    start_s: float
    end_s: float
    source: Source
    peak: float
    ended_requests: int
    peak_p50_ms: float | None
    mostly_failed: bool
    recovery_at_most_s: float | None
    watched_s: float


@dataclass(frozen=True)
class CsvBursts:
    """Bursts of a history; `baseline_ms`, `threshold_ms`: of the windows' median, None without windows."""

    bursts: tuple[CsvBurst, ...]
    baseline_ms: float | None
    threshold_ms: float | None


def find_bursts(history: History) -> CsvBursts:
    """Bursts of a history, in order, with their recoveries."""
    if len(history.at_s) < LEAST_BASELINE_ROWS:
        return CsvBursts((), None, None)
    at_s = history.at_s - history.at_s[0]
    spans, load, source = _spans(history, at_s)
    median_ms = _window_median(history, at_s)
    baseline_ms = _baseline(median_ms, at_s, spans) if spans else None
    threshold_ms = None if baseline_ms is None else max(baseline_ms + FLOOR_MS, BASELINE_RATIO * baseline_ms)
    starts = [start_s for start_s, _ in spans] + [float("inf")]
    bursts = []
    for (start_s, end_s), next_s in zip(spans, starts[1:], strict=True):
        within = (at_s >= start_s) & (at_s <= end_s)
        after = (at_s >= start_s) & (at_s < next_s)
        worst = median_ms[after & ~np.isnan(median_ms)]
        peak_ms = float(worst.max()) if len(worst) else None
        since_s = end_s if source == "users" else start_s
        until_s = min(next_s, float(at_s[-1]))
        bursts.append(
            CsvBurst(
                start_s,
                end_s,
                source,
                float(np.nanmax(load[within])),
                int(history.new[within].sum()),
                peak_ms if peak_ms is None or np.isfinite(peak_ms) else None,
                peak_ms is not None and not np.isfinite(peak_ms),
                _recovered(median_ms, at_s, since_s, end_s, until_s, threshold_ms),
                max(0.0, until_s - since_s),
            )
        )
    return CsvBursts(tuple(bursts), baseline_ms, threshold_ms)


def _spans(history: History, at_s: Floats) -> tuple[list[tuple[float, float]], Floats, Source]:
    users = history.users
    if np.isfinite(users).any():
        spans = _above(users, at_s, np.nanquantile(users, 0.25), 1.0)
        if spans:
            return spans, users, "users"
    counts = np.cumsum(history.new)
    half_s = COUNT_WINDOW_S / 2
    begin, end = np.maximum(at_s - half_s, at_s[0]), np.minimum(at_s + half_s, at_s[-1])
    rate = (np.interp(end, at_s, counts) - np.interp(begin, at_s, counts)) / (end - begin)
    quiet = float(np.quantile(rate, 0.25))
    spans = _above(rate, at_s, quiet, 6 * np.sqrt(max(quiet * COUNT_WINDOW_S, 1.0)) / COUNT_WINDOW_S)
    spans = [(max(0.0, start_s - half_s), end_s) for start_s, end_s in spans]
    return spans, rate, "counts"


def _above(load: Floats, at_s: Floats, quiet: float, least_rise: float) -> list[tuple[float, float]]:
    """Where `load` is above the middle of quiet level and peak: from the first such row to the last, for such
    stretches as end before the rows do."""
    known = np.nan_to_num(load)
    peak = float(known.max())
    if peak < LEAST_RATIO * quiet or peak - quiet < least_rise:
        return []
    high = known > quiet + (peak - quiet) / 2
    edges = np.flatnonzero(np.diff(high.astype(int), prepend=0))
    pairs = zip(edges[::2], edges[1::2], strict=False)  # a last rise without a fall has no partner
    return [(float(at_s[first]), float(at_s[behind - 1])) for first, behind in pairs]


def _window_median(history: History, at_s: Floats) -> Floats:
    """The windows' median in ms, NaN where it is unknown, infinite where half or more of a window failed."""
    if not history.percentiles_ms:
        return np.full(len(at_s), np.nan)
    values = history.percentiles_ms[min(history.percentiles_ms, key=lambda level: abs(level - 50))].copy()
    before = np.searchsorted(at_s, at_s - WINDOW_S, side="right") - 1
    ended, failed = (
        total - np.where(before >= 0, total[np.maximum(before, 0)], 0.0)
        for total in (np.cumsum(history.new), np.cumsum(history.new_failures))
    )
    values[(ended > 0) & (failed >= ended / 2)] = np.inf
    return values


def _baseline(median_ms: Floats, at_s: Floats, spans: list[tuple[float, float]]) -> float | None:
    """Median of the windows before the first burst; too few of them: of those 30 s and more after a burst."""
    usable = np.isfinite(median_ms)
    lead = usable & (at_s < spans[0][0])
    if int(lead.sum()) < LEAST_BASELINE_ROWS:
        quiet: Flags = usable
        for start_s, end_s in spans:
            quiet = quiet & ((at_s < start_s) | (at_s >= end_s + SETTLED_AFTER_S))
        lead = quiet
    return float(np.median(median_ms[lead])) if int(lead.sum()) >= LEAST_BASELINE_ROWS else None


def _recovered(
    median_ms: Floats, at_s: Floats, since_s: float, end_s: float, until_s: float, threshold_ms: float | None
) -> float | None:
    if threshold_ms is None:
        return None
    first, last = np.searchsorted(at_s, [end_s, until_s], side="left")
    at, known = at_s[first : last + 1], median_ms[first : last + 1]
    data = np.flatnonzero(~np.isnan(known))
    at, fine = at[data], known[data] <= threshold_ms
    bad = np.append(at[~fine], np.inf)
    for moment in at[fine]:
        if moment + HOLD_S > until_s:
            return None
        if bad[np.searchsorted(bad, moment)] >= moment + HOLD_S:
            return float(moment - since_s)
    return None
