"""What the server said of itself (server_metrics.csv), for a diagnosis: its queue, its slots, its memory.

A sample is crowded when somebody waited in it. A crowded sample is at the slots when the server ran as many
requests as it ever did, and short of memory when its KV cache was all but full or requests were preempted
since the sample before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

FULL_KV_RATIO = 0.90
"""Beyond this a prompt often no longer fits: vLLM admits one only when the whole of it does."""
SAME_RUNNING_RATIO = 0.98
LEAST_CROWDED = 3


@dataclass(frozen=True)
class ServerSaid:
    """Over one run; None where the server does not say. `at_slots_ratio`, `full_kv_ratio`: of the crowded
    samples. `restarted_at_s`: when a count since the server's start fell, first time."""

    samples: int
    running_peak: int | None
    waiting_peak: int | None
    crowded: int
    at_slots_ratio: float | None
    kv_peak_ratio: float | None
    full_kv_ratio: float | None
    preemptions: int | None
    restarted_at_s: float | None

    @property
    def slots_were_full(self) -> bool:
        """Whether those who waited did so while the server ran as many requests as it ever did."""
        return self.at_slots_ratio is not None and self.at_slots_ratio >= 0.8


class ServerSamples:
    """The samples of one run as arrays, in order of time."""

    def __init__(self, samples: pd.DataFrame) -> None:
        known = samples[samples["at_s"].notna()].sort_values("at_s", kind="stable")
        self._columns = {name: known[name].to_numpy(dtype=float, na_value=np.nan) for name in known.columns}
        self._at_s = self._columns["at_s"]
        waiting, running = self._columns["waiting"], self._columns["running"]
        crowded = np.nan_to_num(waiting) > 0
        preempted = np.diff(self._columns["preemptions_total"], prepend=np.nan) > 0
        self._full_kv = (np.nan_to_num(self._columns["kv_cache_used_ratio"]) >= FULL_KV_RATIO) | preempted
        self._crowded, self._preempted = crowded, preempted
        most = _most(running)
        self._at_slots = crowded & (running >= SAME_RUNNING_RATIO * (most or np.inf))

    def said(self) -> ServerSaid | None:
        """All of it in a few figures; None without samples."""
        if not len(self._at_s):
            return None
        column, crowded = self._columns, self._crowded
        n = int(crowded.sum())
        totals = [column[name] for name in column if name.endswith("_total")]
        fell = np.any([np.diff(total, prepend=np.nan) < 0 for total in totals], axis=0)
        preemptions = column["preemptions_total"]
        risen = np.diff(preemptions[~np.isnan(preemptions)])
        kv_known = not np.isnan(column["kv_cache_used_ratio"]).all()
        return ServerSaid(
            samples=len(self._at_s),
            running_peak=_whole(_most(column["running"])),
            waiting_peak=_whole(_most(column["waiting"])),
            crowded=n,
            at_slots_ratio=float(self._at_slots.sum()) / n if n >= LEAST_CROWDED else None,
            kv_peak_ratio=_most(column["kv_cache_used_ratio"]),
            full_kv_ratio=float((self._full_kv & crowded).sum()) / n if n and kv_known else None,
            preemptions=int(risen[risen > 0].sum()) if len(risen) else None,
            restarted_at_s=float(self._at_s[fell][0]) if fell.any() else None,
        )

    def full_kv_share(self, from_s: np.ndarray, until_s: np.ndarray) -> np.ndarray:
        """Of the samples around each stretch (the last before it to the first after it), the share that was
        short of memory; 0 where there is none."""
        if not len(self._at_s):
            return np.zeros(len(from_s))
        first = np.clip(np.searchsorted(self._at_s, from_s, "right") - 1, 0, None)
        last = np.clip(np.searchsorted(self._at_s, until_s, "left") + 1, None, len(self._at_s))
        total = np.concatenate([[0], np.cumsum(self._full_kv)])
        count = np.maximum(last - first, 1)
        share: np.ndarray = (total[np.maximum(last, first)] - total[first]) / count
        return share


def _most(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
