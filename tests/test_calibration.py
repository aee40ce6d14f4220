"""Words and tokens: the line through counted prompts, and prompts as long as asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.calibration import SIZES, UNCALIBRATED, PromptCalibration, fit
from loadgen.prompts import WORDS, sample_prompt, synthetic_prompt


def test_two_prompts_give_overhead_and_rate() -> None:
    """32 words as 68 tokens, 256 as 404: 336 / 224 = 1.5 a word, 68 - 48 = 20 beside them."""
    found = fit([(32, 68), (256, 404)])
    assert found == PromptCalibration(20.0, 1.5)
    assert (found.words_for(150), found.tokens_of(87)) == (87, 150.5)


def test_a_prompt_shorter_than_the_template_is_one_word() -> None:
    found = PromptCalibration(20.0, 1.0)
    assert found.words_for(5) == found.words_for(20) == found.words_for(21) == 1
    assert found.words_for(22) == 2


def test_an_overhead_is_never_negative() -> None:
    """Noise alone can make it so: then the line goes through zero."""
    found = fit([(32, 30), (256, 256)])
    assert found is not None
    assert found.overhead_tokens == 0
    assert found.tokens_per_word == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    "points", [[], [(32, 40)], [(32, 40), (32, 44)], [(32, 12), (256, 12)], [(32, 300), (256, 20)]]
)
def test_what_is_no_count_of_words_gives_nothing(points: list[tuple[int, int]]) -> None:
    assert fit(points) is None


def test_without_a_calibration_a_word_is_a_token() -> None:
    assert [UNCALIBRATED.words_for(tokens) for tokens in (0, 1, 150)] == [1, 1, 150]


@given(
    overhead=st.integers(0, 300),
    rate=st.floats(0.5, 4.0),
    noise=st.tuples(st.floats(-0.01, 0.01), st.floats(-0.01, 0.01)),
    asked=st.integers(1, 4000),
)
def test_what_comes_is_within_5_percent_of_what_was_asked(
    overhead: int, rate: float, noise: tuple[float, float], asked: int
) -> None:
    """Tokens are linear in words, and each prompt's own words move its count by up to 1 %."""
    points = [
        (words, round(overhead + rate * words * (1 + off))) for words, off in zip(SIZES, noise, strict=True)
    ]
    found = fit(points)
    assert found is not None
    got = overhead + rate * found.words_for(asked)
    least = overhead + rate
    assert abs(got - max(asked, least)) <= 0.05 * max(asked, least) + rate


@given(st.integers(1, 5000), st.integers(1, 5000), st.floats(0, 300), st.floats(0.1, 20))
def test_more_tokens_never_take_fewer_words(one: int, other: int, overhead: float, rate: float) -> None:
    found = PromptCalibration(overhead, rate)
    assert found.words_for(min(one, other)) <= found.words_for(max(one, other))


def test_sampled_prompts_differ_and_hold_each_word_once() -> None:
    first, second = sample_prompt(256).split(), sample_prompt(256).split()
    assert first != second
    assert len(set(first)) == 256
    assert set(first) <= set(WORDS)
    assert max(SIZES) <= len(set(WORDS))
    assert len(synthetic_prompt(7, 1, "run").split()) == 7
