"""Schedules: the right times, the same bytes for the same seed, slices that make a whole."""

from __future__ import annotations

import csv
import hashlib
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapes import SHAPES, Shape, ShapeSettings, make_shape
from shapes.arrivals import ARRIVALS
from shapes.errors import ScheduleError, ShapeError
from shapes.lengths import parse_lengths
from shapes.schedule import COLUMNS, MOST_ARRIVALS, Schedule, draw_schedule, draw_times, seed_children

CONSTANT, POISSON = ARRIVALS["constant"], ARRIVALS["poisson"]
PROMPTS, ANSWERS = parse_lengths("lognormal:512,0.9"), parse_lengths("normal:60,20")
EACH_SHAPE = pytest.mark.parametrize("name", SHAPES)


def default(name: str, **asked: object) -> Shape:
    return make_shape(name, ShapeSettings(**asked))  # type: ignore[arg-type]


def schedule(name: str = "pulse", seed: int = 7) -> Schedule:
    return draw_schedule(default(name), POISSON, seed, PROMPTS, ANSWERS)


# --- times ----------------------------------------------------------------------------------------


@EACH_SHAPE
@pytest.mark.parametrize("arrivals", ARRIVALS.values(), ids=list(ARRIVALS))
def test_times_are_sorted_microseconds_within_the_load(name: str, arrivals: object) -> None:
    shape = default(name)
    times = draw_times(shape, arrivals, seed=3)  # type: ignore[arg-type]
    assert np.all(np.diff(times) >= 0)
    assert times[0] >= 0
    assert times[-1] < shape.duration_s
    assert times.tolist() == [float(f"{t:.6f}") for t in times]


@EACH_SHAPE
def test_the_same_seed_gives_the_same_times_and_another_seed_others(name: str) -> None:
    shape = default(name)
    first, again, other = (draw_times(shape, POISSON, seed) for seed in (5, 5, 6))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


@EACH_SHAPE
def test_constant_arrivals_cut_the_integral_into_equal_steps(name: str) -> None:
    """The k-th request is sent when k + 0.5 are expected; a salvo's requests wait for the jump."""
    shape = default(name)
    times = draw_times(shape, CONSTANT, seed=0)
    assert len(times) == round(float(shape.expected_until(shape.duration_s)))
    middles = np.arange(len(times)) + 0.5
    microsecond = 1e-6 * float(np.max(shape.rate_at(np.linspace(0, shape.duration_s, 999)))) + 1e-6
    assert np.all(shape.expected_until(times + 1e-6) >= middles - microsecond)
    assert np.all(shape.expected_until(times - 1e-6) <= middles + microsecond)


@EACH_SHAPE
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_counts_follow_the_integral_in_every_stretch(name: str, seed: int) -> None:
    """Poisson counts in 40 stretches at 200 req/s against their means; the sum of z^2 is chi-squared(40)."""
    shape = default(name, rate_rps=200.0, salvo=",".join(["2s,2000"] * 20))
    edges = np.linspace(0, shape.duration_s, 41)
    means = np.diff(shape.expected_until(edges - 1e-3))
    counts = np.histogram(draw_times(shape, POISSON, seed), edges - 1e-3)[0]
    assert np.all(counts[means == 0] == 0)
    some = means > 0
    z2 = np.sum((counts[some] - means[some]) ** 2 / means[some])
    assert z2 < np.sum(some) + 4.5 * np.sqrt(2 * np.sum(some))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rescaled_gaps_are_exponential_again(seed: int) -> None:
    """Put back through the integral, pulse arrivals are a unit Poisson process: mean 1, CV 1, to 4 errors."""
    shape = default("pulse", rate_rps=500.0)
    gaps = np.diff(shape.expected_until(draw_times(shape, POISSON, seed)))
    error = 4 / np.sqrt(len(gaps))
    assert np.mean(gaps) == pytest.approx(1.0, abs=error)
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(1.0, abs=error)


def test_a_salvo_sends_exactly_30_and_60_at_their_moments() -> None:
    times = draw_times(default("salvo", salvo="3s,30,5s,60"), CONSTANT, seed=0)
    moments, counts = np.unique(times, return_counts=True)
    assert (moments.tolist(), counts.tolist()) == ([3.0, 8.0], [30, 60])


def test_a_salvo_may_open_the_load() -> None:
    times = draw_times(default("salvo", salvo="4, 100 ms, 2"), CONSTANT, seed=0)
    assert times.tolist() == [0.0] * 4 + [0.1] * 2


def test_no_time_is_rounded_up_to_the_end() -> None:
    """1,000 requests in 1 ms: the last one is due at 999.5 us, which would round to the end itself."""
    times = draw_times(default("uniform", rate_rps=1e6, duration_s=0.001), CONSTANT, seed=0)
    assert len(times) == 1_000
    assert times[-1] == 0.000999


def test_nothing_is_sent_where_the_rate_is_zero() -> None:
    shape = default("pulse", base=0.0, rate_rps=50.0)
    times = draw_times(shape, POISSON, seed=11)
    in_a_burst = [any(b.start_s - 1e-6 <= t <= b.end_s + 1e-6 for b in shape.bursts()) for t in times]
    assert len(times) > 4_000
    assert all(in_a_burst)


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(["uniform", "mixed", "diurnal"]),
    duration_s=st.floats(0.001, 2_000),
    rate_rps=st.floats(0.001, 50),
    seed=st.integers(0, 2**64),
)
def test_times_stay_within_any_load(name: str, duration_s: float, rate_rps: float, seed: int) -> None:
    try:
        shape = default(name, duration_s=duration_s, rate_rps=rate_rps)
    except ShapeError:
        return
    times = draw_times(shape, POISSON, seed)
    assert np.all((times >= 0) & (times < duration_s))
    assert np.all(np.diff(times) >= 0)


def test_a_hundred_thousand_times_are_no_trouble_and_far_too_many_are_refused() -> None:
    assert len(draw_times(default("mixed", rate_rps=1_000.0), POISSON, seed=1)) == pytest.approx(
        1e5, rel=0.02
    )
    with pytest.raises(ShapeError, match="too many for one schedule: at most 20,000,000"):
        draw_times(default("uniform", rate_rps=MOST_ARRIVALS / 50), POISSON, seed=1)


def test_seed_children_are_independent_streams_and_refuse_negative_seeds() -> None:
    first, again = seed_children(42), seed_children(42)
    draws = [stream.random() for stream in first]
    assert draws == [stream.random() for stream in again]
    assert len(set(draws)) == 4
    expected = np.random.Generator(np.random.PCG64(np.random.SeedSequence(42).spawn(4)[2]))
    assert seed_children(42).prompts.random() == expected.random()
    with pytest.raises(ShapeError, match="seed -1"):
        seed_children(-1)


# --- schedule -------------------------------------------------------------------------------------


@EACH_SHAPE
def test_the_same_seed_gives_identical_bytes(name: str) -> None:
    first, again = schedule(name), schedule(name)
    assert first.to_csv_bytes() == again.to_csv_bytes()
    assert first.sha256() == again.sha256() == hashlib.sha256(first.to_csv_bytes()).hexdigest()
    assert first.sha256() != schedule(name, seed=8).sha256()


def test_the_csv_has_a_row_per_arrival_in_the_documented_form() -> None:
    plan = schedule()
    text = plan.to_csv_bytes().decode()
    assert text.count("\r\n") == text.count("\n") == len(plan) + 1
    header, first, *_ = csv.reader(io.StringIO(text, newline=""))
    assert tuple(header) == COLUMNS
    assert first == [
        "0",
        "0",
        f"{plan.at_s[0]:.6f}",
        "chat",
        "",
        "",
        str(plan.asked_input_tokens[0]),
        str(plan.asked_output_tokens[0]),
        str(plan.prompt_seed[0]),
    ]


def test_a_schedule_survives_the_csv_with_awkward_names() -> None:
    plan = Schedule(
        at_s=np.array([0.0, 0.1, 7.123457]),
        segment=np.array([0, 0, 1]),
        name=["chat", 'a "b", c', "line\r\nbreak"],
        tenant=[None, "big, bursty", None],
        session=["s1", None, None],
        asked_input_tokens=np.array([1, 2, 3]),
        asked_output_tokens=np.array([4, 5, 6]),
        prompt_seed=np.array([0, 1, 2**63 - 1]),
    )
    data = plan.to_csv_bytes()
    again = Schedule.from_csv(data)
    assert again.to_csv_bytes() == data
    assert (again.name, again.tenant, again.session) == (plan.name, plan.tenant, plan.session)
    assert again.at_s.tolist() == plan.at_s.tolist()
    assert again.prompt_seed.tolist() == plan.prompt_seed.tolist()


def test_an_empty_schedule_is_only_a_header() -> None:
    plan = draw_schedule(default("uniform", rate_rps=1e-6, duration_s=0.001), CONSTANT, 0, PROMPTS, ANSWERS)
    assert len(plan) == 0
    assert len(Schedule.from_csv(plan.to_csv_bytes())) == 0


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: b"", "must begin with the header"),
        (lambda data: data.replace(b"at_s", b"when"), "must begin with the header"),
        (lambda data: data[:-30], "row 602|no number"),
        (lambda data: data.replace(b"\r\n1,", b"\r\n2,", 1), "row 2: expected arrival 1"),
        (lambda data: data + b"602,0,1.000000,chat,,,1,1,1\r\n", "finite and in order"),
        (lambda data: data + b"602,0,nan,chat,,,1,1,1\r\n", "finite and in order"),
        (lambda data: data + b"602,0,99.999999,chat,,,x,1,1\r\n", "no number"),
        (lambda data: data + b"602,0,99.999999,chat,,,1,1,99999999999999999999\r\n", "no number"),
        (lambda data: data + b"\xff", "cannot be read"),
    ],
)
def test_a_damaged_schedule_is_refused(damage: object, why: str) -> None:
    plan = draw_schedule(default("uniform", rate_rps=6.02), CONSTANT, 1, PROMPTS, ANSWERS)
    with pytest.raises(ScheduleError, match=why):
        Schedule.from_csv(damage(plan.to_csv_bytes()))  # type: ignore[operator]


def test_columns_must_be_equally_long() -> None:
    one = np.zeros(1, dtype=np.int64)
    with pytest.raises(ScheduleError, match="equally long"):
        Schedule(np.zeros(2), one, ["chat"], [None], [None], one, one, one)


def test_each_thing_has_its_own_stream() -> None:
    """Other prompts leave times, answers and seeds alone; other arrivals leave the first draws alone."""
    shape = default("pulse")
    plan = draw_schedule(shape, POISSON, 7, PROMPTS, ANSWERS)
    other = draw_schedule(shape, POISSON, 7, parse_lengths("128"), ANSWERS)
    assert other.asked_input_tokens.tolist() == [128] * len(plan)
    assert np.array_equal(other.at_s, plan.at_s)
    assert np.array_equal(other.asked_output_tokens, plan.asked_output_tokens)
    assert np.array_equal(other.prompt_seed, plan.prompt_seed)
    constant = draw_schedule(shape, CONSTANT, 7, PROMPTS, ANSWERS)
    shared = min(len(plan), len(constant))
    assert np.array_equal(constant.prompt_seed[:shared], plan.prompt_seed[:shared])
    assert np.array_equal(constant.asked_input_tokens[:shared], plan.asked_input_tokens[:shared])


def test_prompt_seeds_do_not_repeat() -> None:
    plan = schedule()
    assert len(set(plan.prompt_seed.tolist())) == len(plan)
    assert np.all(plan.prompt_seed >= 0)
