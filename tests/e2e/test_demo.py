"""The demo as a user runs it, shorter: two runs, every request accounted for, nothing left running."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent.parent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_the_demo_runs_both_scenarios_and_sets_them_side_by_side(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments", "demo", "--run-time", "50", "--runs-dir", str(tmp_path)]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    uniform, pulse = (
        json.loads(next(tmp_path.glob(f"*-{name}/summary.json")).read_text())
        for name in ("A-uniform", "B-pulse")
    )
    assert uniform["counts"]["scheduled"] == pulse["counts"]["scheduled"]  # the same mean by construction
    for summary in (uniform, pulse):
        counts = summary["counts"]
        assert counts["scheduled"] == counts["sent"] + counts["not_sent"]
        assert counts["sent"] == sum(counts[key] for key in ("succeeded", "failed", "rejected", "cancelled"))
    assert [round(burst["start_s"]) for burst in pulse["bursts"]] == [10, 30]
    assert uniform["bursts"] == []
    for word in (
        "A-uniform",
        "B-pulse",
        "TTFT p95",
        "recovery",
        "burst 2",
        "IDC(1 s) asked / sent",
        "verdict",
    ):
        assert word in run.stdout
    for report in tmp_path.glob("*-*/report.html"):
        assert str(report) in run.stdout
