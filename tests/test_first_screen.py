"""The report's first screen as a newcomer reads it: one figure for one thing, and nothing that misleads."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.answer import header, sentence
from analysis.load import Run, load_run
from analysis.numbers import unbroken
from analysis.sections_diagnosis import diagnosis, why
from analysis.sections_main import limit_of
from analysis.slo import wilson_interval
from analysis.summary import summarize
from analysis.tiles import five_numbers
from runlog.folder import WorkerInfo
from runlog.record import RequestRecord
from runlog.server_samples import ServerSample
from tests.run_folders import answered, failed, write_run


def read(folder: Path, records: list[RequestRecord], **info: Any) -> tuple[Run, dict[str, Any]]:
    run = load_run(write_run(folder, records, **info))
    return run, summarize(run)


def test_the_quiet_median_is_one_figure_in_sentence_and_tile(tmp_path: Path) -> None:
    """TTFT falls as time goes on, and no baseline has the first 5 s: the tile's figure is told."""
    records = [answered(k, k / 4, ttft_s=0.2 - 0.0005 * k) for k in range(160)]
    records += [answered(200 + k, 20 + k / 40, ttft_s=2.0) for k in range(40)]
    run, summary = read(tmp_path, records, duration_s=40.0, bursts=[[20.0, 21.0]])
    assert 0.100 < summary["recovery"]["baseline_ttft_s"] < 0.160
    said = re.search(r"from (\S+ m?s) \(quiet\)", sentence(run, summary))
    assert said is not None
    assert five_numbers(run, summary)[1][1].startswith(f"{said[1]} →")


def slow_sender(cpu: float) -> tuple[list[RequestRecord], dict[str, Any]]:
    """Each request half a second late, by a worker that used `cpu` of a core in every second."""
    records = [answered(k, k / 10, lag_s=0.5) for k in range(150)]
    load = [(0, [second, cpu, 0.1, 0.2, 3]) for second in range(20)]
    worker = WorkerInfo(0, "here", 1, cpu_peak_ratio=cpu)
    return records, {"client_load": load, "workers": [worker], "bursts": [[5.0, 6.0]]}


@pytest.mark.parametrize(("cpu", "words"), [(0.97, "more workers"), (0.03, "keep other work off")])
def test_a_load_generator_that_could_not_keep_up_is_what_is_said_first(
    tmp_path: Path, cpu: float, words: str
) -> None:
    records, info = slow_sender(cpu)
    run, summary = read(tmp_path, records, **info)
    assert summary["verdict"] == "INVALID"
    said = sentence(run, summary)
    assert said.startswith("The load generator itself was too slow, so this run does not tell")
    assert "0.0 % of the planned requests were sent in time" in said
    assert words in str(why(summary)).lower()


def test_what_times_tell_is_a_hint_where_the_client_made_them(tmp_path: Path) -> None:
    records, info = slow_sender(0.97)
    records = [
        replace(row, first_token_at_s=(row.sent_at_s or 0) + 3.0, last_token_at_s=(row.sent_at_s or 0) + 3.2)
        if 50 <= (row.arrival or 0) < 90
        else row
        for row in records
    ]
    _, summary = read(tmp_path, records, slo="ttft<1s", **info)
    by_times = [r for r in summary["diagnosis"]["findings"] if r["key"] in ("queue", "prefill", "decode")]
    assert by_times
    assert {row["strength"] for row in by_times} == {"hint"}


def test_of_many_warnings_the_others_are_behind_a_click(tmp_path: Path) -> None:
    run, summary = read(tmp_path, [answered(0, 1.0)])
    summary = {**summary, "warnings": [f"warning {k} of 7 ms" for k in range(5)]}
    html = str(header(run, summary))
    shown, folded = html.split("<details>")
    assert "and 3 more warnings" in folded
    for k in range(5):
        assert f"warning {k} of 7\u00a0ms" in (shown if k < 2 else folded)
    few = str(header(run, {**summary, "warnings": ["one", "two"]}))
    assert "<details>" not in few


def test_failures_are_no_queue_outside_the_server(tmp_path: Path) -> None:
    """From the burst on all failed, so TTFT never came back although the server's queue was empty."""
    samples = [ServerSample(at_s=float(k), running=0, waiting=0) for k in range(60)]
    records = [answered(k, k / 2) if k < 40 else failed(k, k / 2) for k in range(120)]
    _, summary = read(tmp_path, records, server_samples=samples, duration_s=60.0, bursts=[[20.0, 22.0]])
    (burst,) = summary["bursts"]
    assert burst["peak_failed"]
    assert burst["at_least_s"] > burst["queue_drain_s"] + 4
    assert burst["queue_disagrees"] is None
    assert not any("queue" in words for words in summary["warnings"])


def test_nothing_planned_and_nothing_harmed_are_said_once(tmp_path: Path) -> None:
    run, summary = read(tmp_path / "empty", [])
    assert "give a higher --rate" in sentence(run, summary)
    (advice,) = (row["advice"] for row in summary["checks"] if row["name"] == "success")
    assert advice.startswith("give a higher --rate")
    assert "There was no request to be harmed." in diagnosis(run, summary).html
    run, summary = read(tmp_path / "calm", [answered(k, k / 10) for k in range(100)])
    assert diagnosis(run, summary).html.count("harmed") == 1
    assert "No request was harmed: nothing stood in the way." in diagnosis(run, summary).html


def test_what_did_no_harm_is_a_note_and_not_nothing(tmp_path: Path) -> None:
    """Answers of half the length: told, with what to try, but neither as a harm's cause nor as nothing."""
    records = [answered(k, k / 10, tokens=50, asked_output_tokens=100) for k in range(100)]
    run, summary = read(tmp_path, records)
    assert summary["diagnosis"]["harmed"] == 0
    assert "No request was harmed; what was seen all the same:" in diagnosis(run, summary).html
    (line,) = why(summary)
    assert "<strong>Note:</strong>" in str(line)
    assert "Why:" not in str(line)


def test_a_limit_about_some_requests_is_no_line_over_all(tmp_path: Path) -> None:
    slo = "ttft<1s, ttft<200ms where input_tokens<=500, tpot<50ms where input_tokens>500"
    _, summary = read(tmp_path, [answered(k, k / 10) for k in range(50)], slo=slo)
    assert (limit_of(summary, "ttft_s"), limit_of(summary, "tpot_s")) == (1.0, None)


def test_numbers_keep_their_units_and_options_stay_whole() -> None:
    assert unbroken("10 s after 5 %, 3 ms, 4 req/s, 2 seconds") == (
        "10\u00a0s after 5\u00a0%, 3\u00a0ms, 4\u00a0req/s, 2 seconds"
    )
    lines = why({"diagnosis": {"harmed": 1, "findings": [], "told": "x", "try": "vLLM --max-num-seqs, more"}})
    assert '<span class="flag">--max-num-seqs</span>, more' in str(lines[0])


@pytest.mark.parametrize("n", [1, 72, 207, 229])
def test_an_interval_of_all_or_nothing_holds_its_own_figure(n: int) -> None:
    assert wilson_interval(n, n)[1] == 1.0
    assert wilson_interval(0, n)[0] == 0.0
