"""Paired differences: the exact sign-flip test, the shift and its interval, Holm, pairs needed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.paired import holm, least_pairs, pairs_to_tell, shift_of, sign_flip_p


def by_enumeration(differences: list[float]) -> float:
    """The sign-flip probability by all 2^n patterns, written down naively."""
    moved = [value for value in differences if value]
    sizes = sorted(abs(value) for value in moved)
    rank = {
        size: np.mean([place + 1 for place, other in enumerate(sizes) if other == size]) for size in sizes
    }
    ranks = [rank[abs(value)] for value in moved]
    seen = abs(sum(r * math.copysign(1, value) for r, value in zip(ranks, moved, strict=True)))
    patterns = list(itertools.product((1, -1), repeat=len(moved)))
    far = sum(
        abs(sum(r * sign for r, sign in zip(ranks, signs, strict=True))) >= seen - 1e-9 for signs in patterns
    )
    return far / len(patterns)


def test_the_probability_of_hand_worked_differences() -> None:
    # Five of one sign: only the pattern itself and its mirror are as far from 0.
    assert sign_flip_p(np.array([1.0, 2.0, 3.0, 4.0, 5.0])) == 2 / 32
    # Ranks 1, 2, 3 with the smallest negative: sums of at least 4 are 6, 4 and their mirrors.
    assert sign_flip_p(np.array([-1.0, 2.0, 3.0])) == 4 / 8
    assert sign_flip_p(np.array([0.0, 0.0])) == 1.0
    assert sign_flip_p(np.array([math.inf, 1.0])) == 0.5


@given(st.lists(st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, math.inf]), max_size=9))
def test_the_probability_is_that_of_all_sign_patterns(differences: list[float]) -> None:
    assert sign_flip_p(np.array(differences)) == pytest.approx(by_enumeration(differences))


def test_the_shift_is_the_median_of_all_means_of_two() -> None:
    found = shift_of(np.array([1.0, 2.0, 6.0]))
    # Means: 1, 1.5, 3.5, 2, 4, 6 -> sorted 1, 1.5, 2, 3.5, 4, 6.
    assert found.shift == 2.75
    assert (found.low, found.high) == (None, None)
    assert (found.n, found.moved) == (3, 3)


def test_the_interval_begins_at_six_pairs_and_is_then_the_whole_range() -> None:
    five, six = shift_of(np.arange(1.0, 6.0)), shift_of(np.arange(1.0, 7.0))
    assert five.low is None
    assert (six.low, six.high) == (1.0, 6.0)


def test_the_interval_of_ten_is_that_of_the_published_table() -> None:
    # n = 10: P(W+ <= 8) = 0.0244, so the 9th smallest and 9th largest of the 55 means bound it.
    values = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0])
    means = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    found = shift_of(values)
    assert (found.low, found.high) == (means[8], means[-9])


@given(st.lists(st.floats(-1e3, 1e3), min_size=6, max_size=30))
def test_an_interval_without_0_and_a_probability_above_5_percent_exclude_each_other(
    differences: list[float],
) -> None:
    values = np.array([value for value in differences if value])
    if len(values) < 6 or len(set(np.abs(values))) < len(values):
        return  # with ties or zeros the two rest on different ranks
    found = shift_of(values)
    assert found.low is not None
    assert found.high is not None
    assert found.p is not None
    assert (found.low > 0 or found.high < 0) == (found.p <= 0.05)


def test_infinite_differences_count_as_the_largest() -> None:
    found = shift_of(np.array([math.inf] * 7 + [-1.0]))
    assert found.shift == math.inf
    # The one finite difference has the smallest rank: 2 patterns and mirrors of 256 are as far.
    assert found.p == 4 / 256


def test_unknown_pairs_are_left_out() -> None:
    assert shift_of(np.array([math.nan, math.nan])).p is None
    assert shift_of(np.array([math.nan, 1.0, 1.0])).n == 2


def test_holm_of_a_hand_worked_family() -> None:
    # Sorted .01, .02, .03, .2 times 4, 3, 2, 1; never below the one before.
    found = holm({"a": 0.03, "b": 0.01, "c": 0.2, "d": 0.02})
    assert found == pytest.approx({"a": 0.06, "b": 0.04, "c": 0.2, "d": 0.06})


def test_the_fewest_pairs_are_those_whose_smallest_probability_suffices() -> None:
    assert least_pairs(1) == 6  # 2/2^6 = 0.031
    assert least_pairs(6) == 8  # 2/2^8 = 0.0078 <= 0.0083
    assert least_pairs(7) == 9


def test_pairs_needed_follow_the_ratio_of_spread_to_shift() -> None:
    # sd 1 (n - 1), mean 1: (2.80)^2 * pi / 3 = 8.2
    assert pairs_to_tell(np.array([0.0, 1.0, 2.0])) == 9
    assert pairs_to_tell(np.array([1.0, -1.0])) is None
    assert pairs_to_tell(np.array([1.0, math.inf])) is None


def test_a_false_alarm_is_as_rare_as_promised() -> None:
    generator = np.random.default_rng(7)
    alarms = sum(sign_flip_p(generator.normal(size=12)) <= 0.05 for _ in range(2000))
    assert 60 <= alarms <= 130  # 5 % of 2,000 is 100; exact tests stay below it
