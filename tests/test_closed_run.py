"""Whole runs beside the plain open loop: users in pulses, steps in both load models, probes, warm-up, one
piece.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.launch import run_load, simulated_server
from runlog.folder import read_requests, read_run_info
from runlog.record import PROBE, WARMUP, RequestRecord

pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("server") / "simserver.log"
    with simulated_server(
        log, "--preset", "a100-8b", "--max-num-batched-tokens", "2048", "--model", "m"
    ) as url:
        yield url


def load(tmp_path: Path, host: str, *arguments: str, workers: int = 2) -> Path:
    base = ["--host", host, "--model", "m", "--runs-dir", str(tmp_path / "runs")]
    run = run_load([*base, *arguments], tmp_path / "logs", workers=workers, limit_s=180)
    assert run.folder is not None, run.log.read_text()
    return run.folder


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def most_in_flight(records: list[RequestRecord], start_s: float, end_s: float) -> int:
    """The largest number of requests in flight at any sending in a window."""
    spans = [
        (r.sent_at_s, r.ended_at_s) for r in records if r.sent_at_s is not None and r.ended_at_s is not None
    ]
    moments = [sent for sent, _ in spans if start_s <= sent < end_s]
    return max(sum(sent <= at_s < ended for sent, ended in spans) for at_s in moments)


def test_every_pulse_reaches_its_number_of_users_and_none_is_cut(server: str, tmp_path: Path) -> None:
    """Stock Locust's second and third pulse of users stay far below their number when answers are long."""
    arguments = [
        "--load",
        "closed",
        "--users",
        "4",
        "--shape",
        "pulse",
        "--period",
        "8s",
        "--run-time",
        "24s",
    ]
    folder = load(tmp_path, server, *arguments, "--output-tokens", "100")
    records = list(read_requests(folder))
    info = read_run_info(folder)
    assert len(info.bursts) == 3
    for start_s, end_s in info.bursts:
        assert most_in_flight(records, start_s, end_s) == 20  # peak 5 x the mean of 4
    assert Counter(record.outcome for record in records) == {"succeeded": len(records)}
    assert {record.arrival for record in records} == {None}
    users = {record.session for record in records}
    assert users == {str(user) for user in range(20)}
    assert summary_of(folder)["load"] == "closed"


@pytest.mark.parametrize("model", ["open", "closed"])
def test_steps_give_one_row_a_level(server: str, tmp_path: Path, model: str) -> None:
    arguments = [
        "--load",
        model,
        "--shape",
        "steps",
        "--levels",
        "2,6",
        "--run-time",
        "8s",
        "--output-tokens",
        "20",
    ]
    levels = summary_of(load(tmp_path, server, *arguments, workers=0))["levels"]
    assert [row["level"] for row in levels] == [2, 6]
    assert all(row["requests"] > 0 for row in levels)
    assert levels[1]["requests"] > levels[0]["requests"]


def test_probes_show_the_recovery_of_a_salvo_over_silence(server: str, tmp_path: Path) -> None:
    arguments = ["--shape", "salvo", "--salvo", "8s,60,18s", "--probes", "2/s", "--warmup", "2"]
    folder = load(tmp_path, server, *arguments, "--input-tokens", "1000")
    records = list(read_requests(folder))
    names = Counter(record.name for record in records)
    assert names == {"chat": 60, PROBE: 52, WARMUP: 4}
    summary = summary_of(folder)
    assert summary["counts"]["scheduled"] == 60
    (burst,) = summary["bursts"]
    assert burst["requests"] == 60
    assert burst["recovery_s"] is not None
    assert burst["method"] == "probes"
    warmups = [record for record in records if record.name == WARMUP]
    assert all(record.ended_at_s is not None and record.ended_at_s < 0 for record in warmups)


def test_answers_in_one_piece_have_an_end_but_no_first_token(server: str, tmp_path: Path) -> None:
    folder = load(
        tmp_path, server, "--no-stream", "true", "--run-time", "3s", "--output-tokens", "5", workers=0
    )
    for record in read_requests(folder):
        assert record.outcome == "succeeded"
        assert record.ttft_s is None
        assert record.e2e_s is not None
        assert record.output_tokens == 5


def test_without_gaps_their_summary_stays(server: str, tmp_path: Path) -> None:
    folder = load(tmp_path, server, "--gaps", "none", "--run-time", "3s", "--output-tokens", "5", workers=0)
    records = list(read_requests(folder))
    assert records
    assert {(record.gap_offset, record.gap_count) for record in records} == {(None, 4)}
    assert all(None not in (record.gap_p50_s, record.gap_max_s) for record in records)
    assert (folder / "gaps.f32").stat().st_size == 0


def test_fresh_connections_are_new_for_every_request(server: str, tmp_path: Path) -> None:
    arguments = ["--connections", "fresh", "--run-time", "3s", "--output-tokens", "5"]
    records = list(read_requests(load(tmp_path, server, *arguments, workers=0)))
    assert {record.connection for record in records} == {"new"}
    assert all(record.connect_s is not None for record in records)
