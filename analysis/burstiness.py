"""How bursty a stream of arrivals is: pure functions on arrival times in seconds, over the window [0, T).

                 evenly spaced     Poisson       pulses
    times        | | | | | | |     || |   | ||   ||||    ||||
    CV                 0              1             > 1          scatter of the gaps, whatever their order
    IDC(w)             0              1             >> 1         scatter of the counts in windows of w seconds

The CV does not know how long a burst lasts: a pulse of 2 s and one of 12 s at the same rates have nearly
the same CV. The IDC at several windows tells them apart. Every function returns None where there is too
little to say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

WINDOWS_S = (1, 10, 60)
"""First tokens live in 1 s, queues drain in 10 s, autoscalers act in 60 s."""

ON_THE_EDGE = 1e-9
"""Windows: a time this little before an edge is rounding's doing and belongs to the next window."""


@dataclass(frozen=True)
class Burstiness:
    """What `burstiness` found; None where there is too little to say. The dicts go by window in seconds.

    n arrivals at `rate_rps` (req/s) on average; `cv` of the gaps; `idc`, `allan_factor` and
    `peak_over_mean` of the counts; `count_acf_1s` is the lag-1 autocorrelation of the counts per second;
    `goh_barabasi_b` and `memory` of the gaps, both from -1 to 1.
    """

    n: int
    rate_rps: float
    cv: float | None
    idc: dict[int, float | None]
    allan_factor: dict[int, float | None]
    peak_over_mean: dict[int, float | None]
    count_acf_1s: float | None
    goh_barabasi_b: float | None
    memory: float | None


def burstiness(times_s: ArrayLike, duration_s: float) -> Burstiness:
    """All measures of the arrivals in [0, duration). Times need not be sorted; those outside are left out.

    Raises ValueError when the duration is not greater than 0.
    """
    if not duration_s > 0:
        raise ValueError(f"the duration must be greater than 0 s, not {duration_s}")
    times = np.sort(np.asarray(times_s, dtype=np.float64))
    times = times[(times >= 0) & (times < duration_s)]
    return Burstiness(
        n=len(times),
        rate_rps=float(len(times) / duration_s),
        cv=cv(times),
        idc={window: idc(times, window, duration_s) for window in WINDOWS_S},
        allan_factor={window: allan_factor(times, window, duration_s) for window in WINDOWS_S},
        peak_over_mean={window: peak_over_mean(times, window, duration_s) for window in WINDOWS_S},
        count_acf_1s=count_acf(times, 1, duration_s),
        goh_barabasi_b=goh_barabasi_b(times),
        memory=memory(times),
    )


def counts_per_window(times_s: ArrayLike, window_s: float, duration_s: float) -> FloatArray:
    """Arrivals in each whole window [k w, (k + 1) w) of the duration; what is left at the end is dropped."""
    windows = math.floor(duration_s / window_s + ON_THE_EDGE)
    place = np.floor(np.asarray(times_s, dtype=np.float64) / window_s + ON_THE_EDGE)
    place = place[(place >= 0) & (place < windows)]
    return np.bincount(place.astype(np.int64), minlength=windows).astype(np.float64)


def cv(times_s: ArrayLike) -> float | None:
    """Coefficient of variation of the gaps: standard deviation (n - 1) / mean. Poisson 1, even 0.

    Biased low for few gaps with a heavy tail: a true 4.5 reads about 3.7 from 50 gaps. None below 2 gaps.
    """
    gaps = _gaps(times_s)
    if len(gaps) < 2 or np.mean(gaps) == 0:
        return None
    return float(np.std(gaps, ddof=1) / np.mean(gaps))


def idc(times_s: ArrayLike, window_s: float, duration_s: float) -> float | None:
    """Index of dispersion for counts (Fano factor): Var(N) / E(N) over whole windows, variance with K - 1.

    Poisson 1, with standard deviation sqrt(2 / (K - 1)) for K windows (Cox and Lewis 1966). None below 2
    windows.
    """
    counts = counts_per_window(times_s, window_s, duration_s)
    if len(counts) < 2 or not counts.any():
        return None
    return float(np.var(counts, ddof=1) / np.mean(counts))


def allan_factor(times_s: ArrayLike, window_s: float, duration_s: float) -> float | None:
    """E[(N_(k+1) - N_k)^2] / (2 E[N]) (Allan 1966): 1 for Poisson, and blind to slow trends.

    Far below the IDC of the same window it says that the counts drift rather than burst. None below 2
    windows.
    """
    counts = counts_per_window(times_s, window_s, duration_s)
    if len(counts) < 2 or not counts.any():
        return None
    return float(np.mean(np.diff(counts) ** 2) / (2 * np.mean(counts)))


def peak_over_mean(times_s: ArrayLike, window_s: float, duration_s: float) -> float | None:
    """max N / E(N) over whole windows. It grows with their number. None below 2 windows."""
    counts = counts_per_window(times_s, window_s, duration_s)
    if len(counts) < 2 or not counts.any():
        return None
    return float(np.max(counts) / np.mean(counts))


def count_acf(times_s: ArrayLike, window_s: float, duration_s: float) -> float | None:
    """Lag-1 autocorrelation of the counts: sum z_k z_(k+1) / sum z_k^2 with z = N - E(N).

    Within +-1.96 / sqrt(K) for independent counts. None below 3 windows or when all counts are equal.
    """
    counts = counts_per_window(times_s, window_s, duration_s)
    if len(counts) < 3 or np.ptp(counts) == 0:
        return None
    z = counts - np.mean(counts)
    return float(np.sum(z[:-1] * z[1:]) / np.sum(z**2))


def goh_barabasi_b(times_s: ArrayLike) -> float | None:
    """Burstiness B: -1 even, 0 Poisson, towards 1 bursty; corrected for the number n of gaps.

        B = (sqrt(n + 1) r - sqrt(n - 1)) / ((sqrt(n + 1) - 2) r + sqrt(n - 1)),  r = sd (n) / mean

    Goh and Barabasi, EPL 81 (2008) 48002: (r - 1) / (r + 1); Kim and Jo, Phys. Rev. E 94 (2016) 032311: its
    form for finite n, which reaches 1 when all gaps but one are 0. None below 2 gaps.
    """
    gaps = _gaps(times_s)
    if len(gaps) < 2 or np.mean(gaps) == 0:
        return None
    n, r = len(gaps), float(np.std(gaps) / np.mean(gaps))
    more, less = math.sqrt(n + 1), math.sqrt(n - 1)
    return (more * r - less) / ((more - 2) * r + less)


def memory(times_s: ArrayLike) -> float | None:
    """Memory M: the correlation of each gap with the next one (Goh and Barabasi 2008); 0 for independent
    gaps.

    None below 3 gaps or when the gaps are all equal.
    """
    gaps = _gaps(times_s)
    if len(gaps) < 3 or np.ptp(gaps[:-1]) == 0 or np.ptp(gaps[1:]) == 0:
        return None
    return float(np.corrcoef(gaps[:-1], gaps[1:])[0, 1])


def _gaps(times_s: ArrayLike) -> FloatArray:
    """Gaps in seconds to the nanosecond; what is smaller is rounding and would pass for scatter."""
    return np.diff(np.sort(np.asarray(times_s, dtype=np.float64))).round(9)
