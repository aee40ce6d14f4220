"""The plan: one schedule from one seed, cut into slices whose union is the schedule whatever the workers."""

from __future__ import annotations

from argparse import Namespace
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.given import options_as_given
from loadgen.options import OPTIONS, OptionError
from loadgen.plan import SLICE_S, Plan, SlicePart, make_plan, unpack
from loadgen.settings import read_settings
from loadgen.shares import Shares
from loadgen.texts import seconds
from shapes.errors import LoadRuleError

HOST = "http://127.0.0.1:8000"


def parsed(**given: object) -> Namespace:
    return Namespace(**({option.name: option.default for option in OPTIONS} | {"model": "m"} | given))


def plan(**given: object) -> Plan:
    options = parsed(**given)
    return make_plan(read_settings(options, HOST), "run", options_as_given(options), ["locust"])


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_union_of_all_slices_is_the_schedule(workers: int) -> None:
    drawn = plan(shape="pulse", run_time=65)
    shares = Shares(drawn.schedule.at_s, workers)
    sent = [
        one
        for worker in range(workers)
        for number in range(drawn.slice_count)
        for one in unpack(
            drawn.slice_part(number, shares.of(worker, number * SLICE_S, (number + 1) * SLICE_S))
        )
    ]
    schedule = drawn.schedule
    assert sorted(one.index for one in sent) == list(range(len(schedule)))
    for one in sent:
        assert one.index is not None
        assert one.at_s == schedule.at_s[one.index]
        assert one.prompt_seed == schedule.prompt_seed[one.index]
        assert one.input_tokens == schedule.asked_input_tokens[one.index]


def test_the_same_seed_draws_the_same_bytes_and_another_one_does_not() -> None:
    first, again, other = plan(seed="7"), plan(seed="7"), plan(seed="8")
    assert first.schedule.to_csv_bytes() == again.schedule.to_csv_bytes()
    assert first.info.schedule_sha256 == again.info.schedule_sha256 != other.info.schedule_sha256


def test_a_slice_whose_bytes_changed_is_refused() -> None:
    part = plan().slice_part(0, range(20))
    with pytest.raises(ValueError, match="slice 0 of the schedule does not match its digest"):
        list(unpack(SlicePart(0, part.packed.replace(b"1", b"2", 1), part.sha256)))


def test_uniform_and_pulse_of_one_seed_ask_for_the_same_number_of_requests() -> None:
    assert len(plan(shape="uniform", run_time=80).schedule) == len(plan(shape="pulse", run_time=80).schedule)


def test_at_most_so_many_requests_need_no_more_slices() -> None:
    drawn = plan(max_requests="5")
    assert drawn.slice_count == 1
    assert plan().slice_count == 12


def test_a_closed_loop_has_users_and_no_schedule() -> None:
    drawn = plan(load="closed", load_users="4", shape="pulse", run_time=40)
    assert len(drawn.schedule) == drawn.slice_count == 0
    assert max(users for _, users in drawn.info.users_curve) == 20  # peak 5 x the mean
    assert (drawn.info.load, drawn.info.mean_rate_rps) == ("closed", None)


def test_steps_carry_their_levels_and_arrivals_their_segment() -> None:
    drawn = plan(shape="steps", levels="2,4", run_time=20)
    assert [(row["id"], row["level"]) for row in drawn.info.segments] == [(0, 2.0), (1, 4.0)]
    schedule = drawn.schedule
    assert ((schedule.at_s >= 10) == (schedule.segment == 1)).all()


def test_gamma_arrivals_take_their_cv() -> None:
    drawn = plan(arrivals="gamma", cv="0.001", rate="10", run_time=10)
    assert len(drawn.schedule) in (99, 100, 101)
    with pytest.raises(LoadRuleError, match="gamma"):
        plan(arrivals="poisson", cv="2")


def test_a_salvo_keeps_its_counts_by_default() -> None:
    drawn = plan(shape="salvo", salvo="3s,30,5s,60")
    assert drawn.info.arrivals == "constant"
    assert [(drawn.schedule.at_s == at).sum() for at in (3.0, 8.0)] == [30, 60]
    assert drawn.info.bursts == [[3.0, 3.0], [8.0, 8.0]]
    assert drawn.info.duration_s == 13.0


def test_run_time_is_the_duration() -> None:
    assert plan(run_time=33).info.duration_s == 33.0
    assert plan().info.duration_s == 120.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": ""}, "--model is missing"),
        ({"rate": "0"}, "--rate: '0' must be above 0"),
        ({"rate": "nan"}, "--rate: 'nan' must be a finite number"),
        ({"rate": "fast"}, "--rate: 'fast' is not a number"),
        ({"shape": "square"}, "--shape 'square' is unknown; choose one of uniform, pulse"),
        ({"drain": "soon"}, "--drain: 'soon' is not a time"),
        ({"no_stream": "maybe"}, "--no-stream 'maybe' is unknown; choose one of false, true"),
        ({"stop_at_failure_ratio": "1.5"}, "--stop-at-failure-ratio: '1.5' must be above 0 and at most 1"),
        ({"probes": "often"}, "--probes: 'often' is not a rate of probes"),
        ({"seed": "9" * 19}, "is too large"),
        ({"duration": "0s"}, "--duration: '0s' must be above 0"),
        ({"seed": "-1"}, "--seed: '-1' is not a whole number"),
        ({"input_tokens": "many"}, "token length 'many' cannot be read"),
    ],
)
def test_a_wrong_option_is_told_in_one_line(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as told:
        read_settings(parsed(**given), HOST)
    assert "\n" not in str(told.value)


def test_without_a_host_nothing_is_planned() -> None:
    with pytest.raises(OptionError, match="--host is missing"):
        read_settings(parsed(), None)


@given(st.text())
def test_a_time_is_read_or_refused_but_never_crashes(text: str) -> None:
    with suppress(ValueError):
        assert seconds(text) >= 0


def test_times_by_hand() -> None:
    assert [seconds(text) for text in ("20", "20s", "500ms", "2m", "1 h")] == [20, 20, 0.5, 120, 3600]


def test_every_option_is_declared_once_and_explains_itself() -> None:
    flags = [option.flag for option in OPTIONS]
    assert len(set(flags)) == len(flags)
    assert all(len(option.help) > 15 for option in OPTIONS)
    assert len({option.env_var for option in OPTIONS}) == len(flags)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("my run", "my-run"),
        ("a/../../b", "a-..-..-b"),
        ("压测", "pulse"),
        ("x" * 200, "x" * 60),
        ("", "pulse"),
    ],
)
def test_a_run_may_have_any_name_and_its_folder_a_plain_one(name: str, slug: str) -> None:
    settings = read_settings(parsed(run_name=name, shape="pulse"), HOST)
    assert (settings.run_name, settings.slug) == (name or "pulse", slug)


def test_a_key_in_the_query_of_the_address_is_not_told() -> None:
    host = "http://127.0.0.1:8000/v1?api-key=SECRET&v=2"
    options = parsed()
    drawn = make_plan(read_settings(options, host), "run", {}, ["locust", "--host", host])
    assert drawn.settings.target == host
    assert drawn.info.target == drawn.info.command[2] == "http://127.0.0.1:8000/v1?api-key=…&v=…"


def test_slo_none_means_no_slo() -> None:
    assert read_settings(parsed(slo="none"), HOST).slo == ""
