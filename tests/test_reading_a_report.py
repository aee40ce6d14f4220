"""Every figure of the report's first screen, recomputed by the snippets of docs/reading_a_report.md."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import Any

import pytest

from analysis.load import load_run
from analysis.phased import ttft_by_phase
from analysis.summary import summarize
from experiments.simulate import add_arguments, simulate

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
    [(), ("--max-num-seqs", "8"), ("--admission", "queued-tokens=6000")],
    ids=["pulses", "few slots", "rejections"],
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
