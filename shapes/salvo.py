"""Salvo: exact counts at exact moments, nothing in between.

    requests
     60 │                    │
        │                    │
     30 │        │           │
        │        │           │
        └────────┴───────────┴───────────► t
         ├─ 3 s ─┤─── 5 s ───┤── 5 s tail

Written as it is said: "quiet 3 s, 30 at once, quiet 5 s, 60 at once", or short: "3s,30,5s,60". The rate is
0 all the time; the expected arrivals jump by each count. A last "quiet" is the tail; without one the load
window ends 5 s after the last salvo.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from shapes.errors import ShapeError
from shapes.shape import LONGEST_DURATION_S, Burst, FloatArray, ShapeSettings, given_duration

TAIL_S = 5.0
MOST_AT_ONCE = 1_000_000
DEFAULT_TEXT = "quiet 3 s, 30 at once, quiet 5 s, 60 at once"

_QUIET = re.compile(r"(?:quiet\s*)?([0-9]{1,9}(?:\.[0-9]{1,9})?|\.[0-9]{1,9})\s*(ms|s|min)", re.IGNORECASE)
_AT_ONCE = re.compile(r"([0-9]{1,9})(?:\s*at\s+once)?", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0}


@dataclass(frozen=True)
class Salvo:
    """`counts[i]` requests at `at_s[i]` seconds (increasing), in a load window of `duration_s`."""

    duration_s: float
    at_s: tuple[float, ...]
    counts: tuple[int, ...]

    @property
    def mean_rate_rps(self) -> float:
        """All requests / duration, in req/s."""
        return sum(self.counts) / self.duration_s

    @cached_property
    def _steps(self) -> tuple[FloatArray, FloatArray]:
        """The moments, and the requests sent before the first, after the first, after the second, ..."""
        return np.array(self.at_s), np.concatenate(([0.0], np.cumsum(self.counts)))

    def rate_at(self, t_s: ArrayLike) -> FloatArray:
        """0 everywhere: a salvo has no finite rate."""
        return np.zeros_like(np.asarray(t_s, dtype=np.float64))

    def expected_until(self, t_s: ArrayLike) -> FloatArray:
        """The sum of the counts at moments <= t, in requests."""
        moments, totals = self._steps
        return np.asarray(totals[np.searchsorted(moments, t_s, side="right")])

    def bursts(self) -> tuple[Burst, ...]:
        """One window without width per salvo."""
        return tuple(Burst(at, at) for at in self.at_s)


def salvo(settings: ShapeSettings) -> Salvo:
    """A salvo shape from its text and, if given, a duration; the rate is not read.

    Raises ShapeError when the text cannot be read or the duration ends before the last salvo.
    """
    at_s, counts, tail_s = parse_salvo(DEFAULT_TEXT if settings.salvo is None else settings.salvo)
    duration_s = given_duration(settings, at_s[-1] + tail_s)
    if duration_s <= at_s[-1]:
        raise ShapeError(
            f"the last salvo is due at {at_s[-1]:g} s, but the load ends at {duration_s:g} s: "
            f"give a duration of more than {at_s[-1]:g} s"
        )
    return Salvo(duration_s, at_s, counts)


def parse_salvo(text: str) -> tuple[tuple[float, ...], tuple[int, ...], float]:
    """Moments (s), counts and quiet tail (s) of a salvo text. Raises ShapeError when it cannot be read."""
    sent: dict[float, int] = {}
    now_s, tail_s = 0.0, TAIL_S
    for part in (piece.strip() for piece in text.split(",")):
        if quiet := _QUIET.fullmatch(part):
            tail_s = float(quiet[1]) * _SECONDS[quiet[2].lower()]
            now_s = round(now_s + tail_s, 6)
        elif (salvo_of := _AT_ONCE.fullmatch(part)) and 0 < int(salvo_of[1]) <= MOST_AT_ONCE:
            sent[now_s] = sent.get(now_s, 0) + int(salvo_of[1])
            tail_s = TAIL_S
        else:
            raise ShapeError(
                f"salvo part {part[:40]!r} is neither a pause nor a count from 1 to {MOST_AT_ONCE:,}: "
                f'write it like "quiet 3 s, 30 at once" or "3s,30"'
            )
    if not sent:
        raise ShapeError(
            f'salvo {text[:40]!r} sends nothing: write it like "quiet 3 s, 30 at once" or "3s,30"'
        )
    if now_s > LONGEST_DURATION_S:
        raise ShapeError(
            f"salvo {text[:40]!r} lasts longer than {LONGEST_DURATION_S / 86_400:g} days: shorten it"
        )
    return tuple(sent), tuple(sent.values()), tail_s if tail_s > 0 else TAIL_S
