"""Series for pictures: counts per second, requests in flight, windowed quantiles, and thinning that keeps
extremes.

Arrays in, arrays out; nothing here draws. All times are seconds since the run's start moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]

WINDOW_S = 2.0
"""Width of the windows behind the p50 and p95 lines: the same as the recovery estimator's."""

NICE_WIDTHS_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
MOST_BINS = 4000
MOST_BARS = 300
MOST_WINDOWS = 3000


def bin_width(span_s: float, most: int = MOST_BINS) -> float:
    """The narrowest nice width that cuts `span_s` into at most `most` bins; 1 s at least."""
    return next((width for width in NICE_WIDTHS_S if span_s / width <= most), NICE_WIDTHS_S[-1])


def rate_per_bin(times_s: Floats, span_s: float, width_s: float) -> tuple[Floats, Floats]:
    """Left edges of the bins over [0, span_s] and the events per second in each. Unknown times (NaN) are left
    out.
    """
    bins = max(1, int(np.ceil(span_s / width_s - 1e-9)))
    edges = np.arange(bins + 1) * width_s
    counts, _ = np.histogram(times_s[np.isfinite(times_s)], bins=edges)
    return edges[:-1], counts / width_s


def in_flight(sent_at_s: Floats, ended_at_s: Floats) -> tuple[Floats, Floats]:
    """Steps (time, requests in flight from then on), starting at (0, 0).

    A request that was sent and whose end is unknown stays in flight; one that was never sent is left out.
    """
    sent = sent_at_s[np.isfinite(sent_at_s)]
    ended = ended_at_s[np.isfinite(sent_at_s) & np.isfinite(ended_at_s)]
    times = np.concatenate([[0.0], sent, ended])
    steps = np.concatenate([[0.0], np.ones(len(sent)), -np.ones(len(ended))])
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(steps[order])


@dataclass(frozen=True)
class Windows:
    """Quantiles of a value over consecutive windows by arrival; NaN where a window holds no value."""

    middle_s: Floats
    count: npt.NDArray[np.int64]
    p50: Floats
    p95: Floats


def windowed(at_s: Floats, values: Floats, width_s: float = WINDOW_S) -> Windows:
    """p50 and p95 of `values` in windows of `width_s` by `at_s`. Values or times that are unknown are left
    out.
    """
    known = np.isfinite(at_s) & np.isfinite(values) & (at_s >= 0)
    at_s, values = at_s[known], values[known]
    if not len(at_s):
        nothing = np.empty(0)
        return Windows(nothing, np.empty(0, dtype=np.int64), nothing, nothing)
    index = (at_s / width_s).astype(np.int64)
    windows = int(index.max()) + 1
    order = np.argsort(index, kind="stable")
    groups = np.split(values[order], np.searchsorted(index[order], np.arange(1, windows)))
    both = np.array([np.quantile(g, (0.5, 0.95)) if len(g) else (np.nan, np.nan) for g in groups])
    count = np.array([len(group) for group in groups], dtype=np.int64)
    return Windows((np.arange(windows) + 0.5) * width_s, count, both[:, 0], both[:, 1])


def band(x: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """The outline of the area between two lines, for a fill: one closed piece for each run of known values,
    pieces parted by NaN. Empty where nothing is known."""
    known = np.isfinite(low) & np.isfinite(high)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], known, [False]]).astype(np.int8)))
    xs: list[Floats] = []
    ys: list[Floats] = []
    gap = np.array([np.nan])
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        part = slice(first, end)
        xs += [x[part], x[part][::-1], gap]
        ys += [low[part], high[part][::-1], gap]
    return (np.concatenate(xs[:-1]), np.concatenate(ys[:-1])) if xs else (np.empty(0), np.empty(0))


def thin_points(x: Floats, y: Floats, most: int) -> npt.NDArray[np.int64]:
    """Indices, in order of `x`, of at most `most` points (known values) that look like all of them.

    Half of `most` are spent on the lowest and the highest of equally wide slices of `x` (a few pixels each),
    the others on equally many points each, so that a burst keeps more of its own than a quiet hour: of each
    of these again the lowest and the highest. The highest and lowest of all are always among them.
    """
    order = np.argsort(x, kind="stable")
    if len(order) <= most:
        return order
    xs, ys = x[order], y[order]
    slices = max(1, most // 4)
    span = float(xs[-1] - xs[0])
    by_place = np.minimum(((xs - xs[0]) / span * slices).astype(np.int64), slices - 1) if span else xs * 0
    by_number = np.arange(len(xs)) * slices // len(xs)
    picked = [_extremes(np.asarray(part, dtype=np.int64), ys) for part in (by_place, by_number)]
    return order[np.unique(np.concatenate(picked))]


def _extremes(part: npt.NDArray[np.int64], values: Floats) -> npt.NDArray[np.int64]:
    """Indices of the lowest (the first of equals) and the highest (the last of them) value of each `part`;
    parts are in ascending order."""
    starts = np.flatnonzero(np.diff(part, prepend=part[0] - 1))
    sizes = np.diff(starts, append=len(part))
    lowest = np.flatnonzero(values == np.repeat(np.minimum.reduceat(values, starts), sizes))
    highest = np.flatnonzero(values == np.repeat(np.maximum.reduceat(values, starts), sizes))
    first = lowest[np.searchsorted(lowest, starts)]
    last = highest[np.searchsorted(highest, starts + sizes) - 1]
    return np.concatenate([first, last])


def thin_steps(x: Floats, y: Floats, most: int) -> tuple[Floats, Floats]:
    """A line thinned to about `most` points, its ends and the extremes of every slice kept; `x` is in
    order."""
    if len(x) <= most:
        return x, y
    kept = thin_points(x, y, most - 2)
    kept = np.unique(np.concatenate([[0], kept, [len(x) - 1]]))
    return x[kept], y[kept]


def ecdf(values: Floats, most: int = 1000) -> tuple[Floats, Floats]:
    """The empirical distribution of the known `values`: (sorted value, share of values at or below it).

    Above `most` points it is read at evenly spaced shares, and the lowest and the highest twenty are all
    kept.
    """
    known = np.sort(values[np.isfinite(values)])
    n = len(known)
    rank = np.arange(n)
    if n > most:
        even = np.linspace(0, n - 1, most - 40).astype(np.int64)
        rank = np.unique(np.concatenate([rank[:20], even, rank[-20:]]))
    return known[rank], (rank + 1) / max(n, 1)
