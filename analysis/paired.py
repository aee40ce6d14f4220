"""Paired differences: is there a shift between two runs, how large is it, and how sure may one be.

One difference a burst, candidate minus base, from runs on the same schedule. Bursts share their arrivals in
both runs, so most of what makes one burst worse than another cancels. Differences may be infinite (a quantile
that rests on failures in one run only).

The test flips the signs of the differences: were both servers equal, each difference would as likely have had
the other sign. Its statistic is the sum of signed ranks (Wilcoxon 1945), so one wild burst cannot decide and
an infinite one is merely the largest. The shift is the Hodges-Lehmann estimate (1963), the median of all
means of two differences, and its interval the one that belongs to that test.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

ALPHA = 0.05
_Key = TypeVar("_Key", bound=Hashable)
_POWER_Z = 1.959964 + 0.841621
"""Two-sided 5 % and a power of 80 %: the normal quantiles that a needed sample size adds up."""
_RANKS_EFFICIENCY = 3 / math.pi
"""Of the signed-rank test against the t test on normal differences (Hodges and Lehmann 1956)."""


@dataclass(frozen=True)
class Shift:
    """What paired differences say.

    `moved` of the `n` differ at all. `shift` is Hodges-Lehmann's (infinite when most pairs are), `low` and
    `high` its 95 % interval (None below 6 pairs, where none exists), `p` the exact two-sided sign-flip
    probability.
    """

    n: int
    moved: int
    shift: float | None
    low: float | None
    high: float | None
    p: float | None


def shift_of(differences: np.ndarray) -> Shift:
    """The shift of paired differences; NaN (no pair) is left out."""
    kept = differences[~np.isnan(differences)]
    if not len(kept):
        return Shift(0, 0, None, None, None, None)
    walsh = _walsh_means(kept)
    low, high = _interval(walsh, len(kept))
    moved = int((kept != 0).sum())
    return Shift(len(kept), moved, float(np.median(walsh)), low, high, sign_flip_p(kept))


def sign_flip_p(differences: np.ndarray) -> float:
    """The share of all 2^n sign patterns whose signed-rank sum is at least as far from 0 as the one seen.

    Exact, also with ties (ranks averaged); differences of 0 say nothing and are left out, all 0 gives 1.
    """
    moved = differences[differences != 0]
    if not len(moved):
        return 1.0
    doubled = _doubled_ranks(np.abs(moved))
    total = int(doubled.sum())
    seen = abs(2 * int(doubled[moved > 0].sum()) - total)
    mass = _mass_of_positive_sums(doubled)
    distance = np.abs(2 * np.arange(total + 1) - total)
    return min(1.0, float(mass[distance >= seen].sum()))


def holm(p_values: Mapping[_Key, float]) -> dict[_Key, float]:
    """Holm's adjusted probabilities (1979): the family's error stays at the level each is compared with."""
    adjusted: dict[_Key, float] = {}
    highest = 0.0
    for place, (key, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        highest = max(highest, min(1.0, (len(p_values) - place) * p))
        adjusted[key] = highest
    return {key: adjusted[key] for key in p_values}


def least_pairs(tests: int, alpha: float = ALPHA) -> int:
    """The fewest pairs at which one of so many `tests` can be significant at all: 2 / 2^n <= alpha /
    tests."""
    return math.ceil(math.log2(2 * max(tests, 1) / alpha))


def pairs_to_tell(differences: np.ndarray) -> int | None:
    """An estimate of how many pairs tell a shift of the size seen from none in 4 of 5 experiments.

    (z * sd / mean)^2 for the t test, over the signed ranks' efficiency of 3/pi; one test, no Holm. None when
    it cannot be estimated: fewer than two finite differences, or no difference at all.
    """
    finite = differences[np.isfinite(differences)]
    if len(finite) < 2 or len(finite) < len(differences[~np.isnan(differences)]) or not finite.mean():
        return None
    ratio = float(finite.std(ddof=1) / abs(finite.mean()))
    return max(2, math.ceil((_POWER_Z * ratio) ** 2 / _RANKS_EFFICIENCY))


def _walsh_means(values: np.ndarray) -> np.ndarray:
    """The means of all pairs, each value with itself too, sorted; of +inf and -inf it is 0."""
    first, second = np.triu_indices(len(values))
    with np.errstate(invalid="ignore"):
        means = (values[first] + values[second]) / 2
    return np.sort(np.nan_to_num(means, nan=0.0, posinf=math.inf, neginf=-math.inf))


def _interval(walsh: np.ndarray, n: int) -> tuple[float | None, float | None]:
    """The 95 % interval of the shift: the order statistics of the means that the signed-rank test leaves."""
    below = np.cumsum(_mass_of_positive_sums(np.arange(1, n + 1)))
    cut = int(np.searchsorted(below, ALPHA / 2, side="right"))  # sums 0 .. cut - 1 have at most 2.5 %
    if cut == 0:
        return None, None
    return float(walsh[cut - 1]), float(walsh[-cut])


def _doubled_ranks(sizes: np.ndarray) -> np.ndarray:
    """Twice the average ranks of `sizes`, whole numbers."""
    ordered = np.sort(sizes)
    lowest = np.searchsorted(ordered, sizes, side="left")
    highest = np.searchsorted(ordered, sizes, side="right")
    return lowest + highest + 1


def _mass_of_positive_sums(ranks: np.ndarray) -> np.ndarray:
    """The distribution of the sum of those ranks that a fair coin picks, over 0 .. their total."""
    mass = np.zeros(int(ranks.sum()) + 1)
    mass[0] = 1.0
    reach = 0
    for rank in ranks:
        reach += int(rank)
        mass[rank : reach + 1] = (mass[rank : reach + 1] + mass[: reach + 1 - rank]) / 2
        mass[:rank] /= 2
    return mass
