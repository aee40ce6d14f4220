"""Field cases A06 to A15, what a stream's events mean, with both engines.

Orders and counts are asserted, times with wide margins.
"""

from __future__ import annotations

import json

import pytest

from tests.asking import (
    DONE,
    FIVE,
    ROLE,
    answered,
    ask,
    assert_five_tokens,
    event,
    streamed,
    usage_event,
)
from tests.byte_server import LAST_CHUNK, STREAM_HEAD, ByteServer, chunk, plain_answer


def test_a06_a_role_is_no_token(engine: str) -> None:
    tokens = [step for text in "abc" for step in (chunk(event(content=text)), 0.05)]
    record = answered(
        [STREAM_HEAD, 0.01, chunk(ROLE), 0.29, *tokens, chunk(event(finish="stop") + DONE), LAST_CHUNK],
        engine=engine,
    ).record
    assert 0.28 < (record.ttft_s or 0.0) < 1.0  # a server may be late
    assert record.gap_count == 2
    assert (record.output_tokens, record.tokens_from) == (3, "events")
    assert 0.04 < (record.tpot_s or 0.0) < 0.25


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_a07_reasoning_is_output_and_the_answer_has_a_time_of_its_own(engine: str, field: str) -> None:
    think = chunk(event(**{field: "hm"}))
    say = chunk(event(content="it"))
    details = {"completion_tokens_details": {"reasoning_tokens": 2}}
    usage = chunk(event(finish="stop", usage={"prompt_tokens": 9, "completion_tokens": 4, **details}))
    record = answered(
        [STREAM_HEAD, 0.1, think, 0.05, think, 0.25, say, 0.05, say, usage, chunk(DONE), LAST_CHUNK],
        engine=engine,
    ).record
    assert (record.output_events, record.output_tokens, record.reasoning_tokens) == (4, 4, 2)
    assert 0.09 < (record.ttft_s or 0.0) < 0.8
    assert record.first_answer_at_s is not None
    assert record.first_token_at_s is not None
    assert 0.25 < record.first_answer_at_s - record.first_token_at_s < 1.0  # a server may be late


@pytest.mark.parametrize(
    "events",
    [
        [*FIVE, event(finish="stop"), usage_event(5, choices=[])],
        [*FIVE, event(finish="stop"), usage_event(5)],
        [
            *[each[:-3] + b', "usage": null}\n\n' for each in FIVE],
            event(finish="stop"),
            usage_event(5, choices=[]),
        ],
        [*FIVE[:4], event("stop", {"prompt_tokens": 9, "completion_tokens": 5}, content=" five")],
    ],
    ids=["empty choices", "no choices", "null on every event", "in the last content event"],
)
def test_a08_usage_wherever_it_comes(engine: str, events: list[bytes]) -> None:
    finished = streamed(ROLE, *events, DONE, engine=engine)
    assert_five_tokens(finished)
    assert finished.record.input_tokens == 9


def test_a09_an_event_may_hold_several_tokens(engine: str) -> None:
    tokens = [step for _ in range(5) for step in (chunk(event(content="four of them")), 0.1)]
    record = answered(
        [STREAM_HEAD, *tokens, chunk(event(finish="stop") + usage_event(20) + DONE), LAST_CHUNK],
        engine=engine,
    ).record
    assert (record.output_tokens, record.output_events) == (20, 5)
    assert 0.36 / 19 < (record.tpot_s or 0.0) < 1.2 / 19


def test_a10_one_token_has_no_time_per_token(engine: str) -> None:
    record = streamed(ROLE, FIVE[0], event(finish="length"), usage_event(1), DONE, engine=engine).record
    assert record.ttft_s is not None
    assert (record.tpot_s, record.gap_count, record.gap_p50_s, record.output_tokens) == (None, 0, None, 1)


def test_a11_tokens_that_were_held_back(engine: str) -> None:
    record = answered(
        [STREAM_HEAD, chunk(ROLE), 0.1, chunk(event(finish="stop") + usage_event(200) + DONE), LAST_CHUNK],
        engine=engine,
    ).record
    assert (record.outcome, record.output_tokens, record.tokens_from) == ("succeeded", 200, "usage")
    assert (record.ttft_s, record.tpot_s, record.e2e_s, record.output_events) == (None, None, None, 0)


@pytest.mark.parametrize("text", ["all", ""])
@pytest.mark.parametrize("stream", [True, False])
def test_a13_an_answer_in_one_piece(engine: str, stream: bool, text: str) -> None:
    body = json.dumps(
        {
            "object": "chat.completion",
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            ],
            "usage": {"prompt_tokens": 9, "completion_tokens": 5},
        }
    ).encode()
    with ByteServer([0.05, plain_answer(body)]) as server:
        finished = ask(server, stream=stream, engine=engine)
    record = finished.record
    assert (record.outcome, record.output_tokens, record.finish_reason) == ("succeeded", 5, "stop")
    assert (finished.streamed, record.ttft_s, record.tpot_s, record.output_events) == (
        False,
        None,
        None,
        None,
    )
    assert record.e2e_s is not None
    assert record.e2e_s > 0.03
    assert record.last_token_at_s == record.ended_at_s


@pytest.mark.parametrize(
    ("events", "outcome", "reason"),
    [
        ([FIVE[0], event(finish="length")], "succeeded", "length"),
        ([FIVE[0], event(finish="stop")], "succeeded", "stop"),
        ([FIVE[0], event(finish="content_filter")], "succeeded", "content_filter"),
        (
            [event(tool_calls=[{"function": {"name": "f"}}]), event(finish="tool_calls")],
            "succeeded",
            "tool_calls",
        ),
        ([event(refusal="No."), event(finish="stop")], "succeeded", "stop"),
        ([FIVE[0], event(finish="abort")], "failed", "abort"),
    ],
)
def test_a14_finish_reasons(engine: str, events: list[bytes], outcome: str, reason: str) -> None:
    record = streamed(ROLE, *events, DONE, engine=engine).record
    assert (record.outcome, record.finish_reason) == (outcome, reason)
    assert record.failure_class == ("aborted" if outcome == "failed" else None)


def test_a15_where_token_counts_come_from(engine: str) -> None:
    zeros = b'data: {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}\n\n'
    counted = streamed(*FIVE, event(finish="stop"), usage_event(10), DONE, engine=engine).record
    zero = streamed(*FIVE, event(finish="stop"), zeros, DONE, engine=engine).record
    none = streamed(*FIVE, event(finish="stop"), DONE, engine=engine).record
    assert [(each.output_tokens, each.tokens_from) for each in (counted, zero, none)] == [
        (10, "usage"),
        (5, "events"),
        (5, "events"),
    ]
    assert (zero.input_tokens, none.input_tokens) == (None, None)
