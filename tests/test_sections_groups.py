"""The report's groups, who hurts whom, and the flow of tokens: what they say of runs made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis.load import load_run
from analysis.report import report_html
from analysis.sections_groups import flow, groups
from analysis.summary import summarize
from runlog.record import RequestRecord
from tests.run_folders import answered, write_run


def made(folder: Path, records: list[RequestRecord], **info: Any) -> tuple[Any, dict[str, Any]]:
    run = load_run(write_run(folder, records, **info))
    return run, summarize(run)


def two_tenants() -> list[RequestRecord]:
    """A calm tenant, one request a second, slow while the other sends twenty at once at 30 s."""
    calm = [
        answered(k, 1.0 * k, ttft_s=2.0 if 30 <= k < 35 else 0.1, tenant="calm", input_tokens=100)
        for k in range(60)
    ]
    loud = [
        answered(60 + k, 30.0 + 0.01 * k, ttft_s=2.0, tenant="<loud>", input_tokens=600) for k in range(40)
    ]
    return [*calm, *loud]


def test_each_group_has_its_row_and_the_burst_of_one_tenant_shows_in_the_others(tmp_path: Path) -> None:
    run, summary = made(tmp_path, two_tenants(), slo="ttft<1s", duration_s=60.0)
    section = groups(run, summary)
    assert section is not None
    html = section.html
    for words in ("By tenant", "By prompt length, tokens", "Who hurts whom", "&lt;loud&gt;", "512 to 2047"):
        assert words in html
    assert "By name" not in html
    (calm,) = [row for row in summary["tenants"] if row["tenant"] == "calm"]
    assert calm["others"]["attainment"]["ratio"] < calm["quiet"]["attainment"]["ratio"] == 1.0
    assert "<loud>" not in html
    assert 'id="groups"' in report_html(run, summary)


def test_there_is_no_part_without_two_groups(tmp_path: Path) -> None:
    run, summary = made(tmp_path, [answered(0, 1.0)])
    assert groups(run, summary) is None


def test_there_is_no_flow_without_gaps(tmp_path: Path) -> None:
    run, summary = made(tmp_path, [answered(0, 1.0, tokens=1)], slo="tpot<50ms")
    assert flow(run, summary) is None
