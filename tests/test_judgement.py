"""The verdict on any bytes: always one, always of a known class, never an exception."""

from __future__ import annotations

import gzip

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from client.endpoints import ENDPOINTS
from client.judgement import Cut, Judgement
from runlog.failures import failure_class
from runlog.record import OUTCOMES

PIECES = st.lists(
    st.sampled_from(
        [
            b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n',
            b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n',
            b'data: {"choices": [{"index": 1, "delta": {"reasoning": "b"}, "finish_reason": "abort"}]}\n\n',
            b'data: {"error": {"message": "full", "code": 503}}\n\n',
            b'data: {"usage": {"completion_tokens": 3}}\n\n',
            b'data: {"choices": [{"text": "a", "finish_reason": "length"}]}\n\n',
            b'data: {"type": "response.output_text.delta", "delta": "a"}\n\n',
            b'event: response.completed\ndata: {"type": "response.completed", "response": {"status": 1}}\n\n',
            b'event: error\ndata: {"type": "error", "message": "boom"}\n\n',
            b'{"object": "response", "status": "completed", "output": [{"content": [{"text": "a"}]}]}',
            b"data: [DONE]\n\n",
            b"data: [[[\n\n",
            b'{"choices": [{"message": {"content": "whole"}}]}',
            b'{"detail": [1]}',
            b"<html>",
            b"\n",
        ]
    )
    | st.binary(max_size=30),
    max_size=6,
)
HEADERS = st.dictionaries(
    st.sampled_from(["content-type", "content-encoding", "retry-after", "date"]),
    st.sampled_from(["text/event-stream", "gzip", "deflate", "br", "", "3", "Mon, 30 Nov 2026 09:14:16 GMT"]),
)
CUTS = st.none() | st.sampled_from(
    ["stall", "connection_lost_mid_stream", "drain_limit", "malformed_response"]
)


@given(
    st.sampled_from([None, 200, 204, 404, 429, 500]),
    HEADERS,
    PIECES,
    CUTS,
    st.sampled_from(sorted(ENDPOINTS)),
)
@example(200, {}, [b"\xef\xbb\xbf", b"data: x"], None, "chat")
def test_any_answer_gets_a_verdict_of_a_known_class(
    status: int | None, headers: dict[str, str], pieces: list[bytes], cut: str | None, endpoint: str
) -> None:
    milestones: list[int] = []
    judged = Judgement(lambda: milestones.append(1), ENDPOINTS[endpoint].meaning_of)
    if status is not None:
        judged.begin(status, headers)
        for at, piece in enumerate(pieces):
            judged.body(piece, 1_000 * at, 1_000 * at + 300)
    elif cut is None:
        cut = "connection_lost"
    verdict = judged.verdict(Cut(cut, "because") if cut else None, 99_000)
    assert verdict.outcome in OUTCOMES
    if verdict.outcome == "succeeded":
        assert verdict.failure_class is None
        assert judged.output_events or judged.usage.output_tokens
        assert judged.complete
    else:
        assert verdict.failure_class is not None
        assert failure_class(verdict.failure_class)
    assert len(milestones) <= 2
    assert len(judged.gaps_s) == max(judged.output_events - 1, 0)
    assert isinstance(judged.retry_after_s, float | None)


def test_receives_that_hold_several_outputs_are_counted_once_each() -> None:
    word = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
    judged = Judgement(lambda: None)
    judged.begin(200, {"content-type": "text/event-stream"})
    for handled_ns, words in ((100, 1), (200, 3), (300, 2), (400, 1)):
        for _ in range(words):  # a transfer chunk each, as many servers write them
            judged.body(word, handled_ns - 50, handled_ns)
    assert (judged.output_events, judged.output_receives, judged.crowded_receives) == (7, 4, 2)


# --- several choices in one answer ---


def word(index: int, finish: str | None = None) -> bytes:
    choice = {"index": index, "delta": {"content": "a"}, "finish_reason": finish}
    return b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\n"


def judged(*pieces: bytes, cut: str | None = None) -> tuple[str, str | None]:
    judgement = Judgement(lambda: None)
    judgement.begin(200, {"content-type": "text/event-stream"})
    for at, piece in enumerate(pieces):
        judgement.body(piece, 1_000 * at, 1_000 * at)
    verdict = judgement.verdict(Cut(cut, "because") if cut else None, 99_000)
    return verdict.outcome, verdict.failure_class


BOTH = {
    "choices": [
        {"index": 0, "delta": {}, "finish_reason": "stop"},
        {"index": 1, "delta": {}, "finish_reason": "length"},
    ]
}


@pytest.mark.parametrize("cut", [None, "connection_lost_mid_stream"])
def test_an_answer_of_several_choices_is_whole_when_each_has_ended_or_at_its_end_mark(
    cut: str | None,
) -> None:
    broken = ("failed", cut or "truncated_stream")
    done = b"data: [DONE]\n\n"
    assert judged(word(0), word(1), word(0, "stop"), cut=cut) == broken
    assert judged(word(0), word(1), word(1, "stop"), cut=cut) == broken
    assert judged(word(0), word(1), word(1, "stop"), word(1, "stop"), cut=cut) == broken
    assert judged(word(0), word(1), word(1, "stop"), done, cut=cut) == ("succeeded", None)
    assert judged(word(0), word(1), word(1, "stop"), word(0, "length"), cut=cut) == ("succeeded", None)
    both = b"data: " + orjson.dumps(BOTH) + b"\n\n"
    assert judged(word(0), word(1), both, cut=cut) == ("succeeded", None)
    assert judged(word(0), word(1), word(2), both, cut=cut) == broken


def test_one_choice_that_was_given_up_fails_the_answer() -> None:
    assert judged(word(0), word(1, "abort"), word(0, "stop")) == ("failed", "aborted")


def test_pings_comments_and_errors_of_gateways() -> None:
    ping = b': OPENROUTER PROCESSING\n\nevent: ping\ndata: {"type": "ping"}\n\n'
    assert judged(ping, word(0), ping, word(0, "stop")) == ("succeeded", None)
    anthropic = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    event = b"event: error\ndata: " + orjson.dumps(anthropic) + b"\n\n"
    assert judged(event) == ("rejected", "rejected_with_200")
    assert judged(word(0), event) == ("failed", "server_error_mid_stream")
    tgi = b'data:{"error":"Input validation error","error_type":"validation"}\n\n'
    assert judged(word(0), b"event:error\n" + tgi) == ("failed", "server_error_mid_stream")
    broke = {**BOTH, "error": {"code": 502, "message": "upstream"}}
    assert judged(word(0), b"data: " + orjson.dumps(broke) + b"\n\n") == (
        "failed",
        "server_error_mid_stream",
    )


def test_a_gateway_that_packs_each_event_by_itself() -> None:
    judgement = Judgement(lambda: None)
    judgement.begin(200, {"content-type": "text/event-stream", "content-encoding": "gzip"})
    for at, event in enumerate((word(0), word(0), word(0, "stop"), b"data: [DONE]\n\n")):
        judgement.body(gzip.compress(event), 1_000 * at, 1_000 * at)
    assert judgement.verdict(None, 9_000).outcome == "succeeded"
    assert (judgement.output_events, judgement.first_output_ns, judgement.last_output_ns) == (3, 0, 2_000)
