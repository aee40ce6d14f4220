"""The rule of --rate auto, by hand: requests of a step -> throughput and verdict -> capacity and rate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadgen.capacity_rule import Step, capacity_line, capacity_of, step_line, step_of
from runlog.record import RequestRecord


def answer(ttft_s: float | None, tpot_s: float = 0.02, tokens: int = 51, asked: int = 51) -> RequestRecord:
    """A success sent at 0: its first token after `ttft_s`, then `tpot_s` from token to token."""
    first_at_s = 0.0 if ttft_s is None else ttft_s
    return RequestRecord(
        arrival=None,
        request_id="r",
        name="chat",
        sent_at_s=0.0,
        first_token_at_s=ttft_s,
        last_token_at_s=first_at_s + tpot_s * (tokens - 1),
        ended_at_s=first_at_s + tpot_s * (tokens - 1),
        outcome="succeeded",
        asked_output_tokens=asked,
        output_tokens=tokens,
        tokens_from="usage",
    )


def cut(one: RequestRecord, output_tokens: int | None = None, after_s: float = 4.0) -> RequestRecord:
    """The same request, cut off at the step's end."""
    last_at_s = (
        None
        if one.first_token_at_s is None or not output_tokens
        else one.first_token_at_s + 0.02 * (output_tokens - 1)
    )
    return replace(
        one,
        outcome="cancelled",
        failure_class="drain_limit",
        ended_at_s=after_s,
        last_token_at_s=last_at_s,
        output_tokens=output_tokens,
        tokens_from="events" if output_tokens else None,
    )


def step(in_flight: int, throughput_rps: float | None, why: str = "") -> Step:
    return Step(in_flight, 9, 9, throughput_rps, 0.1, 0.1, 0.02, 51.0, why)


def test_throughput_is_littles_law_of_the_time_that_an_answer_takes() -> None:
    found = step_of(5, [answer(0.5), answer(1.5)] * 5, 2.0, 51.0, None)  # 1 s + 50 x 20 ms = 2 s
    assert (found.requests, found.ended, found.held) == (10, 10, True)
    assert found.ttft_mean_s == pytest.approx(1.0)
    assert found.tpot_mean_s == pytest.approx(0.02)
    assert found.throughput_rps == pytest.approx(2.5)


def test_the_tokens_that_really_came_bound_the_throughput() -> None:
    """From 1 s to 2 s one answer shows 25 of its gaps, the other its first token and 25 gaps: 51 in all."""
    found = step_of(5, [answer(0.5), answer(1.5)], 2.0, 51.0, None)
    assert found.throughput_rps == pytest.approx(1.0)


def test_an_answer_that_was_cut_off_counts_as_long_as_it_was_asked_for() -> None:
    long = cut(answer(1.0, asked=201), output_tokens=101)
    found = step_of(10, [long] * 20, 4.0, 201.0, None)  # 1 s + 200 x 20 ms = 5 s
    assert found.output_tokens_mean == 201
    assert (found.ended, found.throughput_rps) == (0, pytest.approx(2.0))


def test_answers_shorter_than_asked_for_raise_the_throughput() -> None:
    found = step_of(1, [answer(0.5, tokens=26, asked=51)], 1.0, 102.0, None)  # half of what is asked for
    assert found.output_tokens_mean == pytest.approx(52.0)
    assert found.throughput_rps == pytest.approx(1 / (0.5 + 0.02 * 51))


def test_tokens_that_the_server_counted_go_before_events() -> None:
    bundled = cut(answer(0.5), output_tokens=2)
    assert step_of(1, [answer(0.5, tpot_s=0.01), bundled], 4.0, 51.0, None).tpot_mean_s == pytest.approx(0.01)
    assert step_of(1, [bundled], 4.0, 51.0, None).tpot_mean_s == pytest.approx(0.02)


def test_a_ttft_above_the_slos_limit_does_not_hold_and_on_it_does() -> None:
    records = [answer(0.1)] * 18 + [answer(1.0), answer(9.0)]  # 20 of them: the p95 is the 19th, 1 s
    assert step_of(1, records, 4.0, 51.0, 1.0).held
    found = step_of(1, records, 4.0, 51.0, 0.99)
    assert found.why == "TTFT p95 1000 ms is above the SLO's 990 ms"
    assert "does not hold" in step_line(found)


def test_a_request_without_a_token_counts_as_the_time_that_it_waited() -> None:
    found = step_of(2, [answer(0.1), cut(answer(None), after_s=4.0)], 4.0, 51.0, 1.0)
    assert (found.ttft_p95_s, found.ttft_mean_s) == (4.0, pytest.approx(2.05))
    assert not found.held


def test_without_a_limit_five_times_the_first_steps_ttft_holds() -> None:
    first = step_of(1, [answer(0.2)], 4.0, 51.0, None)
    assert first.held
    assert step_of(2, [answer(1.0)], 4.0, 51.0, None, first).held
    assert not step_of(2, [answer(1.01)], 4.0, 51.0, None, first).held


@pytest.mark.parametrize("outcome", ["failed", "rejected"])
def test_a_failure_or_a_rejection_does_not_hold(outcome: str) -> None:
    bad = replace(answer(None), outcome=outcome, failure_class="rate_limited")
    found = step_of(2, [answer(0.1), bad], 4.0, 51.0, None)
    assert found.why == f"1 of 2 {outcome} (rate_limited)"


@pytest.mark.parametrize("streamed", [True, False])
def test_answers_in_one_piece_are_counted_over_the_step(streamed: bool) -> None:
    whole = answer(None)
    records = [whole, whole, cut(whole)]
    found = step_of(1, records, 4.0, 51.0, 1.0, streamed=streamed)
    assert (found.ttft_p95_s, found.throughput_rps, found.held) == (None, 0.5, True)
    assert step_of(1, [cut(whole)], 4.0, 51.0, 1.0, streamed=False).throughput_rps is None


def test_capacity_is_the_best_of_the_steps_that_held_and_the_rate_60_percent_of_it() -> None:
    found = capacity_of([step(1, 1.0), step(2, 2.0), step(5, 1.9), step(10, 7.0, why="1 of 9 failed")])
    assert found is not None
    assert (found.capacity_rps, found.at_least, found.rate_rps) == (2.0, False, 1.2)
    assert "about 2 requests/s" in capacity_line(found)


def test_when_the_last_step_holds_and_is_the_best_there_may_be_more() -> None:
    found = capacity_of([step(1, 1.0), step(50, 33.333)])
    assert found is not None
    assert (found.at_least, found.rate_rps) == (True, 20.0)
    assert "at least 33.3 requests/s" in capacity_line(found)
    assert "--rate 20)" in capacity_line(found)


def test_no_step_that_held_gives_no_capacity() -> None:
    assert capacity_of([step(1, 5.0, why="slow")]) is None
    assert capacity_of([step(1, None)]) is None
