"""Policies that differ are told apart; equal ones, apart in nothing but the noise of their steps, are not."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from analysis.alike import Side
from analysis.compare import compare
from analysis.load import load_run
from analysis.summary import summarize
from experiments.simulate import add_arguments, simulate

pytestmark = pytest.mark.slow

SCENARIO_B = (
    "--shape pulse --rate 6.5 --input-tokens lognormal:700,0.5 --output-tokens 60 --run-time 90s "
    "--period 10s --preset a100-8b --jitter 0.1"
).split()
PAIRS, MOST_CALLED_DIFFERENT = 200, 17
"""17 of 200: the upper end of a two-sided 98 % interval round 5 %."""


def virtual_run(folder: Path, *options: str) -> Side:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    simulate(
        parser.parse_args([*SCENARIO_B, *options, "--runs-dir", str(folder)]),
        ["test"],
        show=lambda text: None,
    )
    (made,) = folder.iterdir()
    run = load_run(made)
    return Side(run, summarize(run))


def told_apart(place: Path, number: int) -> bool:
    """Two runs of one schedule on equal servers whose steps take different times: is a difference claimed?"""
    sides = [
        virtual_run(
            place / f"{number}-{one}",
            *(
                "--seed",
                str(number),
                "--max-num-batched-tokens",
                "2048",
                "--jitter-seed",
                str(2 * number + one),
            ),
        )
        for one in (0, 1)
    ]
    (found,) = compare(sides[0], sides[1:])
    assert found.blocks >= 8
    return any(row.finding in ("better", "worse", "small") for row in found.rows)


def test_two_budgets_under_scenario_b_are_told_apart(tmp_path: Path) -> None:
    wide, narrow = (
        virtual_run(tmp_path / budget, "--max-num-batched-tokens", budget) for budget in ("8192", "2048")
    )
    (found,) = compare(wide, [narrow])
    assert found.blocks >= 8
    assert {row.finding for row in found.rows} & {"better", "worse"}


@pytest.mark.timeout(1500)
def test_of_200_pairs_of_equal_policies_at_most_17_are_called_different(tmp_path: Path) -> None:
    with ProcessPoolExecutor(max_workers=2) as pool:
        called: Iterator[bool] = pool.map(told_apart, [tmp_path] * PAIRS, range(PAIRS))
        assert sum(called) <= MOST_CALLED_DIFFERENT
