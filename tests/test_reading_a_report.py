"""Every figure of the report's first screen, recomputed by the snippets of docs/reading_a_report.md."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.load import load_run
from analysis.phased import ttft_by_phase
from analysis.summary import summarize
from experiments.simulate import add_arguments, simulate
from tests.run_folders import answered, failed, write_run

DOC = Path(__file__).parent.parent / "docs" / "reading_a_report.md"
LOAD = (
    "--shape pulse --period 20s --lead 10s --rate 5 --run-time 110s --input-tokens lognormal:700,0.5 "
    "--output-tokens 30 --preset a100-8b --slo ttft<1s,tpot<50ms"
)


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", DOC.read_text(encoding="utf-8"), re.DOTALL)


def virtual_run(folder: Path, *options: str) -> Path:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    told = parser.parse_args([*LOAD.split(), *options, "--runs-dir", str(folder)])
    simulate(told, ["test"], show=lambda text: None)
    (made,) = folder.iterdir()
    return made


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--max-num-seqs", "8"),
        ("--max-num-seqs", "8", "--run-time", "97s"),
        ("--admission", "queued-tokens=6000"),
        ("--admission", "queued-tokens=1500"),
    ],
    ids=["pulses", "few slots", "answers after the end", "rejections", "most rejected"],
)
def test_the_snippets_give_the_figures_of_the_first_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    folder = virtual_run(tmp_path, *options)
    run = load_run(folder)
    summary = summarize(run)
    if options[:1] == ("--admission",):
        assert summary["counts"]["rejected"]
    monkeypatch.chdir(folder)
    found: dict[str, Any] = {}
    for snippet in snippets():
        exec(snippet, found)  # the document's own code
    slo, recovery = summary["slo"], summary["recovery"]
    by_phase = ttft_by_phase(run, summary)
    expected = {
        "attainment": slo["attainment"]["whole"]["ratio"],
        "attainment_in_bursts": slo["attainment"]["burst"]["ratio"],
        "base_s": recovery["baseline_ttft_s"],
        "ttft_quiet_s": by_phase["quiet"]["p50"]["value"],
        "ttft_in_bursts_s": by_phase["burst"]["p50"]["value"],
        "ttft_p95_in_bursts_s": by_phase["burst"]["p95"]["value"],
        "requests_per_s": summary["throughput"]["requests_per_s"],
        "output_tokens_per_s": summary["throughput"]["output_tokens_per_s"],
        "goodput_rps": slo["goodput_rps"],
        "error_ratio": summary["error_ratio"],
    }
    assert {key: found[key] for key in expected} == pytest.approx(expected)
    assert found["recoveries"] == [row["recovery_s"] for row in summary["bursts"]]
    if None not in found["recoveries"]:
        assert found["recovery"] == recovery["median_s"]
    assert Path.cwd() == folder
    assert os.listdir(folder)


def without_bursts(found: dict[str, Any]) -> None:
    """Run the snippets that need no burst, the first one being `found` already."""
    for snippet in snippets()[1:]:
        if "burst" not in snippet:
            exec(snippet, found)


def expected_without_bursts(summary: dict[str, Any]) -> dict[str, Any]:
    return {
        "attainment": summary["slo"]["attainment"]["whole"]["ratio"],
        "requests_per_s": summary["throughput"]["requests_per_s"],
        "output_tokens_per_s": summary["throughput"]["output_tokens_per_s"],
        "goodput_rps": summary["slo"]["goodput_rps"],
        "error_ratio": summary["error_ratio"],
    }


def test_a_run_without_bursts_has_the_other_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = virtual_run(tmp_path, "--shape", "uniform", "--run-time", "60s", "--max-num-seqs", "2")
    expected = expected_without_bursts(summarize(load_run(folder)))
    assert 0 < expected["attainment"] < 1
    monkeypatch.chdir(folder)
    found: dict[str, Any] = {}
    exec(snippets()[0], found)
    without_bursts(found)
    assert found["run"]["bursts"] == []
    assert {key: found[key] for key in expected} == pytest.approx(expected)


def test_a_closed_loop_is_read_by_the_lines_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three users' requests, some slow and some failed, a warm-up before them and a probe beside them."""
    records = [
        answered(None, 0.5 * k, ttft_s=1.5 if k % 5 == 0 else 0.1, scheduled_at_s=None, session=str(k % 3))
        for k in range(39)
    ]
    records += [failed(None, 3.0 * k, scheduled_at_s=None, session="0") for k in range(4)]
    records.append(answered(None, 0.0, ttft_s=9.0, name="warmup"))
    records.append(answered(None, 5.0, ttft_s=9.0, name="probe"))
    records = [replace(record, request_id=f"r-{n}") for n, record in enumerate(records)]
    info = {"load": "closed", "users_curve": [[0.0, 3.0], [20.0, 3.0]], "slo": "ttft<1s,tpot<50ms"}
    folder = write_run(tmp_path, records, schedule_s=[], **info)
    expected = expected_without_bursts(summarize(load_run(folder)))
    assert expected["attainment"] == pytest.approx(31 / 43)
    monkeypatch.chdir(folder)
    found: dict[str, Any] = {}
    first = snippets()[0].replace(
        'requests["arrival"].notna()', '~requests["name"].isin(["probe", "warmup"])'
    )
    (at_s,) = re.findall(r"`(load\[\"scheduled_at_s\"\]\.fillna\(.*?\))`", DOC.read_text(encoding="utf-8"))
    exec(first.replace('at_s = load["scheduled_at_s"]', f"at_s = {at_s}"), found)
    without_bursts(found)
    assert found["at_s"].notna().all()
    assert {key: found[key] for key in expected} == pytest.approx(expected)
