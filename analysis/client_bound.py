"""When was the load generator the bottleneck? Run -> windows in which its own slowness is in the figures.

A second of a worker is client-bound when one of these passed its limit in it:

    CPU          of one core                                        0.9
    loop lag     p99 of how late its event loop ran                 20 ms
    read lag     p99 over the requests with a first or last token   the median chunk gap, or 20 ms
    send lag     p99 over the requests due                          max(50 ms, 10 % of the burst's width)

CPU and loop lag come from client_load.csv, the lags from the records. A record keeps the longer of its two
read lags, so that one is put at both moments. Seconds in a row are one window.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.load import Run
from analysis.metrics import exact_quantile
from analysis.numbers import percent, seconds

MOST_CPU_RATIO = 0.90
MOST_LOOP_LAG_S = 0.020
USUAL_GAP_S = 0.020
LUMPED_GAP_S = 0.001
MOST_TOLD = 3

KINDS = ("cpu_ratio", "loop_lag_p99_s", "read_lag_p99_s", "send_lag_p99_s")
_WORDS = {
    "cpu_ratio": "CPU {}",
    "loop_lag_p99_s": "loop lag p99 {}",
    "read_lag_p99_s": "read lag p99 {}",
    "send_lag_p99_s": "send lag p99 {}",
}


@dataclass(frozen=True)
class BoundWindow:
    """Seconds in a row in which one worker was the bottleneck.

    The largest value of each measure that passed its limit in it; None where the limit was kept. `worker`
    None: records that name none.
    """

    start_s: float
    end_s: float
    worker: int | None
    cpu_ratio: float | None = None
    loop_lag_p99_s: float | None = None
    read_lag_p99_s: float | None = None
    send_lag_p99_s: float | None = None

    @property
    def why(self) -> str:
        """ "CPU 97 %, loop lag p99 45 ms"."""
        passed = [(kind, getattr(self, kind)) for kind in KINDS]
        return ", ".join(
            _WORDS[kind].format((percent if kind == "cpu_ratio" else seconds)(value))
            for kind, value in passed
            if value is not None
        )


def read_limit_s(load: pd.DataFrame) -> float:
    """The longest read lag that leaves chunk gaps visible: the median chunk gap of the successes.

    20 ms without gaps, or with gaps so short that chunks came in lumps.
    """
    gap_s = float(load.loc[load["outcome"] == "succeeded", "gap_p50_s"].median())
    return gap_s if gap_s >= LUMPED_GAP_S else USUAL_GAP_S


def bound_windows(run: Run, send_limit_s: float) -> list[BoundWindow]:
    """Every client-bound window, in order of time and worker."""
    passed: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
    last_s, read_s = observed_s(run), read_limit_s(run.load)
    for kind, limit, found in (
        ("cpu_ratio", MOST_CPU_RATIO, _watched(run, "cpu_ratio")),
        ("loop_lag_p99_s", MOST_LOOP_LAG_S, _watched(run, "loop_lag_p99_s")),
        ("read_lag_p99_s", read_s, _read_lags(run, read_s)),
        ("send_lag_p99_s", send_limit_s, _send_lags(run, send_limit_s)),
    ):
        for (worker, second), value in found:
            if value > limit + 1e-9 and 0 <= second < last_s:
                passed[worker, second][kind] = value
    return sorted(_joined(passed), key=lambda row: (row.start_s, -1 if row.worker is None else row.worker))


def told(windows: Sequence[BoundWindow], of_s: float) -> str:
    """The windows in one sentence."""
    whole_s = whole_seconds(of_s)
    if not windows:
        return f"the load generator was the bottleneck in none of {whole_s} s"
    first = "; ".join(
        f"{_who(row)} at {row.start_s:.0f} – {row.end_s:.0f} s ({row.why})" for row in windows[:MOST_TOLD]
    )
    more = f"; and {len(windows) - MOST_TOLD} more times" if len(windows) > MOST_TOLD else ""
    return (
        f"the load generator was the bottleneck in {bound_seconds(windows)} of {whole_s} s: {first}{more}; "
        f"figures of these seconds are not the server's"
    )


def whole_seconds(of_s: float) -> int:
    """The seconds that `of_s` reaches into, the last one too."""
    return max(math.ceil(of_s - 1e-9), 1)


def _who(row: BoundWindow) -> str:
    return "a worker" if row.worker is None else f"worker {row.worker}"


def observed_s(run: Run) -> float:
    """How long the run was watched: the measured window, and on to the end of its last request."""
    ended_s = run.load["ended_at_s"].max()
    return max(run.window_s, 0.0 if math.isnan(ended_s) else float(ended_s))


def bound_seconds(windows: Iterable[BoundWindow]) -> int:
    """Seconds in which at least one worker was the bottleneck."""
    return len({second for row in windows for second in range(int(row.start_s), int(row.end_s))})


def _watched(run: Run, column: str) -> list[tuple[tuple[int, int], float]]:
    known = run.client_load.dropna(subset=["worker", "second", column])
    keys = zip(known["worker"].astype(int), known["second"].astype(int), strict=True)
    return list(zip(keys, known[column].astype(float), strict=True))


def _read_lags(run: Run, limit_s: float) -> list[tuple[tuple[int, int], float]]:
    """p99 of the read lag where the kernel stamped; without its stamp a lag is not seen, only the loop's."""
    load = run.load[["stamp", "read_lag_s", "first_token_at_s", "last_token_at_s", "worker"]]
    load = load[(load["stamp"] == "kernel") & load["read_lag_s"].notna()]
    lag_s, worker = _floats(load["read_lag_s"]), _floats(load["worker"])
    at_s = np.concatenate([_floats(load[f"{name}_token_at_s"]) for name in ("first", "last")])
    return _p99_by_second(at_s, np.tile(lag_s, 2), np.tile(worker, 2), limit_s)


def _send_lags(run: Run, limit_s: float) -> list[tuple[tuple[int, int], float]]:
    due_s, lag_s, worker = (_floats(run.load[name]) for name in ("scheduled_at_s", "send_lag_s", "worker"))
    return _p99_by_second(due_s, lag_s, worker, limit_s)


def _p99_by_second(
    at_s: np.ndarray, lag_s: np.ndarray, worker: np.ndarray, limit_s: float
) -> list[tuple[tuple[int, int], float]]:
    """((worker, second), p99 of its lags) of the seconds with a lag above the limit: no other p99 can be."""
    known = ~(np.isnan(at_s) | np.isnan(lag_s))
    lag_s = lag_s[known]
    second = np.floor(at_s[known]).astype(np.int64)
    named = np.nan_to_num(worker[known], nan=_NAMELESS).astype(np.int64)
    first, last = second.min(initial=0), second.max(initial=0)
    key = named * (last - first + 1) + second - first
    late = np.isin(key, key[lag_s > limit_s])
    lag_s, second, named, key = (column[late] for column in (lag_s, second, named, key))
    order = np.lexsort((lag_s, key))
    starts = np.flatnonzero(np.diff(key[order], prepend=np.iinfo(np.int64).min))
    return [
        ((int(named[rows[0]]), int(second[rows[0]])), exact_quantile(lag_s[rows], 0.99))
        for rows in np.split(order, starts[1:])
        if len(rows)
    ]


def _floats(column: pd.Series[Any]) -> np.ndarray:
    return column.to_numpy(dtype=float, na_value=np.nan)


_NAMELESS = -1


def _joined(passed: dict[tuple[int, int], dict[str, float]]) -> list[BoundWindow]:
    windows: list[BoundWindow] = []
    for worker, second in sorted(passed):
        named = None if worker == _NAMELESS else worker
        values = passed[worker, second]
        before = windows[-1] if windows else None
        if before is not None and before.worker == named and before.end_s == second:
            windows[-1] = BoundWindow(
                before.start_s,
                second + 1.0,
                named,
                **{k: _larger(getattr(before, k), values.get(k)) for k in KINDS},
            )
        else:
            windows.append(BoundWindow(float(second), second + 1.0, named, **values))
    return windows


def _larger(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return max(known, default=None)
