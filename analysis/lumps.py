"""Did events come one at a time, or in lumps, and who made the lumps?

Events that lie in one receive share one stamp: chunk gaps are then as coarse as the lumps. Either the client
came late, so that several had gathered, or they were sent together: by a server that batches or by a proxy.
The evidence: a lump of a request counts as the client's when the request's read lag was as long as its own
mean chunk gap, or when at least half of its stream fell into seconds in which its worker was the bottleneck.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from analysis.client_bound import LUMPED_GAP_S, USUAL_GAP_S, BoundWindow
from analysis.load import Run
from analysis.numbers import percent

MOST_TINY_GAPS_RATIO = 0.20
MAKES_THE_LUMPS = 0.5
SHORTEST_STREAM_S = 1e-6


@dataclass(frozen=True)
class Lumps:
    """Over the load. `receives` held output, `crowded_receives` of them more than one output event.

    `tiny_gap_ratio`: chunk gaps below 0.1 ms / all, of successes. `late_ratio`: the share of crowded
    receives that the client made by being late. `made_by`: None where gaps are fine or nothing tells.
    """

    receives: int | None
    crowded_receives: int | None
    crowded_ratio: float | None
    events_per_receive: float | None
    tiny_gap_ratio: float | None
    late_ratio: float | None
    made_by: Literal["client", "server"] | None

    @property
    def told(self) -> str:
        """The finding in one sentence."""
        if self.tiny_gap_ratio is None:
            return "no chunk gaps were kept"
        gaps = f"{percent(self.tiny_gap_ratio)} of the chunk gaps are below 0.1 ms"
        if self.tiny_gap_ratio <= MOST_TINY_GAPS_RATIO:
            return gaps
        if self.made_by is None:
            return f"{gaps}; the records do not say whether the client or the server made the lumps"
        if self.late_ratio is None:
            return f"{gaps}: the server or a proxy sends events together (each came in a receive of its own)"
        share = f"{percent(self.late_ratio)} of the receives with several events"
        if self.made_by == "client":
            return f"{gaps}: the client read late, which explains {share}"
        return f"{gaps}: the server or a proxy sends events together; a late client explains {share} only"


_COLUMNS = (
    *("outcome", "gap_zeros", "gap_count", "output_receives", "crowded_receives", "output_events"),
    *("stamp", "read_lag_s", "worker", "first_token_at_s", "last_token_at_s"),
)


def lumps(run: Run, bound: Sequence[BoundWindow]) -> Lumps:
    """How many events came at a time in `run`, of which `bound` are the client-bound windows."""
    load = run.load[list(_COLUMNS)]
    done = load[(load["outcome"] == "succeeded") & load["gap_zeros"].notna() & load["gap_count"].notna()]
    gaps = int(done["gap_count"].sum())
    tiny = int(done["gap_zeros"].sum()) / gaps if gaps else None
    known = load[load["output_receives"].notna() & load["crowded_receives"].notna()]
    receives, crowded = int(known["output_receives"].sum()), int(known["crowded_receives"].sum())
    if not receives:
        return Lumps(None, None, None, None, tiny, None, None)
    late = known[_read_late(known, bound)]
    late_ratio = int(late["crowded_receives"].sum()) / crowded if crowded else None
    watched = len(run.client_load) > 0 or bool((known["stamp"] == "kernel").any())
    made_by: Literal["client", "server"] | None = None
    if tiny is not None and tiny > MOST_TINY_GAPS_RATIO and watched:
        made_by = "client" if (late_ratio or 0.0) >= MAKES_THE_LUMPS else "server"
    events_per_receive = float(known["output_events"].sum()) / receives
    return Lumps(receives, crowded, crowded / receives, events_per_receive, tiny, late_ratio, made_by)


def _read_late(load: pd.DataFrame, bound: Sequence[BoundWindow]) -> np.ndarray:
    """Which requests the client read late enough to lump their events."""
    first_s, last_s = load["first_token_at_s"].to_numpy(float), load["last_token_at_s"].to_numpy(float)
    events = load["output_events"].to_numpy(dtype=float, na_value=np.nan)
    gap_s = (last_s - first_s) / np.where(events > 1, events - 1, np.nan)
    gap_s = np.where(gap_s >= LUMPED_GAP_S, gap_s, USUAL_GAP_S)
    lag_s = np.where(load["stamp"] == "kernel", load["read_lag_s"].to_numpy(float), np.nan)
    late: np.ndarray = np.nan_to_num(lag_s) >= gap_s
    worker = load["worker"].to_numpy(dtype=float, na_value=np.nan)
    last_s = np.maximum(last_s, first_s + SHORTEST_STREAM_S)
    for number in {row.worker for row in bound}:
        covered_s = np.zeros(len(load))
        for row in bound:
            if row.worker == number:
                shared_s = np.minimum(last_s, row.end_s) - np.maximum(first_s, row.start_s)
                covered_s += np.clip(np.nan_to_num(shared_s), 0.0, None)
        mine = np.isnan(worker) if number is None else worker == number
        late |= mine & (covered_s >= 0.5 * (last_s - first_s))
    return late
