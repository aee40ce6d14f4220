"""Token lengths: each rule is read, drawn as asked, clipped at both ends, or refused in one line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapes.errors import LengthError
from shapes.lengths import LENGTH_RULES, MOST_TOKENS, LengthRule, Lengths, parse_lengths


def check_one_line(error: Exception) -> None:
    assert str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("128", Lengths("constant", 128)),
        (" normal: 128, 32 ", Lengths("normal", 128, 32)),
        ("LOGNORMAL:512,0.9", Lengths("lognormal", 512, 0.9)),
        ("uniform:10-50", Lengths("uniform", 10, 50)),
        ("uniform:10-50,max=40", Lengths("uniform", 10, 50, 40)),
        ("128, max = 4096", Lengths("constant", 128, 0.0, 4096)),
    ],
)
def test_length_rules_are_read(text: str, rule: Lengths) -> None:
    assert parse_lengths(text) == rule


@pytest.mark.parametrize("rule", LENGTH_RULES.values(), ids=list(LENGTH_RULES))
def test_each_rule_reads_its_own_form_and_draws_whole_tokens(rule: LengthRule) -> None:
    lengths = parse_lengths(rule.form)
    assert lengths.rule == rule.name
    drawn = lengths.draw(np.random.default_rng(1), 1_000)
    assert drawn.dtype == np.int64
    assert drawn.min() >= 1
    assert drawn.max() <= MOST_TOKENS


def test_draws_have_the_mean_or_median_that_was_asked() -> None:
    rng, n = np.random.default_rng(3), 40_000
    assert np.all(parse_lengths("128").draw(rng, n) == 128)
    normal = parse_lengths("normal:128,32").draw(rng, n)
    assert (np.mean(normal), np.std(normal)) == pytest.approx((128, 32), rel=0.02)
    lognormal = parse_lengths("lognormal:512,0.9").draw(rng, n)
    assert np.median(lognormal) == pytest.approx(512, rel=0.03)
    assert np.std(np.log(lognormal)) == pytest.approx(0.9, rel=0.02)
    uniform = parse_lengths("uniform:10-13").draw(rng, n)
    assert np.unique(uniform, return_counts=True)[1] == pytest.approx([n / 4] * 4, rel=0.05)


def test_draws_are_clipped_at_both_ends() -> None:
    drawn = parse_lengths("normal:20,200,max=50").draw(np.random.default_rng(1), 500)
    assert (drawn.min(), drawn.max()) == (1, 50)
    assert parse_lengths("lognormal:9999,5").draw(np.random.default_rng(1), 5_000).max() == MOST_TOKENS


@pytest.mark.parametrize(
    "text",
    ["", "0", "-5", "12.5", "normal:128", "normal:0,1", "uniform:50-10", "uniform:1.5-3", "lognormal:512,9",
     "zipf", "128,max=0", "128,max=100", "128,max=99999999", "normal:1e3,2", "١٢"],
)  # fmt: skip
def test_a_length_that_cannot_be_read_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(LengthError) as refused:
        parse_lengths(text)
    check_one_line(refused.value)


@settings(max_examples=400, deadline=None)
@given(
    st.text(max_size=40)
    | st.text("0123456789.,:- max=", max_size=20).map(lambda rest: "normal:" + rest)
    | st.from_regex(r"(uniform:\d+-\d+|lognormal:\d+,\d\.\d+|\d{1,10})(,max=\d+)?", fullmatch=True)
)
def test_any_length_text_is_read_or_refused(text: str) -> None:
    try:
        lengths = parse_lengths(text)
    except LengthError as error:
        check_one_line(error)
        return
    drawn = lengths.draw(np.random.default_rng(0), 20)
    assert np.all((drawn >= 1) & (drawn <= lengths.most))
