"""The report of a million requests: it is written, light enough to look at, quiet, and loses no request."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.report_folder import BURST_S, FAILED_SHARE, write_folder
from tests.report_pages import looked_at, needs_chromium

REPOSITORY = Path(__file__).resolve().parent.parent.parent
REQUESTS = 1_000_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), needs_chromium]


def test_the_report_of_a_million_requests_draws_and_zooms_without_an_error(
    browser: Any, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "run", REQUESTS)
    command = [sys.executable, "-m", "analysis", "report", str(folder)]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    summary = json.loads((folder / "summary.json").read_text())
    counts = summary["counts"]
    assert counts["scheduled"] == counts["sent"] == REQUESTS
    lost = counts["failed"] + counts["rejected"]
    assert counts["succeeded"] + lost == REQUESTS
    assert abs(lost / (FAILED_SHARE * REQUESTS) - 1) < 0.1
    assert len(summary["bursts"]) == 60
    assert all(burst["end_s"] - burst["start_s"] == BURST_S for burst in summary["bursts"])
    report = folder / "report.html"
    assert report.stat().st_size < 8_000_000
    page, bad = looked_at(browser, report)
    line = "document.querySelector('[data-figure=time_line]')"
    page.evaluate(f"Plotly.relayout({line}, {{'xaxis.range': [1000, 1300]}})")
    assert page.evaluate(f"{line}.layout.xaxis.range") == [1000, 1300]
    assert page.locator("[data-figure=time_line] .points path").count() > 1000
    assert bad == []
    page.close()
