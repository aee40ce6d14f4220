"""Intervals that count bursts, not requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.clusters import LEAST_BURSTS, around_bursts, burst_interval, in_bursts, student_t
from analysis.load import load_run
from analysis.slo import wilson_interval
from analysis.summary import summarize
from bench.coverage import BETAS, by_burst
from tests.run_folders import answered, write_run


@pytest.mark.parametrize(("degrees", "quantile"), [(7, 2.364624), (14, 2.144787), (29, 2.045230)])
def test_students_t_against_the_table(degrees: int, quantile: float) -> None:
    assert student_t(degrees) == pytest.approx(quantile, rel=1e-3)


def test_hand_worked() -> None:
    """8 bursts of 100: half meet 100, half 80. p = 0.9, residuals +-10: v = 8/7 * 800 / 800^2 = 0.00142857;
    the binomial variance is 0.09 / 800, so the design effect is 12.698 and the effective n 63."""
    found = burst_interval(np.array([100, 80] * 4), np.full(8, 100))
    assert found.design_effect == pytest.approx(12.6984, rel=1e-4)
    low, high = wilson_interval(0.9 * 63, 63, student_t(7))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    request_low, _ = wilson_interval(720, 800)
    assert found.low is not None
    assert request_low is not None
    assert found.low < request_low - 0.05


def test_misses_in_few_bursts_allow_for_one_that_was_not_seen() -> None:
    """15 bursts of 100, one with 10 misses. With half a burst of 100 misses more: p' = 1490 / 1550, residuals
    100 (1 - p') fourteen times, 90 - 100 p' once, 100 p' half a time; v' = 15.5 / 14.5 of their squares."""
    met = np.array([100] * 14 + [90])
    found = burst_interval(met, np.full(15, 100))
    p = 1490 / 1550
    squares = 14 * (100 - 100 * p) ** 2 + (90 - 100 * p) ** 2 + 0.5 * (100 * p) ** 2
    low = p - student_t(14) * (15.5 / 14.5 * squares) ** 0.5 / 1550
    assert found.few
    assert found.low == pytest.approx(low)
    assert found.low == pytest.approx(0.8615, abs=1e-4)
    assert found.high is not None
    assert 0.9933 < found.high < 1
    mirrored = burst_interval(100 - met, np.full(15, 100))
    assert (mirrored.low, mirrored.high) == (pytest.approx(1 - found.high), pytest.approx(1 - low))


def test_misses_in_four_bursts_or_more_are_seen_enough() -> None:
    """Kish's number of 4 bursts that hold alike is 4; of 4 that do not, less."""
    for missed, few in (([5] * 4, False), ([5] * 3 + [6], True), ([5] * 3, True)):
        met = 100 - np.array([*missed, *[0] * (15 - len(missed))])
        assert burst_interval(met, np.full(15, 100)).few is few


@pytest.mark.parametrize("bursts", [8, 15])
def test_rare_bad_bursts_are_held_in_nine_runs_of_ten(bursts: int) -> None:
    """bench.coverage's model of an attainment of 0.99 whose misses are nearly all in rare bad bursts."""
    good, _, none, width, few, _ = by_burst(400, bursts, BETAS["0.99"], np.random.default_rng(5))
    assert good > 0.9
    assert none < 0.35
    assert few > 0.6
    assert width < 0.3


def test_independent_requests_have_a_design_effect_near_one() -> None:
    rng = np.random.default_rng(3)
    effects = [burst_interval(rng.binomial(130, 0.9, 15), np.full(15, 130)).design_effect for _ in range(200)]
    assert np.mean([effect for effect in effects if effect is not None]) == pytest.approx(1.0, abs=0.1)


def test_without_enough_bursts_or_without_a_difference_there_is_none_and_a_reason() -> None:
    few = burst_interval(np.array([9] * 7 + [0]), np.array([10] * 7 + [0]))
    assert (few.bursts, few.low, few.high, few.design_effect) == (7, None, None, None)
    assert few.why_none == f"7 bursts are too few: it takes {LEAST_BURSTS}"
    for met, words in ((10, "every request met it"), (0, "no request met it")):
        alike = burst_interval(np.full(9, met), np.full(9, 10))
        assert alike.low is None
        assert words in (alike.why_none or "")


def test_bursts_and_what_lies_around_them() -> None:
    at_s = np.array([0.0, 2.0, 2.9, 3.0, 8.0, 8.0, 9.0])
    bursts = [(2.0, 3.0), (8.0, 8.0)]
    assert in_bursts(at_s, bursts).tolist() == [-1, 0, 0, -1, 1, 1, -1]
    assert around_bursts(at_s, bursts).tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_the_summary_has_both_and_the_burst_interval_is_wider(tmp_path: Path) -> None:
    """Ten bursts of 20 requests; in every second one 10 are late. Requests between them are all in time."""
    bursts = [[2.0 * k, 2.0 * k + 1] for k in range(10)]
    records, number = [], 0
    for k in range(10):
        for i in range(25):
            at_s = 2.0 * k + i / 20 if i < 20 else 2.0 * k + 1 + (i - 20) / 5
            late = i < 10 and k % 2 == 1
            records.append(answered(number, at_s, ttft_s=2.0 if late else 0.1))
            number += 1
    slo = summarize(load_run(write_run(tmp_path, records, bursts=bursts)), "ttft<1s")["slo"]
    burst, whole = slo["by_burst"]["burst"], slo["by_burst"]["whole"]
    assert (burst["bursts"], whole["bursts"], burst["why_none"]) == (10, 10, None)
    # in bursts p = 0.75, residuals +-5: v = 10/9 * 250/200^2; binomial 0.1875/200
    assert burst["design_effect"] == pytest.approx((10 / 9 * 250 / 200**2) / (0.1875 / 200))
    assert (
        burst["low"] < slo["attainment"]["burst"]["low"] < slo["attainment"]["burst"]["high"] < burst["high"]
    )
    # over all p = 0.8 of 250, residuals +-5 of 25
    assert whole["design_effect"] == pytest.approx((10 / 9 * 250 / 250**2) / (0.16 / 250))
    assert summarize(load_run(tmp_path), None)["slo"] is None
