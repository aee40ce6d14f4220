"""The end of one request: what was sent, what came and the verdict on it, put into a record."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from math import ceil

from client.judgement import Judgement, Verdict
from client.redact import told
from client.target import Request, Target
from runlog.record import RequestRecord

ZERO_GAP_S = 0.0001
"""Gaps below this are told as zero: the events came in one piece."""

_KEPT_HEADERS = ("content-encoding", "content-type", "location", "server", "via")
_TELLING_HEADERS = ("openai-processing-ms", "x-compute-type", "x-litellm-version")


@dataclass(slots=True)
class Finished:
    """What came of one request: its record, and its chunk gaps as little-endian float32 seconds.

    `streamed` is False when the server answered in one piece; `malformed_events` counts events that were no
    JSON of a completion; `answer_headers` holds those that tell about the way: encoding, type, location,
    server, via, and a few that give the kind of server away.
    """

    record: RequestRecord
    gaps_f32: bytes = b""
    streamed: bool | None = None
    malformed_events: int = 0
    answer_headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Sending:
    """The client's own side of a request. Moments are monotonic nanoseconds."""

    start_ns: int
    in_flight: int | None = None
    attempts: int = 0
    sent_ns: int | None = None
    connection: str | None = None
    connect_s: float | None = None
    tls_s: float | None = None
    first_byte_ns: int | None = None
    stamp: str = "user"
    ended_ns: int | None = None


def finished(
    request: Request, target: Target, sending: Sending, judged: Judgement, verdict: Verdict
) -> Finished:
    """Put it all into a record. Tokens are the server's count, else (marked "events") the events with
    output.

    A success that came in one piece, asked for so or not, has no first token, hence neither TTFT nor TPOT;
    its last token is the answer's end, also when its tokens show no output.
    """
    usage, streamed = judged.usage, judged.streamed
    whole = streamed is False and verdict.outcome == "succeeded"
    output_tokens, tokens_from = usage.output_tokens, "usage"
    if not output_tokens and judged.output_events and streamed:
        output_tokens, tokens_from = judged.output_events, "events"
    gaps = judged.gaps_s
    ordered = sorted(gaps)
    received = sending.first_byte_ns is not None

    def at_s(moment_ns: int | None) -> float | None:
        return None if moment_ns is None else (moment_ns - sending.start_ns) / 1e9

    record = RequestRecord(
        arrival=request.arrival,
        segment=request.segment,
        request_id=request.request_id,
        worker=request.worker,
        name=request.name,
        tenant=request.tenant,
        session=request.session,
        turn=request.turn,
        attempts=sending.attempts,
        scheduled_at_s=request.scheduled_at_s,
        sent_at_s=at_s(sending.sent_ns),
        connection=sending.connection,
        connect_s=sending.connect_s,
        tls_s=sending.tls_s,
        first_byte_at_s=at_s(sending.first_byte_ns),
        first_token_at_s=at_s(judged.first_output_ns),
        first_answer_at_s=at_s(judged.first_answer_ns),
        last_token_at_s=at_s(sending.ended_ns if whole else judged.last_output_ns),
        ended_at_s=at_s(sending.ended_ns),
        outcome=verdict.outcome,
        failure_class=verdict.failure_class,
        status=judged.status,
        error=told(verdict.error, target, request.body) if verdict.error else None,
        retry_after_s=judged.retry_after_s,
        finish_reason=judged.finish_reason,
        asked_input_tokens=request.asked_input_tokens,
        asked_output_tokens=request.asked_output_tokens,
        input_tokens=usage.input_tokens,
        output_tokens=output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cached_tokens=usage.cached_tokens,
        tokens_from=tokens_from if output_tokens is not None else None,
        output_events=judged.output_events if streamed else None,
        output_receives=judged.output_receives if streamed else None,
        crowded_receives=judged.crowded_receives if streamed else None,
        gap_count=len(gaps) if streamed else None,
        gap_p50_s=_rank(ordered, 0.50),
        gap_p99_s=_rank(ordered, 0.99),
        gap_max_s=ordered[-1] if ordered else None,
        gap_zeros=bisect_left(ordered, ZERO_GAP_S) if streamed else None,
        in_flight_at_send=sending.in_flight,
        stamp=sending.stamp if received else None,
        read_lag_s=None if judged.token_lag_ns is None else judged.token_lag_ns / 1e9,
    )
    kept = {name: judged.headers[name] for name in _KEPT_HEADERS + _TELLING_HEADERS if name in judged.headers}
    return Finished(record, _little_endian(gaps), streamed, judged.malformed_events, kept)


def _rank(ordered: list[float], share: float) -> float | None:
    """The nearest-rank quantile: the smallest value that at least `share` of all do not exceed."""
    return ordered[max(ceil(share * len(ordered)) - 1, 0)] if ordered else None


def _little_endian(gaps: array[float]) -> bytes:
    if sys.byteorder == "big":
        gaps.byteswap()
    return gaps.tobytes()
