"""Contract tests over ARRIVALS: mean, CV and IDC against theory, with bands for fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapes.arrivals import ARRIVALS, Arrivals, arrivals_named, constant_times
from shapes.errors import ShapeError

EVENTS = 100_000.0
WINDOW = 100.0
EACH = pytest.mark.parametrize("arrivals", ARRIVALS.values(), ids=list(ARRIVALS))
SEEDS = pytest.mark.parametrize("seed", [1, 2, 3])


def drawn(arrivals: Arrivals, seed: int, total: float = EVENTS) -> np.ndarray:
    return arrivals.unit_times(np.random.default_rng(seed), total)


@EACH
@SEEDS
def test_there_is_one_event_per_unit(arrivals: Arrivals, seed: int) -> None:
    """The count of a renewal process has mean `total` and variance close to idc x total; 4 sd."""
    count = len(drawn(arrivals, seed))
    assert abs(count - EVENTS) <= 4 * np.sqrt(arrivals.idc * EVENTS) + 1


@EACH
@SEEDS
def test_the_gaps_have_the_cv_of_theory(arrivals: Arrivals, seed: int) -> None:
    """The standard error of the CV of n exponential gaps is 1 / sqrt(n); four of them."""
    gaps = np.diff(drawn(arrivals, seed))
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(arrivals.cv, abs=4 / np.sqrt(len(gaps)))


@EACH
@SEEDS
def test_counts_have_the_idc_of_theory(arrivals: Arrivals, seed: int) -> None:
    """(K - 1) IDC is chi-squared(K - 1) for a Poisson process: sd sqrt(2 / (K - 1)); four of them."""
    windows = int(EVENTS / WINDOW)
    counts = np.bincount((drawn(arrivals, seed) // WINDOW).astype(int), minlength=windows)
    idc = np.var(counts, ddof=1) / np.mean(counts)
    assert idc == pytest.approx(arrivals.idc, abs=4 * np.sqrt(2 / (windows - 1)))


@EACH
@settings(max_examples=200, deadline=None)
@given(total=st.floats(0, 5_000), seed=st.integers(0, 2**32))
def test_events_are_sorted_and_inside(arrivals: Arrivals, total: float, seed: int) -> None:
    times = drawn(arrivals, seed, total)
    assert times.dtype == np.float64
    assert np.all(np.diff(times) >= 0)
    assert np.all((times > 0) & (times < total))
    assert np.array_equal(times, drawn(arrivals, seed, total))


def test_poisson_goes_on_until_the_total_even_when_the_first_draw_falls_short() -> None:
    class Slow(np.random.Generator):
        """Gaps a tenth as long as they should be, so that the first block cannot reach the total."""

        def standard_exponential(self, size: int) -> np.ndarray:  # type: ignore[override]
            return np.full(size, 0.1)

    times = ARRIVALS["poisson"].unit_times(Slow(np.random.PCG64(0)), 1_000.0)
    assert times[-1] == pytest.approx(999.9, abs=0.11)
    assert np.diff(times) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("total", "count"),
    [(0.0, 0), (0.5, 0), (0.51, 1), (30.0, 30), (30.0000001, 30), (480.7, 481), (480.3, 480)],
)
def test_constant_is_the_middle_of_each_step(total: float, count: int) -> None:
    times = constant_times(np.random.default_rng(0), total)
    assert times.tolist() == [k + 0.5 for k in range(count)]


def test_unknown_arrivals_are_refused_with_the_known_ones() -> None:
    assert arrivals_named("poisson") is ARRIVALS["poisson"]
    with pytest.raises(ShapeError, match="no arrivals 'weibull': choose from constant, poisson"):
        arrivals_named("weibull")
