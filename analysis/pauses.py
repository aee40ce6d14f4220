"""Streams that stood still: each request's longest pause, and the times when all of them paused together.

A pause is a longest chunk gap of at least a second and ten times the request's median gap. Pauses that end at
one moment, and that nearly every stream under way shares, are a freeze of the whole server (or of the network
to it); pauses of some while others went on are requests that were set aside, as a server does when its KV
cache is full. When a pause was comes from gaps.f32; without it pauses are counted but cannot be told apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.load import Run
from analysis.phases import Window
from runlog.folder import GAPS_F32

LEAST_PAUSE_S = 1.0
LEAST_OF_MEDIAN = 10.0
LEAST_FREEZE_S = 1.5
"""A step that computes a large token budget can last a second: that is no freeze."""
NEARLY_ALL = 0.8
LEAST_STREAMS = 3
SAME_END_S = 0.25


@dataclass(frozen=True, eq=False)
class Pauses:
    """`paused`: which requests of Run.load had a pause of their own, outside freezes. `freezes`: when no
    stream moved. `longest_s`: of all pauses."""

    paused: np.ndarray
    freezes: tuple[Window, ...]
    longest_s: float | None


def pauses(run: Run) -> Pauses:
    """The pauses of a run's load."""
    load = run.load
    longest_s = load["gap_max_s"].to_numpy(dtype=float, na_value=np.nan)
    usual_s = load["gap_p50_s"].to_numpy(dtype=float, na_value=np.nan)
    paused: np.ndarray = (longest_s >= LEAST_PAUSE_S) & (longest_s >= LEAST_OF_MEDIAN * usual_s)
    most_s = float(np.nanmax(longest_s[paused])) if paused.any() else None
    ends_s = _ends(run, load, paused)
    frozen, freezes = _freezes(load, longest_s, ends_s)
    return Pauses(paused & ~frozen, freezes, most_s)


def _ends(run: Run, load: pd.DataFrame, paused: np.ndarray) -> np.ndarray:
    """When the longest gap of each paused request ended; NaN where the gaps themselves are not there."""
    ends_s = np.full(len(load), np.nan)
    path = run.folder / GAPS_F32
    if not paused.any() or not path.exists() or not path.stat().st_size:
        return ends_s
    gaps = np.memmap(path, dtype="<f4", mode="r")
    offset = load["gap_offset"].to_numpy(dtype=float, na_value=np.nan)
    counts = load["gap_count"].to_numpy(dtype=float, na_value=0.0)
    first_s = load["first_token_at_s"].to_numpy(dtype=float, na_value=np.nan)
    for row in np.flatnonzero(paused & ~np.isnan(offset) & (counts > 0)):
        mine = gaps[int(offset[row]) : int(offset[row]) + int(counts[row])]
        if len(mine):
            ends_s[row] = first_s[row] + float(mine[: int(np.argmax(mine)) + 1].sum(dtype=float))
    return ends_s


def _freezes(
    load: pd.DataFrame, longest_s: np.ndarray, ends_s: np.ndarray
) -> tuple[np.ndarray, tuple[Window, ...]]:
    """Which requests paused in a freeze, and the freezes."""
    frozen = np.zeros(len(load), dtype=bool)
    candidates = np.flatnonzero((longest_s >= LEAST_FREEZE_S) & ~np.isnan(ends_s))
    candidates = candidates[np.argsort(ends_s[candidates], kind="stable")]
    if len(candidates) < LEAST_STREAMS:
        return frozen, ()
    first_s = load["first_token_at_s"].to_numpy(dtype=float, na_value=np.nan)
    last_s = load["last_token_at_s"].to_numpy(dtype=float, na_value=np.nan)
    freezes: list[Window] = []
    for group in np.split(candidates, np.flatnonzero(np.diff(ends_s[candidates]) > SAME_END_S) + 1):
        end_s = float(ends_s[group].min())
        start_s = float(np.quantile(ends_s[group] - longest_s[group], 0.5))
        under_way = (first_s < start_s + SAME_END_S) & (last_s >= end_s)
        if len(group) >= LEAST_STREAMS and len(group) >= NEARLY_ALL * int(under_way.sum()):
            freezes.append((start_s, end_s))
            frozen[group] = True
    return frozen, tuple(freezes)
