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
from analysis.wording import TEXT

BURST_COLUMNS = (
    *("start_s", "end_s", "recovery_s", "at_least_s", "observed_s", "threshold_s", "peak_ttft_s"),
)
CLIENT_BOUND_COLUMNS = ("start_s", "end_s", "why")


def labelled(run: Run, summary: Mapping[str, Any]) -> pd.DataFrame:
    """The load with a column `phase`."""
    bursts = summary["bursts"]
    windows = [(burst["start_s"], burst["end_s"]) for burst in bursts]
    until_s = [
        burst["end_s"] + (burst["observed_s"] if burst["recovery_s"] is None else burst["recovery_s"])
        for burst in bursts
    ]
    phase = label_phases(run.load["arrived_at_s"].to_numpy(float), windows, until_s)
    return run.load.assign(phase=pd.Categorical(phase, categories=PHASES))


def burst_frame(summary: Mapping[str, Any]) -> pd.DataFrame:
    """The bursts as a frame of BURST_COLUMNS, unknown as NaN."""
    return pd.DataFrame(summary["bursts"], columns=BURST_COLUMNS).astype(float)


def client_bound_frame(summary: Mapping[str, Any]) -> pd.DataFrame:
    """When any worker was the bottleneck, as a frame of CLIENT_BOUND_COLUMNS: windows of several workers that
    overlap are one, and `why` is a list with a text for each."""
    rows: list[dict[str, Any]] = []
    for window in summary["own_error"]["client_bound"]["windows"]:
        worker = TEXT["worker_unknown"] if window["worker"] is None else window["worker"]
        why = TEXT["client_bound_why"].format(worker=worker, why=window["why"])
        if rows and window["start_s"] < rows[-1]["end_s"]:
            rows[-1]["end_s"] = max(rows[-1]["end_s"], window["end_s"])
            rows[-1]["why"].append(why)
        else:
            rows.append({"start_s": window["start_s"], "end_s": window["end_s"], "why": [why]})
    return pd.DataFrame(rows, columns=CLIENT_BOUND_COLUMNS).astype({"start_s": "float64", "end_s": "float64"})


def lead_metric(summary: Mapping[str, Any]) -> str:
    """The TTFT to lead with: from the scheduled moment when requests were not sent in time."""
    return str(summary["lead_ttft"])


def by_phase(load: pd.DataFrame, key: str) -> dict[str, dict[str, Any]]:
    """Phase -> n, mean, min, max and quantiles of metric `key` over `labelled` requests."""
    result: dict[str, dict[str, Any]] = {}
    for phase in PHASES:
        part = load.loc[load["phase"] == phase, ["outcome", BY_KEY[key].column]]
        row = asdict(distribution(values_of(part, BY_KEY[key])))
        result[phase] = {**row, **row.pop("quantiles")}
    return result


def ttft_by_phase(run: Run, summary: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """`by_phase` of the TTFT to lead with."""
    return by_phase(labelled(run, summary), lead_metric(summary))
