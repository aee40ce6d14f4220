"""Token bucket, gate and breaker by hand, and by the rules that hold for every traffic."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserver.gateway_limits import Breaker, ConcurrencyGate, TokenBucket


def test_a_bucket_of_three_that_fills_with_two_a_second() -> None:
    bucket = TokenBucket(rate_per_s=2.0, burst=3.0)
    assert (bucket.level(10.0), bucket.reset_s(10.0)) == (3.0, 0.0)
    for _ in range(3):
        assert bucket.wait_s(1, 10.0) == 0
        bucket.take(1, 10.0)
    assert bucket.level(10.0) == pytest.approx(0.0)
    assert bucket.wait_s(1, 10.0) == pytest.approx(0.5)
    assert bucket.reset_s(10.0) == pytest.approx(1.5)
    assert bucket.wait_s(1, 10.25) == pytest.approx(0.25)
    assert bucket.wait_s(1, 10.5) == 0
    bucket.take(1, 10.5)
    assert bucket.wait_s(2, 10.5) == pytest.approx(1.0)
    assert bucket.level(60.0) == 3.0
    assert math.isinf(bucket.wait_s(3.5, 60.0))


gaps_s = st.lists(st.one_of(st.just(0.0), st.floats(0.0, 3.0)), min_size=1, max_size=60)
amounts = st.floats(0.1, 10.0)


@given(rate=st.floats(0.1, 50.0), burst=st.floats(1.0, 20.0), gaps=gaps_s, data=st.data())
def test_in_no_time_t_is_more_taken_than_burst_and_rate_times_t(
    rate: float, burst: float, gaps: list[float], data: st.DataObject
) -> None:
    bucket = TokenBucket(rate, burst)
    now_s, taken = 1e6, []
    for gap_s in gaps:
        now_s += gap_s
        amount = data.draw(amounts)
        if bucket.wait_s(amount, now_s) == 0:
            bucket.take(amount, now_s)
            taken.append((now_s, amount))
    for first, (start_s, _) in enumerate(taken):
        total = 0.0
        for end_s, amount in taken[first:]:
            total += amount
            assert total <= burst + rate * (end_s - start_s) + 1e-6 * (burst + total)


@given(rate=st.floats(0.1, 50.0), burst=st.floats(1.0, 20.0), gaps=gaps_s)
def test_who_waits_as_long_as_told_is_let_through_and_a_little_less_is_too_little(
    rate: float, burst: float, gaps: list[float]
) -> None:
    bucket = TokenBucket(rate, burst)
    now_s = 0.0
    for gap_s in gaps:
        now_s += gap_s
        wait_s = bucket.wait_s(1.0, now_s)
        if wait_s > 1e-3:
            assert bucket.wait_s(1.0, now_s + wait_s / 2) > 0
        now_s += wait_s * (1 + 1e-9)
        assert bucket.wait_s(1.0, now_s) <= 1e-6
        bucket.take(1.0, now_s)


def test_a_gate_for_two_with_two_waiting() -> None:
    gate: ConcurrencyGate[str] = ConcurrencyGate(limit=2, queue=2, timeout_s=5.0)
    assert [gate.enter(who, float(at_s)) for at_s, who in enumerate("abcde")] == [
        *("in", "in", "queued", "queued", "full")
    ]
    assert (gate.in_flight, gate.waiting) == (2, 2)
    assert gate.leave() == "c"  # a has gone, c has its place
    assert gate.late(7.999) == []
    assert gate.late(8.0) == ["d"]
    assert (gate.leave(), gate.leave(), gate.in_flight) == (None, None, 0)


@given(
    limit=st.integers(1, 4),
    queue=st.integers(0, 4),
    does=st.lists(st.sampled_from(["enter", "leave", "forget", "pass"]), max_size=80),
)
def test_a_gate_is_never_too_full_and_never_keeps_anybody_waiting_for_nothing(
    limit: int, queue: int, does: list[str]
) -> None:
    gate: ConcurrencyGate[int] = ConcurrencyGate(limit, queue, timeout_s=3.0)
    inside, waiting, now_s = set[int](), list[int](), 0.0
    for who, what in enumerate(does):
        if what == "enter":
            place = gate.enter(who, now_s)
            assert place == ("in" if len(inside) < limit else "queued" if len(waiting) < queue else "full")
            (inside.add if place == "in" else waiting.append if place == "queued" else id)(who)
        elif what == "leave" and inside:
            inside.pop()
            following = gate.leave()
            assert following == (waiting.pop(0) if waiting else None)
            if following is not None:
                inside.add(following)
        elif what == "forget" and waiting:
            gate.forget(waiting.pop())
        else:
            now_s += 1.0
            for one in gate.late(now_s):
                assert one == waiting.pop(0)
        assert (gate.in_flight, gate.waiting) == (len(inside), len(waiting))
        assert len(inside) <= limit
        assert not waiting or len(inside) == limit


def test_a_breaker_opens_after_three_in_a_row_and_closes_by_one_probe() -> None:
    breaker = Breaker(open_s=10.0, failures=3)
    for failed in (True, True, False, True, True):  # never three in a row
        breaker.ended(0, failed, 1.0)
        assert breaker.state(1.0) == "closed"
    assert breaker.enter(1.5) == 0
    breaker.ended(0, True, 2.0)
    assert (breaker.state(2.0), breaker.wait_s(5.0)) == ("open", 7.0)
    assert breaker.enter(11.9) is None
    breaker.ended(0, False, 11.9)  # one from before says nothing
    assert breaker.state(12.0) == "half-open"
    assert breaker.enter(12.0) == 1
    assert breaker.enter(12.0) is None, "one probe at a time"
    breaker.ended(1, None, 12.5)  # its client left: another may try
    assert breaker.enter(12.6) == 1
    breaker.ended(1, True, 13.0)
    assert (breaker.state(22.9), breaker.state(23.0)) == ("open", "half-open")
    assert breaker.enter(23.0) == 2
    breaker.ended(2, False, 24.0)
    assert breaker.state(24.0) == "closed"
    assert (breaker.enter(24.0), breaker.times_opened) == (2, 2)


def test_a_breaker_by_share_looks_at_its_window_only() -> None:
    breaker = Breaker(open_s=1.0, ratio=0.5, window_s=10.0, least=4)
    ends = ((0.0, True), (1.0, True), (2.0, True), (11.0, False), (11.5, False), (11.6, False), (11.7, True))
    for at_s, failed in ends:  # three are too few; at 11.7 those of 2.0 and 11.7 are two of five
        breaker.ended(0, failed, at_s)
        assert breaker.state(at_s) == "closed", at_s
    breaker.ended(0, True, 11.8)  # three of six
    assert breaker.state(11.8) == "open"


@given(st.lists(st.tuples(st.floats(0.0, 4.0), st.booleans()), max_size=60))
def test_nobody_goes_on_while_a_breaker_is_open(ends: list[tuple[float, bool]]) -> None:
    breaker = Breaker(open_s=5.0, failures=2)
    now_s, let_on = 0.0, []
    for gap_s, failed in ends:
        now_s += gap_s
        number = breaker.enter(now_s)
        if number is None:
            continue
        let_on.append((now_s, failed))
        breaker.ended(number, failed, now_s)
    for (_, one), (before_s, other), (after_s, _) in zip(let_on, let_on[1:], let_on[2:], strict=False):
        if one and other:
            assert after_s - before_s >= 5.0
    assert all(before_s <= after_s for (before_s, _), (after_s, _) in pairwise(let_on))
