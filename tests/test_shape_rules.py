"""Hand-worked figures of each shape, and settings and texts that are refused in one line."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapes import ShapeError, ShapeSettings, make_shape
from shapes.curve import MOST_POINTS, rate_curve
from shapes.diurnal import BURSTGPT_HOURS
from shapes.mixed import mixed
from shapes.pulse import pulse
from shapes.salvo import parse_salvo, salvo
from shapes.steps import MOST_LEVELS, parse_levels, segment_at, segment_rows, steps
from shapes.two_level import MOST_BURSTS, TwoLevel
from shapes.users import user_changes, users_at


def check_one_line(error: Exception) -> None:
    assert str(error)
    assert "\n" not in str(error)


# --- two levels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("base", "width_s"), [(0.5, 20 * 0.5 / 4.5), (0.0, 4.0), (0.25, 20 * 0.75 / 4.75)])
def test_scenario_b_pulse_of_five_times_the_mean_every_20_s(base: float, width_s: float) -> None:
    shape = pulse(ShapeSettings(rate_rps=10, duration_s=300, base=base))
    assert shape.width_s == pytest.approx(width_s)
    assert shape.base_rate_rps == pytest.approx(10 * base)
    assert shape.peak_rate_rps == 50
    assert len(shape.bursts()) == 15
    assert shape.bursts()[0].start_s == 10
    assert shape.bursts()[-1].end_s == pytest.approx(290 + width_s)


def test_scenario_b_figures_in_print() -> None:
    widths = [pulse(ShapeSettings(duration_s=300, base=base)).width_s for base in (0.5, 0.25, 0.0)]
    assert [round(width, 3) for width in widths] == [2.222, 3.158, 4.0]
    assert pulse(ShapeSettings(duration_s=300)).width_s == widths[0]


@pytest.mark.parametrize(
    "same", [{"base": 0.5}, {"duty": 0.5 / 4.5}, {"width_s": 10 / 4.5}], ids=["base", "duty", "width"]
)
def test_base_duty_and_width_say_the_same(same: dict[str, float]) -> None:
    shape = pulse(ShapeSettings(duration_s=300, **same))  # type: ignore[arg-type]
    assert shape.width_s == pytest.approx(10 / 4.5)
    assert shape.base_rate_rps == pytest.approx(3.0)


def test_scenario_c_three_times_the_mean_for_a_fifth_of_the_time() -> None:
    shape = mixed(ShapeSettings(rate_rps=12, duration_s=300))
    assert (shape.peak_rate_rps, shape.width_s) == (36, 12)
    assert shape.base_rate_rps == pytest.approx(6.0)
    assert [burst.start_s for burst in shape.bursts()] == [24, 84, 144, 204, 264]
    assert [burst.end_s for burst in shape.bursts()] == [36, 96, 156, 216, 276]


def test_a_mixed_load_shorter_than_its_period_has_its_burst_in_the_middle() -> None:
    shape = mixed(ShapeSettings(duration_s=30))
    assert (shape.period_s, shape.width_s) == (30, 6)
    assert [(burst.start_s, burst.end_s) for burst in shape.bursts()] == [(12, 18)]
    assert shape.base_rate_rps == pytest.approx(3.0)


def test_a_last_pulse_that_is_cut_off_counts_for_what_is_left_of_it() -> None:
    """T = 71 s, pulses of 2 s at 10, 30, 50, 70: B = 2 + 2 + 2 + 1 = 7 s; b = (6 x 71 - 30 x 7) / 64."""
    shape = pulse(ShapeSettings(duration_s=71, width_s=2))
    assert shape.burst_time_s == 7
    assert shape.base_rate_rps == pytest.approx((426 - 210) / 64)
    assert (shape.bursts()[-1].start_s, shape.bursts()[-1].end_s) == (70, 71)


def test_the_width_makes_up_for_a_last_pulse_that_is_cut_off() -> None:
    """T = 71 s, base 0.5: B = 71 x 0.5 / 4.5 = 7.889 s, of which 1 s in the last pulse: w = 6.889 / 3 s."""
    shape = pulse(ShapeSettings(duration_s=71))
    assert shape.width_s == pytest.approx((71 * 0.5 / 4.5 - 1) / 3)
    assert shape.base_rate_rps == pytest.approx(3.0)


def test_peaks_may_just_use_up_the_mean() -> None:
    shape = pulse(ShapeSettings(duration_s=100, duty=0.2))
    assert shape.base_rate_rps == 0.0
    assert shape.rate_at([9.99, 10.0, 13.99, 14.01]).tolist() == [0, 30, 30, 0]
    assert shape.expected_until([10.0, 12.0, 14.0, 30.0]) == pytest.approx([0, 60, 120, 120])


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (
            {"duty": 0.3},
            r"duty 0\.3 x peak ratio 5 = 1\.5: the peaks alone would exceed the mean; lower one so that",
        ),
        ({"duty": 0.2, "duration_s": 14.0}, "fill 4 s of 14 s.*peak ratio of at most 3.5 is possible"),
        ({"duration_s": 10.0}, "no burst begins within 10 s, since the first is due at 10 s"),
        ({"duration_s": 10.5}, "only 0.5 s remain after the lead of 10 s"),
        ({"duty": 0.1, "base": 0.5}, "duty and base cannot be given together"),
        ({"duty": 0.1, "width_s": 1.0, "base": 0.5}, "duty and width and base cannot be given together"),
        ({"base": 1.0}, "base 1 is impossible"),
        ({"peak_ratio": 1.0}, "peak ratio 1 is impossible"),
        ({"peak_ratio": 1.02, "width_s": 20.0}, "must be less than the period"),
        ({"lead_s": 85.0, "period_s": 5.0, "base": 0.2}, "but the period is 5 s"),
        ({"period_s": 0.0}, "period 0 s is impossible"),
        ({"lead_s": -1.0}, "lead -1 s is impossible"),
        ({"rate_rps": 0.0}, "rate 0 req/s is impossible: it must be greater than 0"),
        ({"rate_rps": float("nan")}, "rate nan req/s is impossible"),
        ({"duration_s": float("inf")}, "duration inf s is impossible"),
        ({"period_s": 0.001, "duty": 0.1, "duration_s": 0.001 * MOST_BURSTS + 1}, "more than 100,000 bursts"),
    ],
)
def test_an_impossible_pulse_says_what_would_be_possible(asked: dict[str, float], why: str) -> None:
    with pytest.raises(ShapeError, match=why):
        pulse(ShapeSettings(**asked))  # type: ignore[arg-type]


def test_mixed_takes_duty_or_width() -> None:
    assert mixed(ShapeSettings(duration_s=120, width_s=6)).base_rate_rps == pytest.approx(6 * 0.7 / 0.9)
    with pytest.raises(ShapeError, match="duty and width cannot be given together"):
        mixed(ShapeSettings(duty=0.2, width_s=5))


# --- salvo ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "quiet 3 s, 30 at once, quiet 5 s, 60 at once",
        "3s,30,5s,60",
        "Quiet 3000ms,30 , 0.5 s, 4.5 s,60AT ONCE",
    ],
)
def test_the_long_and_the_short_salvo_text_mean_the_same(text: str) -> None:
    shape = salvo(ShapeSettings(salvo=text))
    assert (shape.at_s, shape.counts, shape.duration_s) == ((3.0, 8.0), (30, 60), 13.0)
    assert shape.expected_until([2.999, 3.0, 7.999, 8.0, 13.0]).tolist() == [0, 30, 30, 90, 90]
    assert shape.mean_rate_rps == 90 / 13


def test_the_last_pause_is_the_tail_and_the_duration_overrides_it() -> None:
    assert salvo(ShapeSettings(salvo="10, 2 s")).duration_s == 2
    assert salvo(ShapeSettings(salvo="1 s, 10, 2 s", duration_s=60)).duration_s == 60
    assert salvo(ShapeSettings(salvo="1 min, 10")).duration_s == 65
    with pytest.raises(ShapeError, match="last salvo is due at 8 s, but the load ends at 8 s"):
        salvo(ShapeSettings(duration_s=8))


def test_salvos_at_the_same_moment_are_one() -> None:
    assert parse_salvo("1 s, 10, 20") == ((1.0,), (30,), 5.0)


@pytest.mark.parametrize(
    "text",
    ["", "3s", "3s,,30", "0", "3s,-1", "1.5", "thirty", "3s,1000001", "1e9s,1", "999999999 s, 1", "٣s,30"],
)
def test_a_salvo_that_cannot_be_read_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ShapeError) as refused:
        salvo(ShapeSettings(salvo=text))
    check_one_line(refused.value)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.text("0123456789., smquietaonc", max_size=60))
def test_any_salvo_text_is_read_or_refused(text: str) -> None:
    try:
        at_s, counts, tail_s = parse_salvo(text)
    except ShapeError as error:
        check_one_line(error)
        return
    assert list(at_s) == sorted(set(at_s))
    assert all(count >= 1 for count in counts)
    assert tail_s > 0


def test_a_salvo_is_drawn_as_a_bar_of_its_count() -> None:
    points = rate_curve(salvo(ShapeSettings()), step_s=1.0)
    assert points[:6] == [[0, 0], [3, 0], [3, 30], [4, 30], [4, 0], [8, 0]]


# --- diurnal --------------------------------------------------------------------------------------


def test_the_sine_has_its_trough_at_both_ends_and_its_peak_at_noon() -> None:
    shape = make_shape("diurnal", ShapeSettings(rate_rps=10, duration_s=240))
    assert shape.rate_at([0, 60, 120, 180, 239.999999]) == pytest.approx([2, 10, 18, 10, 2])
    assert shape.expected_until([120, 240]) == pytest.approx([1200, 2400])


def test_a_table_is_joined_by_straight_lines_and_wraps_round() -> None:
    """Weights 1, 3 have mean 2: with m = 4 the rates are 2, 6; back at 2 at the end."""
    shape = make_shape("diurnal", ShapeSettings(rate_rps=4, duration_s=20, day_profile="1,3"))
    assert shape.rate_at([0, 5, 10, 15, 19.999999]) == pytest.approx([2, 4, 6, 4, 2], abs=1e-5)
    assert shape.expected_until([5, 10, 15, 20]) == pytest.approx([15, 40, 65, 80])


def test_the_burstgpt_day_swings_as_published() -> None:
    shape = make_shape("diurnal", ShapeSettings(rate_rps=1, duration_s=24, day_profile=" BurstGPT "))
    rates = shape.rate_at(np.arange(24))
    assert rates == pytest.approx(np.array(BURSTGPT_HOURS) / 976.5958, rel=1e-6)
    assert (np.argmax(rates), np.argmin(rates)) == (14, 7)
    assert (np.max(rates), np.min(rates), np.max(rates) / np.min(rates)) == pytest.approx(
        (1.84, 0.157, 11.7), rel=3e-3
    )


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"amplitude": 1.5}, "amplitude 1.5 is impossible"),
        ({"amplitude": 0.5, "day_profile": "burstgpt"}, "amplitude belongs to the sine"),
        ({"day_profile": "weekend"}, "give sine, burstgpt, or 2 to 1,440 numbers"),
        ({"day_profile": "1"}, "2 to 1,440 numbers"),
        ({"day_profile": "1,-1"}, "numbers from 0"),
        ({"day_profile": "0,0"}, "not all 0"),
        ({"day_profile": "1,nan"}, "numbers from 0"),
    ],
)
def test_an_impossible_day_is_refused(asked: dict[str, object], why: str) -> None:
    with pytest.raises(ShapeError, match=why):
        make_shape("diurnal", ShapeSettings(**asked))  # type: ignore[arg-type]


# --- steps ----------------------------------------------------------------------------------------


def test_each_level_has_an_equal_part_of_the_time() -> None:
    shape = steps(ShapeSettings(levels="1,10,20,50", duration_s=120, rate_rps=99))
    assert shape.mean_rate_rps == 81 / 4
    assert shape.rate_at([0, 29.999, 30, 60, 90, 119.999, 120]).tolist() == [1, 1, 10, 20, 50, 50, 0]
    assert shape.expected_until([30, 45, 60, 90, 120]) == pytest.approx([30, 180, 330, 930, 2430])
    assert shape.bursts() == ()


def test_the_rows_of_run_json_carry_the_levels() -> None:
    shape = make_shape("steps", ShapeSettings(levels="5,0", duration_s=60))
    assert segment_rows(shape) == [
        {"id": 0, "start_s": 0.0, "end_s": 30.0, "author": "plan", "level": 5.0},
        {"id": 1, "start_s": 30.0, "end_s": 60.0, "author": "plan", "level": 0.0},
    ]
    assert segment_at(shape, [0.0, 29.9, 30.0, 59.9]).tolist() == [0, 0, 1, 1]
    uniform = make_shape("uniform", ShapeSettings(duration_s=60))
    assert segment_rows(uniform) == [{"id": 0, "start_s": 0.0, "end_s": 60.0, "author": "plan"}]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"levels": ""}, "levels '' cannot be read: give 1 to 200 numbers with commas such as 1,10,20,50"),
        ({"levels": "1,,2"}, "levels '1,,2' cannot be read"),
        ({"levels": "1;2"}, "levels '1;2' cannot be read"),
        ({"levels": ",".join(["1"] * (MOST_LEVELS + 1))}, "give 1 to 200 numbers"),
        ({"levels": "1,-2"}, "level -2 is impossible: it must be from 0 to 1,000,000"),
        ({"levels": "1,nan"}, "level nan is impossible"),
        ({"levels": "inf"}, "level inf is impossible"),
        ({"levels": "0,0"}, "levels '0,0' send nothing: at least one must be greater than 0"),
        ({"levels": "1,2,3", "duration_s": 0.002}, "3 levels in 0.002 s leave less than 0.001 s for each"),
        ({"levels": "1", "duration_s": -1.0}, "duration -1 s is impossible"),
    ],
)
def test_impossible_levels_are_refused(asked: dict[str, object], why: str) -> None:
    with pytest.raises(ShapeError, match=why) as refused:
        steps(ShapeSettings(**asked))  # type: ignore[arg-type]
    check_one_line(refused.value)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=40) | st.text("0123456789.,e- ", max_size=40))
def test_any_levels_text_is_read_or_refused(text: str) -> None:
    try:
        levels = parse_levels(text)
    except ShapeError as error:
        check_one_line(error)
        return
    assert 1 <= len(levels) <= MOST_LEVELS
    assert min(levels) >= 0
    assert max(levels) > 0


# --- users ----------------------------------------------------------------------------------------


def mean_users(changes: list[tuple[float, int]], duration_s: float) -> float:
    ends = [at for at, _ in changes[1:]] + [duration_s]
    return sum(users * (end - at) for (at, users), end in zip(changes, ends, strict=True)) / duration_s


def test_scenario_b_as_concurrency_has_5_users_and_50_in_each_pulse() -> None:
    """Base 0.5 is 5 users: 15 pulses of 2.22 s from 10 s on, and the mean is 10 users to the last digit."""
    changes = user_changes(pulse(ShapeSettings(rate_rps=10, duration_s=300)))
    assert [users for _, users in changes] == [5, *[50, 5] * 15, 0]
    starts = [10.0 + 20.0 * k for k in range(15)]
    assert [at for at, _ in changes[1:-1:2]] == starts
    assert [at for at, _ in changes[2:-1:2]] == pytest.approx([start + 10 / 4.5 for start in starts])
    assert mean_users(changes, 300) == pytest.approx(10)


def test_scenario_c_as_concurrency_has_6_users_and_36_in_each_burst() -> None:
    changes = user_changes(mixed(ShapeSettings(rate_rps=12, duration_s=120)))
    assert changes == [(0, 6), (24, 36), (36, 6), (84, 36), (96, 6), (120, 0)]
    assert mean_users(changes, 120) == pytest.approx(12)


@pytest.mark.parametrize("duration_s", [50, 71, 100, 300])
def test_the_peak_is_exact_when_the_base_is_rounded(duration_s: float) -> None:
    """Mean 7, base 0.5: 3.5 users between pulses become 4 for any duration, and the peak stays 35."""
    shape = pulse(ShapeSettings(rate_rps=7, duration_s=duration_s))
    assert {users for _, users in user_changes(shape)} == {4, 35, 0}


def test_half_a_user_counts_as_one() -> None:
    shape = make_shape("steps", ShapeSettings(levels="0.49,0.5,1.5,2.5,3.49", duration_s=50))
    assert users_at(shape, [5, 15, 25, 35, 45]).tolist() == [0, 1, 2, 3, 3]
    assert user_changes(shape) == [(0, 0), (10, 1), (20, 2), (30, 3), (50, 0)]


def test_levels_are_numbers_of_users() -> None:
    shape = make_shape("steps", ShapeSettings(levels="1,10,10,0", duration_s=40))
    assert user_changes(shape) == [(0, 1), (10, 10), (30, 0)]


def test_uniform_users_are_n_users_until_the_end() -> None:
    shape = make_shape("uniform", ShapeSettings(rate_rps=20, duration_s=30))
    assert user_changes(shape) == [(0, 20), (30, 0)]


def test_a_day_of_users_changes_where_the_sine_passes_each_half() -> None:
    """10 (1 - 0.8 cos x) = k + 0.5 at x = acos((9.5 - k) / 8), for k = 2 ... 17 up, and the mirror down."""
    changes = user_changes(make_shape("diurnal", ShapeSettings(rate_rps=10, duration_s=240)))
    rising = [math.acos((9.5 - k) / 8) * 240 / (2 * math.pi) for k in range(2, 18)]
    assert [users for _, users in changes] == [*range(2, 19), *range(17, 1, -1), 0]
    expected = [0.0, *rising, *(240 - at for at in reversed(rising)), 240.0]
    assert [at for at, _ in changes] == pytest.approx(expected, abs=1e-5)


def test_a_day_by_a_table_changes_on_its_straight_lines() -> None:
    """Weights 1, 3 with a mean of 4 users: 2 to 6 in 10 s, passing 2.5 after 1.25 s, 3.5 after 3.75 s, ..."""
    shape = make_shape("diurnal", ShapeSettings(rate_rps=4, duration_s=20, day_profile="1,3"))
    changes = user_changes(shape)
    assert [users for _, users in changes] == [2, 3, 4, 5, 6, 5, 4, 3, 2, 0]
    expected = [0, 1.25, 3.75, 6.25, 8.75, 11.25, 13.75, 16.25, 18.75, 20]
    assert [at for at, _ in changes] == pytest.approx(expected, abs=1e-5)


def test_numbers_that_are_passed_in_the_same_microsecond_are_one_change() -> None:
    """From 8,000 to 72,000 users and back within a millisecond."""
    shape = make_shape("diurnal", ShapeSettings(rate_rps=40_000, duration_s=0.001))
    changes = user_changes(shape)
    at_s, users = zip(*changes, strict=True)
    assert len(changes) < 2_100
    assert len(set(at_s)) == len(at_s)
    assert users_at(shape, at_s).tolist() == list(users)


def test_too_many_users_or_changes_are_refused() -> None:
    with pytest.raises(ShapeError, match="500,000 users are too many: at most 100,000"):
        user_changes(pulse(ShapeSettings(rate_rps=100_000)))
    sawtooth = ",".join(["0", "1"] * 10)
    with pytest.raises(ShapeError, match=r"would change 1,600,0\d\d times: at most 500,000"):
        user_changes(make_shape("diurnal", ShapeSettings(rate_rps=40_000, day_profile=sawtooth)))


# --- curve ----------------------------------------------------------------------------------------


def test_pulse_edges_are_drawn_exactly() -> None:
    points = rate_curve(pulse(ShapeSettings(duration_s=30, width_s=2)))
    base = (6 * 30 - 30 * 2) / 28
    expected = [[0, base], [10, base], [10, 30], [12, 30], [12, base], [30, base]]
    assert np.array(points) == pytest.approx(np.array(expected))


def test_levels_are_drawn_as_steps() -> None:
    points = rate_curve(steps(ShapeSettings(levels="1,5,2", duration_s=30)))
    assert points == [[0, 1], [10, 1], [10, 5], [20, 5], [20, 2], [30, 2]]


def test_too_many_pulses_are_drawn_as_means() -> None:
    shape = TwoLevel(10_000, 6.0, 5.0, 10.0, 1.0, 5.0)
    points = np.array(rate_curve(shape))
    assert len(points) == MOST_POINTS
    assert np.unique(points[:, 1]) == pytest.approx(6.0)
