"""Fluidity: the share of token deadlines missed, as a reader of the stream would feel it (etalon).

The first chunk is due D1 after sending, every later one D after the one before; what comes early leaves slack
for those that follow:

    t <= D + slack     met:     slack += D - t
    else               missed:  (t - slack) // D deadlines (of the first chunk 1 + (t - D1) // D); slack = 0

the deadlines after a miss counting from that chunk on. Fluidity index = 1 - missed / deadlines; a request is
fluid from 0.9 on (arXiv 2407.07000; etalon's metric_utils.py). D is the SLO's limit on TPOT and D1 that on
TTFT; without one on TTFT the first chunk is never late. A chunk of k tokens is due k D after the one before,
k being the request's mean ((tokens - 1) / gaps), since what single chunks hold is not recorded.

Over successes. A request whose longest gap is within D (requests.csv has it) misses nothing and its gaps are
not read; the others are read in blocks and gone through chunk by chunk, all requests of a block at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.gaps import BLOCK, kept_gaps, read
from analysis.load import Run
from analysis.phases import PHASES
from analysis.slo import Slo
from runlog.folder import GAPS_F32

FLUID_INDEX = 0.9
SAME_S = 1e-6
NO_LIMIT = "the SLO has no limit on tpot, which would be the deadline between tokens (tpot<50ms)"


@dataclass(frozen=True, eq=False)
class Streams:
    """Requests with gaps: `first_s` their TTFT, `offset` and `count` their gaps in the file, `longest_s` the
    longest of these, and `deadline_s` that of a chunk."""

    first_s: np.ndarray
    offset: np.ndarray
    count: np.ndarray
    longest_s: np.ndarray
    deadline_s: np.ndarray


def fluidity(run: Run, slo: Slo | None, phase: np.ndarray) -> dict[str, Any]:
    """summary.json's `fluidity`: `phase` is each request's of the load."""
    kept, why = kept_gaps(run)
    limits = [] if slo is None else [row for row in slo.per_request + slo.percentiles if not row.where]
    deadline_s = min((row.limit_s for row in limits if row.metric.key == "tpot_s"), default=None)
    first_deadline_s = min((row.limit_s for row in limits if row.metric.key == "ttft_s"), default=None)
    deadlines = {"deadline_s": deadline_s, "first_deadline_s": first_deadline_s}
    why = NO_LIMIT if deadline_s is None else why
    if deadline_s is None or why is not None:
        nothing = _counted(np.array([]), np.array([]))
        parts: dict[str, Any] = dict.fromkeys(PHASES, nothing)
        return {
            "deadline_s": deadline_s,
            "first_deadline_s": first_deadline_s,
            **nothing,
            **parts,
            "why_none": why,
        }
    missed, due = missed_deadlines(
        run.folder / GAPS_F32, _streams(run, kept, deadline_s), deadline_s, first_deadline_s
    )
    among = phase[kept]
    return {
        **deadlines,
        **_counted(missed, due),
        **{name: _counted(missed[among == name], due[among == name]) for name in PHASES},
        "why_none": None,
    }


def _counted(missed: np.ndarray, due: np.ndarray) -> dict[str, Any]:
    total = int(due.sum())
    fluid = 1 - missed / np.maximum(due, 1) >= FLUID_INDEX
    return {
        "requests": len(due),
        "deadlines": total,
        "missed": int(missed.sum()),
        "missed_ratio": int(missed.sum()) / total if total else None,
        "fluid_ratio": float(fluid.mean()) if len(due) else None,
    }


def _streams(run: Run, kept: np.ndarray, deadline_s: float) -> Streams:
    load = run.load.loc[kept, ["ttft_s", "gap_offset", "gap_count", "gap_max_s", "output_tokens"]]
    count = load["gap_count"].to_numpy(dtype=np.int64)
    tokens = load["output_tokens"].to_numpy(dtype=float, na_value=np.nan)
    per_chunk = np.where(tokens >= 2, (tokens - 1) / count, 1.0)
    return Streams(
        first_s=load["ttft_s"].to_numpy(dtype=float),
        offset=load["gap_offset"].to_numpy(dtype=np.int64),
        count=count,
        longest_s=load["gap_max_s"].to_numpy(dtype=float, na_value=np.inf),
        deadline_s=deadline_s * per_chunk,
    )


def missed_deadlines(
    path: Path, streams: Streams, token_deadline_s: float, first_deadline_s: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """(missed, deadlines) of each stream, whole numbers. Reads only the gaps of those that may have missed a
    later chunk."""
    missed, due, slack_s = _first(streams, token_deadline_s, first_deadline_s)
    late = streams.longest_s > streams.deadline_s + SAME_S
    due += np.where(late, 0, streams.count)
    chosen = np.flatnonzero(late)
    chosen = chosen[np.argsort(streams.offset[chosen], kind="stable")]
    ends = streams.offset[chosen] + streams.count[chosen]
    at = 0
    while at < len(chosen):
        first = int(streams.offset[chosen[at]])
        until = max(int(np.searchsorted(ends, first + BLOCK, side="right")), at + 1)
        batch = chosen[at:until]
        gaps_s = read(path, first, int(ends[until - 1]) - first).astype(float)
        more, passed = _later(
            gaps_s,
            streams.offset[batch] - first,
            streams.count[batch],
            streams.deadline_s[batch],
            slack_s[batch],
        )
        missed[batch] += more
        due[batch] += passed
        at = until
    return missed, due


def _first(
    streams: Streams, token_deadline_s: float, first_deadline_s: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(missed, deadlines, slack) after the first chunk of each stream."""
    if first_deadline_s is None:
        nothing = np.zeros(len(streams.count), dtype=np.int64)
        return nothing, nothing.copy(), np.zeros(len(streams.count))
    early_s = first_deadline_s - np.where(np.isnan(streams.first_s), first_deadline_s, streams.first_s)
    in_time = early_s >= -SAME_S
    missed = np.where(in_time, 0, 1 + (-early_s + SAME_S) // token_deadline_s).astype(np.int64)
    return missed, np.maximum(missed, 1), np.where(in_time, np.maximum(early_s, 0.0), 0.0)


def _later(
    gaps_s: np.ndarray, offset: np.ndarray, count: np.ndarray, deadline_s: np.ndarray, slack_s: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(missed, deadlines) of the later chunks of streams, chunk by chunk, the longest streams first."""
    order = np.argsort(-count, kind="stable")
    offset, deadline_s, slack_s = offset[order], deadline_s[order], slack_s[order].copy()
    going = np.searchsorted(-count[order], -np.arange(1, int(count.max()) + 1), side="right")
    missed, due = np.zeros(len(order), dtype=np.int64), np.zeros(len(order), dtype=np.int64)
    for place, active in enumerate(going.tolist()):
        spare_s = deadline_s[:active] + slack_s[:active] - gaps_s[offset[:active] + place]
        in_time = spare_s >= -SAME_S
        slack_s[:active] = np.where(in_time, np.maximum(spare_s, 0.0), 0.0)
        due[:active] += 1
        late = np.flatnonzero(~in_time)
        if len(late):
            lost = (((deadline_s[late] - spare_s[late]) + SAME_S) // deadline_s[late]).astype(np.int64)
            missed[late] += lost
            due[late] += lost - 1
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return missed[back], due[back]
