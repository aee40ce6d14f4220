"""The Poisson bands: known quantiles, and the share of simulated Poisson streams that lie within."""

from __future__ import annotations

import numpy as np
import pytest

from analysis import poisson_band as band
from analysis.burst_profile import coarse_step, profile, why_not
from analysis.burstiness import allan_factor, cv, idc


def test_the_idc_band_is_pearsons_chi_square() -> None:
    """Chi-square with 3 degrees of freedom: 0.2158 and 9.348; with 500: 439.9 and 563.9 (tables)."""
    assert band.gamma_band(1, 2 / 3) == pytest.approx((0.2158 / 3, 9.348 / 3), rel=1e-3)
    assert band.gamma_band(1, 2 / 500) == pytest.approx((439.9 / 500, 563.9 / 500), rel=1e-3)


@pytest.mark.parametrize(("n", "windows"), [(60, 12), (300, 300), (1_000, 5)])
@pytest.mark.parametrize("weighed", [False, True])
def test_19_of_20_poisson_streams_lie_within(n: int, windows: int, weighed: bool) -> None:
    """1,000 streams: between 92.5 and 97.5 % is 3.6 standard deviations; a mean off by 0.05 is noticed."""
    rng = np.random.default_rng(1)
    weights = rng.lognormal(0, 1, n) if weighed else None
    worth = None if weights is None else band.concentration(weights)
    found: dict[str, list[float]] = {"idc": [], "allan": []}
    for _ in range(1_000):
        times = rng.uniform(0, windows, n)
        found["idc"].append(idc(times, 1, windows, weights) or 0.0)
        found["allan"].append(allan_factor(times, 1, windows, weights) or 0.0)
    for name, limits in (
        ("idc", band.idc_band(n, windows, worth)),
        ("allan", band.allan_band(n, windows, worth)),
    ):
        values = np.array(found[name])
        assert limits is not None
        assert 0.925 < np.mean((values >= limits[0]) & (values <= limits[1])) < 0.975
        assert values.mean() == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("gaps", [20, 400])
def test_the_cv_band_holds_exponential_gaps(gaps: int) -> None:
    rng = np.random.default_rng(2)
    values = [cv(np.cumsum(rng.exponential(size=gaps + 1))) or 0.0 for _ in range(1_000)]
    low, high = band.cv_band(gaps) or (0.0, 0.0)
    assert 0.925 < np.mean([low <= value <= high for value in values]) < 0.975


def test_the_peak_of_one_arrival_a_window_by_hand() -> None:
    """Mean 1, 10 windows: F(0)^10 = .00005, F(1)^10 = .0465, ..., F(4)^10 = .964, F(5)^10 = .994."""
    assert band.peak_band(10, 10) == pytest.approx((1.0, 5.0))


def test_tokens_weigh_and_equal_tokens_change_nothing() -> None:
    times = np.sort(np.random.default_rng(3).uniform(0, 100, 500))
    found = profile(times, 100.0, {"same": np.full(500, 7.0), "clumped": np.where(times < 5, 100.0, 1.0)})
    assert found.tokens["same"].idc == pytest.approx(found.idc)
    assert found.tokens["same"].peak_over_mean == pytest.approx(found.peak_over_mean)
    assert (found.tokens["clumped"].peak_over_mean[10] or 0) > 3 * (found.peak_over_mean[10] or 9)


def test_two_weights_by_hand() -> None:
    """W = 3, 1, 0, 0: mean 1, variance (4 + 0 + 1 + 1) / 3 = 2, q = (9 + 1) / 4: 2 / 1 / 2.5."""
    assert idc([0.5, 1.5], 1, 4, [3, 1]) == pytest.approx(0.8)
    assert allan_factor([0.5, 1.5], 1, 4, [3, 1]) == pytest.approx((4 + 1 + 0) / 3 / 2 / 2.5)


def test_long_scales_and_coarse_stamps_are_left_out_with_the_reason() -> None:
    assert "longer than a quarter" in str(why_not(10, 39, None))
    assert why_not(10, 40, None) is None
    rng = np.random.default_rng(4)
    stamps = 3.0 * np.floor(np.sort(rng.uniform(0, 3_000, 9_000)) / 3) + rng.choice([0, 0.001], 9_000)
    assert coarse_step(stamps) == pytest.approx(3.0, rel=1e-3) or coarse_step(stamps) is None
    exact = 3.0 * np.floor(np.sort(rng.uniform(0, 3_000, 9_000)) / 3)
    assert coarse_step(exact) == 3.0
    found = profile(exact, 3_000.0, stamp_step_s=3.0)
    assert (found.cv, found.memory, found.goh_barabasi_b, found.idc[1], found.idc[10]) == (None,) * 5
    assert found.idc[60] == pytest.approx(1.0, abs=0.6)
    assert "too coarse" in found.unmeasured["cv"]
    assert coarse_step(np.sort(rng.uniform(0, 3_000, 9_000))) is None
    assert coarse_step(np.arange(100.0)) is None, "an even stream shares no stamps"
