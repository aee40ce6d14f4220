"""A shape read as a number of users, for closed loop: each user sends its next request when the last ended.

    users
      50 │        ┌──┐              ┌──┐
         │        │  │              │  │
       5 │────────┘  └──────────────┘  └──
         └──────────────────────────────────► t        user_changes: (0, 5) (10, 50) (12.2, 5) (30, 50) ...

The rate of the shape, in req/s in open loop, is taken as a number of users, `rate_rps` as their mean: a pulse
of 5 x the mean is 5 x the mean number of users. A number of users is whole, so

    users(t) = floor(rate(t) + 1/2)            a half goes up

Each level is rounded by itself. The peak is therefore exact whenever peak ratio x mean is whole, whatever
the base is; what rounding moves is the mean, by at most half a user.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shapes.diurnal import DaySine, DayTable
from shapes.errors import ShapeError
from shapes.salvo import Salvo
from shapes.shape import FloatArray, Shape
from shapes.steps import segments_of

IntArray = NDArray[np.int64]

MOST_USERS = 100_000
MOST_CHANGES = 500_000
RESOLUTION_S = 1e-6  # of the search for a crossing; a thousandth of what dispatch can keep
ROUNDING = 1e-9  # a half stays a half when floating point leaves it a hair below


def users_at(shape: Shape, t_s: ArrayLike) -> IntArray:
    """Users at each moment (same shape as `t_s`); 0 outside [0, duration).

    Raises ShapeError for a salvo, which has no rate.
    """
    if isinstance(shape, Salvo):
        raise ShapeError(
            "a salvo sends exact counts at exact moments and has no number of users: "
            "use it in open loop, or give another shape, such as pulse"
        )
    return np.floor(shape.rate_at(t_s) + (0.5 + ROUNDING)).astype(np.int64)


def user_changes(shape: Shape) -> list[tuple[float, int]]:
    """(at_s, users) for every moment at which the number of users changes, in order.

    The first entry is at 0 s, whatever its number; the last sets 0 at the end of the load, unless it is 0
    already. Edges of bursts and levels are exact, and a slope passes each number within RESOLUTION_S after
    the true moment. Raises ShapeError for a salvo, and for more than MOST_USERS or MOST_CHANGES.
    """
    edges = _turns_s(shape)
    starts, ends = edges[:-1], np.nextafter(edges[1:], -np.inf)
    first, last = users_at(shape, starts), users_at(shape, ends)
    _check_size(int(max(first.max(), last.max())), len(starts) + int(np.abs(last - first).sum()))
    passed_at, passed = _crossings(shape, starts, ends, first, last)
    at_s = np.concatenate((starts, passed_at, [shape.duration_s]))
    users = np.concatenate((first, passed, [0]))
    order = np.argsort(at_s, kind="stable")
    at_s, users = at_s[order], users[order]
    latest = np.append(np.diff(at_s) > 0, True)
    at_s, users = at_s[latest], users[latest]
    new = np.append(True, np.diff(users) != 0)
    return list(zip(at_s[new].tolist(), users[new].tolist(), strict=True))


def _turns_s(shape: Shape) -> FloatArray:
    """Moments from 0 to T between which the rate has no jump and does not turn: it rises, falls or stays."""
    turns = [0.0, shape.duration_s]
    turns += [edge for burst in shape.bursts() for edge in (burst.start_s, burst.end_s)]
    turns += [segment.start_s for segment in segments_of(shape)]
    if isinstance(shape, DaySine):
        turns.append(shape.duration_s / 2)
    if isinstance(shape, DayTable):
        turns += np.linspace(0.0, shape.duration_s, len(shape.weights) + 1).tolist()
    return np.unique(turns)


def _check_size(peak: int, changes: int) -> None:
    if peak > MOST_USERS:
        raise ShapeError(f"{peak:,} users are too many: at most {MOST_USERS:,}; give fewer users")
    if changes > MOST_CHANGES:
        raise ShapeError(
            f"the number of users would change {changes:,} times: at most {MOST_CHANGES:,}; "
            f"give fewer users or longer periods"
        )


def _crossings(
    shape: Shape, starts: FloatArray, ends: FloatArray, first: IntArray, last: IntArray
) -> tuple[FloatArray, IntArray]:
    """When each stretch passes each number between its `first` and its `last`, by bisection for all at once.

    Invariant: the number is not reached at `low`, and it is at `high`.
    """
    count = np.abs(last - first)
    stretch = np.repeat(np.arange(len(starts)), count)
    nth = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + 1
    upward = np.sign(last - first)[stretch]
    number = first[stretch] + upward * nth
    low, high = starts[stretch], ends[stretch]
    halvings = max(math.ceil(math.log2(shape.duration_s / RESOLUTION_S)), 0) if len(number) else 0
    for _ in range(halvings):
        middle = (low + high) / 2
        reached = upward * (users_at(shape, middle) - number) >= 0
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return high, number
