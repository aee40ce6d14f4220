"""How many requests were in flight, how many users were wanted: step functions of time, and what they add up
to.

In a closed loop the load is a number of users, each with one request at a time, so the load is reached when
as many requests are in flight as users are wanted:

    wanted      ┌──────┐          reached = area of min(in flight, wanted) / area of wanted
    in flight   │┌─────┐┐
    ────────────┘┘      └└──      what is too much later does not make up for what was missing before

A user whose request failed at once pauses before its next one. That time is missing in flight, but the
server's doing, so it is kept apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.load import Run
from analysis.phases import Window

SETTLING_S = 0.050
SETTLING_OF_WIDTH = 0.10


@dataclass(frozen=True, eq=False)
class Steps:
    """`value[i]` from `at_s[i]` on (times rising); 0 before the first."""

    at_s: np.ndarray
    value: np.ndarray

    def at(self, times_s: np.ndarray) -> np.ndarray:
        """The value at each moment."""
        place = np.searchsorted(self.at_s, times_s, side="right") - 1
        if not len(self.value):
            return np.zeros(len(place))
        return np.where(place < 0, 0.0, self.value[np.maximum(place, 0)])

    def within(self, window: Window) -> tuple[np.ndarray, np.ndarray]:
        """The values that it takes in the window and for how many seconds each."""
        start_s, end_s = window
        first, last = np.searchsorted(self.at_s, start_s, "right"), np.searchsorted(self.at_s, end_s, "left")
        edges = np.unique(np.concatenate([[start_s, end_s], self.at_s[first:last]]))
        return self.at(edges[:-1]), np.diff(edges)

    def mean(self, window: Window) -> float | None:
        """The mean over time; None for a window of no width."""
        value, held_s = self.within(window)
        return float((value * held_s).sum() / held_s.sum()) if held_s.sum() > 0 else None

    def peak(self, window: Window) -> float | None:
        """The largest value in the window; None for a window of no width."""
        value, _ = self.within(window)
        return float(value.max()) if len(value) else None

    def joined(self, other: Steps, how: np.ufunc) -> Steps:
        """`how` (np.minimum, np.add ...) of both at every moment."""
        at_s = np.union1d(self.at_s, other.at_s)
        return Steps(at_s, how(self.at(at_s), other.at(at_s)))


def spans(starts_s: np.ndarray, ends_s: np.ndarray) -> Steps:
    """How many of the spans [start, end) hold each moment; one without an end goes on for ever."""
    begun = np.isfinite(starts_s)
    starts_s, ends_s = np.sort(starts_s[begun]), np.sort(ends_s[begun & np.isfinite(ends_s)])
    times = np.concatenate([starts_s, ends_s])
    order = np.argsort(times, kind="stable")  # two rising halves: they are merged, which is quick
    at_s, held = times[order], np.where(order < len(starts_s), 1.0, -1.0)
    np.cumsum(held, out=held)
    last = np.append(at_s[1:] > at_s[:-1], np.ones(len(at_s[:1]), dtype=bool))
    return Steps(at_s[last], held[last])


def wanted(users_curve: Sequence[Sequence[float]]) -> Steps:
    """run.json's users_curve."""
    curve = np.array(users_curve, dtype=float).reshape(-1, 2)
    order = np.argsort(curve[:, 0], kind="stable")
    return Steps(curve[order, 0], curve[order, 1])


def in_flight(load: pd.DataFrame) -> Steps:
    """Requests of the load between sending and their end."""
    return spans(load["sent_at_s"].to_numpy(dtype=float), load["ended_at_s"].to_numpy(dtype=float))


def pausing(load: pd.DataFrame) -> Steps:
    """Users between a request that failed through the server or the network, and their next one.

    The next one is of the same activation: the first of an activation has a scheduled moment. After the last
    of an activation nobody sees when a user was parked; it is taken to have paused as the longest pause seen,
    at most.
    """
    ends = load[["session", "arrived_at_s", "scheduled_at_s", "ended_at_s", "outcome", "whose"]]
    ends = ends[ends["session"].notna()].sort_values(["session", "arrived_at_s"], kind="stable")
    following = ends.groupby("session", sort=False)[["arrived_at_s", "scheduled_at_s"]].shift(-1)
    lost = ends["outcome"].isin(("failed", "rejected")) & ends["whose"].isin(("server", "network"))
    from_s = ends["ended_at_s"].to_numpy(float)[lost]
    next_s, starts_anew = (
        following[name].to_numpy(float)[lost] for name in ("arrived_at_s", "scheduled_at_s")
    )
    seen = np.isnan(starts_anew) & (next_s > from_s)
    longest_s = float((next_s - from_s)[seen].max()) if seen.any() else 0.0
    until_s = np.where(seen, next_s, np.fmin(next_s, from_s + longest_s))
    paused = until_s > from_s
    return spans(from_s[paused], until_s[paused])


@dataclass(frozen=True)
class Reached:
    """Users wanted and requests in flight in one window, as means and peaks.

    `ratio` is the share of the wanted users' time with a request in flight, `pause_ratio` the share in which
    they paused after a failure of the server's; None where no users were wanted.
    """

    users_mean: float | None
    users_peak: float | None
    in_flight_mean: float | None
    in_flight_peak: float | None
    ratio: float | None
    pause_ratio: float | None


class Occupancy:
    """The users of a run: what was reached in any window. In open loop no users are wanted."""

    def __init__(self, run: Run) -> None:
        self._in_flight = in_flight(run.load)
        self._wanted = wanted(run.info.users_curve) if run.closed else None
        if self._wanted is not None:
            busy = self._in_flight.joined(self._wanted, np.minimum)
            idle = self._wanted.joined(busy, np.subtract)
            self._busy, self._paused = busy, pausing(run.load).joined(idle, np.minimum)

    def reached(self, window: Window) -> Reached:
        """What was wanted and reached between two moments."""
        mean, peak = self._in_flight.mean(window), self._in_flight.peak(window)
        if self._wanted is None:
            return Reached(None, None, mean, peak, None, None)
        users_mean = self._wanted.mean(window)
        shares = [steps.mean(window) for steps in (self._busy, self._paused)]
        ratio, pause_ratio = (
            part / users_mean if users_mean and part is not None else None for part in shares
        )
        return Reached(users_mean, self._wanted.peak(window), mean, peak, ratio, pause_ratio)

    def reached_in_burst(self, burst: Window) -> Reached:
        """The same for a burst without its first moments (50 ms, or 10 % of its width if that is longer, half
        at the most), in which users are still starting.
        """
        start_s, end_s = burst
        width_s = end_s - start_s
        settling_s = min(max(SETTLING_S, SETTLING_OF_WIDTH * width_s), width_s / 2)
        return self.reached((start_s + settling_s, end_s))
