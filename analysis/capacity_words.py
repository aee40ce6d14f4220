"""A capacity search in words: a line a trial, what was found of each shape, the price of burstiness."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.capacity import Trial, bracket
from analysis.numbers import percent, plain, seconds
from analysis.wording_capacity import CAPACITY_TEXT as TEXT


def tried(trial: Trial) -> str:
    """One trial as a line of progress."""
    return TEXT["tried"].format(
        shape=trial.shape,
        rate=plain(trial.rate_rps),
        attainment=percent(trial.attainment),
        low=percent(trial.low),
        p99=ttft_p99(trial),
        recovery=TEXT["recovery"].format(recovery=recovery(trial)) if trial.bursts else recovery(trial),
        holds=held(trial),
    )


def held(trial: Trial) -> str:
    """Whether the SLO held."""
    if trial.holds is None:
        return TEXT["unknown"].format(why=trial.why_not)
    return TEXT["holds" if trial.holds else "fails"]


def ttft_p99(trial: Trial) -> str:
    """A trial's TTFT p99; it needs 368 successes."""
    return TEXT["n_too_small"] if trial.ttft_p99_s is None else seconds(trial.ttft_p99_s)


def recovery(trial: Trial) -> str:
    """The median recovery of a trial's bursts."""
    if not trial.bursts:
        return TEXT["no_bursts"]
    parts = {"censored": trial.recovery_censored, "all": trial.bursts, "time": seconds(trial.recovery_s)}
    if trial.recovery_s is None:
        return TEXT["not_seen"].format(**parts)
    return TEXT["censored"].format(**parts) if trial.recovery_censored else seconds(trial.recovery_s)


def trial_cells(trial: Trial) -> list[str]:
    """One trial as a row of the table."""
    return [
        trial.shape,
        plain(trial.rate_rps),
        percent(trial.attainment),
        percent(trial.low),
        ttft_p99(trial),
        recovery(trial),
        percent(trial.error_ratio),
        held(trial),
        trial.run,
    ]


def capacity_line(shape: str, trials: Sequence[Trial], slo: str, share: float) -> str:
    """What the trials of one shape found."""
    found = bracket(trials)
    words = {
        "shape": shape,
        "slo": slo,
        "share": percent(share),
        "holds": plain(found.holds_rps),
        "fails": plain(found.fails_rps),
    }
    why = trials[-1].why_not if trials else TEXT["no_bursts"]
    if found.holds_rps is not None and found.fails_rps is not None:
        return TEXT["capacity"].format(**words)
    if found.holds_rps is not None:
        return TEXT["above" if why else "at_least"].format(**words, why=why)
    if found.fails_rps is not None:
        return TEXT["below" if why else "none"].format(**words, why=why)
    return TEXT["nothing"].format(shape=shape, why=why)


def price(uniform: Sequence[Trial], bursty: Sequence[Trial]) -> str | None:
    """The price of burstiness, from both capacities; None when one is unknown or only a lower bound."""
    even, uneven = bracket(uniform), bracket(bursty)
    if None in (even.holds_rps, even.fails_rps, uneven.holds_rps, uneven.fails_rps):
        return None
    assert even.holds_rps is not None
    assert uneven.holds_rps is not None
    lost = 1 - uneven.holds_rps / even.holds_rps
    return TEXT["price" if lost > 0 else "no_price"].format(
        share=percent(round(lost, 2)),
        uniform=plain(even.holds_rps),
        bursty=plain(uneven.holds_rps),
        shape=bursty[0].shape,
    )
