"""Phases by scheduled time: half-open bursts, salvos of no width, recovery in between."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analysis.phases import SAME_MOMENT_S, burst_windows, held, inside, label_phases


def test_a_burst_window_is_half_open_to_the_microsecond() -> None:
    at_s = np.array([9.999999, 10.0, 11.999999, 12.0])
    assert inside(at_s, (10.0, 12.0)).tolist() == [False, True, True, False]


def test_a_boundary_that_float_noise_moved_still_counts() -> None:
    third = 10 / 3  # written with microseconds it is 3.333333, below the window's start
    assert inside(np.array([3.333333]), (third, third + 2)).tolist() == [True]


def test_a_salvo_holds_what_is_due_exactly_at_it() -> None:
    assert inside(np.array([2.99999, 3.0, 3.0, 3.00001]), (3.0, 3.0)).tolist() == [False, True, True, False]


MICROSECONDS = st.integers(min_value=0, max_value=12).map(lambda number: number * SAME_MOMENT_S / 4)


@given(st.lists(MICROSECONDS | st.just(np.nan)), MICROSECONDS, MICROSECONDS)
def test_held_finds_in_rising_times_what_is_inside(
    times: list[float], start_s: float, width_s: float
) -> None:
    at_s, window = np.sort(times), (start_s, start_s + width_s)
    found = np.zeros(len(at_s), dtype=bool)
    found[held(at_s, window)] = True
    assert found.tolist() == inside(at_s, window).tolist()


def test_windows_are_put_in_order_and_overlaps_joined() -> None:
    assert burst_windows([[30.0, 32.0], [10, 12], [11, 15], [15, 16]]) == [(10, 15), (15, 16), (30, 32)]
    assert burst_windows([[8.0, 8.0], [3.0, 3.0]]) == [(3.0, 3.0), (8.0, 8.0)]


def test_labels() -> None:
    at_s = np.array([0.0, 10.0, 11.0, 12.0, 15.9, 16.0, 29.0, 30.0, 33.0, 39.0])
    bursts = [(10.0, 12.0), (30.0, 32.0)]
    labels = label_phases(at_s, bursts, affected_until_s=[16.0, 40.0])
    assert labels.tolist() == [
        "quiet",
        "burst",
        "burst",
        "recovery",
        "recovery",
        "quiet",
        "quiet",
        "burst",
        "recovery",
        "recovery",
    ]


def test_a_burst_wins_over_the_recovery_before_it() -> None:
    labels = label_phases(np.array([3.0, 8.0, 9.0]), [(3.0, 3.0), (8.0, 8.0)], affected_until_s=[8.5, 8.0])
    assert labels.tolist() == ["burst", "burst", "quiet"]


def test_without_bursts_all_is_quiet() -> None:
    assert label_phases(np.array([1.0, 2.0]), [], []).tolist() == ["quiet", "quiet"]
