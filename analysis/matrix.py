"""Runs of a suite -> one table: scenario by variant, with what differs between variants and what bursts cost.

The runs of a cell (its repeats) count together: quantiles and intervals over all their requests, the
recovery's median over all their bursts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.alike import Side
from analysis.compare import Comparison, UnlikeRuns, compare_repeats
from analysis.metrics import BY_KEY, Distribution, adjusted_values_of, distribution
from analysis.recovery import Recovery, median_recovery_s
from analysis.slo import Attainment, wilson_interval
from runlog.folder import REPORT_HTML, RunInfo


@dataclass(frozen=True)
class Cell:
    """One run: of which scenario, in which repeat; the side's name is the variant's."""

    scenario: str
    repeat: int
    side: Side


@dataclass(frozen=True)
class Figures:
    """What the runs of one scenario on one variant say together. `first` is the first run's description,
    `reports` names the folders that hold a report; `ttft` is failure-adjusted (an infinite value in
    `ttft_values` is a failure), `attainment` None without an SLO per request; times in seconds, None =
    unknown."""

    scenario: str
    variant: str
    runs: int
    first: RunInfo
    reports: tuple[str, ...]
    verdicts: tuple[str, ...]
    offered_rps: float | None
    throughput_rps: float
    ttft: Distribution
    ttft_values: np.ndarray
    error_ratio: float | None
    attainment: Attainment | None
    bursts: int
    censored: int
    recovery_s: float | None


@dataclass(frozen=True)
class Matrix:
    """A suite's result. `comparisons` holds each scenario's candidates against the base, the first variant;
    `refused` why a scenario's could not be compared."""

    name: str
    scenarios: tuple[str, ...]
    variants: tuple[str, ...]
    figures: dict[tuple[str, str], Figures]
    comparisons: dict[str, list[Comparison]]
    refused: dict[str, str]


def matrix_of(
    name: str,
    scenarios: Sequence[str],
    variants: Sequence[str],
    cells: Sequence[Cell],
    allow: Sequence[str] = (),
) -> Matrix:
    """Sum up the runs of a suite; scenarios or variants without any run yet have no figures."""
    figures = {}
    for scenario in scenarios:
        for variant in variants:
            sides = [c.side for c in cells if (c.scenario, c.side.name) == (scenario, variant)]
            if sides:
                figures[scenario, variant] = figures_of(scenario, variant, sides)
    comparisons, refused = {}, {}
    for scenario in scenarios:
        try:
            comparisons[scenario] = _compared(scenario, variants, cells, allow)
        except UnlikeRuns as error:
            refused[scenario] = str(error)
    return Matrix(name, tuple(scenarios), tuple(variants), figures, comparisons, refused)


def figures_of(scenario: str, variant: str, sides: Sequence[Side]) -> Figures:
    """The figures of one cell's runs."""
    load = pd.concat([side.run.load for side in sides], ignore_index=True)
    ttft_s = adjusted_values_of(load, BY_KEY["ttft_s"])
    bursts = [row for side in sides for row in side.summary["bursts"]]
    window_s = sum(side.run.window_s for side in sides)
    rates = [side.run.info.mean_rate_rps for side in sides]
    return Figures(
        scenario=scenario,
        variant=variant,
        runs=len(sides),
        first=sides[0].run.info,
        reports=tuple(s.run.folder.name for s in sides if (s.run.folder / REPORT_HTML).exists()),
        verdicts=tuple(side.summary["verdict"] for side in sides),
        offered_rps=None if None in rates else float(np.mean([rate for rate in rates if rate is not None])),
        throughput_rps=sum(side.summary["throughput"]["requests_per_s"] * side.run.window_s for side in sides)
        / window_s,
        ttft=distribution(ttft_s),
        ttft_values=np.sort(ttft_s[~np.isnan(ttft_s)]),
        error_ratio=_errors(sides),
        attainment=_attained(sides),
        bursts=len(bursts),
        censored=sum(row["censored"] for row in bursts),
        recovery_s=median_recovery_s([_recovery(row) for row in bursts]),
    )


def _compared(
    scenario: str, variants: Sequence[str], cells: Sequence[Cell], allow: Sequence[str]
) -> list[Comparison]:
    """Each candidate against the base over the repeats that both have."""
    by_variant = {
        variant: {c.repeat: c.side for c in cells if (c.scenario, c.side.name) == (scenario, variant)}
        for variant in variants
    }
    base, *candidates = variants
    shared = sorted(set.intersection(*(set(runs) for runs in by_variant.values()))) if candidates else []
    if not shared:
        return []
    return compare_repeats(
        [by_variant[base][repeat] for repeat in shared],
        [[by_variant[variant][repeat] for repeat in shared] for variant in candidates],
        allow,
    )


def _errors(sides: Sequence[Side]) -> float | None:
    counts = [side.summary["counts"] for side in sides]
    ratios = [side.summary["error_ratio"] for side in sides]
    sent = [count["sent"] for count in counts]
    if None in ratios or not sum(sent):
        return None
    return float(np.average(ratios, weights=sent))


def _attained(sides: Sequence[Side]) -> Attainment | None:
    parts = [side.summary["slo"]["attainment"]["whole"] for side in sides if side.summary["slo"]]
    if len(parts) < len(sides):
        return None
    met, decided, left_out, unmeasured = (
        sum(part[key] for part in parts) for key in ("met", "decided", "left_out", "unmeasured")
    )
    low, high = wilson_interval(met, decided)
    return Attainment(met, decided, left_out, unmeasured, met / decided if decided else None, low, high)


def _recovery(row: dict[str, object]) -> Recovery:
    return Recovery(**{key: row[key] for key in Recovery.__dataclass_fields__})  # type: ignore[arg-type]
