"""Requests with their phase, and latency by phase, for the report: bursts and recoveries are those of the
summary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd

from analysis.load import Run
from analysis.metrics import BY_KEY, distribution, values_of
from analysis.phases import PHASES, label_phases

BURST_COLUMNS = ("start_s", "end_s", "recovery_s", "at_least_s", "observed_s")
CLIENT_BOUND_COLUMNS = ("start_s", "end_s", "worker", "why")


def labelled(run: Run, summary: Mapping[str, Any]) -> pd.DataFrame:
    """The load with a column `phase`."""
    bursts = summary["bursts"]
    windows = [(burst["start_s"], burst["end_s"]) for burst in bursts]
    until_s = [
        burst["end_s"] + (burst["observed_s"] if burst["recovery_s"] is None else burst["recovery_s"])
        for burst in bursts
    ]
    return run.load.assign(phase=label_phases(run.load["arrived_at_s"].to_numpy(float), windows, until_s))


def burst_frame(summary: Mapping[str, Any]) -> pd.DataFrame:
    """The bursts as a frame of BURST_COLUMNS, unknown as NaN."""
    return pd.DataFrame(summary["bursts"], columns=BURST_COLUMNS).astype(float)


def client_bound_frame(summary: Mapping[str, Any]) -> pd.DataFrame:
    """The windows in which the load generator was the bottleneck, as a frame of CLIENT_BOUND_COLUMNS."""
    frame = pd.DataFrame(summary["own_error"]["client_bound"]["windows"], columns=CLIENT_BOUND_COLUMNS)
    return frame.astype({"start_s": "float64", "end_s": "float64", "worker": "float64"})


def lead_metric(summary: Mapping[str, Any]) -> str:
    """The TTFT to lead with: from the scheduled moment when requests were not sent in time."""
    return str(summary["lead_ttft"])


def by_phase(load: pd.DataFrame, key: str) -> dict[str, dict[str, Any]]:
    """Phase -> n, mean, min, max and quantiles of metric `key` over `labelled` requests."""
    result: dict[str, dict[str, Any]] = {}
    for phase in PHASES:
        row = asdict(distribution(values_of(load[load["phase"] == phase], BY_KEY[key])))
        result[phase] = {**row, **row.pop("quantiles")}
    return result


def ttft_by_phase(run: Run, summary: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """`by_phase` of the TTFT to lead with."""
    return by_phase(labelled(run, summary), lead_metric(summary))
