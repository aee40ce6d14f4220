"""Cases of the field about statistics and reports, at their values, through the public door.

A25, A26 and A28 have tests of their own where the rule lives (csv_report, locust_csv, load_run); here stand
those that a whole run folder shows.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.load import load_run
from analysis.report import report_html
from analysis.summary import summarize
from experiments.simulate import add_arguments, simulate
from runlog.exit_codes import ExitCode
from runlog.folder import read_requests
from tests.run_folders import answered, failed, write_run


def summary_of(folder: Path) -> dict[str, Any]:
    return summarize(load_run(folder))


def virtual_run(runs_dir: Path, options: str) -> Path:
    """The folder of a run in virtual time."""
    parser = ArgumentParser()
    add_arguments(parser)
    told = parser.parse_args([*options.split(), "--runs-dir", str(runs_dir)])
    assert simulate(told, ["simulate"], show=lambda text: None) is ExitCode.OK
    (folder,) = runs_dir.iterdir()
    return folder


def test_a23_failures_do_not_make_latency_better(tmp_path: Path) -> None:
    """100 requests of 1496 ms and 20 failures of 3 ms: 1496, 16.7 % failed, adjusted p90 not met."""
    good = [answered(k, 0.1 * k, ttft_s=1.496, tokens=1) for k in range(100)]
    bad = [failed(100 + k, 10 + 0.1 * k, after_s=0.003) for k in range(20)]
    found = summary_of(write_run(tmp_path, good + bad))
    e2e = found["metrics"]["e2e_s"]
    assert e2e["mean"] == pytest.approx(1.496)
    assert found["error_ratio"] == pytest.approx(20 / 120)
    assert e2e["adjusted"]["p90"]["not_met"] is True
    assert e2e["adjusted"]["p50"]["value"] == pytest.approx(1.496)


def test_a24_no_percentile_lies_above_the_maximum_and_a_share_is_exact(tmp_path: Path) -> None:
    """100 TTFTs of 147 ms, SLO 148 ms: 100 % met, p99 147 ms."""
    records = [answered(k, 0.1 * k, ttft_s=0.147) for k in range(400)]
    found = summary_of(write_run(tmp_path, records, slo="ttft<148ms", duration_s=60.0))
    ttft = found["metrics"]["ttft_s"]
    assert ttft["p99"]["value"] == pytest.approx(0.147)
    assert ttft["p99_9"]["value"] <= ttft["max"]
    assert found["slo"]["attainment"]["whole"]["ratio"] == 1.0


def test_a27_what_was_in_flight_at_the_end_is_accounted_for(tmp_path: Path) -> None:
    """A run in virtual time with answers of 1 to 8 s and 2 s of drain: in flight at the end, some of them end
    in the drain, the others are cut off; nothing vanishes."""
    folder = virtual_run(tmp_path, "--rate 4 --run-time 12s --output-tokens uniform:60-500 --drain 2s")
    found, records = summary_of(folder), list(read_requests(folder))
    assert None not in {record.ended_at_s for record in records}
    ends_s = [(record.sent_at_s or 0.0, record.ended_at_s or 0.0, record.outcome) for record in records]
    at_the_end = [(end_s, outcome) for sent_s, end_s, outcome in ends_s if sent_s < 12.0 < end_s]
    drained = sum(outcome == "succeeded" for _, outcome in at_the_end)
    cut = sum(outcome == "cancelled" for _, outcome in at_the_end)
    assert min(drained, cut) > 2
    assert drained + cut == len(at_the_end)
    counts = found["counts"]
    assert counts["sent"] == counts["scheduled"] == len(records)
    assert (counts["finished_in_drain"], counts["cancelled"]) == (drained, cut)
    assert counts["finished_in_window"] == counts["sent"] - len(at_the_end)
    assert counts["missing"] == counts["twice"] == 0
    assert found["window_s"] == 12.0
    assert found["throughput"]["requests_per_s"] == pytest.approx(counts["finished_in_window"] / 12)


@pytest.mark.parametrize(
    "records",
    [[], [answered(0, 1.0)], [failed(0, 1.0)], [answered(k, 1.0 * k) for k in range(5)]],
    ids=["0 requests", "1 success", "1 failure", "1 rate"],
)
def test_a29_a_report_has_all_its_parts_and_strict_numbers(
    tmp_path: Path, records: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "run", records, slo="ttft<1s")
    assert main(["report", str(folder)]) == 0
    text = (folder / "summary.json").read_text()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    page = (folder / "report.html").read_text()
    assert "NaN" not in text
    for part in ("Latency", "Failures", "Checks", "Settings"):
        assert part in page
    succeeded = sum(record.outcome == "succeeded" for record in records)
    assert found["counts"]["succeeded"] == succeeded
    capsys.readouterr()
    code = main(["check", str(folder)])
    assert (code == 2) is (succeeded == 0), capsys.readouterr().out


def test_a30_cached_prompts_are_told_from_1_percent_on(tmp_path: Path) -> None:
    """A second run of one seed against a prefix cache is faster for that reason alone."""

    def found(name: str, cached_tokens: int | None) -> dict[str, Any]:
        records = [answered(k, 0.1 * k, cached_tokens=cached_tokens) for k in range(50)]
        return summary_of(write_run(tmp_path / name, records))

    def warned(summary: dict[str, Any]) -> bool:
        return any(warning.startswith("cached prompts:") for warning in summary["warnings"])

    warm, cold = found("warm", 60), found("cold", 0)
    assert warm["tokens"]["cached_input_ratio"] == pytest.approx(0.6)
    assert warned(warm)
    assert not warned(cold)
    assert not warned(found("silent", None))
    assert warned(found("one in a hundred", 1))
    assert "60 % of the prompt tokens" in report_html(load_run(tmp_path / "warm"), warm)


def test_a30_two_runs_that_differ_in_it_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, cached in (("cold", 0), ("warm", 60)):
        records = [answered(k, 0.1 * k, cached_tokens=cached) for k in range(50)]
        write_run(tmp_path / name, records, name=name, run_id=name, schedule_sha256="same")
    assert main(["compare", str(tmp_path / "cold"), str(tmp_path / "warm"), "--allow", "verdict"]) == 3
    assert "[cached]: cached prompt tokens are 0 % against 60 %" in capsys.readouterr().err


def test_a43_error_texts_of_a_gateway_are_a_few_kinds(tmp_path: Path) -> None:
    """A run in virtual time before a small token limit; its refusals name the tokens of each request."""
    load = "--rate 100 --run-time 60s --input-tokens lognormal:3000,1 --gateway tokens=60000/min,burst=900"
    run = load_run(virtual_run(tmp_path, load))
    refused = run.load[run.load["outcome"] == "rejected"]
    assert len(refused) > 4_000
    assert refused["error"].nunique() > 1_000
    summary = summarize(run)
    page = report_html(run, summary)
    assert len(summary["error_texts"]["groups"]) <= 3
    assert sum(row["count"] for row in summary["error_texts"]["groups"]) == len(refused)
    assert "requested" in page


def test_a43_100_000_distinct_error_texts_are_a_few_kinds(tmp_path: Path) -> None:
    """Ids, numbers and times differ in each; the page stays small and says how many there were."""
    count = 100_000
    records = [
        failed(
            k, 0.001 * k, error=f"request req-{k:08x} failed after {k % 977} ms: tenant 'team {k}' over quota"
        )
        for k in range(count)
    ]
    folder = write_run(tmp_path, [answered(count, 100.5), *records], duration_s=101.0)
    run = load_run(folder)
    began = time.process_time()
    summary = summarize(run)
    page = report_html(run, summary)
    assert time.process_time() - began < 60, "grouped by columns, not by pairs"
    assert summary["failures"][0]["count"] == count
    assert len(summary["error_texts"]["groups"]) <= 50
    assert sum(row["count"] for row in summary["error_texts"]["groups"]) == count
    assert len(page.encode()) < 8_000_000
