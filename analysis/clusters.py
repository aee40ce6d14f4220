"""The interval of a ratio whose requests come in bursts: those of one burst are alike, so bursts are counted.

Requests of one burst meet one queue, so a hundred of them say less than a hundred independent ones. With
k bursts of d_j decided and m_j met requests, p = sum m / sum d, and the variance of p over bursts

    v = k / (k - 1) * sum (m_j - p d_j)^2 / (sum d)^2                  (ratio estimator; Cochran 1977, 6.3)
    design effect = v / (p (1 - p) / sum d)                            (Kish 1965: 1 = as if independent)
    effective n = sum d / max(design effect, 1)

The interval is Wilson's, with the effective n for n and Student's t of k - 1 degrees for z (Korn and
Graubard 1998). Of the ways tried it was the one that held near 100 % (docs/statistics.md has the measured
coverage): t on the ratio and a bootstrap of bursts are too narrow there. Below 8 bursts there is none.

Where the misses sit in few bursts, one more could have been worse than any seen. Their number is Kish's
effective one, (sum x)^2 / sum x^2 over the misses x_j of the bursts; below 4 the lower end is at most
p' - t sqrt(v'), p' and v' being p and v with half a burst more of mean size that missed all (as Agresti and
Coull 1998 add requests, here a burst). The upper end likewise, where the met requests sit in few bursts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.phases import Window, held
from analysis.slo import Judged, wilson_interval

LEAST_BURSTS = 8
FEW_BURSTS = 4.0
UNSEEN = 0.5
"""Of a burst, added at its worst where the misses (or the met requests) sit in fewer than FEW_BURSTS."""
_Z = 1.959963985


@dataclass(frozen=True)
class BurstInterval:
    """The 95 % interval `low` to `high` of a ratio (0-1) over `bursts` clusters with decided requests, and
    the design effect; what is None is told by `why_none`. `few`: the misses, or the met requests, sit in few
    bursts, and the interval allows for a burst that was not seen."""

    bursts: int
    low: float | None
    high: float | None
    design_effect: float | None
    why_none: str | None
    few: bool = False


def burst_interval(met: np.ndarray, decided: np.ndarray) -> BurstInterval:
    """`met` of the `decided` requests of each burst; bursts without decided requests are left out."""
    met, decided = met[decided > 0].astype(float), decided[decided > 0].astype(float)
    k, total = len(decided), float(decided.sum())
    if k < LEAST_BURSTS:
        return BurstInterval(k, None, None, None, f"{k} bursts are too few: it takes {LEAST_BURSTS}")
    p = float(met.sum()) / total
    if p in (0.0, 1.0):
        every = "every request met it" if p else "no request met it"
        why = f"in all {k} bursts {every}: how far bursts can differ was not seen"
        return BurstInterval(k, None, None, None, why)
    variance = k / (k - 1) * float(((met - p * decided) ** 2).sum()) / total**2
    effect = variance / (p * (1 - p) / total)
    n = total / max(effect, 1.0)
    t = student_t(k - 1)
    low, high = wilson_interval(p * n, n, t)
    assert low is not None  # for n > 0 there are both
    assert high is not None
    missed = decided - met
    bad, good = _carriers(missed) < FEW_BURSTS, _carriers(met) < FEW_BURSTS
    if bad:
        low = min(low, _with_unseen(met, decided, t))
    if good:
        high = max(high, 1 - _with_unseen(missed, decided, t))
    return BurstInterval(k, low, high, effect, None, bad or good)


def _carriers(counts: np.ndarray) -> float:
    """Kish's effective number of the bursts that hold `counts`: as many as there are where all hold alike."""
    return float(counts.sum() ** 2 / (counts**2).sum())


def _with_unseen(met: np.ndarray, decided: np.ndarray, t: float) -> float:
    """The lower end of t on the ratio with UNSEEN of a burst more that met nothing."""
    size, k = float(decided.mean()), len(decided) + UNSEEN
    total = float(decided.sum()) + UNSEEN * size
    p = float(met.sum()) / total
    squares = float(((met - p * decided) ** 2).sum()) + UNSEEN * (p * size) ** 2
    return max(0.0, p - t * math.sqrt(k / (k - 1) * squares) / total)


def student_t(degrees: int) -> float:
    """The 97.5 % quantile of Student's t, to 0.1 % from 5 degrees of freedom on (Abramowitz and Stegun
    26.7.5)."""
    z = _Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / degrees**power for power, term in enumerate(terms, 1))


def in_bursts(at_s: np.ndarray, bursts: Sequence[Window]) -> np.ndarray:
    """The index of the burst that each of the moments (rising) lies in, -1 outside."""
    index = np.full(len(at_s), -1)
    for number, window in enumerate(bursts):
        index[held(at_s, window)] = number
    return index


def around_bursts(at_s: np.ndarray, bursts: Sequence[Window]) -> np.ndarray:
    """The whole run cut at the bursts' starts, so that what a burst leaves behind is counted with it; what
    comes before the first goes with the first."""
    starts_s = np.array([start_s for start_s, _ in bursts])
    return np.maximum(np.searchsorted(starts_s, at_s + 1e-9, side="right") - 1, 0)


def judged_interval(judged: Judged, cluster: np.ndarray, count: int) -> BurstInterval:
    """The interval of the attainment of `judged` requests with their cluster (0 to count - 1, -1 = none)."""
    chosen = judged.decided.to_numpy() & (cluster >= 0)
    decided = np.bincount(cluster[chosen], minlength=count)
    met = np.bincount(cluster[chosen & judged.met.to_numpy()], minlength=count)
    return burst_interval(met, decided)
