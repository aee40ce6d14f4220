"""How bursty a stream of arrivals is: pure functions on arrival times in seconds, over the window [0, T).

                 evenly spaced     Poisson       pulses
    times        | | | | | | |     || |   | ||   ||||    ||||
    CV                 0              1             > 1          scatter of the gaps, whatever their order
    IDC(w)             0              1             >> 1         scatter of the counts in windows of w seconds

The CV does not know how long a burst lasts: a pulse of 2 s and one of 12 s at the same rates have nearly
the same CV. The IDC at several windows tells them apart. Every function returns None where there is too
little to say. Weights (tokens of each arrival) turn the measures of counts into measures of tokens. What a
Poisson stream of the same size would show is in poisson_band.py; all of it together in burst_profile.py.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

WINDOWS_S = (1, 10, 60)
"""First tokens live in 1 s, queues drain in 10 s, autoscalers act in 60 s."""

LEAST_LOCAL = 20
"""Fewest gaps in a window for a CV of its own: with fewer it is mostly chance."""

ON_THE_EDGE = 1e-9
"""Windows: a time this little before an edge is rounding's doing and belongs to the next window."""


def counts_per_window(
    times_s: ArrayLike, window_s: float, duration_s: float, weights: ArrayLike | None = None
) -> FloatArray:
    """Arrivals in each whole window [k w, (k + 1) w) of the duration; what is left at the end is dropped.

    With `weights` (one an arrival, such as its tokens) their sum instead of the number.
    """
    windows = math.floor(duration_s / window_s + ON_THE_EDGE)
    place = np.floor(np.asarray(times_s, dtype=np.float64) / window_s + ON_THE_EDGE)
    inside = (place >= 0) & (place < windows)
    weighed = None if weights is None else np.asarray(weights, dtype=np.float64)[inside]
    return np.bincount(place[inside].astype(np.int64), weighed, minlength=windows).astype(np.float64)


def cv(times_s: ArrayLike) -> float | None:
    """Coefficient of variation of the gaps: standard deviation (n - 1) / mean. Poisson 1, even 0.

    Biased low for few gaps with a heavy tail: a true 4.5 reads about 3.7 from 50 gaps. None below 2 gaps.
    """
    return cv_of(gaps_of(times_s))


def cv_of(gaps: FloatArray) -> float | None:
    """The same, of the gaps."""
    if len(gaps) < 2 or np.mean(gaps) == 0:
        return None
    return float(np.std(gaps, ddof=1) / np.mean(gaps))


def local_cv(times_s: ArrayLike, window_s: float, duration_s: float) -> float | None:
    """The median, over whole windows, of the CV within each: what is left of it without slow changes.

    Of windows with at least LEAST_LOCAL gaps. None where fewer than 3 windows have so many.
    """
    times = np.sort(np.asarray(times_s, dtype=np.float64))
    edges = np.searchsorted(times, np.arange(math.floor(duration_s / window_s + ON_THE_EDGE) + 1) * window_s)
    spans = [times[start:end] for start, end in pairwise(edges)]
    found = [value for part in spans if len(part) > LEAST_LOCAL and (value := cv(part)) is not None]
    return float(np.median(found)) if len(found) >= 3 else None


def idc(
    times_s: ArrayLike, window_s: float, duration_s: float, weights: ArrayLike | None = None
) -> float | None:
    """Index of dispersion for counts (Fano factor): Var(N) / E(N) over whole windows, variance with K - 1.

    Poisson 1, with standard deviation sqrt(2 / (K - 1)) for K windows (Cox and Lewis 1966). With weights
    Var(W) / (E(W) q), where q = sum w^2 / sum w is what Poisson arrivals with these weights have (compound
    Poisson: Var(W) = rate x E(w^2)), so that they read 1 too. None below 2 windows.
    """
    return idc_of(counts_per_window(times_s, window_s, duration_s, weights), weight_unit(weights))


def idc_of(counts: FloatArray, unit: float = 1.0) -> float | None:
    """The same, of the counts per window; `unit` is q."""
    if len(counts) < 2 or not counts.any():
        return None
    return float(np.var(counts, ddof=1) / np.mean(counts) / unit)


def allan_factor(
    times_s: ArrayLike, window_s: float, duration_s: float, weights: ArrayLike | None = None
) -> float | None:
    """E[(N_(k+1) - N_k)^2] / (2 E[N]) (Allan 1966): 1 for Poisson, and blind to slow trends.

    Far below the IDC of the same window it says that the counts drift rather than burst. Weights as for
    `idc`. None below 2 windows.
    """
    return allan_factor_of(counts_per_window(times_s, window_s, duration_s, weights), weight_unit(weights))


def allan_factor_of(counts: FloatArray, unit: float = 1.0) -> float | None:
    """The same, of the counts per window; `unit` is q."""
    if len(counts) < 2 or not counts.any():
        return None
    return float(np.mean(np.diff(counts) ** 2) / (2 * np.mean(counts)) / unit)


def peak_over_mean(
    times_s: ArrayLike, window_s: float, duration_s: float, weights: ArrayLike | None = None
) -> float | None:
    """max N / E(N) over whole windows. It grows with their number. None below 2 windows."""
    return peak_over_mean_of(counts_per_window(times_s, window_s, duration_s, weights))


def peak_over_mean_of(counts: FloatArray) -> float | None:
    """The same, of the counts per window."""
    if len(counts) < 2 or not counts.any():
        return None
    return float(np.max(counts) / np.mean(counts))


def count_acf(times_s: ArrayLike, window_s: float, duration_s: float, lag: int = 1) -> float | None:
    """Autocorrelation of the counts at a lag in windows: sum z_k z_(k+lag) / sum z_k^2 with z = N - E(N).

    None below lag + 2 windows or when all counts are equal.
    """
    return autocorrelation(counts_per_window(times_s, window_s, duration_s), lag)


def gap_acf(times_s: ArrayLike, lag: int = 1) -> float | None:
    """Autocorrelation of the gaps at a lag in gaps: of independent gaps about 0."""
    return autocorrelation(gaps_of(times_s), lag)


def autocorrelation(values: FloatArray, lag: int) -> float | None:
    """sum z_k z_(k+lag) / sum z_k^2 with z = value - mean. None below lag + 2 values or all alike."""
    if len(values) < lag + 2 or np.ptp(values) == 0:
        return None
    z = values - np.mean(values)
    return float(np.sum(z[:-lag] * z[lag:]) / np.sum(z**2))


def goh_barabasi_b(times_s: ArrayLike) -> float | None:
    """Burstiness B: -1 even, 0 Poisson, towards 1 bursty; corrected for the number n of gaps.

    Papers often print (r - 1) / (r + 1), which cannot reach 1 with few gaps; it is a little lower.

        B = (sqrt(n + 1) r - sqrt(n - 1)) / ((sqrt(n + 1) - 2) r + sqrt(n - 1)),  r = sd (n) / mean

    Goh and Barabasi, EPL 81 (2008) 48002: (r - 1) / (r + 1); Kim and Jo, Phys. Rev. E 94 (2016) 032311: its
    form for finite n, which reaches 1 when all gaps but one are 0. None below 2 gaps.
    """
    gaps = gaps_of(times_s)
    spread = cv_of(gaps)
    return None if spread is None else b_of_cv(spread, len(gaps))


def b_of_cv(cv: float, gaps: int) -> float:
    """B from the CV (with n - 1) of this many gaps; see `goh_barabasi_b`."""
    n, r = gaps, cv * math.sqrt((gaps - 1) / gaps)
    more, less = math.sqrt(n + 1), math.sqrt(n - 1)
    return (more * r - less) / ((more - 2) * r + less)


def memory(times_s: ArrayLike) -> float | None:
    """Memory M: the correlation of each gap with the next one (Goh and Barabasi 2008); 0 for independent
    gaps.

    None below 3 gaps or when the gaps are all equal.
    """
    return memory_of(gaps_of(times_s))


def memory_of(gaps: FloatArray) -> float | None:
    """The same, of the gaps."""
    if len(gaps) < 3 or np.ptp(gaps[:-1]) == 0 or np.ptp(gaps[1:]) == 0:
        return None
    return float(np.corrcoef(gaps[:-1], gaps[1:])[0, 1])


def gaps_of(times_s: ArrayLike) -> FloatArray:
    """Gaps in seconds to the nanosecond; what is smaller is rounding and would pass for scatter."""
    return np.diff(np.sort(np.asarray(times_s, dtype=np.float64))).round(9)


def weight_unit(weights: ArrayLike | None) -> float:
    """sum w^2 / sum w: what one arrival adds to the dispersion of the weights; 1 without weights."""
    if weights is None:
        return 1.0
    w = np.asarray(weights, dtype=np.float64)
    return float(np.sum(w**2) / np.sum(w))
