"""The gateway's rules as written, and what it does with requests, by hand."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserver.gateway import Caller, Gateway, Refused, Standing, Visit
from simserver.gateway_door import reset_text
from simserver.gateway_rules import BreakerRule, Concurrency, Rate, TokenCap, parse_gateway

ME, YOU = Caller(key="me"), Caller(key="you")


def gateway(*rules: str) -> Gateway:
    parsed = parse_gateway(rules)
    assert parsed is not None
    return Gateway(parsed)


def outcome(visit: Visit) -> tuple[int, str, int | None] | str:
    if visit.refused is None:
        return "waits" if visit.waits else "passed"
    return visit.refused.status, visit.refused.reason, visit.refused.retry_after_s


def test_rules_are_read_with_their_units_and_defaults() -> None:
    rules = parse_gateway(
        [
            *("requests=10/s,burst=20,per=ip", "tokens=60000/min", "input-tokens=9000/h,burst=50,per=all"),
            *("concurrency=8,queue=16,timeout=500ms,timeout_status=504", "max-tokens=1024,over=refuse"),
            "breaker=50%,window=1m,least=4,open=2",
        ]
    )
    assert rules is not None
    assert rules.rates == (
        Rate("requests", 10.0, 20.0, "ip"),
        Rate("tokens", 1000.0, 60_000.0, "key"),
        Rate("input-tokens", 2.5, 50.0, "all"),
    )
    assert rules.concurrency == Concurrency(8, 16, 0.5, 429, 504)
    assert rules.token_cap == TokenCap(1024, "refuse")
    assert rules.breaker == BreakerRule(None, 0.5, 60.0, 4, 2.0)
    assert parse_gateway([]) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mood=3", "max-tokens"),
        ("requests", "requests=10/s"),
        ("requests=10", "600/min"),
        ("requests=0/s", "above 0"),
        ("requests=nan/s", "above 0"),
        ("requests=10/s,burst=0.5", "at least 1"),
        ("requests=10/s,per=shoe", "tenant"),
        ("requests=10/s,queue=4", "no 'queue'"),
        ("concurrency=0", "at least 1"),
        ("concurrency=2,queue=-1", "at least 0"),
        ("concurrency=2,timeout=soon", "500ms"),
        ("concurrency=2,full_status=200", "503"),
        ("max-tokens=many", "whole number"),
        ("max-tokens=9,over=ignore", "clamp"),
        ("breaker=150%", "100%"),
        ("breaker=3,window=5s", "share"),
    ],
)
def test_a_wrong_rule_is_named_with_what_is_right(text: str, words: str) -> None:
    with pytest.raises(ValueError, match="gateway rule") as told:
        parse_gateway([text])
    assert words in str(told.value)


@pytest.mark.parametrize("twice", [("breaker=3", "breaker=4"), ("requests=1/s", "requests=1/s")])
def test_what_makes_no_sense_twice_is_refused(twice: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=r"once only|twice"):
        parse_gateway(twice)


def test_a_burst_of_five_against_three_at_once_and_two_a_second() -> None:
    at = gateway("requests=2/s,burst=3")
    came = [outcome(at.enter(ME, 9, 9, 100.0)) for _ in range(5)]
    assert came == ["passed"] * 3 + [(429, "requests", 1)] * 2
    assert at.standings(ME, 100.0) == {"requests": Standing(3, 0, 1.5)}
    assert outcome(at.enter(YOU, 9, 9, 100.0)) == "passed", "another key has a bucket of its own"
    assert outcome(at.enter(ME, 9, 9, 100.5)) == "passed", "those refused took nothing"
    assert (at.passed, at.refused) == (5, Counter({("requests", 429): 2}))


def test_tokens_count_prompt_and_longest_answer_and_the_longest_wait_is_told() -> None:
    at = gateway("tokens=600/min,burst=1000", "input-tokens=60/min,burst=500", "requests=100/s")
    assert outcome(at.enter(ME, 400, 300, 0.0)) == "passed"  # leaves 300 tokens, 100 of prompts
    visit = at.enter(ME, 200, 300, 0.0)  # 200 tokens at 10/s, 100 of prompts at 1/s
    assert outcome(visit) == (429, "input_tokens", 100)
    assert outcome(at.enter(ME, 10, 321, 0.0)) == (429, "tokens", 4)  # 31 tokens short
    assert outcome(at.enter(ME, 501, 1, 0.0)) == (429, "input_tokens", None), "it never fits: no use to wait"
    assert at.standings(ME, 10.0)["tokens"] == Standing(1000, 400, 60.0)


def test_of_two_rates_of_a_name_the_one_nearer_its_end_is_told() -> None:
    at = gateway("requests=10/s,burst=10", "requests=4/s,burst=4,per=all")
    for caller in (ME, YOU):
        at.enter(caller, 1, 1, 0.0)
    assert at.standings(ME, 0.0) == {"requests": Standing(4, 2, 0.5)}


def test_a_place_and_a_short_queue() -> None:
    at = gateway("concurrency=1,queue=2,timeout=5s,full_status=503")
    first, second, third, fourth = (at.enter(ME, 1, 1, float(second)) for second in range(4))
    assert [outcome(one) for one in (first, second, third, fourth)] == [
        *("passed", "waits", "waits", (503, "queue_full", 1))
    ]
    assert (at.in_flight, at.waiting) == (1, 2)
    assert at.leave(first, False, 5.9) == [second]
    assert (second.passed_at_s, second.until_s) == (5.9, 6.0)
    assert at.late(7.0) == [third]
    assert outcome(third) == (503, "queue_timeout", 1)
    assert at.leave(second, False, 8.0) == []
    assert (at.in_flight, at.waiting, at.passed) == (0, 0, 2)


def test_a_client_that_leaves_the_queue_is_not_let_through() -> None:
    at = gateway("concurrency=1,queue=2")
    first, second, third = (at.enter(ME, 1, 1, 0.0) for _ in range(3))
    assert at.leave(second, None, 1.0) == []
    assert at.leave(first, False, 2.0) == [third]
    assert outcome(second) == "waits"
    assert at.in_flight == 1


def test_a_longer_answer_is_cut_or_refused_and_who_names_none_is_held_to_it() -> None:
    clamps, refuses = gateway("max-tokens=100"), gateway("max-tokens=100,over=refuse")
    assert [clamps.capped(tokens, "max_tokens") for tokens in (99, 100, 101)] == [99, 100, 100]
    assert clamps.clamped == 1
    refused = refuses.capped(101, "max_completion_tokens")
    assert isinstance(refused, Refused)
    assert (refused.status, refused.param, refused.retry_after_s) == (400, "max_completion_tokens", None)
    assert refuses.capped(30_000, None) == clamps.capped(30_000, None) == 100
    assert refuses.refused == Counter({("max_tokens", 400): 1})


def test_an_open_circuit_turns_away_at_the_door_and_in_the_queue() -> None:
    at = gateway("breaker=2,open=10s", "concurrency=2,queue=4")
    one, two, three, four = (at.enter(ME, 1, 1, 0.0) for _ in range(4))
    assert at.leave(one, True, 1.0) == [three]
    assert at.leave(two, True, 2.0) == [four], "the second failure opens it"
    assert outcome(three) == "passed"
    assert outcome(four) == (503, "circuit_open", 10)
    assert outcome(at.enter(ME, 1, 1, 4.5)) == (503, "circuit_open", 8)
    assert at.leave(three, True, 5.0) == [], "from before it opened"
    assert at.in_flight == 0
    probe, other = (at.enter(ME, 1, 1, 12.0) for _ in range(2))
    assert outcome(probe) == "passed"
    assert outcome(other) == (503, "circuit_open", 1), "one probe at a time"
    at.leave(probe, False, 13.0)
    assert outcome(at.enter(ME, 1, 1, 13.0)) == "passed"


def test_what_a_full_queue_turns_away_has_counted_for_its_rate() -> None:
    at = gateway("requests=1/s,burst=2", "concurrency=1")
    came = [outcome(at.enter(ME, 1, 1, 0.0)) for _ in range(3)]
    assert came == ["passed", (429, "queue_full", 1), (429, "requests", 1)]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0ms"), (0.02, "20ms"), (1.0, "1s"), (12.5, "12.5s"), (360.0, "6m0s")]
)
def test_times_are_told_as_openai_does(seconds: float, text: str) -> None:
    assert reset_text(seconds) == text


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 1.0), st.sampled_from(["enter", "leave", "quit"]), st.booleans(), st.integers(0, 9)
        ),
        max_size=80,
    )
)
def test_every_request_ends_one_way_and_no_place_is_lost(
    steps: list[tuple[float, str, bool, int]],
) -> None:
    at = gateway("requests=4/s,burst=6", "concurrency=2,queue=3,timeout=1s", "breaker=2,open=1s")
    visits: list[Visit] = []
    now_s = 0.0
    for gap_s, what, failed, pick in steps:
        now_s += gap_s
        at.late(now_s)
        inside = [one for one in visits if one.passed_at_s is not None]
        waiting = [one for one in visits if one.waits]
        if what == "enter":
            visits.append(at.enter(ME, 5, 5, now_s))
        elif what == "leave" and inside:
            visits.remove(gone := inside[pick % len(inside)])
            at.leave(gone, failed, now_s)
        elif what == "quit" and waiting:
            visits.remove(gone := waiting[pick % len(waiting)])
            at.leave(gone, None, now_s)
        passed = sum(one.passed_at_s is not None for one in visits)
        waits = sum(one.waits for one in visits)
        assert (passed, waits) == (at.in_flight, at.waiting)
        assert passed <= 2
        assert not waits or passed == 2
        assert all(one.until_s > now_s for one in visits if one.waits)
