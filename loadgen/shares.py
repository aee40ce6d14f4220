"""Whose is which arrival: worker i of n fires every k with k mod n = i, until a worker is lost.

Handing over is an amendment of the plan: what the lost worker still had to fire, at least 2 s from now, goes
round the others. Without it those arrivals are counted as not sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

AMEND_AHEAD_S = 2.0
"""An amendment reaches the workers at least this long before its first arrival is due."""


class Shares:
    """The owner of each arrival of a schedule; `at_s` are its times."""

    def __init__(self, at_s: NDArray[np.float64], workers: int) -> None:
        self._at_s = at_s
        self._owner = np.arange(len(at_s), dtype=np.int64) % max(workers, 1)

    def owner(self, k: int) -> int:
        """The index of the worker that fires arrival `k`."""
        return int(self._owner[k])

    def of(self, worker: int, start_s: float = 0.0, end_s: float = np.inf) -> NDArray[np.int64]:
        """The arrivals of one worker that are due in [start_s, end_s), in order."""
        first, last = np.searchsorted(self._at_s, [start_s, end_s])
        return np.asarray(first + np.flatnonzero(self._owner[first:last] == worker), dtype=np.int64)

    def hand_over(self, lost: int, survivors: Sequence[int], now_s: float) -> NDArray[np.int64]:
        """Give what `lost` would fire from 2 s after `now_s` on to the survivors in turn; returns those
        arrivals.
        """
        moved = self.of(lost, now_s + AMEND_AHEAD_S)
        if survivors:
            self._owner[moved] = np.asarray(survivors)[np.arange(len(moved)) % len(survivors)]
        return moved if survivors else moved[:0]
