"""A suite's matrix in words: what bursts cost, and that runs which are not VALID are told first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.alike import Side
from analysis.load import load_run
from analysis.matrix import Cell, Matrix, matrix_of
from analysis.matrix_page import matrix_page
from analysis.matrix_words import matrix_text, prices, sentences
from analysis.summary import summarize
from tests.run_folders import answered, write_run


def two_cells(folder: Path, verdicts: tuple[str, str]) -> Matrix:
    """A and B on one server, their runs with these verdicts."""
    cells = []
    for name, verdict in zip("AB", verdicts, strict=True):
        run = load_run(write_run(folder / name, [answered(k, 0.1 * k, 0.2) for k in range(20)]))
        cells.append(Cell(name, 0, Side(run, {**summarize(run), "verdict": verdict}, "server")))
    return matrix_of("quick", ["A", "B"], ["server"], cells)


def test_runs_that_are_not_valid_are_told_before_anything_that_rests_on_them(tmp_path: Path) -> None:
    found = two_cells(tmp_path, ("VALID", "INVALID"))
    told = "1 of 2 runs are not VALID, so what follows may be the load generator's own doing"
    assert sentences(found)[0].startswith(told)
    assert matrix_text(found).startswith(told)
    assert "1 of 2 runs are not VALID" in matrix_page(found)


def test_nothing_is_said_of_validity_when_all_are_valid(tmp_path: Path) -> None:
    assert "VALID" not in matrix_text(two_cells(tmp_path, ("VALID", "VALID")))


@pytest.mark.parametrize(
    ("recovery_s", "told"),
    [
        (6.0, "the median burst hurts for another 6 s after its end"),
        (0.0, "the median burst hurts no longer than it lasts"),
    ],
)
def test_how_long_a_burst_hurts_counts_from_its_end(tmp_path: Path, recovery_s: float, told: str) -> None:
    found = two_cells(tmp_path, ("VALID", "VALID"))
    even, bursty = (replace(figures, offered_rps=2.0) for figures in found.figures.values())
    even, bursty = replace(even, bursts=0), replace(bursty, bursts=9, recovery_s=recovery_s)
    (words,) = prices(replace(found, figures={("A", "server"): even, ("B", "server"): bursty}), "server")
    assert told in words
