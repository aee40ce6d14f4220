"""A run folder of a million requests, made up but of the right size: to time the analysis, not to learn from.

An hour of bursts every minute on a server that drains a backlog at a steady rate: TTFT grows with the
backlog that a request meets, one request in a hundred fails in one of several ways with texts of its own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from runlog.client_load import CLIENT_LOAD_CSV, CLIENT_LOAD_KINDS
from runlog.folder import (
    EVENT_COLUMNS,
    EVENTS_CSV,
    GAPS_F32,
    REQUESTS_CSV,
    SCHEDULE_CSV,
    RunInfo,
    write_run_info,
)
from runlog.record import COLUMN_KINDS
from runlog.server_samples import SampleWriter, ServerSample

DURATION_S = 3600.0
PERIOD_S = 60.0
BURST_S = 6.0
BURST_SHARE = 0.5
WORKERS = 4
FAILED_SHARE = 0.01
FAILURES = (
    ("http_503", "rejected", 503, "queue full ({k:08x})"),
    ("http_500", "failed", 500, "internal error, request {k:08x}"),
    ("stall", "failed", 200, "no output for 30 s after {n} tokens"),
    ("connection_lost", "failed", None, "connection reset by peer at byte {n}"),
)
ROWS_AT_ONCE = 100_000
TOKENS = 40

Floats = npt.NDArray[np.float64]


def write_folder(folder: Path, requests: int = 1_000_000, gaps: bool = False, seed: int = 1) -> Path:
    """Write the folder and return it. `gaps`: with a gap for each token, 4 bytes each."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    at_s = _arrivals(rng, requests)
    backlog = _backlog(at_s)
    ttft_s = 0.03 * rng.lognormal(0.0, 0.4, requests) + backlog
    tpot_s = 0.012 * rng.lognormal(0.0, 0.15, requests) * (1 + np.minimum(backlog, 2.0))
    failure = np.where(
        rng.uniform(size=requests) < FAILED_SHARE, rng.integers(0, len(FAILURES), requests), -1
    )
    tokens = rng.integers(2, 2 * TOKENS, requests)
    _write_schedule(folder, at_s)
    _write_requests(folder, at_s, ttft_s, tpot_s, tokens, failure, gaps)
    if gaps:
        rng.gamma(4.0, 0.003, int(tokens.sum() - requests)).astype("<f4").tofile(folder / GAPS_F32)
    _write_beside(folder, at_s, backlog)
    bursts = [[start, start + BURST_S] for start in np.arange(PERIOD_S / 2, DURATION_S, PERIOD_S)]
    info = RunInfo(
        run_id="bench-report",
        name=f"{requests} made-up requests",
        target="http://127.0.0.1:8000/v1",
        model="made-up",
        shape="pulse",
        arrivals="poisson",
        seed=seed,
        duration_s=DURATION_S,
        drain_s=60.0,
        state="finished",
        mean_rate_rps=requests / DURATION_S,
        bursts=bursts,
        slo="ttft<1s,tpot<50ms@95%",
    )
    write_run_info(folder, info)
    return folder


def write_history(path: Path, rows: int = 100_000) -> Path:
    """Locust's PREFIX_stats_history.csv of `rows` seconds, beside its PREFIX_stats.csv; returns PREFIX."""
    rng = np.random.default_rng(1)
    new = rng.poisson(20.0, rows)
    total = np.cumsum(new)
    levels = ("50%", "66%", "75%", "80%", "90%", "95%", "98%", "99%", "99.9%", "99.99%", "100%")
    base = 200.0 + 150.0 * (np.arange(rows) % 600 < 60)
    times = {
        name: np.round(base * (1 + k / 3) * rng.uniform(0.95, 1.05, rows)) for k, name in enumerate(levels)
    }
    history = pd.DataFrame(
        {
            "Timestamp": 1_700_000_000 + np.arange(rows),
            "User Count": 100,
            "Type": "",
            "Name": "Aggregated",
            "Requests/s": np.round(new.astype(float), 6),
            "Failures/s": 0.0,
            **times,
            "Total Request Count": total,
            "Total Failure Count": total // 200,
            "Total Median Response Time": 200,
            "Total Average Response Time": 230.0,
            "Total Min Response Time": 20.0,
            "Total Max Response Time": float(max(times["100%"].max(), 2000.0)),
            "Total Average Content Size": 800.0,
        }
    )
    history.to_csv(path.with_name(f"{path.name}_stats_history.csv"), index=False)
    whole: dict[str, object] = {
        "Request Count": int(total[-1]),
        "Failure Count": int(total[-1] // 200),
        "Median Response Time": 200,
        "Average Response Time": 230.0,
        "Min Response Time": 20.0,
        "Max Response Time": float(history["Total Max Response Time"].iloc[-1]),
        "Average Content Size": 800.0,
        "Requests/s": 20.0,
        "Failures/s": 0.1,
        **{name: float(values.max()) for name, values in times.items()},
    }
    names = [{"Type": "POST", "Name": "/v1/chat/completions"}, {"Type": "", "Name": "Aggregated"}]
    stats = pd.DataFrame([{**name, **whole} for name in names])
    stats.to_csv(path.with_name(f"{path.name}_stats.csv"), index=False)
    return path


def _arrivals(rng: np.random.Generator, n: int) -> Floats:
    """Half of the requests at random in the bursts, half at any moment."""
    in_burst = rng.uniform(size=n) < BURST_SHARE
    number = rng.integers(0, int(DURATION_S / PERIOD_S), n)
    burst = number * PERIOD_S + PERIOD_S / 2 + rng.uniform(0, BURST_S, n)
    return np.sort(np.where(in_burst, burst, rng.uniform(0, DURATION_S, n)))


def _backlog(at_s: Floats) -> Floats:
    """How many seconds of work each request finds before it, at a server that does 1.6 times the mean."""
    work_s = DURATION_S / len(at_s) / 1.6
    done_s = np.arange(len(at_s)) * work_s - at_s
    return done_s - np.minimum.accumulate(done_s)


def _write_schedule(folder: Path, at_s: Floats) -> None:
    n = len(at_s)
    schedule = pd.DataFrame(
        {
            "arrival": np.arange(n),
            "segment": 0,
            "at_s": at_s,
            "name": "chat",
            "tenant": "",
            "session": "",
            "asked_input_tokens": 150,
            "asked_output_tokens": 2 * TOKENS,
            "prompt_seed": np.arange(n) + 7,
        }
    )
    schedule.to_csv(folder / SCHEDULE_CSV, index=False, float_format="%.6f")


def _write_requests(
    folder: Path,
    at_s: Floats,
    ttft_s: Floats,
    tpot_s: Floats,
    tokens: npt.NDArray[np.int64],
    failure: npt.NDArray[np.int64],
    gaps: bool,
) -> None:
    sent_at_s = at_s + 0.0004
    first_at_s = sent_at_s + ttft_s
    last_at_s = first_at_s + tpot_s * (tokens - 1)
    offset = np.cumsum(tokens - 1) - (tokens - 1)
    for start in range(0, len(at_s), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        failed = failure[part] >= 0
        arrival = np.arange(len(at_s))[part]
        kind = [FAILURES[one] if one >= 0 else None for one in failure[part]]
        texts = [row[3].format(k=k, n=k % 97) if row else "" for k, row in zip(arrival, kind, strict=True)]

        def of_success(values: Floats, failed: npt.NDArray[np.bool_] = failed) -> Floats:
            return np.where(failed, np.nan, values)

        made: dict[str, object] = {
            "arrival": arrival,
            "segment": 0,
            "request_id": [f"r{k:07x}" for k in arrival],
            "worker": arrival % WORKERS,
            "name": "chat",
            "attempts": 1,
            "scheduled_at_s": at_s[part],
            "sent_at_s": sent_at_s[part],
            "connection": "reused",
            "first_byte_at_s": of_success(first_at_s[part]),
            "first_token_at_s": of_success(first_at_s[part]),
            "first_answer_at_s": of_success(first_at_s[part]),
            "last_token_at_s": of_success(last_at_s[part]),
            "ended_at_s": np.where(failed, sent_at_s[part] + 0.01, last_at_s[part] + 0.0002),
            "outcome": [row[1] if row else "succeeded" for row in kind],
            "failure_class": [row[0] if row else "" for row in kind],
            "status": [(row[2] or "") if row else 200 for row in kind],
            "error": texts,
            "finish_reason": np.where(failed, "", "length"),
            "asked_input_tokens": 150,
            "asked_output_tokens": 2 * TOKENS,
            "input_tokens": 150,
            "output_tokens": np.where(failed, 0, tokens[part]),
            "tokens_from": np.where(failed, "", "usage"),
            "output_events": np.where(failed, 0, tokens[part]),
            "output_receives": np.where(failed, 0, tokens[part]),
            "crowded_receives": 0,
            "gap_offset": offset[part] if gaps else "",
            "gap_count": tokens[part] - 1,
            "gap_p50_s": of_success(tpot_s[part]),
            "gap_p99_s": of_success(1.5 * tpot_s[part]),
            "gap_max_s": of_success(2.0 * tpot_s[part]),
            "gap_zeros": 0,
            "in_flight_at_send": 20,
            "stamp": "kernel",
            "read_lag_s": 0.0002,
        }
        rows = pd.DataFrame(made).reindex(columns=list(COLUMN_KINDS))
        rows.to_csv(folder / REQUESTS_CSV, mode="a", header=start == 0, index=False, float_format="%.6f")


def _write_beside(folder: Path, at_s: Floats, backlog: Floats) -> None:
    seconds = np.arange(int(DURATION_S))
    load = pd.DataFrame(
        [(worker, second, 0.4, 0.002, 0.004, 20) for second in seconds for worker in range(WORKERS)],
        columns=list(CLIENT_LOAD_KINDS),
    )
    load.to_csv(folder / CLIENT_LOAD_CSV, index=False)
    waiting = np.interp(seconds, at_s, backlog) * len(at_s) / DURATION_S
    with SampleWriter(folder) as samples:
        for second, queue in zip(seconds.tolist(), waiting.tolist(), strict=True):
            samples.append(ServerSample(float(second), 64, int(queue), min(1.0, 0.3 + queue / 3000), 0))
    (folder / EVENTS_CSV).write_text(",".join(EVENT_COLUMNS) + "\n", encoding="utf-8")
