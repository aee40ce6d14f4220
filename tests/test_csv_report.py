"""The report from Locust CSV: what it says, what it refuses to say, and that it is one safe page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.csv_chart import MOST_POINTS, history_figure
from analysis.csv_report import SECTIONS, csv_report_html, write_csv_report
from analysis.csv_run import CsvRun, load_csv_run
from analysis.csv_summary import MOST_NAMES, TOP_NAMES, rounded_ms, summarize_csv, text_summary
from analysis.numbers import count
from tests.test_locust_csv import DATA, history_of, history_row, stats_row, write, write_stats
from tests.test_report import HOSTILE, Page


def load(prefix: Path) -> CsvRun:
    return load_csv_run(prefix, now_s=lambda: 0.0)


def shown(prefix: Path, slo: str | None = None) -> tuple[dict[str, Any], str, Page]:
    run = load(prefix)
    found = summarize_csv(run, slo)
    json.dumps(found, allow_nan=False)
    return found, text_summary(found), Page(csv_report_html(run, found))


def test_failures_metric_events_and_rounding_are_told() -> None:
    """Field cases A23 to A25 on the file that Locust 2.47.0 wrote for them."""
    _, text, page = shown(DATA / "2.47.0" / "events", "ttft<148ms")
    for said in (text, page.text):
        assert "120 requests" in said
        assert "16.7 % failed" in said
        assert "1247.6 ms" in said
        assert "between 1197.8 ms and 1496.5 ms" in said
        assert "TTFT 100" in said
        assert "Aggregated row counts 320" in said
        assert "320 requests" not in said
        assert "150 (rounded)" in said
        assert "not computable" in said
    assert "p90         ≤ 1496.5 ms, in the file 1500 (rounded); failures as infinite: not met" in text
    assert "p80         ≤ 1496.5 ms, in the file 1500 (rounded); failures as infinite: ≤ 1496.5 ms" in text
    assert (
        "TTFT /v1/chat/completions: 100 events, average 147 ms, p50 ≤ 147 ms, in the file 150 (rounded)"
        in text
    )


@pytest.mark.parametrize(
    ("value", "most", "text"),
    [
        (150, 147, "≤ 147 ms, in the file 150 (rounded)"),
        (98, 97, "98 ms"),
        (150, 199, "150 ms (rounded)"),
        (150, None, "150 ms (rounded)"),
        (99, 99.4, "99 ms"),
        (0, 0.4, "< 1 ms"),
        (1496, 2000, "1496 ms"),  # Locust's rounding can be replaced; then nothing is marked
        (123000, 123400, "123000 ms (rounded)"),
    ],
)
def test_a_percentile_is_marked_as_rounded_and_never_above_the_maximum(
    value: float, most: float | None, text: str
) -> None:
    assert rounded_ms(value, most) == text


def test_the_two_kinds_of_history_of_one_burst() -> None:
    found, text, page = shown(DATA / "2.47.0" / "burst_full")
    assert "an upper bound (−0/+14 s)" in text
    assert "upper bound" in page.text
    assert found["bursts"][0]["recovery_at_most_s"] is not None
    assert found["history"]["percentiles"] == "window"

    found, text, page = shown(DATA / "2.47.0" / "burst")
    assert found["bursts"][0]["recovery_at_most_s"] is None
    for said in (text, page.text):
        assert "No recovery can be given: the percentiles in this history are totals since the start" in said
        assert "--csv-full-history" in said


def lines_of(prefix: Path) -> dict[str, list[float]]:
    run = load(prefix)
    assert run.history is not None
    mixed = run.mixed and run.history.counted == "events"
    return {line.name: list(line.y) for line in history_figure(run.history, run.bursts.bursts, mixed).data}


def test_only_percentiles_of_a_window_are_drawn_over_time() -> None:
    assert {"p50 of 10 s", "p95 of 10 s"} <= set(lines_of(DATA / "2.47.0" / "burst_full"))
    assert not [name for name in lines_of(DATA / "2.47.0" / "burst") if name.startswith("p")]
    assert "mean of what ended" not in lines_of(DATA / "2.43.4" / "ttft")  # of seconds and tokens


def test_a_gap_is_drawn_as_a_gap() -> None:
    line = lines_of(DATA / "2.47.0" / "burst_full")["p50 of 10 s"]
    assert any(value != value for value in line[60:])
    assert 0 not in line


def test_a_long_run_is_thinned_and_says_so(tmp_path: Path) -> None:
    rows = 3 * MOST_POINTS
    history_of(tmp_path, [history_row(1000 + t, 40 if 3000 <= t < 3009 else 4, 6 * t) for t in range(rows)])
    users = lines_of(tmp_path / "run")["users"]
    assert len(users) <= MOST_POINTS
    assert max(users) == 40
    assert f"of {count(rows)} rows" in shown(tmp_path / "run")[2].text


def test_three_thousand_names_are_twenty_and_the_others(tmp_path: Path) -> None:
    rows = [stats_row("GET", f"/item/{n}", n + 1) for n in range(3000)]
    prefix = write_stats(tmp_path, *rows, stats_row("", "Aggregated", 3000 * 3001 // 2))
    found, _, page = shown(prefix)
    assert len(found["names"]) == TOP_NAMES
    assert found["names"][0]["name"] == "/item/2999"
    assert found["other_names"]["names"] == 3000 - TOP_NAMES
    assert sum(row["requests"] for row in [*found["names"], found["other_names"]]) == found["requests"]
    assert f"others ({count(2980)} names)" in page.text
    few = write_stats(tmp_path, *rows[:MOST_NAMES])
    assert len(shown(few)[0]["names"]) == MOST_NAMES


def test_hostile_names_and_errors_stay_text(tmp_path: Path) -> None:
    prefix = write_stats(tmp_path, stats_row("GET", HOSTILE, 4, 2), stats_row("", "Aggregated", 4, 2))
    write(
        tmp_path / "run_failures.csv",
        ["Method", "Name", "Error", "Occurrences"],
        [["GET", HOSTILE, f"{HOSTILE} key sk-abcdefghijkl Bearer secretsecret", 2]],
    )
    write(tmp_path / "run_exceptions.csv", ["Count", "Message", "Traceback", "Nodes"], [[1, HOSTILE, "", ""]])
    history_of(tmp_path, [history_row(1000 + t, 3, t) for t in range(5)])
    _, _, page = shown(prefix)
    assert not [tag for tag, _ in page.tags if tag in ("img", "iframe", "link")]
    assert not [source for attributes, source in page.scripts if "alert('x')" in source and "<" in source]
    assert "</script>" in page.text
    assert "<key>" in page.text
    assert "sk-abc" not in page.text
    assert "secretsecret" not in page.text


@pytest.mark.parametrize("what", ["header only", "one success", "one failure", "empty", "history only"])
def test_the_page_has_all_its_parts_for_next_to_nothing(tmp_path: Path, what: str) -> None:
    rows = {
        "one success": [stats_row("GET", "/", 1), stats_row("", "Aggregated", 1)],
        "one failure": [stats_row("GET", "/", 1, 1), stats_row("", "Aggregated", 1, 1)],
    }.get(what, [])
    prefix = write_stats(tmp_path, *rows)
    if what == "empty":
        (tmp_path / "run_stats.csv").write_bytes(b"")
    if what == "history only":
        (tmp_path / "run_stats.csv").unlink()
        history_of(tmp_path, [history_row(1000, 0, 0, p="N/A", top="N/A")])
    _, text, page = shown(prefix)
    assert len(page.sections) == len(SECTIONS)
    assert "nan" not in text.lower().split()
    if not rows:
        assert "nothing to say about the server" in page.text


def test_the_command_writes_one_page_that_asks_nothing_of_a_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert main(["report", "--locust-csv", str(DATA / "2.47.0" / "burst_full"), "--out", str(out)]) == 0
    assert f"report   {out}" in capsys.readouterr().out
    page = Page(out.read_text(encoding="utf-8"))
    assert not [attributes for tag, attributes in page.tags if "src" in attributes]
    assert page.sections[:3] == ["time", "recovery", "limits"]

    prefix = write_stats(tmp_path, stats_row("GET", "/", 5))
    assert write_csv_report(prefix)[0] == tmp_path / "run_report.html"


def test_the_summary_is_text_or_json_and_types_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    prefix = str(DATA / "2.43.4" / "ttft")
    assert main(["summary", "--locust-csv", prefix]) == 0
    assert "120 requests (by type: POST 120)" in capsys.readouterr().out
    assert main(["summary", "--locust-csv", prefix, "--json", "--request-types", "TTFT,TPOT"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 216


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "--locust-csv", "nowhere/run"], "no CSV file of Locust"),
        (["report"], "--locust-csv PREFIX"),
        (["summary", "runs/x", "--locust-csv", "nowhere/run"], "--locust-csv PREFIX"),
        (["report", "runs/x", "--out", "page.html"], "--out"),
    ],
)
def test_wrong_input_is_one_line_and_exit_3(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 3
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_an_unknown_layout_exits_3_with_the_columns_seen(tmp_path: Path) -> None:
    (tmp_path / "run_stats.csv").write_text("url,hits\n/,1\n")
    done = subprocess.run(
        [sys.executable, "-m", "analysis", "report", "--locust-csv", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
        check=False,
    )
    assert done.returncode == 3
    assert "columns seen: url, hits" in done.stderr
    assert done.stderr.count("\n") == 1
