"""Run and summary -> one self-contained report.html in the run folder.

SECTIONS is the page in order; a new part is a function (Run, summary) -> Section and a line here; None leaves
it out. Each renders on an empty, a tiny, a failed and a huge run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from analysis import (
    sections_bursts,
    sections_client,
    sections_detail,
    sections_diagnosis,
    sections_groups,
    sections_lengths,
    sections_load,
    sections_main,
)
from analysis.answer import header
from analysis.load import Run
from analysis.page import Section, page
from runlog.folder import REPORT_HTML, write_text_atomically

SECTIONS: tuple[Callable[[Run, Mapping[str, Any]], Section | None], ...] = (
    sections_diagnosis.diagnosis,
    sections_main.over_time,
    sections_load.levels,
    sections_bursts.bursts,
    sections_main.latency,
    sections_main.slo,
    sections_groups.flow,
    sections_groups.groups,
    sections_load.burstiness,
    sections_lengths.lengths,
    sections_load.events,
    sections_detail.failures,
    sections_detail.slowest,
    sections_detail.checks,
    sections_client.load_generator,
    sections_detail.settings,
    sections_detail.terms,
)


def write_report(run: Run, summary: Mapping[str, Any]) -> Path:
    """Write report.html of `run` into its folder and return its path; `summary` is
    analysis.summary.summarize(run).
    """
    path = run.folder / REPORT_HTML
    write_text_atomically(path, report_html(run, summary))
    return path


def report_html(run: Run, summary: Mapping[str, Any]) -> str:
    """The report as the text of one HTML file that needs no network."""
    sections = [section for make in SECTIONS if (section := make(run, summary)) is not None]
    return page(f"{summary['verdict']}: {run.info.name or run.info.run_id}", header(run, summary), sections)
