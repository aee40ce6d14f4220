"""Contract tests over ARRIVALS: mean, CV and IDC against theory, with bands for fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapes.arrivals import (
    ARRIVALS,
    DEFAULT_CV,
    HIGHEST_CV,
    LEAST_CV,
    Arrivals,
    arrivals_named,
    constant_times,
    gamma,
)
from shapes.errors import ShapeError

EVENTS = 100_000.0
WINDOW = 100.0
VARIANTS = {**ARRIVALS, "gamma 0.5": gamma(0.5), "gamma 1": gamma(1.0), "gamma 3": gamma(3.0)}
EACH = pytest.mark.parametrize("arrivals", VARIANTS.values(), ids=list(VARIANTS))
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
    """The standard error of the CV c of n gamma gaps is c sqrt((1 + c^2) / 2n), for exponential gaps
    1 / sqrt(n); four of them.

    By the delta method from Var(s^2) / sigma^4 = (kurtosis - 1) / n with kurtosis 3 + 6 c^2, Var(mean) = c^2
    / n and Cov(s^2, mean) / sigma^2 = 2 c^2 / n.
    """
    gaps = np.diff(drawn(arrivals, seed))
    cv = arrivals.cv
    four = 4 * cv * np.sqrt((1 + cv**2) / 2 / len(gaps))
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(cv, abs=four + 1e-12)


@EACH
@SEEDS
def test_counts_have_the_idc_of_theory(arrivals: Arrivals, seed: int) -> None:
    """(K - 1) IDC is chi-squared(K - 1) for a Poisson process: sd sqrt(2 / (K - 1)); four of them. For gamma
    gaps the band grows with the IDC, which for a window w is c^2 + (1 - c^4) / 6w.
    """
    windows = int(EVENTS / WINDOW)
    counts = np.bincount((drawn(arrivals, seed) // WINDOW).astype(int), minlength=windows)
    idc = np.var(counts, ddof=1) / np.mean(counts)
    expected = arrivals.idc + (0.0 if arrivals.cv == 0 else (1 - arrivals.idc**2) / 6 / WINDOW)
    assert idc == pytest.approx(expected, abs=4 * max(arrivals.idc, 0.25) * np.sqrt(2 / (windows - 1)))


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
    with pytest.raises(ShapeError, match="no arrivals 'weibull': choose from constant, poisson, gamma"):
        arrivals_named("weibull")


# --- gamma ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_gamma_arrivals_keep_the_mean_rate_from_the_start(cv: float) -> None:
    """The mean count of 2,000 seeds in a short stretch. Begun with a whole gap it would be off by about
    (c^2 - 1) / 2, which is 4 requests of 20 for a CV of 3: more than the band.
    """
    counts = np.array([len(drawn(gamma(cv), seed, total=20.0)) for seed in range(2_000)])
    assert abs(np.mean(counts) - 20.0) <= 4 * np.std(counts, ddof=1) / np.sqrt(len(counts))


@pytest.mark.parametrize("cv", [0.5, 3.0])
def test_every_stretch_of_gamma_arrivals_expects_the_same_number(cv: float) -> None:
    """The process is stationary: no crowd and no lull at the start. Ten stretches of 2 units."""
    counts = np.array(
        [np.histogram(drawn(gamma(cv), seed, total=20.0), 10, (0.0, 20.0))[0] for seed in range(2_000)]
    )
    errors = np.std(counts, axis=0, ddof=1) / np.sqrt(len(counts))
    assert np.all(np.abs(np.mean(counts, axis=0) - 2.0) <= 4 * errors)


@pytest.mark.parametrize("cv", [0.5, 3.0])
def test_the_first_gamma_gap_is_the_wait_from_a_random_moment(cv: float) -> None:
    """Its mean is (1 + c^2) / 2: 0.625 and 5."""
    firsts = np.array([drawn(gamma(cv), seed, total=1_000.0)[0] for seed in range(2_000)])
    error = np.std(firsts, ddof=1) / np.sqrt(len(firsts))
    assert abs(np.mean(firsts) - (1 + cv**2) / 2) <= 4 * error


def kolmogorov_smirnov(gaps: np.ndarray) -> float:
    """sqrt(n) x the greatest distance from the exponential distribution with mean 1; above 1.95 in 0.1 %."""
    n = len(gaps)
    theory = 1 - np.exp(-np.sort(gaps))
    steps = np.arange(n + 1) / n
    return float(np.sqrt(n) * max(np.max(steps[1:] - theory), np.max(theory - steps[:-1])))


@SEEDS
def test_gamma_with_a_cv_of_1_is_poisson(seed: int) -> None:
    assert kolmogorov_smirnov(np.diff(drawn(gamma(1.0), seed))) < 1.95
    assert kolmogorov_smirnov(np.diff(drawn(gamma(1.05), seed))) > 1.95
    firsts = np.array([drawn(gamma(1.0), seed * 10_000 + k, total=50.0)[0] for k in range(1_000)])
    assert kolmogorov_smirnov(firsts) < 1.95


@pytest.mark.parametrize("cv", [LEAST_CV, HIGHEST_CV])
def test_the_least_and_the_highest_cv_work(cv: float) -> None:
    """At 0.001 the events are a comb with a random start; at 20 most gaps are all but 0."""
    counts = np.array([len(drawn(gamma(cv), seed, total=500.0)) for seed in range(400)])
    assert abs(np.mean(counts) - 500) <= 4 * np.std(counts, ddof=1) / np.sqrt(len(counts)) + 0.05
    assert np.std(counts) == pytest.approx(cv * np.sqrt(500), rel=0.25, abs=0.5)


def test_a_cv_makes_a_row_of_its_own_and_the_table_stays() -> None:
    assert (ARRIVALS["gamma"].cv, ARRIVALS["gamma"].idc) == (DEFAULT_CV, DEFAULT_CV**2) == (2.0, 4.0)
    assert arrivals_named("gamma") is ARRIVALS["gamma"]
    three = arrivals_named("gamma", cv=3.0)
    assert (three.name, three.cv, three.idc) == ("gamma", 3.0, 9.0)
    assert ARRIVALS["gamma"].cv == 2.0


@pytest.mark.parametrize("cv", [0.0, -1.0, LEAST_CV / 2, 20.01, float("nan"), float("inf")])
def test_an_impossible_cv_is_refused(cv: float) -> None:
    with pytest.raises(ShapeError, match=r"^cv \S+ is impossible: it must be from 0.001 to 20$"):
        arrivals_named("gamma", cv=cv)


@pytest.mark.parametrize("name", [name for name, row in ARRIVALS.items() if row.with_cv is None])
def test_a_cv_is_refused_where_it_means_nothing(name: str) -> None:
    with pytest.raises(ShapeError, match=f"cv belongs to gamma arrivals and cannot be given with {name}"):
        arrivals_named(name, cv=1.0)
