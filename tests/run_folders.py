"""Small synthetic run folders for tests, written through runlog as a run writes them."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.load import SCHEDULE_KINDS
from runlog.client_load import ClientLoadLog
from runlog.folder import EVENT_COLUMNS, EVENTS_CSV, SCHEDULE_CSV, RecordWriter, RunInfo, write_run_info
from runlog.record import RequestRecord
from runlog.server_samples import SampleWriter, ServerSample


def answered(
    arrival: int | None,
    at_s: float,
    ttft_s: float = 0.1,
    tpot_s: float = 0.02,
    tokens: int = 11,
    lag_s: float = 0.001,
    **changes: Any,
) -> RequestRecord:
    """A success: sent `lag_s` after `at_s`, first token after `ttft_s`, `tokens - 1` more `tpot_s` apart."""
    sent_at_s = at_s + lag_s
    last_at_s = sent_at_s + ttft_s + tpot_s * (tokens - 1)
    values: dict[str, Any] = {
        "arrival": arrival,
        "request_id": f"r-{arrival}",
        "worker": 0,
        "attempts": 1,
        "scheduled_at_s": at_s,
        "sent_at_s": sent_at_s,
        "connection": "reused",
        "first_byte_at_s": sent_at_s + ttft_s,
        "first_token_at_s": sent_at_s + ttft_s,
        "first_answer_at_s": sent_at_s + ttft_s,
        "last_token_at_s": last_at_s,
        "ended_at_s": last_at_s,
        "outcome": "succeeded",
        "status": 200,
        "finish_reason": "length",
        "asked_input_tokens": 100,
        "asked_output_tokens": tokens,
        "input_tokens": 100,
        "output_tokens": tokens,
        "tokens_from": "usage",
        "output_events": tokens,
        "gap_count": max(0, tokens - 1),
        "gap_p50_s": tpot_s if tokens > 1 else None,
        "gap_p99_s": tpot_s if tokens > 1 else None,
        "gap_max_s": tpot_s if tokens > 1 else None,
        "gap_zeros": 0,
        "in_flight_at_send": 0,
        "stamp": "kernel",
        "read_lag_s": 0.0001,
    }
    return RequestRecord(**(values | changes))


def unstreamed(record: RequestRecord) -> RequestRecord:
    """The success as it is recorded when its answer comes in one piece: no first token, no gaps."""
    gaps: dict[str, Any] = dict.fromkeys(("gap_count", "gap_p50_s", "gap_p99_s", "gap_max_s", "gap_zeros"))
    return replace(record, first_token_at_s=None, first_answer_at_s=None, output_events=1, **gaps)


def failed(arrival: int | None, at_s: float, after_s: float = 0.003, **changes: Any) -> RequestRecord:
    """A request that the server answered with 503 after `after_s`, unless `changes` say otherwise."""
    values: dict[str, Any] = {
        "arrival": arrival,
        "request_id": f"r-{arrival}",
        "worker": 0,
        "attempts": 1,
        "scheduled_at_s": at_s,
        "sent_at_s": at_s + 0.001,
        "ended_at_s": at_s + 0.001 + after_s,
        "outcome": "failed",
        "failure_class": "http_503",
        "status": 503,
        "error": "overloaded",
    }
    return RequestRecord(**(values | changes))


def cancelled(arrival: int, at_s: float, age_s: float, **changes: Any) -> RequestRecord:
    """A request that the run cancelled at the drain limit, `age_s` after sending, without output so far."""
    values = {"outcome": "cancelled", "failure_class": "drain_limit", "status": None, "error": None}
    return failed(arrival, at_s, age_s, **(values | changes))


def not_sent(arrival: int, at_s: float, failure_class: str = "run_stopped") -> RequestRecord:
    """An arrival that was never sent."""
    return RequestRecord(
        arrival=arrival,
        request_id=f"r-{arrival}",
        scheduled_at_s=at_s,
        outcome="not_sent",
        failure_class=failure_class,
    )


def write_run(
    folder: Path,
    records: Sequence[RequestRecord],
    schedule_s: Iterable[float] | None = None,
    events: Iterable[tuple[float, str, int, str]] = (),
    client_load: Iterable[tuple[int, Sequence[float]]] = (),
    server_samples: Iterable[ServerSample] = (),
    gaps_s: Mapping[int, Sequence[float]] | None = None,
    **info: Any,
) -> Path:
    """Write a finished run. The schedule is that of the records unless `schedule_s` gives other times;
    `client_load` holds (worker, second of loadgen.watch), `gaps_s` the chunk gaps of an arrival."""
    folder.mkdir(parents=True, exist_ok=True)
    if schedule_s is None:
        at_s = {r.arrival: r.scheduled_at_s for r in records if r.arrival is not None}
        rows = sorted(at_s.items(), key=lambda row: row[0])
    else:
        rows = list(enumerate(schedule_s))
    with open(folder / SCHEDULE_CSV, "w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(SCHEDULE_KINDS)
        lines.writerows([k, 0, f"{moment:.6f}", "chat", "", "", 100, 11, 7 + k] for k, moment in rows)
    with RecordWriter(folder) as writer:
        for record in records:
            writer.append(record, array("f", (gaps_s or {}).get(record.arrival or 0, ())).tobytes())
    with open(folder / EVENTS_CSV, "w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(EVENT_COLUMNS)
        lines.writerows(events)
    log = ClientLoadLog(folder)
    for worker, second in client_load:
        log.add(worker, [second])
    samples = list(server_samples)
    if samples:
        with SampleWriter(folder) as sample_file:
            for sample in samples:
                sample_file.append(sample)
    write_run_info(folder, replace(run_info(), **info))
    return folder


def run_info() -> RunInfo:
    """What run.json says of a run that ended well."""
    return RunInfo(
        run_id="20260101-120000-test",
        name="test",
        target="http://127.0.0.1:8000/v1",
        model="test-llm",
        shape="uniform",
        arrivals="poisson",
        seed=7,
        duration_s=20.0,
        drain_s=30.0,
        state="finished",
    )


def degraded(summary: Mapping[str, Any]) -> bool:
    """The verdict is DEGRADED, or would be on a machine with nothing else to do: a busy one may make the load
    generator late as well, which is INVALID and no concern of the test."""
    rows = [row for row in summary["checks"] if row["passed"] is False and row["severity"] == "invalid"]
    own = [row["name"] for row in rows if not (row["cause"] or row["explained"])]
    return summary["verdict"] == "DEGRADED" or bool(own and all("lag" in name for name in own))
