"""How wrong the load generator itself was: its lags, CPU and connections, and when it was the bottleneck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.client_bound import BoundWindow, bound_seconds, observed_s, read_limit_s, told
from analysis.load import Run
from analysis.metrics import distribution
from analysis.phases import Window, inside

if TYPE_CHECKING:
    from analysis.trust import Evidence

MOST_WINDOWS = 1000


@dataclass(frozen=True)
class WorkerLoad:
    """One worker's CPU (of one core) and loop lag: from run.json, or for one that never reported (it was
    lost) from client_load.csv. `bound_s`: seconds in which it was the bottleneck."""

    worker: int
    cpu_peak_ratio: float | None
    cpu_mean_ratio: float | None
    loop_lag_p99_s: float | None
    loop_lag_max_s: float | None
    bound_s: int


def worker_loads(run: Run, bound: Sequence[BoundWindow] = ()) -> list[WorkerLoad]:
    """A row for each worker of run.json."""
    rows = []
    for info in run.info.workers:
        seen = run.client_load[run.client_load["worker"] == info.index]
        rows.append(
            WorkerLoad(
                worker=info.index,
                cpu_peak_ratio=_else(info.cpu_peak_ratio, seen["cpu_ratio"].max()),
                cpu_mean_ratio=_else(info.cpu_mean_ratio, seen["cpu_ratio"].mean()),
                loop_lag_p99_s=info.loop_lag_p99_s,
                loop_lag_max_s=_else(info.loop_lag_max_s, seen["loop_lag_max_s"].max()),
                bound_s=bound_seconds(row for row in bound if row.worker == info.index),
            )
        )
    return rows


def own_error(evidence: Evidence) -> dict[str, Any]:
    """The summary's part; docs/run_folder.md describes each key."""
    run, bound = evidence.run, evidence.bound
    load, workers = run.load, worker_loads(run, bound)
    kernel = load["stamp"] == "kernel"
    return {
        "send_lag_s": _lags(load["send_lag_s"]),
        "sent_in_time_limit_s": evidence.lag_limit_s,
        "read_lag_s": _lags(load.loc[kernel, "read_lag_s"]),
        "read_lag_limit_s": read_limit_s(load),
        "engine": run.info.options.get("engine"),
        "stamps": _counts(load["stamp"]),
        "receives": asdict(evidence.lumps) | {"told": evidence.lumps.told},
        "connections": _counts(load["connection"]),
        "connect_s": _lags(load.loc[load["connection"] == "new", "connect_s"]),
        "tls_s": _lags(load["tls_s"]),
        "sent_again": int((load["attempts"] > 1).sum()),
        "tls": run.info.target.lower().startswith("https:"),
        "workers": len(workers),
        "cpu_peak_ratio": _most([row.cpu_peak_ratio for row in workers]),
        "cpu_mean_ratio": _most([row.cpu_mean_ratio for row in workers]),
        "loop_lag_p99_s": _most([row.loop_lag_p99_s for row in workers]),
        "loop_lag_max_s": _most([row.loop_lag_max_s for row in workers]),
        "clock_uncertainty_s": _most([row.clock_uncertainty_s for row in run.info.workers]),
        "by_worker": [asdict(row) for row in workers],
        "client_bound": {
            "seconds": bound_seconds(bound),
            "of_s": observed_s(run),
            "told": told(bound, observed_s(run)),
            "windows": [asdict(row) | {"why": row.why} for row in bound[:MOST_WINDOWS]],
        },
    }


def burst_sending(run: Run, window: Window) -> dict[str, float | None]:
    """How exactly a burst left: first to last request as planned and as sent, and the send lag."""
    load = run.load[["scheduled_at_s", "sent_at_s", "send_lag_s"]]
    due = load[inside(load["scheduled_at_s"].to_numpy(dtype=float), window)]
    sent = due[due["sent_at_s"].notna()]
    lags_s = _lags(sent["send_lag_s"])
    return {
        "planned_spread_s": _spread(due["scheduled_at_s"]),
        "sent_spread_s": _spread(sent["sent_at_s"]),
        "send_lag_p50_s": lags_s["p50"],
        "send_lag_max_s": lags_s["max"],
    }


def _spread(moments: pd.Series[Any]) -> float | None:
    return float(np.round(moments.max() - moments.min(), 9)) if len(moments) else None


def _lags(column: pd.Series[Any]) -> dict[str, float | None]:
    row = distribution(column.to_numpy(dtype=float))
    return {"p50": row.quantiles["p50"].value, "p99": row.quantiles["p99"].value, "max": row.max}


def _counts(column: pd.Series[Any]) -> dict[str, int]:
    return {str(value): int(count) for value, count in column.value_counts().items() if count}


def _else(told_value: float | None, seen: Any) -> float | None:
    if told_value is not None:
        return told_value
    return float(seen) if pd.notna(seen) else None


def _most(values: list[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
