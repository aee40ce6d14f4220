"""Were prompts and answers as long as asked? Tokens asked beside tokens that came, over the successes.

A server may end an answer early, ignore a limit, or add a template to a prompt. Figures per token always rest
on what came; two runs whose lengths differ are no fair pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, overload

import pandas as pd

from analysis.numbers import percent, plain
from analysis.trust import Evidence, Finding

MOST_OFF = 0.05
"""Of the tokens asked for; also of a base run's mean: a pair beyond it is not fair (A12 of the field)."""


@dataclass(frozen=True)
class Lengths:
    """One side, prompts or answers, of the `n` successes whose length is known, in tokens.

    `off_by_more_than_5_percent_ratio`: the share of them that came shorter or longer than that.
    """

    n: int
    asked_mean: float | None = None
    got_mean: float | None = None
    asked_median: float | None = None
    got_median: float | None = None
    off_by_more_than_5_percent_ratio: float | None = None

    @property
    def mean_off_ratio(self) -> float | None:
        """How far the mean is from the mean that was asked for; None when nothing is known."""
        if self.asked_mean is None or self.got_mean is None or not self.asked_mean:
            return None
        return abs(self.got_mean / self.asked_mean - 1)


def lengths(load: pd.DataFrame) -> dict[str, Lengths]:
    """`input` and `output` of a run's load."""
    return {side: _of(load, side) for side in ("input", "output")}


def _of(load: pd.DataFrame, side: str) -> Lengths:
    asked = load[f"asked_{side}_tokens"].astype("float64")
    got = load[f"{side}_tokens"].astype("float64")
    known = (load["outcome"] == "succeeded") & asked.gt(0) & got.notna()
    asked, got = asked[known], got[known]
    if asked.empty:
        return Lengths(0)
    return Lengths(
        n=len(asked),
        asked_mean=float(asked.mean()),
        got_mean=float(got.mean()),
        asked_median=float(asked.median()),
        got_median=float(got.median()),
        off_by_more_than_5_percent_ratio=float(off(asked, got).mean()),
    )


@overload
def off(asked: float, got: float) -> bool: ...
@overload
def off(asked: pd.Series[float], got: pd.Series[float]) -> pd.Series[bool]: ...
def off(asked: Any, got: Any) -> Any:
    """What came shorter or longer by more than MOST_OFF; on it is not off, whatever the last bit says."""
    return abs(got - asked) > MOST_OFF * asked + 1e-9


def answer_lengths(evidence: Evidence) -> Finding:
    """For validity.CHECKS: how far the mean answer is from the mean asked for, at most 5 %."""
    found = _of(evidence.run.load, "output")
    if found.mean_off_ratio is None:
        return Finding(None, MOST_OFF, "no answer of known length")
    return Finding(
        found.mean_off_ratio,
        MOST_OFF,
        f"answers had {plain(found.got_mean)} tokens on average, {plain(found.asked_mean)} were asked for; "
        f"{percent(found.off_by_more_than_5_percent_ratio)} of them are off by more than 5 %",
    )
