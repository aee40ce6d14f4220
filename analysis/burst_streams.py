"""The streams of arrivals that can be measured: of a run what was asked, sent and first answered; of a log
one.

A run's window is its planned load, [0, duration); a log's goes from its first arrival to its last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.arrival_log import read_log
from analysis.burst_profile import Curve, Profile, coarse_step, curve, profile
from analysis.burst_reading import Reading, read
from analysis.burst_replay import Suggestion, suggest
from analysis.load import Run, load_run
from analysis.wording_burst import PAGE
from runlog.folder import REQUESTS_CSV, RUN_JSON, SCHEDULE_CSV

FloatArray = NDArray[np.float64]

TOKENS = {"input": "asked_input_tokens", "output": "asked_output_tokens"}


@dataclass(frozen=True, eq=False)
class Stream:
    """Sorted arrivals in [0, window) with their tokens; `read_as` and `notices` tell how a log was read."""

    name: str
    times_s: FloatArray
    window_s: float
    tokens: Mapping[str, FloatArray]
    stamp_step_s: float | None = None
    read_as: str = ""
    notices: tuple[str, ...] = ()
    of_run: bool = False

    def profile(self) -> Profile:
        return profile(self.times_s, self.window_s, self.tokens, self.stamp_step_s)


@dataclass(frozen=True, eq=False)
class Measured:
    """A stream with everything that is said about it."""

    stream: Stream
    profile: Profile
    curve: Curve
    reading: Reading
    suggestion: Suggestion | None = field(default=None)


def measure_stream(stream: Stream) -> Measured:
    """Profile, curve, reading and suggestion of one stream."""
    found = stream.profile()
    over_scales = curve(stream.times_s, stream.window_s, stream.stamp_step_s)
    reading = read(found, over_scales, stream.times_s)
    return Measured(stream, found, over_scales, reading, suggest(found, over_scales, reading, stream.times_s))


def run_streams(run: Run) -> dict[str, Stream]:
    """`asked` (the schedule), `sent` and `first_byte` of a run, each with the tokens that were asked for.

    Those without arrivals, such as what a closed loop asked, are left out.
    """
    columns = {
        "asked": (run.schedule, "at_s"),
        "sent": (run.load, "sent_at_s"),
        "first_byte": (run.load, "first_byte_at_s"),
    }
    found = {key: _stream(PAGE[key], table, at, run.info.duration_s) for key, (table, at) in columns.items()}
    return {key: stream for key, stream in found.items() if len(stream.times_s)}


def read_streams(
    path: Path, time_column: str | None = None, tokens_column: str | None = None, unit: str | None = None
) -> list[Stream]:
    """The streams of a run folder, of one of its files, or of any log (analysis.arrival_log).

    Raises RunFolderError, ArrivalLogError or OSError.
    """
    asked_by_hand = time_column or tokens_column or unit
    if (path / RUN_JSON).exists():
        return list(run_streams(load_run(path)).values())
    own = {SCHEDULE_CSV: "asked", REQUESTS_CSV: "sent"}.get(path.name)
    if own and not asked_by_hand and (path.parent / RUN_JSON).exists():
        stream = run_streams(load_run(path.parent)).get(own)
        return [stream] if stream else []
    log = read_log(path, time_column, tokens_column, unit)
    window_s = math.nextafter(log.span_s, math.inf)
    step = coarse_step(log.times_s)
    return [Stream(path.name, log.times_s, window_s, log.tokens, step, log.read_as, log.notices)]


def _stream(name: str, table: pd.DataFrame, column: str, window_s: float) -> Stream:
    at_s = table[column].to_numpy(dtype=np.float64)
    order = np.argsort(at_s, kind="stable")
    order = order[(at_s[order] >= 0) & (at_s[order] < window_s)]
    tokens = {
        kind: table[asked].to_numpy(dtype=np.float64, na_value=np.nan)[order]
        for kind, asked in TOKENS.items()
    }
    return Stream(name, at_s[order], window_s, tokens, of_run=True)
