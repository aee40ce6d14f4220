"""How requests scatter round the rate: event positions of a process with one event per unit of time.

A schedule puts them on the clock through the shape's integral (schedule.py), so that one process serves
every shape: under a constant rate of m req/s the gaps are those of the unit process divided by m.

    constant   |  |  |  |  |  |  |  |     evenly spaced: no scatter at all
    poisson    | |    ||  |     | |  ||   independent users: exponential gaps
    gamma      |||       || |||        |   gamma gaps of any CV: clusters and lulls above 1, calmer below it
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from shapes.errors import ShapeError
from shapes.shape import checked

FloatArray = NDArray[np.float64]

DEFAULT_CV = 2.0
LEAST_CV = 0.001
HIGHEST_CV = 20.0


@dataclass(frozen=True)
class Arrivals:
    """One arrival process.

    `unit_times(rng, total)` draws the sorted positions of a unit-rate process in (0, total). `cv` is the
    theoretical standard deviation / mean of its gaps, `idc` the variance / mean of its counts in long
    windows. `with_cv` makes the same process with another CV (ShapeError when impossible); None where the
    process has only one.
    """

    name: str
    summary: str
    unit_times: Callable[[np.random.Generator, float], FloatArray]
    cv: float
    idc: float
    with_cv: Callable[[float], Arrivals] | None = None


def constant_times(rng: np.random.Generator, total: float) -> FloatArray:
    """0.5, 1.5, 2.5, ... below `total`: the middles of steps of 1. `rng` is not used."""
    return np.arange(max(math.ceil(total - 0.5), 0), dtype=np.float64) + 0.5


def poisson_times(rng: np.random.Generator, total: float) -> FloatArray:
    """Sums of independent exponential gaps with mean 1, up to `total`."""
    return _sums(rng.standard_exponential, total, cv=1.0)


def gamma_times(rng: np.random.Generator, total: float, cv: float) -> FloatArray:
    """Sums of independent gamma gaps with mean 1 and this CV (shape a = 1 / CV^2), up to `total`.

    The first event is drawn as seen by someone who comes at a random moment: its density is (1 - F(x)) / 1
    with F the distribution of the gaps, which is a gap drawn in proportion to its length (gamma with shape
    a + 1) times a uniform number. With that, exactly `total` events are expected for any total; a process
    that began with a whole gap would give (CV^2 - 1) / 2 more in the long run. Source: Cox, Renewal Theory
    (Methuen, 1962), on the equilibrium renewal process.
    """
    shape = 1 / cv**2
    first = (1 - rng.random()) * rng.standard_gamma(shape + 1) / shape
    return _sums(lambda count: rng.standard_gamma(shape, count) / shape, total, cv, first)


def _sums(gaps: Callable[[int], FloatArray], total: float, cv: float, first: float = 0.0) -> FloatArray:
    """first, first + gap, first + gap + gap, ... below `total`; without a `first` they begin with a gap."""
    enough = math.ceil(total + 6 * cv * math.sqrt(total)) + 16
    leading = [first] if first else []
    times = np.cumsum(np.concatenate((leading, gaps(enough))))
    while times[-1] < total:
        times = np.append(times, times[-1] + np.cumsum(gaps(enough)))
    return times[times < total]


def gamma(cv: float) -> Arrivals:
    """Gamma arrivals whose gaps have this CV. Raises ShapeError when it is impossible."""
    cv = checked("cv", cv, LEAST_CV, HIGHEST_CV)
    summary = f"gaps with the CV that you choose ({DEFAULT_CV:g}): in clusters above 1, calm below"
    return Arrivals("gamma", summary, partial(gamma_times, cv=cv), cv=cv, idc=cv**2, with_cv=gamma)


ARRIVALS: dict[str, Arrivals] = {
    row.name: row
    for row in (
        Arrivals("constant", "evenly spaced, no scatter", constant_times, cv=0.0, idc=0.0),
        Arrivals("poisson", "independent users, exponential gaps", poisson_times, cv=1.0, idc=1.0),
        gamma(DEFAULT_CV),
    )
}


def arrivals_named(name: str, cv: float | None = None) -> Arrivals:
    """The row of ARRIVALS, with this CV if one is given.

    Raises ShapeError for a name that the table lacks, for an impossible CV, and for a CV given to arrivals
    that have only one.
    """
    if name not in ARRIVALS:
        raise ShapeError(f"there are no arrivals {name[:40]!r}: choose from {', '.join(ARRIVALS)}")
    arrivals = ARRIVALS[name]
    if cv is None:
        return arrivals
    if arrivals.with_cv is None:
        those = ", ".join(row.name for row in ARRIVALS.values() if row.with_cv)
        raise ShapeError(
            f"cv belongs to {those} arrivals and cannot be given with {name}: leave one of them out"
        )
    return arrivals.with_cv(cv)
