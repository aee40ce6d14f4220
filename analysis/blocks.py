"""A run cut into the blocks that two runs are compared by, and what each block measured: COMPARED.

A block is a burst with its aftermath: from its start to the next burst's. A load without bursts is cut into
stretches of 20 s. Blocks are taken as independent of each other, requests within one are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis import metrics
from analysis.alike import Side
from analysis.metrics import decided, exact_quantile
from analysis.phases import SAME_MOMENT_S, Window, burst_windows, inside
from analysis.slo import judge, parse_slo

STRETCH_S = 20.0
"""Longer than most answers, so that one stretch hardly reaches into the next."""


@dataclass(frozen=True)
class Block:
    """`window` from one burst's start to the next; `burst` is its first part (the whole of a stretch)."""

    index: int
    window: Window
    burst: Window


@dataclass(frozen=True)
class Paired:
    """The requests of one block in both runs: `base` and `candidate` have the same rows in the same order
    where arrivals pair them, else (closed loop) each its own."""

    block: Block
    base: pd.DataFrame
    candidate: pd.DataFrame
    by_arrival: bool


@dataclass(frozen=True)
class Compared:
    """One figure of a block: `values` gives (base, candidate) of a pair, NaN where unknown, infinite where it
    rests on failures. `better` says which way is good; `unit` is "s" or "ratio"."""

    key: str
    unit: str
    better: str
    values: Callable[[Paired], tuple[float, float]]


def blocks(run_bursts: Sequence[Sequence[float]], window_s: float) -> list[Block]:
    """The blocks of a load of `window_s` seconds. A last stretch shorter than half is left out."""
    bursts = burst_windows(run_bursts)
    if bursts:
        ends = [*(start_s for start_s, _ in bursts[1:]), max(window_s, bursts[-1][1])]
        return [
            Block(index, (burst[0], end_s), burst)
            for index, (burst, end_s) in enumerate(zip(bursts, ends, strict=True))
        ]
    whole = math.floor(window_s / STRETCH_S + 0.5)
    cuts = [(index * STRETCH_S, min((index + 1) * STRETCH_S, window_s)) for index in range(whole)]
    return [Block(index, window, window) for index, window in enumerate(cuts)]


def pair(base: Side, candidate: Side) -> list[Paired]:
    """The requests of both runs, block by block, each with the column `in_burst` and, with an SLO, `met` and
    `judged`."""
    cut = blocks(base.run.info.bursts, min(base.run.window_s, candidate.run.window_s))
    one, other = _judged(base, base), _judged(candidate, base)
    by_arrival = not (base.run.closed or candidate.run.closed)
    if by_arrival:
        shared = np.intersect1d(one["arrival"].dropna(), other["arrival"].dropna())
        one, other = (frame.set_index("arrival").loc[shared] for frame in (one, other))
    return [Paired(block, _in(one, block), _in(other, block), by_arrival) for block in cut]


def _judged(side: Side, base: Side) -> pd.DataFrame:
    """A run's load with what comparing needs; both sides are held to the base's SLO."""
    load = side.run.load
    frame = load[["arrival", "arrived_at_s", "outcome", "ttft_s", "tpot_s", "e2e_s"]].copy()
    frame["decided"] = decided(load)
    slo = base.summary["slo"]
    if slo is not None:
        verdict = judge(load, parse_slo(slo["text"]).attained_by)
        frame["judged"], frame["met"] = verdict.decided, verdict.met
    return frame


def _in(frame: pd.DataFrame, block: Block) -> pd.DataFrame:
    at_s = frame["arrived_at_s"].to_numpy(dtype=float)
    start_s, end_s = block.window
    due = (at_s >= start_s - SAME_MOMENT_S / 2) & (at_s < end_s - SAME_MOMENT_S / 2)
    due |= inside(at_s, block.burst)
    return frame[due].assign(in_burst=inside(at_s[due], block.burst))


def _adjusted(key: str, quantile: float) -> Callable[[Paired], tuple[float, float]]:
    """The failure-adjusted quantile over the requests that were due in the burst itself."""
    column = metrics.BY_KEY[key].column

    def of(frame: pd.DataFrame) -> float:
        burst = frame[frame["in_burst"] & frame["decided"]]
        values = burst[column].to_numpy(dtype=float)
        lost = (burst["outcome"] != "succeeded").to_numpy()
        values = np.where(lost, math.inf, values)
        return exact_quantile(np.sort(values[~np.isnan(values)]), quantile)

    return lambda pair: (of(pair.base), of(pair.candidate))


def _median_of_both(key: str) -> Callable[[Paired], tuple[float, float]]:
    """The median over the successes of the burst; where arrivals pair them, over those that succeeded
    twice."""
    column = metrics.BY_KEY[key].column

    def of(pair: Paired) -> tuple[float, float]:
        values = []
        for frame in (pair.base, pair.candidate):
            good = frame["in_burst"] & (frame["outcome"] == "succeeded")
            values.append(frame[column].astype(float).where(good))
        if pair.by_arrival:
            both = values[0].notna().to_numpy() & values[1].notna().to_numpy()
            values = [series[both] for series in values]
        one, other = (exact_quantile(np.sort(series.dropna().to_numpy()), 0.5) for series in values)
        return one, other

    return of


def _attained(pair: Paired) -> tuple[float, float]:
    """The share that met the SLO, of the whole block: the burst and its aftermath."""
    one, other = (
        float(frame["met"].sum() / frame["judged"].sum())
        if "judged" in frame and frame["judged"].any()
        else math.nan
        for frame in (pair.base, pair.candidate)
    )
    return one, other


def _succeeded(pair: Paired) -> tuple[float, float]:
    one, other = (
        float((frame["outcome"] == "succeeded").sum() / frame["decided"].sum())
        if frame["decided"].any()
        else math.nan
        for frame in (pair.base, pair.candidate)
    )
    return one, other


COMPARED: tuple[Compared, ...] = (
    Compared("ttft_p50", "s", "lower", _adjusted("ttft_s", 0.5)),
    Compared("ttft_p90", "s", "lower", _adjusted("ttft_s", 0.9)),
    Compared("tpot_p50", "s", "lower", _median_of_both("tpot_s")),
    Compared("e2e_p90", "s", "lower", _adjusted("e2e_s", 0.9)),
    Compared("attainment", "ratio", "higher", _attained),
    Compared("success", "ratio", "higher", _succeeded),
)
"""What is compared of each block."""


@dataclass(frozen=True)
class OfBursts:
    """A figure that the run's table of bursts has already."""

    key: str
    unit: str
    better: str


RECOVERY = OfBursts("recovery", "s", "lower")
_ROWS: tuple[Compared | OfBursts, ...] = (*COMPARED, RECOVERY)
BY_KEY = {row.key: row for row in _ROWS}
