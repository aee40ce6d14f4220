"""Burst measures: hand-worked figures, theory for known processes, and None where there is too little."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.burst_profile import profile
from analysis.burstiness import (
    WINDOWS_S,
    allan_factor,
    count_acf,
    counts_per_window,
    cv,
    goh_barabasi_b,
    idc,
    memory,
    peak_over_mean,
)
from shapes import ShapeSettings, make_shape
from shapes.arrivals import ARRIVALS
from shapes.schedule import draw_times

HAND = [0.5, 1.5, 1.6, 1.7, 4.0]
"""Gaps 1, 0.1, 0.1, 2.3; counts per second over 5 s: 1, 3, 0, 0, 1."""


def pulses(mean_rps: float, shape: str, seed: int, duration_s: float = 3_000.0) -> np.ndarray:
    asked = ShapeSettings(rate_rps=mean_rps, duration_s=duration_s)
    return draw_times(make_shape(shape, asked), ARRIVALS["poisson"], seed)


# --- by hand --------------------------------------------------------------------------------------


def test_counts_drop_the_last_partial_window_and_what_is_outside() -> None:
    assert counts_per_window(HAND, 1.0, 5.0).tolist() == [1, 3, 0, 0, 1]
    assert counts_per_window(HAND, 2.0, 5.0).tolist() == [4, 0]
    assert counts_per_window([-0.5, 0.0, 0.999999, 1.0, 2.0], 1.0, 2.0).tolist() == [2, 1]


def test_a_time_on_an_edge_belongs_to_the_window_it_opens() -> None:
    """0.3 / 0.1 is 2.9999999999999996 in floating point."""
    assert counts_per_window([0.3, 0.6, 0.7], 0.1, 0.9).tolist() == [0, 0, 0, 1, 0, 0, 1, 1, 0]
    assert counts_per_window([0.299999], 0.1, 0.3).tolist() == [0, 0, 1]


def test_cv_by_hand() -> None:
    """Gaps 1, .1, .1, 2.3: mean .875, squared deviations .015625 + 2 x .600625 + 2.030625 = 3.2475."""
    assert cv(HAND) == pytest.approx(math.sqrt(3.2475 / 3) / 0.875)
    assert cv([4.0, 1.6, 0.5, 1.7, 1.5]) == pytest.approx(cv(HAND))


def test_count_measures_by_hand() -> None:
    """Counts 1, 3, 0, 0, 1: mean 1, deviations 0, 2, -1, -1, 0; differences 2, -3, 0, 1."""
    assert idc(HAND, 1.0, 5.0) == pytest.approx(6 / 4)
    assert allan_factor(HAND, 1.0, 5.0) == pytest.approx((4 + 9 + 0 + 1) / 4 / 2)
    assert peak_over_mean(HAND, 1.0, 5.0) == pytest.approx(3.0)
    assert count_acf(HAND, 1.0, 5.0) == pytest.approx((0 - 2 + 1 + 0) / 6)


def test_goh_barabasi_by_hand() -> None:
    """n = 4 gaps, r = sqrt(3.2475 / 4) / .875 = 1.0298."""
    r = math.sqrt(3.2475 / 4) / 0.875
    assert goh_barabasi_b(HAND) == pytest.approx(
        (math.sqrt(5) * r - math.sqrt(3)) / ((math.sqrt(5) - 2) * r + math.sqrt(3))
    )


def test_goh_barabasi_ends_are_minus_one_and_one() -> None:
    assert goh_barabasi_b([0, 1, 2, 3, 4, 5]) == pytest.approx(-1.0)
    assert goh_barabasi_b([3.0] * 30 + [8.0]) == pytest.approx(1.0)


def test_memory_by_hand() -> None:
    """Gaps 1, 2, 3, 4 rise in step; 1, 3, 1, 3, 1 alternate."""
    assert memory([0, 1, 3, 6, 10]) == pytest.approx(1.0)
    assert memory([0, 1, 4, 5, 8, 9]) == pytest.approx(-1.0)


def test_a_salvo_by_hand() -> None:
    """30 at 3 s and 60 at 8 s in 13 s: 88 gaps of 0 and one of 5 s; counts of 30 and 60 in 13 windows."""
    found = profile([3.0] * 30 + [8.0] * 60, 13.0)
    assert found.cv == pytest.approx(math.sqrt(89))
    mean = 90 / 13
    assert found.idc[1] == pytest.approx(((30 - mean) ** 2 + (60 - mean) ** 2 + 11 * mean**2) / 12 / mean)
    assert found.peak_over_mean[1] == pytest.approx(60 / mean)
    assert (found.n, found.rate_rps, found.idc[10]) == (90, 90 / 13, None)


# --- too little to say ----------------------------------------------------------------------------


@pytest.mark.parametrize("times", [[], [1.0], [1.0, 2.0]])
def test_few_arrivals_have_no_gap_measures(times: list[float]) -> None:
    found = profile(times, 5.0)
    assert (found.n, found.rate_rps) == (len(times), len(times) / 5)
    assert (found.cv, found.goh_barabasi_b, found.memory) == (None, None, None)


def test_no_arrivals_and_short_windows_are_unknown_and_never_zero() -> None:
    nothing = dict.fromkeys(WINDOWS_S)
    found = profile([], 500.0)
    assert (found.n, found.rate_rps, found.cv, found.memory, found.goh_barabasi_b) == (
        0,
        0.0,
        None,
        None,
        None,
    )
    assert (found.idc, found.allan_factor, found.peak_over_mean) == (nothing, nothing, nothing)
    assert profile(HAND, 3.9).idc == nothing
    assert list(profile(HAND, 239.0).idc) == [1, 10, 60]
    assert profile(HAND, 239.0).idc[60] is None
    assert profile(HAND, 240.0).idc[60] is not None


def test_arrivals_all_at_once_have_no_gap_measures() -> None:
    found = profile([2.0] * 10, 5.0)
    assert (found.cv, found.goh_barabasi_b, found.memory) == (None, None, None)
    assert found.peak_over_mean[1] == 5.0


def test_even_arrivals_have_no_memory_and_no_autocorrelation() -> None:
    found = profile(np.arange(100) / 2, 50.0)
    assert (found.cv, found.idc[1], found.allan_factor[1], found.peak_over_mean[1]) == (0, 0, 0, 1)
    assert (found.count_acf_1s, found.memory) == (None, None)
    assert memory(np.arange(100) * 0.1) is None


def test_arrivals_outside_the_window_do_not_count() -> None:
    assert profile([-1.0, *HAND, 5.0, 99.0], 5.0) == profile(HAND, 5.0)


@pytest.mark.parametrize("duration_s", [0.0, -1.0, math.nan])
def test_a_window_without_length_is_refused(duration_s: float) -> None:
    with pytest.raises(ValueError, match="longer than 0 s"):
        profile(HAND, duration_s)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-10, 400), max_size=60), st.floats(0.01, 300))
def test_any_arrivals_give_finite_measures_or_none(times: list[float], duration_s: float) -> None:
    found = profile(times, duration_s)
    gap_measures = (found.cv, found.goh_barabasi_b, found.memory, found.count_acf_1s)
    counted = (*found.idc.values(), *found.allan_factor.values(), *found.peak_over_mean.values())
    assert all(value is None or math.isfinite(value) for value in (*gap_measures, *counted))
    assert all(value is None or value >= 0 for value in (found.cv, *counted))
    assert all(value is None or -1 - 1e-9 <= value <= 1 + 1e-9 for value in gap_measures[1:])


# --- against theory -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_poisson_reads_one_everywhere(seed: int) -> None:
    """Within 4 standard deviations: 1 / sqrt(n) for the CV, sqrt(2 / (K - 1)) and sqrt(3 / K) for counts."""
    found = profile(pulses(6.0, "uniform", seed), 3_000.0)
    assert found.cv == pytest.approx(1.0, abs=4 / math.sqrt(found.n))
    for window in WINDOWS_S:
        windows = 3_000 / window
        assert found.idc[window] == pytest.approx(1.0, abs=4 * math.sqrt(2 / (windows - 1)))
        assert found.allan_factor[window] == pytest.approx(1.0, abs=4 * math.sqrt(3 / windows))
    assert found.count_acf_1s == pytest.approx(0.0, abs=4 / math.sqrt(3_000))
    assert found.goh_barabasi_b == pytest.approx(0.0, abs=2 / math.sqrt(found.n))
    assert found.memory == pytest.approx(0.0, abs=4 / math.sqrt(found.n))


@pytest.mark.parametrize(
    ("shape", "duty", "peak", "base"), [("pulse", 0.5 / 4.5, 5.0, 0.5), ("mixed", 0.2, 3.0, 0.5)]
)
def test_two_level_loads_have_the_cv_of_slow_modulation(
    shape: str, duty: float, peak: float, base: float
) -> None:
    """CV^2 = 2 m E[1 / lambda] - 1 = 2 (D / R + (1 - D) / base) - 1: 1.625 and 1.528, whatever the period."""
    times = np.concatenate([pulses(8.0, shape, seed) + 3_000.0 * seed for seed in range(4)])
    theory = math.sqrt(2 * (duty / peak + (1 - duty) / base) - 1)
    assert cv(times) == pytest.approx(theory, rel=0.04)


def test_the_idc_tells_a_short_pulse_from_a_long_one_where_the_cv_does_not() -> None:
    short, long = (profile(pulses(12.0, shape, 1), 3_000.0) for shape in ("pulse", "mixed"))
    assert short.cv is not None
    assert long.cv is not None
    assert abs(short.cv - long.cv) < 0.15
    assert short.idc[10] is not None
    assert long.idc[10] is not None
    assert long.idc[10] > 1.5 * short.idc[10] > 30


def test_a_trend_raises_the_idc_but_not_the_allan_factor() -> None:
    found = profile(pulses(20.0, "diurnal", 1), 3_000.0)
    assert found.idc[10] is not None
    assert found.idc[10] > 30
    assert found.allan_factor[10] == pytest.approx(1.0, abs=0.5)
