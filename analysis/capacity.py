"""Capacity: the highest mean rate at which the SLO holds. The rule of the search, without running anything.

It goes up by GROWTH until a rate does not hold, then halves the bracket between the highest rate that holds
and the lowest that does not (by their geometric mean, so that precision is relative) until the two are close.
One step of at most GROWTH too far is all that a server is ever driven beyond what it can do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.slo import Z_95
from analysis.wording_capacity import CAPACITY_TEXT as TEXT

GROWTH = 1.5
DEFAULT_SHARE = 0.95
LEAST_RATE_RPS = 0.01
TRIES = 3
"""How often a rate is tried whose runs say nothing of the server."""


@dataclass(frozen=True)
class Trial:
    """One run at `rate_rps`. `holds` is None when the run says nothing about the server (`why_not` then says
    why; `repeat`: another run may say more, for it was the load generator's fault).

    `attainment` and its 95 % lower bound `low` are shares; times in seconds, None = unknown.
    """

    shape: str
    rate_rps: float
    holds: bool | None
    attainment: float | None
    low: float | None
    ttft_p99_s: float | None
    recovery_s: float | None
    recovery_censored: int
    bursts: int
    error_ratio: float | None
    run: str
    why_not: str = ""
    repeat: bool = False


@dataclass(frozen=True)
class Bracket:
    """What trials say of one shape: it holds at `holds_rps`, no longer at `fails_rps` (None = not found
    yet)."""

    holds_rps: float | None
    fails_rps: float | None


def bracket(trials: Sequence[Trial]) -> Bracket:
    """The lowest rate that did not hold, and the highest below it that did."""
    fails = min((trial.rate_rps for trial in trials if trial.holds is False), default=None)
    holds = [trial.rate_rps for trial in trials if trial.holds and (fails is None or trial.rate_rps < fails)]
    return Bracket(max(holds, default=None), fails)


def next_rate(
    trials: Sequence[Trial], start_rps: float, precision: float, most_rps: float = math.inf
) -> float | None:
    """The rate to try next; None when the bracket is within `precision` (0.05 = 5 %), the rates tried reach
    `most_rps`, nothing holds even at LEAST_RATE_RPS, or the last run said nothing about the server and a
    repetition would not either, or there were TRIES of them."""
    if not trials:
        return min(start_rps, most_rps)
    last = trials[-1]
    if last.holds is None:
        tries = sum(trial.holds is None and trial.rate_rps == last.rate_rps for trial in trials)
        return last.rate_rps if last.repeat and tries < TRIES else None
    found = bracket(trials)
    if found.fails_rps is None:
        assert found.holds_rps is not None
        return min(found.holds_rps * GROWTH, most_rps) if found.holds_rps < most_rps else None
    if found.holds_rps is None:
        lower = found.fails_rps / GROWTH
        return lower if lower >= LEAST_RATE_RPS else None
    if found.fails_rps / found.holds_rps <= 1 + precision:
        return None
    return math.sqrt(found.holds_rps * found.fails_rps)


def requests_needed(share: float) -> int:
    """The least number of requests that can hold, all of them having met their limits: from it on the lower
    end of Wilson's 95 % interval, n / (n + z^2), is at least `share` (below 1). 73 for 95 %."""
    return math.ceil(share * Z_95**2 / (1 - share))


def trial_of(summary: Mapping[str, Any], rate_rps: float, share: float) -> Trial:
    """What a run's summary says: does at least `share` of its requests meet the SLO, for certain (the lower
    bound of the 95 % interval)? A run that is not VALID says nothing, except that what failed is the server's
    part; nor does one with too few requests to hold, unless it certainly does not (the upper bound)."""
    slo = summary["slo"]
    whole: dict[str, Any] = slo["attainment"]["whole"] if slo else {"ratio": None, "low": None}
    recovery = summary["recovery"]
    p99 = summary["metrics"]["ttft_s"]["p99"]
    holds: bool | None = None if whole["low"] is None else whole["low"] >= share
    why_not = "" if holds is not None else "no request was decided"
    if holds is False and whole["decided"] < requests_needed(share) and whole["high"] >= share:
        holds = None
        why_not = TEXT["too_few"].format(decided=whole["decided"], needed=requests_needed(share))
    doubtful = summary["verdict"] != "VALID" and summary["counts"]["succeeded"] > 0
    if doubtful:
        holds, why_not = None, f"{summary['verdict']}: {'; '.join(summary['verdict_reasons'])}"
    elif not summary["counts"]["succeeded"] and summary["counts"]["sent"]:
        holds, why_not = False, ""
    return Trial(
        shape=summary["shape"],
        rate_rps=rate_rps,
        holds=holds,
        attainment=whole["ratio"],
        low=whole["low"],
        ttft_p99_s=None if p99["n_too_small"] else p99["value"],
        recovery_s=recovery["median_s"],
        recovery_censored=recovery["censored"],
        bursts=recovery["n"],
        error_ratio=summary["error_ratio"],
        run=summary["run_id"],
        why_not=why_not,
        repeat=doubtful,
    )
