"""How requests scatter round the rate: event positions of a process with one event per unit of time.

A schedule puts them on the clock through the shape's integral (schedule.py), so that one process serves
every shape: under a constant rate of m req/s the gaps are those of the unit process divided by m.

    constant   |  |  |  |  |  |  |  |     evenly spaced: no scatter at all
    poisson    | |    ||  |     | |  ||   independent users: exponential gaps
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shapes.errors import ShapeError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Arrivals:
    """One arrival process.

    `unit_times(rng, total)` draws the sorted positions of a unit-rate process in (0, total). `cv` is the
    theoretical standard deviation / mean of its gaps, `idc` the variance / mean of its counts in long
    windows.
    """

    name: str
    summary: str
    unit_times: Callable[[np.random.Generator, float], FloatArray]
    cv: float
    idc: float


def constant_times(rng: np.random.Generator, total: float) -> FloatArray:
    """0.5, 1.5, 2.5, ... below `total`: the middles of steps of 1. `rng` is not used."""
    return np.arange(max(math.ceil(total - 0.5), 0), dtype=np.float64) + 0.5


def poisson_times(rng: np.random.Generator, total: float) -> FloatArray:
    """Sums of independent exponential gaps with mean 1, up to `total`."""
    enough = math.ceil(total + 6 * math.sqrt(total)) + 16
    times = np.cumsum(rng.standard_exponential(enough))
    while times[-1] < total:
        times = np.append(times, times[-1] + np.cumsum(rng.standard_exponential(enough)))
    return times[times < total]


ARRIVALS: dict[str, Arrivals] = {
    row.name: row
    for row in (
        Arrivals("constant", "evenly spaced, no scatter", constant_times, cv=0.0, idc=0.0),
        Arrivals("poisson", "independent users, exponential gaps", poisson_times, cv=1.0, idc=1.0),
    )
}


def arrivals_named(name: str) -> Arrivals:
    """The row of ARRIVALS. Raises ShapeError for a name that it lacks."""
    try:
        return ARRIVALS[name]
    except KeyError:
        raise ShapeError(f"there are no arrivals {name[:40]!r}: choose from {', '.join(ARRIVALS)}") from None
