"""What the report says of a burst's aftermath, of a calibration and of the ends of answers."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from analysis.load import load_run
from analysis.sections_aftermath import aftermath
from analysis.sections_bursts import bursts
from analysis.sections_detail import settings
from analysis.sections_lengths import lengths
from analysis.summary import summarize
from client.preflight import Spent
from loadgen.capacity_rule import Calibration, Capacity, Step
from runlog.record import RequestRecord
from runlog.server_samples import ServerSample
from tests.run_folders import answered, failed, write_run

INFO: dict[str, Any] = {"duration_s": 60.0, "bursts": [[20.0, 22.0]], "slo": "ttft<1s"}


def one_burst() -> list[RequestRecord]:
    """2/s quiet at 0.1 s; 20 within 1 s of a burst of 2 s, each with a TTFT of 4 s; one of them failed."""
    records = [answered(k, 0.5 * k) for k in range(120) if not 20 <= 0.5 * k < 22]
    records += [answered(200 + k, 20 + k / 20, ttft_s=4.0, tokens=1) for k in range(19)]
    records.append(failed(300, 20.99))
    return sorted(records, key=lambda record: record.scheduled_at_s or 0.0)


def cells(html: str) -> list[list[str]]:
    """The rows of the tables in `html`, as text."""
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    return [
        [re.sub(r"<[^>]+>", "|", cell).strip("|") for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)]
        for row in rows
    ]


def test_a_burst_leaves_backlog_drain_and_area(tmp_path: Path) -> None:
    """Threshold 0.1 + 0.2 s: 19 requests were 3.7 s beyond it, 70.3 request-seconds. At 22 s all 19 were in
    flight, the last one, sent at 20.901 s, has its first token at 24.901 s: 2.9 s later."""
    samples = [ServerSample(at_s=float(k), running=1, waiting=5 if 20 <= k < 25 else 0) for k in range(60)]
    run = load_run(write_run(tmp_path, one_burst(), server_samples=samples, **INFO))
    summary = summarize(run)
    html = aftermath(summary)
    assert cells(html)[1] == ["1", "19", "2.9 s", "19", "70.3|and 1 failed", "3 s"]
    assert (
        "When it ended: 19 requests were in flight; the last of its own had its first token 2.9 s later"
        in (html)
    )
    assert "<details>" in html
    assert html in bursts(run, summary).html
    assert "server's queue empty" in html.replace("&#x27;", "'")


def test_several_bursts_have_medians_with_their_range_and_no_queue_column(tmp_path: Path) -> None:
    records = one_burst() + [answered(400 + k, 40 + k / 20, ttft_s=2.0, tokens=1) for k in range(10)]
    info = {**INFO, "bursts": [[20.0, 22.0], [40.0, 41.0]]}
    summary = summarize(load_run(write_run(tmp_path, records, **info)))
    html = aftermath(summary)
    assert "When a burst ended (median over bursts): " in html
    assert re.search(r"requests were in flight \(1[0-3] to 19\);", html)
    assert [len(row) for row in cells(html)] == [5, 5, 5]
    assert "times the quiet one at p50" in html


def test_a_burst_without_a_threshold_has_no_area(tmp_path: Path) -> None:
    records = [answered(k, 3.0, ttft_s=0.1 + k / 10) for k in range(30)]
    summary = summarize(load_run(write_run(tmp_path, records, bursts=[[3.0, 3.0]], rate_curve=[])))
    html = aftermath(summary)
    assert cells(html)[1][3:] == ["n/a", "n/a"]
    assert "beyond the recovery" not in html


@pytest.mark.parametrize("at_least", [False, True])
def test_a_calibration_is_a_table_in_the_settings(tmp_path: Path, at_least: bool) -> None:
    steps = (
        Step(1, 3, 3, 0.5, 0.05, 0.06, 0.02, 100.0),
        Step(2, 6, 5, 0.95, 0.07, 0.3, 0.021, 100.0),
        Step(5, 15, 9, None, None, None, None, 100.0, why="<3> of 15 failed"),
    )
    spent = Spent(0, 0, 0)
    found = Calibration(Capacity(0.95, at_least, 0.57), steps, spent).told()
    run = load_run(write_run(tmp_path, [answered(0, 1.0)], rate_calibration=found))
    html = settings(run, summarize(run)).html
    start = html.index("How the rate was found")
    rows = cells(html[start : html.index("</table>", start)])
    assert rows[1:] == [
        ["1", "0.5", "50 ms", "60 ms", "20 ms", "3 / 3", "yes"],
        ["2", "0.95", "70 ms", "300 ms", "21 ms", "5 / 6", "yes"],
        ["5", "n/a", "n/a", "n/a", "n/a", "9 / 15", "&lt;3&gt; of 15 failed"],
    ]
    assert "the mean rate is 60 % of it: 0.57 requests/s" in html
    assert ("may take more" in html) is at_least
    assert set(asdict(steps[0])) <= set(found["steps"][0])


def test_without_a_calibration_nothing_is_said_of_it(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path, [answered(0, 1.0)]))
    assert "How the rate was found" not in settings(run, summarize(run)).html


def test_how_answers_ended_and_how_many_tokens_an_event_held(tmp_path: Path) -> None:
    """Three answers of 12 tokens in 4 events, two ended by length and one by stop: 3 tokens an event."""
    records = [
        answered(k, k, tokens=12, output_events=4, finish_reason="stop" if k == 2 else "length")
        for k in range(3)
    ]
    run = load_run(write_run(tmp_path / "run", records))
    html = lengths(run, summarize(run)).html
    assert "Answers ended by: length 2, stop 1." in html
    assert "An event held 3 tokens on average" in html
    silent = load_run(write_run(tmp_path / "none", [failed(0, 1.0)]))
    assert "Answers ended" not in lengths(silent, summarize(silent)).html
