"""The waits that recovery is judged by: when each request arrived and how long until its first token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.phases import SAME_MOMENT_S, Window, between, held

WINDOW_S = 2.0


@dataclass(frozen=True)
class Waits:
    """The sent requests as recovery sees them, in order of arrival (unknown last): when each arrived, its
    TTFT, and whether that is only its age so far.

    `ttft_s` is +inf for failures and rejections, the age for what was cancelled before any output, NaN for a
    success whose first token was not seen.
    """

    at_s: np.ndarray
    ttft_s: np.ndarray
    unfinished: np.ndarray

    def where(self, chosen: np.ndarray | slice) -> Waits:
        return Waits(self.at_s[chosen], self.ttft_s[chosen], self.unfinished[chosen])


def waits_of(load: pd.DataFrame) -> Waits:
    """The waits of Run.load; requests that were never sent say nothing about the server and are left out."""
    load = load[["outcome", "ttft_s", "sent_at_s", "arrived_at_s", "ended_at_s"]]
    load = load[load["outcome"] != "not_sent"]
    ttft_s = load["ttft_s"].to_numpy(dtype=float)
    began_at_s = load["sent_at_s"].fillna(load["arrived_at_s"])
    age_s = (load["ended_at_s"] - began_at_s).to_numpy(dtype=float)
    unfinished = ((load["outcome"] == "cancelled") & load["ttft_s"].isna()).to_numpy()
    lost = load["outcome"].isin(("failed", "rejected")).to_numpy()
    seen = np.where(lost, math.inf, np.where(unfinished, age_s, ttft_s))
    at_s = load["arrived_at_s"].to_numpy(dtype=float)
    return Waits(at_s, seen, unfinished).where(np.argsort(at_s, kind="stable"))


def windowed_medians(waits: Waits, start_s: float, end_s: float) -> np.ndarray:
    """Median TTFT of the arrivals in each 2 s window from `start_s` on, NaN for windows without data."""
    count = max(0, math.ceil((end_s - start_s - SAME_MOMENT_S) / WINDOW_S))
    waits = waits.where(between(waits.at_s, start_s - SAME_MOMENT_S / 2, end_s))
    known = ~np.isnan(waits.ttft_s)
    window = np.floor((waits.at_s[known] - start_s + SAME_MOMENT_S / 2) / WINDOW_S).astype(int)
    medians = np.full(count, math.nan)
    values = waits.ttft_s[known]
    edges = np.searchsorted(window, np.arange(count + 1))
    for index in np.flatnonzero(np.diff(edges)):
        medians[index] = np.median(values[edges[index] : edges[index + 1]])
    return medians


def outside(waits: Waits, bursts: Sequence[Window]) -> int:
    """How many of the waits lie outside the bursts."""
    beyond = np.ones(len(waits.at_s), dtype=bool)
    for window in bursts:
        beyond[held(waits.at_s, window)] = False
    return int(beyond.sum())


def after_burst(waits: Waits, burst: Window, until_s: float) -> Waits:
    """The waits that arrived between a burst's end and the next burst."""
    after = waits.where(between(waits.at_s, burst[1] - SAME_MOMENT_S / 2, until_s))
    return after.where(slice(held(after.at_s, burst).stop, None))


def median_s(ttft_s: np.ndarray) -> float | None:
    """The median, or None when there is none or at least half are failures."""
    known = ttft_s[~np.isnan(ttft_s)]
    value = float(np.median(known)) if len(known) else math.nan
    return value if math.isfinite(value) else None
