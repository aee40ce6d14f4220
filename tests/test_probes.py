"""Probes: read from text, spread evenly over the load and no further, the same in every run of a seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.probes import INPUT_TOKENS, MOST_PER_S, OUTPUT_TOKENS, parse_probes, probe_arrivals, probe_times


@pytest.mark.parametrize(
    ("text", "rate"),
    [("1/s", 1.0), ("2/s", 2.0), ("0.5/s", 0.5), (" 10 / s ", 10.0), ("none", None), ("", None)],
)
def test_a_rate_is_read(text: str, rate: float | None) -> None:
    assert parse_probes(text) == rate


@pytest.mark.parametrize(
    "text", ["1", "s", "-1/s", "1/min", "nan/s", "1e3/s", "1/s\nx", "0/s", "10.1/s", "9" * 400]
)
def test_what_is_no_rate_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="/s") as refused:
        parse_probes(text)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 120


def test_probes_come_half_a_spacing_off_the_start() -> None:
    assert probe_times(1.0, 3.0) == [0.5, 1.5, 2.5]
    assert probe_times(2.0, 2.0) == [0.25, 0.75, 1.25, 1.75]
    assert probe_times(0.5, 5.0) == [1.0, 3.0]
    assert probe_times(0.5, 1.0) == []


@given(st.floats(0.001, MOST_PER_S), st.floats(0.01, 300.0))
def test_the_spacing_is_constant_and_all_lie_in_the_load(rate: float, duration_s: float) -> None:
    times = probe_times(rate, duration_s)
    assert abs(len(times) - rate * duration_s) <= 0.5 + 1e-5 * rate
    assert all(0 <= at_s < duration_s for at_s in times)
    assert np.diff(times) == pytest.approx(1 / rate, abs=2e-6)


def test_probes_are_small_requests_of_their_own_name_outside_the_schedule() -> None:
    probes = probe_arrivals(1.0, 30.0, seed=7)
    assert len(probes) == 30
    assert {(each.name, each.index, each.scheduled) for each in probes} == {("probe", None, True)}
    assert {(each.input_tokens, each.output_tokens) for each in probes} == {(INPUT_TOKENS, OUTPUT_TOKENS)}
    assert [each.label for each in probes[:2]] == ["probe-0", "probe-1"]
    assert [each.at_s for each in probes] == sorted(each.at_s for each in probes)


def test_their_prompts_repeat_with_the_seed_and_only_then() -> None:
    def prompts(seed: int) -> list[int]:
        return [each.prompt_seed for each in probe_arrivals(1.0, 30.0, seed)]

    assert prompts(7) == prompts(7)
    assert not set(prompts(7)) & set(prompts(8))
    assert len(set(prompts(7))) == 30
