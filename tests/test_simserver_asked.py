"""What a body asks for and what will be said: the rules, without HTTP."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserver.asked import Asked, Prompt, Rules, read_asked
from simserver.endpoints import ENDPOINTS
from simserver.errors import ApiError
from simserver.script import Script, scripts

RULES = Rules("m", max_model_len=500, default_output_tokens=10)
ASKED = Asked(
    prompts=(Prompt(3),),
    n=1,
    most_tokens=40,
    most_named=True,
    least_tokens=0,
    ignore_eos=False,
    stop=(),
    stream=False,
    include_usage=False,
    continuous_usage=False,
    priority=0,
    reasoning_tokens=0,
    tool_call=False,
)

NAMES = st.sampled_from(
    [
        *("model", "messages", "prompt", "input", "instructions", "n", "stop", "stream", "stream_options"),
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens", "ignore_eos"),
        *("priority", "temperature", "simserver"),
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("ab 5\x00é", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "text", "type", "include_usage", "tool_call"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
SOUND = {"messages": [{"role": "user", "content": "a b"}], "prompt": "a b", "input": "a b"}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@given(st.dictionaries(NAMES, ANYTHING, max_size=4), st.booleans())
def test_any_body_is_understood_or_refused(endpoint: str, fields: dict[str, Any], sound: bool) -> None:
    body = json.dumps({**SOUND, **fields} if sound else fields).encode()
    try:
        asked = read_asked(body, ENDPOINTS[endpoint], RULES)
    except ApiError as error:
        refused, asked = error, None
    if asked is None:
        assert refused.status in (400, 404)
        assert json.loads(refused.body)["error"]["message"]
        return
    for script, prompt in zip(
        scripts(asked, RULES, 3), map(asked.prompt_of, range(asked.choices)), strict=True
    ):
        assert prompt.tokens >= 1
        assert 1 <= script.tokens <= asked.most_tokens
        assert prompt.tokens + script.tokens <= RULES.max_model_len


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@given(st.binary(max_size=40))
def test_any_bytes_are_refused(endpoint: str, body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        read_asked(body, ENDPOINTS[endpoint], RULES)
    assert refused.value.status == 400


def said(script: Script) -> list[str]:
    return [script.text(number) for number in range(1, script.tokens + 1)]


@given(
    st.integers(0, 100),
    st.integers(0, 5),
    st.integers(0, 30),
    st.lists(
        st.sampled_from(
            [" ", "ad qu", "load", "r", "st tok", "never", "river stone cloud", "e", "pattern time"]
        ),
        max_size=3,
    ),
    st.sampled_from([40, 400]),
)
def test_a_stop_string_cuts_where_a_reader_of_the_whole_text_would(
    number: int, reasoning: int, least: int, stop: list[str], most: int
) -> None:
    """In the longer answers all words come round several times."""
    asked = replace(ASKED, stop=tuple(stop), reasoning_tokens=reasoning, least_tokens=least, most_tokens=most)
    (script,) = scripts(asked, RULES, number)
    uncut = said(scripts(replace(asked, stop=()), RULES, number)[0])
    # The plain way: add token after token, and look whether a stop string is there now and was not before.
    text = ""
    for place, token in enumerate(uncut[reasoning:], reasoning + 1):
        before, text = text, text + token
        ends = [
            (at + len(one), at, one)
            for one in stop
            if place > least and (at := text.find(one, max(0, len(before) - len(one) + 1))) >= 0
        ]
        if ends:
            _, at, found = min(ends)
            assert (script.tokens, script.finish_reason, script.stop_reason) == (place, "stop", found)
            assert "".join(said(script)[reasoning:]) == text[:at]
            return
    assert (script.tokens, script.finish_reason, script.stop_reason) == (most, "length", None)
    assert said(script) == uncut


def test_lengths_follow_what_is_asked() -> None:
    def length(rules: Rules = RULES, **asked: Any) -> tuple[int, str]:
        (script,) = scripts(replace(ASKED, **asked), rules, 0)
        return script.tokens, script.finish_reason

    assert length() == (40, "length")
    assert length(most_named=False) == (10, "stop")
    assert length(most_named=False, least_tokens=12) == (12, "stop")
    assert length(most_named=False, ignore_eos=True) == (40, "length")
    at_once = replace(RULES, output_mean=1.0)
    assert length(at_once) == (1, "stop")
    assert length(at_once, least_tokens=7) == (7, "stop")
    assert length(at_once, ignore_eos=True) == (40, "length")


def test_drawn_lengths_have_the_mean_asked_for() -> None:
    rules = replace(RULES, output_mean=20.0)
    asked = replace(ASKED, most_tokens=100_000)
    drawn = [scripts(asked, rules, number)[0].tokens for number in range(4_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(20, abs=4 * 20 / 4_000**0.5)
    assert min(drawn) == 1
