"""The verdict on any bytes: always one, always of a known class, never an exception."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

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


@given(st.sampled_from([None, 200, 204, 404, 429, 500]), HEADERS, PIECES, CUTS)
@example(200, {}, [b"\xef\xbb\xbf", b"data: x"], None)
def test_any_answer_gets_a_verdict_of_a_known_class(
    status: int | None, headers: dict[str, str], pieces: list[bytes], cut: str | None
) -> None:
    milestones: list[int] = []
    judged = Judgement(lambda: milestones.append(1))
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
