"""Exact quantiles, their intervals against the binomial distribution, and failures that are never fast."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.load import load_run
from analysis.metrics import (
    BY_KEY,
    METRICS,
    QUANTILES,
    adjusted_values_of,
    decided,
    distribution,
    exact_quantile,
    interval_ranks,
    least_n,
    quantile_of,
    values_of,
)
from tests.run_folders import answered, cancelled, failed, not_sent, write_run


def binomial_cdf(k: int, n: int, q: float) -> float:
    return sum(math.comb(n, i) * q**i * (1 - q) ** (n - i) for i in range(k + 1))


def test_metrics_table_names_columns_that_exist(tmp_path: Path) -> None:
    columns = load_run(write_run(tmp_path, [])).requests.columns
    assert {metric.column for metric in METRICS} <= set(columns)
    assert {metric.since for metric in METRICS} <= {*columns, None}
    assert len(BY_KEY) == len(METRICS)


@given(
    st.lists(st.floats(min_value=0, max_value=1e6), min_size=1, max_size=200),
    st.floats(min_value=0, max_value=1),
)
def test_quantile_is_numpys_linear_and_never_above_the_maximum(values: list[float], q: float) -> None:
    ordered = np.sort(values)
    found = exact_quantile(ordered, q)
    assert found == pytest.approx(float(np.quantile(ordered, q)), rel=1e-12, abs=1e-12)
    assert ordered[0] <= found <= ordered[-1]


def test_quantile_hand_worked() -> None:
    ordered = np.array([1.0, 2.0, 4.0, 8.0])
    assert exact_quantile(ordered, 0.5) == 3.0
    assert exact_quantile(ordered, 0.95) == pytest.approx(7.4)
    assert math.isnan(exact_quantile(np.array([]), 0.5))


def test_quantile_with_failures_is_infinite_as_soon_as_it_rests_on_one() -> None:
    ordered = np.array([1.0, 2.0, 3.0, math.inf, math.inf])
    assert exact_quantile(ordered, 0.5) == 3.0
    assert exact_quantile(ordered, 0.51) == math.inf
    assert exact_quantile(ordered, 0.99) == math.inf


@pytest.mark.parametrize(("q", "n"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368), (0.999, 3688)])
def test_least_n_for_an_interval(q: float, n: int) -> None:
    assert least_n(q) == n
    assert interval_ranks(n, q) is not None
    assert interval_ranks(n - 1, q) is None


@pytest.mark.parametrize(("n", "q"), [(6, 0.5), (25, 0.5), (100, 0.5), (80, 0.95), (400, 0.99), (990, 0.99)])
def test_interval_ranks_are_the_binomial_quantiles(n: int, q: float) -> None:
    ranks = interval_ranks(n, q)
    assert ranks is not None
    low, high = ranks
    assert binomial_cdf(low - 1, n, q) < 0.025 <= binomial_cdf(low, n, q)
    assert binomial_cdf(high - 2, n, q) < 0.975 <= binomial_cdf(high - 1, n, q)


def test_interval_levels_at_large_n() -> None:
    for n, low, high in ((1000, 0.983, 0.997), (3000, 0.986, 0.994), (10_000, 0.988, 0.992)):
        ranks = interval_ranks(n, 0.99)
        assert ranks is not None
        assert ranks[0] / n == pytest.approx(low, abs=0.001)
        assert ranks[1] / n == pytest.approx(high, abs=0.001)
    assert interval_ranks(1_000_000, 0.5) == (499_020, 500_981)


def test_interval_covers_the_true_quantile() -> None:
    rng = np.random.default_rng(1)
    true_p95 = -math.log(0.05)
    hits = 0
    for _ in range(1000):
        row = quantile_of(np.sort(rng.exponential(size=200)), 0.95)
        assert row.low is not None
        assert row.high is not None
        hits += row.low <= true_p95 <= row.high
    assert 0.93 <= hits / 1000 <= 0.99


def test_empty_and_single_values() -> None:
    empty = distribution(np.array([]))
    assert (empty.n, empty.mean, empty.min, empty.max) == (0, None, None, None)
    assert all(row.value is None and row.n_too_small and not row.not_met for row in empty.quantiles.values())
    one = distribution(np.array([0.147, math.nan]))
    assert (one.n, one.mean, one.min, one.max) == (1, 0.147, 0.147, 0.147)
    assert one.quantiles["p50"].value == 0.147
    assert not one.quantiles["p50"].n_too_small
    assert one.quantiles["p95"].n_too_small


def test_field_case_failures_are_never_fast(tmp_path: Path) -> None:
    """100 requests of 1496.5 ms and 20 failures of 3 ms: the failures do not make the average better."""
    slow = [answered(k, 0.1 * k, ttft_s=0.5, tpot_s=0.09965, tokens=11) for k in range(100)]
    fast = [failed(100 + k, 10 + 0.1 * k, after_s=0.003) for k in range(20)]
    load = load_run(write_run(tmp_path, slow + fast)).load
    e2e = distribution(values_of(load, BY_KEY["e2e_s"]))
    assert e2e.n == 100
    assert e2e.mean == pytest.approx(1.4965)
    adjusted = distribution(adjusted_values_of(load, BY_KEY["e2e_s"]))
    assert adjusted.n == 120
    assert adjusted.quantiles["p50"].value == pytest.approx(1.4965)
    assert adjusted.quantiles["p90"].value is None
    assert adjusted.quantiles["p90"].not_met


def test_decided_and_adjusted_leave_out_what_the_run_cut_off(tmp_path: Path) -> None:
    records = [
        answered(0, 0.0),
        failed(1, 1.0),
        failed(2, 2.0, outcome="rejected", failure_class="http_429"),
        cancelled(3, 3.0, age_s=5.0),
        not_sent(4, 4.0, "run_stopped"),
        not_sent(5, 5.0, "sent_too_late"),
        not_sent(6, 6.0, "worker_lost"),
        failed(7, 7.0, outcome="cancelled", failure_class="worker_lost"),
        failed(8, 8.0, outcome="cancelled", failure_class=None),
    ]
    load = load_run(write_run(tmp_path, records)).load
    assert decided(load).tolist() == [True, True, True, False, False, True, True, True, False]
    adjusted = adjusted_values_of(load, BY_KEY["ttft_s"])
    assert np.isinf(adjusted).sum() == 5
    assert len(adjusted) == 6


def test_send_lag_counts_all_that_were_sent(tmp_path: Path) -> None:
    load = load_run(write_run(tmp_path, [answered(0, 0.0), failed(1, 1.0), not_sent(2, 2.0)])).load
    assert len(values_of(load, BY_KEY["send_lag_s"])) == 2


def test_quantile_names_are_their_values() -> None:
    assert all(float(name[1:].replace("_", ".")) / 100 == pytest.approx(q) for name, q in QUANTILES.items())
