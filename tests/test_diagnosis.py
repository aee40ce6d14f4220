"""Every cause in a run where it is known to be the cause, and in no other run: a confusion table.

Virtual runs have the simulated server's engine as their truth; what the engine does not do (a late client, a
frozen server, lumps ...) is written into a folder by hand.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.causes import facts_of
from analysis.diagnoses import DIAGNOSES
from analysis.load import load_run
from analysis.report import report_html
from analysis.summary import summarize
from analysis.trust import Evidence
from analysis.wording_diagnosis import DIAGNOSIS_WORDS
from experiments.launch import REPOSITORY
from experiments.simulate import add_arguments, simulate
from runlog.record import RequestRecord
from runlog.server_samples import ServerSample
from tests.run_folders import answered, failed, write_run

SLO = "ttft<1s,tpot<50ms"
PULSE = ("--shape", "pulse", "--run-time", "45s", "--seed", "3")
BURST = {"bursts": [[8.0, 12.0]], "duration_s": 30.0, "shape": "pulse"}

VIRTUAL: dict[str, tuple[str, ...]] = {
    "nothing": ("--rate", "4", "--output-tokens", "50", "--preset", "h100-8b"),
    "prefill": ("--rate", "4", "--input-tokens", "uniform:1000-6000", "--output-tokens", "60"),
    "kv_cache": ("--rate", "4", "--output-tokens", "uniform:100-500", "--kv-cache-tokens", "8000"),
    "queue": ("--rate", "4", "--output-tokens", "100", "--max-num-seqs", "6"),
    "decode": (
        *("--rate", "6", "--input-tokens", "50", "--output-tokens", "250"),
        *("--preset", "2080tix2-8b", "--slo", "ttft<1s,tpot<25ms"),
    ),
    "rejections": (
        *("--rate", "6", "--output-tokens", "100", "--max-num-seqs", "20"),
        *("--admission", "waiting=4", "--reject-status", "429"),
    ),
}


def steady(seconds: int = 30, per_s: int = 4, **changes: Any) -> list[RequestRecord]:
    """A calm run: a request each quarter second, answered in 0.1 s and 20 ms a token."""
    return [answered(k, k / per_s, **changes) for k in range(seconds * per_s)]


def in_burst(record: RequestRecord) -> bool:
    return 8.0 <= (record.scheduled_at_s or 0.0) < 12.0


def client(folder: Path) -> Path:
    records = [
        answered(r.arrival, r.scheduled_at_s or 0.0, lag_s=1.4) if in_burst(r) else r for r in steady()
    ]
    busy = [(0, [second, 0.99, 0.4, 0.6, 9]) for second in range(8, 13)]
    slo = "ttft_from_schedule<1s"
    return write_run(folder, records, client_load=busy, slo=slo, **BURST)


def connecting(folder: Path) -> Path:
    records = steady(connection="new", connect_s=0.3, tls_s=0.2, lag_s=0.301)
    return write_run(folder, records, slo="ttft_from_schedule<0.35s", target="https://host/v1", **BURST)


def lumps(folder: Path) -> Path:
    records = steady(gap_zeros=8, output_receives=3, crowded_receives=3)
    return write_run(folder, records, slo=SLO, **BURST)


def lengths(folder: Path) -> Path:
    return write_run(folder, steady(asked_output_tokens=20), slo=SLO, **BURST)


def cached(folder: Path) -> Path:
    return write_run(folder, steady(cached_tokens=40), slo=SLO, **BURST)


def stale(folder: Path) -> Path:
    records = [replace(r, attempts=2) if in_burst(r) else r for r in steady()]
    return write_run(folder, records, slo=SLO, **BURST)


def freeze(folder: Path) -> Path:
    """Streams of 4 s; nothing moves from 10 to 13 s."""
    records, gaps = [], {}
    for k in range(60):
        at_s = k / 2
        first_s = at_s + 0.1 if not 9.9 < at_s < 13.0 else 13.02
        moments = [first_s]
        while len(moments) < 41:
            following = moments[-1] + 0.1
            moments.append(13.01 if 10.0 < following < 13.0 else following)
        spans = [late - early for early, late in itertools.pairwise(moments)]
        gaps[k] = spans
        moved = {"first_token_at_s": moments[0], "last_token_at_s": moments[-1], "ended_at_s": moments[-1]}
        shown = {"gap_count": len(spans), "gap_p50_s": 0.1, "gap_max_s": max(spans)}
        records.append(answered(k, at_s, tokens=41, lag_s=0.0, **moved, **shown))
    return write_run(folder, records, gaps_s=gaps, slo="ttft<1s,tpot<120ms", duration_s=30.0)


def failures(folder: Path) -> Path:
    records = [
        failed(r.arrival, r.scheduled_at_s or 0.0, failure_class="server_error_mid_stream", status=200)
        if in_burst(r)
        else r
        for r in steady()
    ]
    return write_run(folder, records, slo=SLO, **BURST)


def restart(folder: Path) -> Path:
    """Counts since the start fall; the requests themselves were fine."""
    samples = [ServerSample(float(s), 1, 0, 0.1, 0, 400 * (s % 15), 44 * (s % 15), 0) for s in range(30)]
    return write_run(folder, steady(), server_samples=samples, slo=SLO, **BURST)


BY_HAND: dict[str, Callable[[Path], Path]] = {
    row.__name__: row
    for row in (client, connecting, lumps, lengths, cached, stale, freeze, failures, restart)
}


def virtual(runs_dir: Path, *options: str) -> Path:
    """Simulate in this process; returns the run folder."""
    parser = ArgumentParser()
    add_arguments(parser)
    given = [*PULSE, "--slo", SLO, *options, "--runs-dir", str(runs_dir)]
    simulate(parser.parse_args(given), ["simulate"], show=lambda text: None)
    (folder,) = runs_dir.iterdir()
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Cause -> a run that has it and no other; "nothing" has none."""
    root = tmp_path_factory.mktemp("runs")
    made = {cause: virtual(root / cause, *options) for cause, options in VIRTUAL.items()}
    return made | {cause: make(root / cause) for cause, make in BY_HAND.items()}


@pytest.fixture(scope="module")
def diagnoses(folders: dict[str, Path]) -> dict[str, dict[str, Any]]:
    return {cause: summarize(load_run(folder))["diagnosis"] for cause, folder in folders.items()}


def keys(found: dict[str, Any]) -> list[str]:
    return [row["key"] for row in found["findings"]]


def test_each_cause_is_found_in_its_run_and_in_no_other(diagnoses: dict[str, dict[str, Any]]) -> None:
    table = {cause: keys(found) for cause, found in diagnoses.items()}
    assert table == {cause: [] if cause == "nothing" else [cause] for cause in table}


def test_every_cause_has_its_run_here() -> None:
    assert {row.key for row in DIAGNOSES} - {"unexplained"} <= set(VIRTUAL) | set(BY_HAND)


@pytest.mark.parametrize("cause", ["prefill", "kv_cache", "queue", "decode", "rejections", "freeze"])
def test_the_harm_is_explained_and_said_to_be_sure(diagnoses: dict[str, Any], cause: str) -> None:
    found = diagnoses[cause]
    (row,) = found["findings"]
    assert row["strength"] == "strong"
    assert row["explains"] <= found["harmed"] <= found["of"]
    assert row["explains_ratio"] == pytest.approx(row["explains"] / found["harmed"])
    assert row["explains_ratio"] > 0.9
    assert row["sentence"] in found["told"]
    assert found["try"] == row["try"][0]


def test_evidence_is_in_figures_that_the_run_has(
    folders: dict[str, Path], diagnoses: dict[str, dict[str, Any]]
) -> None:
    """The sentence's numbers are those of the records and of the server's samples."""
    run = load_run(folders["queue"])
    (row,) = diagnoses["queue"]["findings"]
    figures, summary = row["figures"], summarize(run)
    assert figures["running_peak"] == 6
    assert figures["waiting_peak"] == run.server_metrics["waiting"].max() > 10
    assert figures["tpot_crowded_s"] < 1.25 * figures["tpot_calm_s"]
    burst = run.load[[any(a <= at < b for a, b in run.info.bursts) for at in run.load["scheduled_at_s"]]]
    assert figures["ttft_crowded_s"] == pytest.approx(burst["ttft_s"].median())
    assert diagnoses["queue"]["harmed"] == (
        summary["slo"]["attainment"]["whole"]["decided"] - summary["slo"]["attainment"]["whole"]["met"]
    )
    (memory,) = diagnoses["kv_cache"]["findings"]
    totals = load_run(folders["kv_cache"]).server_metrics["preemptions_total"]
    assert memory["figures"]["preemptions"] == totals.iloc[-1] > 20
    assert f"{totals.iloc[-1]} preemptions" in " ".join(memory["evidence"])
    (frozen,) = diagnoses["freeze"]["findings"]
    assert frozen["figures"]["start_s"] == pytest.approx(10.0, abs=0.15)
    assert frozen["figures"]["end_s"] == pytest.approx(13.01, abs=0.01)
    (rejected,) = diagnoses["rejections"]["findings"]
    assert rejected["figures"]["rejected"] == (load_run(folders["rejections"]).load["status"] == 429).sum()
    assert rejected["figures"]["rejected_in_bursts_ratio"] == 1.0


def test_without_the_servers_metrics_the_queue_is_still_seen_but_less_surely(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(folders["queue"], tmp_path / "run")
    (tmp_path / "run" / "server_metrics.csv").unlink()
    found = summarize(load_run(tmp_path / "run"))["diagnosis"]
    assert [(row["key"], row["strength"]) for row in found["findings"]] == [("queue", "likely")]
    assert found["server_samples"] == 0


def test_a_queue_that_the_server_does_not_know_of_is_before_it(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(folders["queue"], tmp_path / "run")
    samples = [f"{second}.0,1,0,0.1,0,0,0,0" for second in range(60)]
    head = "at_s,running,waiting,kv_cache_used_ratio,preemptions_total,prompt_tokens_total"
    text = "\n".join([f"{head},generation_tokens_total,rejections_total", *samples, ""])
    (tmp_path / "run" / "server_metrics.csv").write_text(text)
    (row,) = summarize(load_run(tmp_path / "run"))["diagnosis"]["findings"]
    assert "in front of the server" in row["sentence"]


def test_the_client_comes_first_where_it_was_at_fault(folders: dict[str, Path], tmp_path: Path) -> None:
    """A late client explains a few requests, rejections many: the client still leads."""
    records = [
        replace(failed(r.arrival, r.scheduled_at_s or 0.0), outcome="rejected", failure_class="http_429")
        if in_burst(r)
        else r
        for r in steady()
    ]
    late = [answered(k, k / 4, lag_s=1.2) if k < 4 else r for k, r in enumerate(records)]
    found = summarize(load_run(write_run(tmp_path, late, slo="ttft_from_schedule<1s", **BURST)))["diagnosis"]
    assert keys(found) == ["client", "rejections"]
    assert found["findings"][0]["explains"] < found["findings"][1]["explains"]
    assert "load generator" in found["told"]


def test_streams_that_stood_still_alone_hint_at_the_kv_cache(tmp_path: Path) -> None:
    records = [
        replace(r, gap_max_s=2.0, last_token_at_s=(r.last_token_at_s or 0) + 2) if in_burst(r) else r
        for r in steady()
    ]
    found = summarize(load_run(write_run(tmp_path, records, slo=SLO, **BURST)))["diagnosis"]
    assert [(row["key"], row["strength"]) for row in found["findings"]] == [("kv_cache", "hint")]
    assert found["told"].startswith("perhaps, ")


def test_harm_without_a_known_cause_is_said_to_be_so(tmp_path: Path) -> None:
    """The first answer comes long after the first token: no queue, no prompt, no step is at fault."""
    records = [replace(r, first_answer_at_s=(r.sent_at_s or 0.0) + 0.25) for r in steady()]
    found = summarize(load_run(write_run(tmp_path, records, slo="answer_ttft<200ms", **BURST)))["diagnosis"]
    assert found["harmed"] == found["of"] == 120
    assert keys(found) == ["unexplained"]
    assert found["told"] == "120 of 120 requests were harmed, and no cause known here shows in the records"
    assert "server's own metrics" in found["try"]


def test_without_an_slo_harm_is_judged_by_the_runs_own_quiet_times(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    for cause, expected in (("queue", ["queue"]), ("nothing", [])):
        shutil.copytree(folders[cause], tmp_path / cause)
        info = json.loads((tmp_path / cause / "run.json").read_text())
        (tmp_path / cause / "run.json").write_text(json.dumps(info | {"slo": ""}))
        found = summarize(load_run(tmp_path / cause))["diagnosis"]
        assert found["judged_by"] == "calm"
        assert keys(found) == expected


@pytest.mark.parametrize("records", [[], [answered(0, 1.0)], [failed(0, 1.0)]], ids=["none", "one", "failed"])
def test_hardly_any_request_is_no_trouble(tmp_path: Path, records: list[RequestRecord]) -> None:
    run = load_run(write_run(tmp_path, records))
    summary = summarize(run)
    json.dumps(summary["diagnosis"], allow_nan=False)
    assert "What happened and what to do" in report_html(run, summary)


def test_section_first_screen_and_table_say_it(folders: dict[str, Path]) -> None:
    run = load_run(folders["kv_cache"])
    page = report_html(run, summarize(run))
    assert page.index("<strong>Why:</strong> The KV cache was too small") < page.index('class="tiles"')
    assert page.index('class="tiles"') < page.index('id="diagnosis"') < page.index('id="time"')
    assert "--gpu-memory-utilization" in page
    ended = subprocess.run(
        [sys.executable, "-m", "analysis", "summary", str(folders["kv_cache"])],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "the KV cache was too small" in " ".join(ended.stdout.split())
    assert max(map(len, ended.stdout.splitlines())) <= 110


def test_every_sentence_can_be_filled(diagnoses: dict[str, dict[str, Any]]) -> None:
    told = [line for found in diagnoses.values() for row in found["findings"] for line in _lines(row)]
    assert told
    assert not [line for line in told if "{" in line or "nan" in line.split() or "n/a" in line]
    assert all(words.tries for words in DIAGNOSIS_WORDS.values())
    assert all(math.isfinite(value) for value in _numbers(diagnoses.values()))


def _lines(row: dict[str, Any]) -> list[str]:
    return [row["sentence"], *row["evidence"], *row["try"]]


def _numbers(found: Iterable[dict[str, Any]]) -> list[float]:
    rows = [row for one in found for row in one["findings"]]
    return [value for row in rows for value in row["figures"].values() if isinstance(value, float)]


def failing(folder: Path, at_s: list[float]) -> dict[str, Any]:
    """A calm run of 60 s in which the requests due at these moments failed; what is found of it."""
    records = [
        failed(r.arrival, r.scheduled_at_s or 0.0, status=502) if r.scheduled_at_s in at_s else r
        for r in steady(60)
    ]
    found = summarize(load_run(write_run(folder, records, slo=SLO, duration_s=60.0)))["diagnosis"]
    (row,) = found["findings"]
    return dict(row)


@pytest.mark.parametrize(
    ("at_s", "at_one_time"),
    [
        ([20.0, 22.0, 25.0], True),
        ([20.0, 25.0], False),
        ([20.0, 24.0, 30.0], False),
        ([float(second) for second in range(2, 58, 3)], False),
    ],
    ids=["within 6 s", "two are too few", "over 10 s", "all the time"],
)
def test_failures_at_one_time_are_told_from_failures_all_along(
    tmp_path: Path, at_s: list[float], at_one_time: bool
) -> None:
    row = failing(tmp_path, at_s)
    assert (row["key"], row["figures"]["failed"]) == ("failures", len(at_s))
    assert ("at one time" in row["sentence"]) is at_one_time


def test_a_request_lost_to_a_closed_connection_is_no_failure_of_the_server(tmp_path: Path) -> None:
    lost = {"failure_class": "stale_connection", "status": None, "error": "closed"}
    records = [failed(r.arrival, r.scheduled_at_s or 0.0, **lost) if in_burst(r) else r for r in steady()]
    found = summarize(load_run(write_run(tmp_path, records, slo=SLO, **BURST)))["diagnosis"]
    assert keys(found) == ["stale"]
    assert found["findings"][0]["figures"]["stale"] == 16


def test_a_busy_worker_explains_the_harm_of_its_own_requests_only(tmp_path: Path) -> None:
    """Even arrivals are worker 0's, odd ones worker 1's; all in the burst are late, and worker 0 is busy."""
    records = [replace(r, worker=(r.arrival or 0) % 2) for r in steady()]
    records = [
        replace(r, first_answer_at_s=(r.sent_at_s or 0.0) + 0.9) if in_burst(r) else r for r in records
    ]
    busy = [(0, [second, 0.99, 0.4, 0.6, 9]) for second in range(8, 13)]
    slo = "answer_ttft<500ms"
    found = summarize(load_run(write_run(tmp_path, records, client_load=busy, slo=slo, **BURST)))["diagnosis"]
    assert found["harmed"] == 16
    by_key = {row["key"]: row["explains"] for row in found["findings"]}
    assert (by_key["client"], by_key["unexplained"]) == (8, 8)


def test_without_bursts_the_calm_and_the_crowded_quarter_are_compared(tmp_path: Path) -> None:
    """n in flight from 1 to 100, and a TTFT of 10 ms times n: medians of 1 to 25 and of 76 to 100."""
    records = [answered(n - 1, n / 5, ttft_s=n / 100, in_flight_at_send=n) for n in range(1, 101)]
    run = load_run(write_run(tmp_path, records))
    found = facts_of(Evidence(run, []), np.full(100, "quiet", dtype=object), None, None).contrast
    assert found.parts == "in_flight"
    assert (found.in_flight_calm, found.in_flight_crowded) == (13.0, 88.0)
    assert (found.ttft_calm_s, found.ttft_crowded_s) == pytest.approx((0.13, 0.88))
