"""A suite's page says what was run, links each run's report, and tells the price of bursts in a sentence."""

from __future__ import annotations

from pathlib import Path

from analysis.alike import Side
from analysis.load import load_run
from analysis.matrix import Cell, Matrix, matrix_of
from analysis.matrix_page import matrix_page
from analysis.matrix_words import about, prices
from analysis.summary import summarize
from tests.run_folders import answered, write_run

BURSTS = {"shape": "pulse", "bursts": [[10.0, 12.0]]}
OPTIONS = {"duration": "20s", "input_tokens": "60", "output_tokens": "11"}


def a_and_b(folder: Path, ttfts_s: tuple[float, float], count: int = 40) -> Matrix:
    """A even and B with one burst, 2 requests/s and `count` requests each; B has the second TTFT."""
    cells = []
    for name, ttft_s, shape in (("A", ttfts_s[0], {}), ("B", ttfts_s[1], BURSTS)):
        records = [answered(k, 20.0 * k / count, ttft_s) for k in range(count)]
        options = OPTIONS | {"period": "20s"} | ({"peak_ratio": "5"} if shape else {})
        path = write_run(
            folder / f"{name}-run", records, slo="ttft<1s", options=options, mean_rate_rps=2.0, **shape
        )
        (path / "report.html").touch()
        run = load_run(path)
        cells.append(Cell(name, 0, Side(run, summarize(run), "server")))
    return matrix_of("quick", ["A", "B"], ["server"], cells)


def test_the_page_says_what_was_run_and_links_each_report(tmp_path: Path) -> None:
    found = a_and_b(tmp_path, (0.2, 2.0))
    assert about(found) == [
        "A: uniform.",
        "B: pulse, period 20s, peak ratio 5.",
        "Server: http://127.0.0.1:8000/v1.",
        "Model: test-llm.",
        "SLO: ttft<1s.",
        "Each run: 20s.",
        "Prompt tokens: 60.",
        "Answer tokens: 11.",
    ]
    page = matrix_page(found)
    assert "B: pulse, period 20s, peak ratio 5." in page
    assert '<a href="A-run/report.html">A-run</a> · <a href="B-run/report.html">B-run</a>' in page


def test_a_run_without_a_report_is_not_linked(tmp_path: Path) -> None:
    a_and_b(tmp_path, (0.2, 2.0))
    for path in tmp_path.glob("*/report.html"):
        path.unlink()
    cells = []
    for path in sorted(tmp_path.iterdir()):
        run = load_run(path)
        cells.append(Cell(path.name[0], 0, Side(run, summarize(run), "server")))
    page = matrix_page(matrix_of("quick", ["A", "B"], ["server"], cells))
    assert "report.html" not in page
    assert "Reports of the runs" not in page


def test_what_runs_do_not_share_is_not_told_as_shared(tmp_path: Path) -> None:
    found = a_and_b(tmp_path, (0.2, 2.0))
    found.figures["B", "server"].first.options["input_tokens"] = "900"
    assert "Prompt tokens: 60." not in about(found)
    assert "Answer tokens: 11." in about(found)


def test_the_price_is_a_sentence_and_says_where_the_bursts_are_few(tmp_path: Path) -> None:
    (dear,) = prices(a_and_b(tmp_path / "dear", (0.2, 2.0), count=400), "server")
    assert dear.startswith("At the same 2 req/s, B costs 100 points of SLO attainment, adds 1.8 s to TTFT")
    assert dear.endswith("(too few bursts (1) for an interval; against A, server).")
    (cheap,) = prices(a_and_b(tmp_path / "cheap", (0.5, 0.2), count=400), "server")
    assert "takes 300 ms off TTFT p99" in cheap


def test_a_server_that_is_too_busy_without_bursts_is_told_before_the_price(tmp_path: Path) -> None:
    found = a_and_b(tmp_path / "busy", (1.5, 1.5))
    (told,) = prices(found, "server")
    assert told.startswith("Even without a burst (A, server) only 0 % of the requests met the SLO")
    busy, price = prices(a_and_b(tmp_path / "worse", (1.5, 3.0), count=400), "server")
    assert busy.startswith("Even without a burst")
    assert "B adds 1.5 s to TTFT p99" in price
    assert not any(
        "Even without" in line for line in prices(a_and_b(tmp_path / "calm", (0.2, 0.2)), "server")
    )


def test_a_burst_that_hurts_for_no_time_costs_nothing(tmp_path: Path) -> None:
    (told,) = prices(a_and_b(tmp_path, (0.2, 0.2)), "server")
    assert "B costs nothing that can be seen (" in told
