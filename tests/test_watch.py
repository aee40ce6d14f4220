"""The load generator's watch over itself: beats -> seconds, by hand and for any beats."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.watch import BEAT_S, Seconds


def steady(seconds: Seconds, from_s: float, to_s: float, cpu_ratio: float, cpu_s: float = 0.0) -> float:
    """Beats in time from `from_s` on, at `cpu_ratio` of a core; returns the CPU seconds used at the end."""
    beats = round((to_s - from_s) / BEAT_S)
    for number in range(1, beats + 1):
        cpu_s += cpu_ratio * BEAT_S
        seconds.beat(round(from_s + number * BEAT_S, 6), cpu_s, 0.0, in_flight=4)
    return cpu_s


def test_each_second_of_the_run_is_a_row_and_the_lead_is_none() -> None:
    seconds = Seconds(-0.5, 0.0)
    steady(seconds, -0.5, 2.0, cpu_ratio=0.5)
    assert seconds.take() == [
        [0, pytest.approx(0.5), 0.0, 0.0, 4],
        [1, pytest.approx(0.5), 0.0, 0.0, 4],
    ]
    assert seconds.take() == []
    assert seconds.cpu_peak_ratio == pytest.approx(0.5)
    assert seconds.cpu_mean_ratio == pytest.approx(0.5)


def test_a_beat_that_comes_seconds_late_tells_of_every_second_that_it_held_up() -> None:
    seconds = Seconds(0.0, 0.0)
    used_s = steady(seconds, 0.0, 1.5, cpu_ratio=0.2)
    seconds.beat(3.5, used_s + 2.0, lag_s=1.98, in_flight=9)  # a core busy from 1.5 to 3.5 s
    rows = {row[0]: row[1:] for row in seconds.take()}
    assert list(rows) == [0, 1, 2]
    assert rows[1][0] == pytest.approx(0.6)  # half at 0.2, half at 1
    assert rows[2][0] == pytest.approx(1.0)
    assert rows[0][1:3] == [0.0, 0.0]
    assert rows[1][2] == pytest.approx(1.98)
    assert rows[2][2] == pytest.approx(1.5, abs=BEAT_S)  # due at 2.0, it ran at 3.5
    assert rows[2][1] > 1.4
    assert rows[2][3] == 9


def test_one_stall_counts_for_all_the_beats_that_it_held_up() -> None:
    """40 ms late: two of 50 beats, by 40 and 20 ms; position 48.51 of the sorted lies between them."""
    seconds = Seconds(0.0, 0.0)
    steady(seconds, 0.0, 0.5, cpu_ratio=0.1)
    seconds.beat(0.56, 0.06, lag_s=0.04, in_flight=1)
    steady(seconds, 0.56, 1.0, cpu_ratio=0.1, cpu_s=0.06)
    seconds.end(1.0, 0.11, 1)
    (row,) = seconds.take()
    assert row[3] == pytest.approx(0.04)
    assert row[2] == pytest.approx(0.02 + 0.51 * 0.02, abs=0.002)


def test_a_last_second_counts_when_half_of_it_was_seen() -> None:
    for until_s, rows in ((0.6, 1), (0.4, 0)):
        seconds = Seconds(0.0, 0.0)
        used_s = steady(seconds, 0.0, until_s, cpu_ratio=0.3)
        seconds.end(until_s, used_s, 0)
        assert len(seconds.take()) == rows


@given(st.lists(st.tuples(st.floats(0.001, 3.0), st.floats(0.0, 1.0)), min_size=1, max_size=60))
def test_no_cpu_is_lost_and_no_second_comes_twice(beats: list[tuple[float, float]]) -> None:
    """Each beat `after_s` the last, all but 1 ms of it late, at some share of a core."""
    seconds, at_s, used_s = Seconds(0.0, 0.0), 0.0, 0.0
    for after_s, ratio in beats:
        at_s, used_s = at_s + after_s, used_s + ratio * after_s
        seconds.beat(at_s, used_s, after_s - 0.001, 0)
    rows = seconds.take()
    numbers = [row[0] for row in rows]
    assert numbers == sorted(set(numbers))
    assert all(number < math.floor(at_s) for number in numbers)
    assert all(row[1] <= 1.0 + 1e-6 and 0.0 <= row[2] <= row[3] for row in rows)
    assert sum(row[1] for row in rows) <= used_s + 1e-6
