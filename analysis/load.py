"""A run folder -> Run: the tables as DataFrames, with every request's derived times.

Tolerant where a run can end badly (a cut last line, no gaps, no events: each is a notice), strict where a
figure could be wrong (unknown versions, cells of the wrong kind, unknown outcomes: RunFolderError).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.tables import no_rows, read_table
from runlog.client_load import CLIENT_LOAD_CSV, CLIENT_LOAD_KINDS
from runlog.failures import failure_class
from runlog.folder import (
    EVENT_COLUMNS,
    EVENTS_CSV,
    GAPS_F32,
    REQUESTS_CSV,
    RUN_JSON,
    SCHEDULE_CSV,
    RunFolderError,
    RunInfo,
    read_run_info,
)
from runlog.record import COLUMN_KINDS, OUTCOMES, OUTSIDE_THE_LOAD, PROBE, WARMUP
from runlog.server_samples import SAMPLE_COLUMNS, SERVER_METRICS_CSV

SCHEDULE_KINDS: dict[str, type] = {
    "arrival": int,
    "segment": int,
    "at_s": float,
    "name": str,
    "tenant": str,
    "session": str,
    "asked_input_tokens": int,
    "asked_output_tokens": int,
    "prompt_seed": str,
}
_READ_OF_SCHEDULE = {name: kind for name, kind in SCHEDULE_KINDS.items() if name != "prompt_seed"}
EVENT_KINDS: dict[str, type] = {
    **dict.fromkeys(EVENT_COLUMNS, str),
    "at_s": float,
    "worker": int,
}
SERVER_KINDS: dict[str, type] = {
    **dict.fromkeys(SAMPLE_COLUMNS, int),
    "at_s": float,
    "kv_cache_used_ratio": float,
}
FEW_TEXTS = (
    *("name", "tenant", "connection", "outcome"),
    *("failure_class", "finish_reason", "tokens_from", "stamp"),
)
"""Columns that hold few different texts: as categories they take an eighth of the memory and compare fast."""
_RESOLUTION_DIGITS = 9
"""Derived times are rounded to a nanosecond: the stamps have microseconds, what is beyond is float noise, and
a value that lies on a limit must compare as equal to it."""


@dataclass(frozen=True, eq=False)
class Run:
    """One run as it was recorded.

    `requests` has the columns of runlog.record plus those of `derive`; floats are seconds (NaN = unknown),
    whole numbers are nullable Int64, texts are str; those of FEW_TEXTS and `whose` are categories of str.
    `schedule` has SCHEDULE_KINDS' columns without the seeds of prompts, `events` EVENT_KINDS', `client_load`
    CLIENT_LOAD_KINDS' (no rows in a folder without it).
    """

    folder: Path
    info: RunInfo
    requests: pd.DataFrame
    schedule: pd.DataFrame
    events: pd.DataFrame
    client_load: pd.DataFrame
    notices: list[str] = field(default_factory=list)

    @cached_property
    def load(self) -> pd.DataFrame:
        """The requests that make up the load, in order of arrival: no probes, no warm-up.

        With a schedule these are the rows with an arrival; in a closed loop all but those named in
        OUTSIDE_THE_LOAD.
        """
        has_arrival = self.requests["arrival"].notna()
        if self.closed or len(self.schedule) == 0:
            has_arrival |= ~self.requests["name"].isin(OUTSIDE_THE_LOAD)
        found = self.requests if has_arrival.all() else self.requests[has_arrival]
        if found["arrived_at_s"].is_monotonic_increasing:
            return found.reset_index(drop=True)  # shares its columns: a million rows are not copied
        return found.sort_values("arrived_at_s", kind="stable", ignore_index=True)

    @cached_property
    def probes(self) -> pd.DataFrame:
        """The probes, in order of arrival: small requests that go on where the load is silent."""
        probes = self._outside(PROBE)
        return probes.sort_values("arrived_at_s", kind="stable", ignore_index=True)

    @property
    def warmups(self) -> int:
        """How many requests warmed up the server before the start."""
        return len(self._outside(WARMUP))

    @cached_property
    def server_metrics(self) -> pd.DataFrame:
        """What the server said of itself, by time: SERVER_KINDS' columns, no rows where nothing is known.

        Read when first asked for. A file that is cut short or cannot be read is a notice, never an error: no
        figure of the run rests on it.
        """
        path = self.folder / SERVER_METRICS_CSV
        try:
            found = _read_optional(path, SERVER_KINDS, self.notices)
        except RunFolderError as error:
            self.notices.append(f"the server's own figures are left out: {error}")
            found = no_rows(SERVER_KINDS)
        return found[found["at_s"].notna()].sort_values("at_s", kind="stable", ignore_index=True)

    @property
    def closed(self) -> bool:
        """Whether users decided when requests went out, each its next when the last had ended."""
        return self.info.load == "closed"

    def _outside(self, name: str) -> pd.DataFrame:
        return self.requests[self.requests["arrival"].isna() & (self.requests["name"] == name)]

    @cached_property
    def window_s(self) -> float:
        """The length of the measured window: the planned load window, without the drain.

        It ends sooner when the run was stopped (at the event that says so; without one at the first arrival
        that the stop left unsent, or in a closed loop at the last request sent), or when it is still going on
        or broke off (at the last moment recorded).
        """
        planned, state = float(self.info.duration_s), self.info.state
        stops = self.events.loc[self.events["kind"] == "stopped", "at_s"].dropna()
        unsent = (self.load["outcome"] == "not_sent") & (self.load["whose"] == "run")
        if state == "stopped" and len(stops):
            ends_s = float(stops.iloc[0])
        elif unsent.any():
            ends_s = float(self.load.loc[unsent, "arrived_at_s"].min())
        elif state == "running":
            ends_s = float(self.load[["sent_at_s", "ended_at_s"]].max().max()) if len(self.load) else np.nan
        elif state == "stopped" and self.closed:
            ends_s = float(self.load["sent_at_s"].max())
        else:
            ends_s = planned
        return min(planned, max(ends_s, 0.0)) if np.isfinite(ends_s) else planned


def load_run(folder: Path | str) -> Run:
    """Read a run folder. Raises RunFolderError, one line, when it is none, is broken or of an unknown
    version."""
    folder = Path(folder)
    info = read_run_info(folder)
    if not info.duration_s > 0:
        raise RunFolderError(f"{folder / RUN_JSON}: duration_s is {info.duration_s!r}; it must be above 0")
    notices: list[str] = []
    if info.state == "running":
        notices.append("the run had not ended when it was read, or it broke off: all figures are partial")
    requests, cut = read_table(folder / REQUESTS_CSV, COLUMN_KINDS, ("request_id", "outcome"), FEW_TEXTS)
    if cut:
        notices.append(f"the last line of {REQUESTS_CSV} was cut short and left out")
    unknown = ~requests["outcome"].isin(OUTCOMES)
    if unknown.any():
        row = int(np.flatnonzero(unknown.to_numpy())[0])
        raise RunFolderError(
            f"{folder / REQUESTS_CSV}, record {row + 1}: outcome {requests['outcome'].iloc[row]!r} "
            f"is not one of {', '.join(OUTCOMES)}"
        )
    schedule = _read_optional(
        folder / SCHEDULE_CSV, _READ_OF_SCHEDULE, notices, missing="the load cannot be checked"
    )
    events = _read_optional(folder / EVENTS_CSV, EVENT_KINDS, notices)
    client_load = _read_optional(folder / CLIENT_LOAD_CSV, CLIENT_LOAD_KINDS, notices)
    _notice_gaps(folder, requests, notices)
    return Run(folder, info, derive(requests), schedule, events, client_load, notices)


def derive(requests: pd.DataFrame) -> pd.DataFrame:
    """The requests with their derived columns, NaN where a part is unknown.

    arrived_at_s (scheduled, else sent, else ended), send_lag_s, ttft_s, answer_ttft_s, e2e_s,
    ttft_from_schedule_s, e2e_from_schedule_s, tpot_s, normalized_latency_s (E2E per output token),
    normalized_ttft_s (TTFT per input token), whose (runlog.failures: whom the failure speaks about; missing
    for a success).
    """

    def times(name: str) -> np.ndarray:
        return requests[name].to_numpy(dtype=float, na_value=np.nan)

    scheduled, sent, first, last, ended = (
        times(f"{name}_at_s") for name in ("scheduled", "sent", "first_token", "last_token", "ended")
    )
    tokens_in, tokens_out = times("input_tokens"), times("output_tokens")
    e2e_s, ttft_s = last - sent, first - sent
    derived = {
        "arrived_at_s": np.where(np.isnan(scheduled), np.where(np.isnan(sent), ended, sent), scheduled),
        "send_lag_s": sent
        - scheduled
        - np.where(times("attempts") <= 1, np.nan_to_num(times("connect_s")), 0.0),
        "ttft_s": ttft_s,
        "answer_ttft_s": times("first_answer_at_s") - sent,
        "e2e_s": e2e_s,
        "ttft_from_schedule_s": first - scheduled,
        "e2e_from_schedule_s": last - scheduled,
        "tpot_s": (last - first) / np.where(tokens_out >= 2, tokens_out - 1, np.nan),
        "normalized_latency_s": e2e_s / np.where(tokens_out >= 1, tokens_out, np.nan),
        "normalized_ttft_s": ttft_s / np.where(tokens_in >= 1, tokens_in, np.nan),
    }
    columns = {name: np.round(values, _RESOLUTION_DIGITS) for name, values in derived.items()}
    whose = requests["failure_class"].map(
        {name: whose_fault(name) for name in requests["failure_class"].dropna().unique()}
    )
    return requests.assign(**columns, whose=whose.astype("str").astype("category"))


def whose_fault(name: str) -> str | None:
    """Whom a failure class speaks about (server, network, client, run); None for a class that no table
    knows."""
    try:
        return failure_class(name).whose
    except KeyError:
        return None


def _read_optional(
    path: Path, kinds: Mapping[str, type], notices: list[str], missing: str | None = None
) -> pd.DataFrame:
    if not path.exists():
        if missing:
            notices.append(f"there is no {path.name}: {missing}")
        return no_rows(kinds, FEW_TEXTS)
    table, cut = read_table(path, kinds, few=FEW_TEXTS)
    if cut:
        notices.append(f"the last line of {path.name} was cut short and left out")
    return table


def _notice_gaps(folder: Path, requests: pd.DataFrame, notices: list[str]) -> None:
    kept = requests["gap_offset"].notna()
    if not kept.any():
        return
    wanted = 4 * int((requests["gap_offset"] + requests["gap_count"])[kept].max())
    path = folder / GAPS_F32
    there = path.stat().st_size if path.exists() else 0
    if there < wanted:
        notices.append(
            f"{GAPS_F32} is {'missing' if there == 0 else 'cut short'}: single chunk gaps cannot be shown, "
            f"their p50, p99 and maximum per request can"
        )
