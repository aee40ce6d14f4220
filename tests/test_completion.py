"""Completions against a raw server: the field's cases of streams that other tools judge wrongly. Orders and
counts are asserted, times with wide margins."""

from __future__ import annotations

import json
import socket
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import gevent
import pytest

from client.clock import monotonic_ns
from client.completion import Finished, Limits, Request, Target, arm, complete
from client.endpoints import request_body
from client.reader import ConnectionPool
from runlog.failures import failure_class
from tests.byte_server import (
    CLOSE,
    HOLD,
    LAST_CHUNK,
    RESET,
    STREAM_HEAD,
    ByteServer,
    Step,
    chunk,
    plain_answer,
)

KEY = "sk-test-4711"
PROMPT = "tell me of the wine dark sea and the ships on it"
DONE = b"data: [DONE]\n\n"


def ask(
    server: ByteServer, pool: ConnectionPool | None = None, stream: bool = True, **limits: float
) -> Finished:
    """One completion; its record's times count from just before."""
    pool = pool or ConnectionPool(Target(server.url, "m", api_key=KEY))
    request = Request(
        body=request_body("chat", "m", PROMPT, 5, stream=stream),
        request_id="r-1",
        arrival=3,
        scheduled_at_s=0.0,
        stream=stream,
    )
    finished = complete(pool, request, start_ns=monotonic_ns(), limits=Limits(**limits))
    if finished.record.failure_class is not None:
        assert failure_class(finished.record.failure_class)
    assert (finished.record.failure_class is None) == (finished.record.outcome == "succeeded")
    pool.close()
    return finished


def answered(steps: Sequence[Step], **limits: float) -> Finished:
    with ByteServer(list(steps)) as server:
        return ask(server, **limits)


def event(finish: str | None = None, usage: dict[str, Any] | None = None, **delta: Any) -> bytes:
    fields: dict[str, Any] = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    if usage is not None:
        fields["usage"] = usage
    return b"data: " + json.dumps(fields, ensure_ascii=False).encode() + b"\n\n"


def usage_event(output: int, **more: Any) -> bytes:
    return (
        b"data: "
        + json.dumps({"usage": {"prompt_tokens": 9, "completion_tokens": output}, **more}).encode()
        + b"\n\n"
    )


def streamed(*events: bytes, **limits: float) -> Finished:
    return answered([STREAM_HEAD, *map(chunk, events), LAST_CHUNK], **limits)


ROLE = event(role="assistant", content="")
FIVE = [event(content=text) for text in ("one", " two", " three", " four", " five")]
WHOLE = [ROLE, *FIVE, event(finish="stop"), usage_event(5, choices=[]), DONE]


def assert_five_tokens(finished: Finished) -> None:
    record = finished.record
    assert (record.outcome, record.output_tokens, record.output_events) == ("succeeded", 5, 5)
    assert (record.tokens_from, record.finish_reason, record.gap_count) == ("usage", "stop", 4)
    assert len(finished.gaps_f32) == 16


# --- the wire ---


def crlf(body: bytes) -> bytes:
    return body.replace(b"\n", b"\r\n")


def two_data_lines(body: bytes) -> bytes:
    return body.replace(b'"choices": [', b'\ndata: "choices": [')


@pytest.mark.parametrize(
    "pieces",
    [
        WHOLE,
        [crlf(each) for each in WHOLE],
        [part for each in WHOLE for part in (crlf(each)[:-1], b"\n")],
        [each.replace(b"\n", b"\r") for each in WHOLE],
        [each.replace(b"data: ", b"data:") for each in WHOLE],
        [two_data_lines(each) for each in WHOLE],
        [b"".join(WHOLE)],
        [b"".join(WHOLE)[at : at + 7] for at in range(0, len(b"".join(WHOLE)), 7)],
    ],
    ids=["plain", "crlf", "cut in crlf", "cr", "no blank", "two data lines", "one piece", "pieces of 7"],
)
def test_a01_line_ends_and_cuts(pieces: list[bytes]) -> None:
    assert_five_tokens(streamed(*pieces))


def test_a02_characters_cut_in_two_are_fine_and_invalid_bytes_are_a_failure() -> None:
    body = b"".join(
        [event(content="中"), event(content="😀"), event(content="a\u2028b"), event(finish="stop")]
    )
    wide = [at for at in range(len(body)) if body[at] & 0xC0 == 0x80]
    assert wide
    script = [[STREAM_HEAD, chunk(body[:cut]), 0.002, chunk(body[cut:]), LAST_CHUNK] for cut in wide]
    with ByteServer(lambda connection, request: script[connection]) as server:
        for _ in wide:
            finished = ask(server)
            assert (finished.record.outcome, finished.record.output_events) == ("succeeded", 3)
    broken = streamed(body[:60].replace("中".encode(), b"\xff") + body[60:])
    assert (broken.record.outcome, broken.record.failure_class) == ("failed", "malformed_stream")


def test_a03_several_events_in_one_read() -> None:
    pairs = [chunk(event(content="a") + event(content="b")) for _ in range(6)]
    steps: list[Step] = [STREAM_HEAD]
    for pair in pairs:
        steps += [0.1, pair]
    record = answered([*steps, chunk(event(finish="stop") + usage_event(12) + DONE), LAST_CHUNK]).record
    assert (record.gap_count, record.gap_zeros, record.output_tokens) == (11, 6, 12)
    assert record.tpot_s == pytest.approx(0.5 / 11, rel=0.2)
    assert record.gap_p50_s is not None
    assert record.gap_p50_s < 0.0001


@pytest.mark.parametrize(("coding", "bits"), [("gzip", 31), ("deflate", 15)])
@pytest.mark.parametrize("flush_each", [True, False])
def test_a04_compressed_streams(coding: str, bits: int, flush_each: bool) -> None:
    packer = zlib.compressobj(wbits=bits)
    head = STREAM_HEAD.replace(
        b"transfer", b"content-encoding: %s\r\nvia: 1.1 proxy\r\ntransfer" % coding.encode()
    )
    steps: list[Step] = [head]
    for number in range(20):
        packed = packer.compress(event(content=f"t{number}")) + (
            packer.flush(zlib.Z_SYNC_FLUSH) if flush_each else b""
        )
        steps += [0.01, *([chunk(packed)] if packed else [])]
    rest = packer.compress(event(finish="stop") + usage_event(20) + DONE) + packer.flush()
    finished = answered([*steps, chunk(rest), LAST_CHUNK])
    record = finished.record
    assert (record.outcome, record.output_tokens, record.output_events) == ("succeeded", 20, 20)
    assert finished.answer_headers["via"] == "1.1 proxy"
    assert record.ttft_s is not None
    assert record.e2e_s is not None
    assert (record.ttft_s > 0.9 * record.e2e_s) is not flush_each


def test_a04_a_coding_nobody_asked_for_and_one_that_is_broken() -> None:
    for coding, body in ((b"br", b"whatever"), (b"gzip", b"this is no gzip")):
        head = STREAM_HEAD.replace(b"transfer", b"content-encoding: %s\r\ntransfer" % coding)
        record = answered([head, chunk(body), LAST_CHUNK]).record
        assert (record.outcome, record.failure_class) == ("failed", "malformed_stream")


def test_a05_keep_alives_are_no_tokens_and_noise_is_counted() -> None:
    noise = [b": keep-alive\n\n", b"event: ping\n\n", b"data:\n\n", b"data: : PROCESSING\n\n"]
    steps: list[Step] = [STREAM_HEAD, *map(chunk, noise), 0.2, *map(chunk, WHOLE), LAST_CHUNK]
    finished = answered(steps)
    assert_five_tokens(finished)
    assert finished.malformed_events == 1
    assert finished.record.ttft_s is not None
    assert finished.record.ttft_s > 0.15
    assert finished.record.first_byte_at_s is not None
    assert finished.record.first_byte_at_s < 0.15


# --- what events mean ---


def test_a06_a_role_is_no_token() -> None:
    tokens = [step for text in "abc" for step in (chunk(event(content=text)), 0.05)]
    record = answered(
        [STREAM_HEAD, 0.01, chunk(ROLE), 0.29, *tokens, chunk(event(finish="stop") + DONE), LAST_CHUNK]
    ).record
    assert record.ttft_s == pytest.approx(0.3, abs=0.1)
    assert record.gap_count == 2
    assert (record.output_tokens, record.tokens_from) == (3, "events")
    assert record.tpot_s == pytest.approx(0.05, rel=0.5)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_a07_reasoning_is_output_and_the_answer_has_a_time_of_its_own(field: str) -> None:
    think = chunk(event(**{field: "hm"}))
    say = chunk(event(content="it"))
    details = {"completion_tokens_details": {"reasoning_tokens": 2}}
    usage = chunk(event(finish="stop", usage={"prompt_tokens": 9, "completion_tokens": 4, **details}))
    record = answered(
        [STREAM_HEAD, 0.1, think, 0.05, think, 0.25, say, 0.05, say, usage, chunk(DONE), LAST_CHUNK]
    ).record
    assert (record.output_events, record.output_tokens, record.reasoning_tokens) == (4, 4, 2)
    assert record.ttft_s == pytest.approx(0.1, abs=0.08)
    assert record.first_answer_at_s is not None
    assert record.first_token_at_s is not None
    assert record.first_answer_at_s - record.first_token_at_s == pytest.approx(0.3, abs=0.1)


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
def test_a08_usage_wherever_it_comes(events: list[bytes]) -> None:
    finished = streamed(ROLE, *events, DONE)
    assert_five_tokens(finished)
    assert finished.record.input_tokens == 9


def test_a09_an_event_may_hold_several_tokens() -> None:
    tokens = [step for _ in range(5) for step in (chunk(event(content="four of them")), 0.1)]
    record = answered(
        [STREAM_HEAD, *tokens, chunk(event(finish="stop") + usage_event(20) + DONE), LAST_CHUNK]
    ).record
    assert (record.output_tokens, record.output_events) == (20, 5)
    assert record.tpot_s == pytest.approx(0.4 / 19, rel=0.25)


def test_a10_one_token_has_no_time_per_token() -> None:
    record = streamed(ROLE, FIVE[0], event(finish="length"), usage_event(1), DONE).record
    assert record.ttft_s is not None
    assert (record.tpot_s, record.gap_count, record.gap_p50_s, record.output_tokens) == (None, 0, None, 1)


def test_a11_tokens_that_were_held_back() -> None:
    record = answered(
        [STREAM_HEAD, chunk(ROLE), 0.1, chunk(event(finish="stop") + usage_event(200) + DONE), LAST_CHUNK]
    ).record
    assert (record.outcome, record.output_tokens, record.tokens_from) == ("succeeded", 200, "usage")
    assert (record.ttft_s, record.tpot_s, record.e2e_s, record.output_events) == (None, None, None, 0)


@pytest.mark.parametrize("text", ["all", ""])
@pytest.mark.parametrize("stream", [True, False])
def test_a13_an_answer_in_one_piece(stream: bool, text: str) -> None:
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
        finished = ask(server, stream=stream)
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
def test_a14_finish_reasons(events: list[bytes], outcome: str, reason: str) -> None:
    record = streamed(ROLE, *events, DONE).record
    assert (record.outcome, record.finish_reason) == (outcome, reason)
    assert record.failure_class == ("aborted" if outcome == "failed" else None)


def test_a15_where_token_counts_come_from() -> None:
    zeros = b'data: {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}\n\n'
    counted = streamed(*FIVE, event(finish="stop"), usage_event(10), DONE).record
    zero = streamed(*FIVE, event(finish="stop"), zeros, DONE).record
    none = streamed(*FIVE, event(finish="stop"), DONE).record
    assert [(each.output_tokens, each.tokens_from) for each in (counted, zero, none)] == [
        (10, "usage"),
        (5, "events"),
        (5, "events"),
    ]
    assert (zero.input_tokens, none.input_tokens) == (None, None)


# --- failures ---


def html(status: str) -> bytes:
    return plain_answer(b"<html><body>Gateway says no</body></html>", status, "text/html")


@pytest.mark.parametrize(
    ("steps", "expected", "said"),
    [
        ([plain_answer(b'{"error": {"message": "boom", "code": 500}}')], "error_body_with_200", "boom"),
        ([STREAM_HEAD, chunk(b'{"error": "boom"}'), LAST_CHUNK], "error_body_with_200", "boom"),
        ([html("200 OK")], "error_body_with_200", "Gateway says no"),
        ([STREAM_HEAD, chunk(DONE), LAST_CHUNK], "empty_answer", "without any output"),
        ([plain_answer(b"")], "empty_answer", "without any output"),
        ([STREAM_HEAD, LAST_CHUNK], "empty_answer", "without any output"),
        (
            [STREAM_HEAD, chunk(ROLE + event(finish="length") + DONE), LAST_CHUNK],
            "empty_answer",
            "without any output",
        ),
        ([STREAM_HEAD, chunk(b"data: {cut\n\n" + DONE), LAST_CHUNK], "malformed_stream", "no event"),
        ([html("502 Bad Gateway")], "http_502", "Gateway says no"),
        ([plain_answer(b"", "504 Gateway Timeout")], "http_504", "without a text"),
        ([plain_answer(b"request timed out", "408 Request Timeout")], "http_408", "timed out"),
        ([plain_answer(b"{}", "302 Found")], "http_302", ""),
        ([b"\x15\x03\x01\x00\x02\x02\x16"], "malformed_response", "not HTTP"),
    ],
)
def test_a16_status_200_is_not_success_and_errors_are_told(
    steps: list[Step], expected: str, said: str
) -> None:
    record = answered(steps).record
    assert (record.outcome, record.failure_class, record.ttft_s) == ("failed", expected, None)
    assert said in (record.error or "")


def test_a17_an_error_mid_stream_keeps_what_came_before() -> None:
    error = b'data: {"error": {"message": "quota exceeded, too many requests", "code": 429}}\n\n'
    record = streamed(*FIVE[:3], error, DONE).record
    assert (record.outcome, record.failure_class) == ("failed", "server_error_mid_stream")
    assert (record.output_tokens, record.tokens_from, record.error) == (
        3,
        "events",
        "quota exceeded, too many requests",
    )
    turned_away = streamed(error, DONE).record
    assert (turned_away.outcome, turned_away.failure_class) == ("rejected", "rejected_with_200")


@pytest.mark.parametrize(
    "steps",
    [
        [STREAM_HEAD, *map(chunk, FIVE[:3]), 0.05, RESET],
        [STREAM_HEAD, *map(chunk, FIVE[:3]), CLOSE],
        [STREAM_HEAD, *map(chunk, FIVE[:3]), chunk(FIVE[3][:30]), CLOSE],
    ],
)
def test_a18_connections_lost_mid_stream(steps: list[Step]) -> None:
    record = answered(steps).record
    assert (record.outcome, record.failure_class) == ("failed", "connection_lost_mid_stream")
    assert (record.output_tokens, record.output_events, record.attempts) == (3, 3, 1)


def test_a18_an_event_of_broken_json_is_a_failure_wherever_it_stands() -> None:
    """A client that parses strictly raises there; output went with the event, whatever comes after it."""
    whole = [*FIVE, event(finish="stop"), DONE]
    for place in range(len(whole)):
        cut = [*whole[:place], event(content="lost")[:20] + b"\n\n", *whole[place:]]
        record = streamed(*cut).record
        assert (record.outcome, record.failure_class) == ("failed", "malformed_stream")
        assert record.error == "1 events of broken JSON"


def test_a18_a_stream_that_stops_cleanly_too_early() -> None:
    assert streamed(*FIVE).record.failure_class == "truncated_stream"
    assert streamed(*FIVE, b"data: {cut\n\n", DONE).record.failure_class == "malformed_stream"
    assert streamed(*FIVE, event(finish="stop")).record.outcome == "succeeded"
    assert streamed(*FIVE, DONE).record.outcome == "succeeded"
    assert streamed(*FIVE, b"data: [DONE]").record.outcome == "succeeded"


def test_a18_an_answer_that_said_it_was_over_is_whole_however_the_connection_ends() -> None:
    for ending in (CLOSE, RESET, HOLD):
        steps: list[Step] = [STREAM_HEAD, *map(chunk, WHOLE), 0.05, ending]
        assert_five_tokens(answered(steps))


def test_a19_no_hidden_retries() -> None:
    script = [
        plain_answer(
            b'{"error": {"message": "slow down"}}', "429 Too Many Requests", head="retry-after: 1\r\n"
        ),
        plain_answer(
            b'{"error": {"message": "slow down"}}', "429 Too Many Requests", head="retry-after: 1\r\n"
        ),
        STREAM_HEAD + b"".join(map(chunk, WHOLE)) + LAST_CHUNK,
    ]
    with ByteServer(lambda connection, request: [script[request]]) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        records = []
        for number in range(3):
            request = Request(body=b"{}", request_id=f"r-{number}")
            records.append(complete(pool, request, start_ns=monotonic_ns()).record)
        pool.close()
        assert len(server.received) == 3
        assert server.accepted(1) == 1
    assert [each.outcome for each in records] == ["rejected", "rejected", "succeeded"]
    assert [each.status for each in records] == [429, 429, 200]
    assert [each.retry_after_s for each in records] == [1.0, 1.0, None]
    assert [each.connection for each in records] == ["new", "reused", "reused"]
    assert records[0].failure_class == "http_429"


def test_a20_every_failure_has_a_class() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for url, expected in (
        (f"http://127.0.0.1:{port}", "refused"),
        ("http://no-such-host.invalid", "dns_failure"),
    ):
        pool = ConnectionPool(Target(url, "m"))
        record = complete(pool, Request(body=b"{}", request_id="r"), start_ns=monotonic_ns()).record
        assert (record.outcome, record.failure_class, record.attempts) == ("failed", expected, 1)
        assert record.error
        assert record.sent_at_s is not None
        assert record.status is None
        assert pool.in_flight == 0
    record = answered([plain_answer(b"busy", "503 Service Unavailable", "text/plain")]).record
    assert (record.outcome, record.failure_class, record.error) == ("rejected", "http_503", "busy")
    record = answered([CLOSE]).record
    assert (record.outcome, record.failure_class) == ("failed", "connection_lost")


@pytest.mark.parametrize(
    ("steps", "limits", "expected", "tokens"),
    [
        ([HOLD], {"first_token_s": 0.3}, "no_first_token", None),
        ([STREAM_HEAD, HOLD], {"first_token_s": 0.3}, "no_first_token", None),
        ([STREAM_HEAD, *[chunk(ROLE), 0.05] * 30, HOLD], {"first_token_s": 0.3}, "no_first_token", None),
        ([STREAM_HEAD, *map(chunk, FIVE[:2]), HOLD], {"stall_s": 0.3}, "stall", 2),
        ([STREAM_HEAD, chunk(FIVE[0]), *[chunk(b":\n\n"), 0.05] * 30, HOLD], {"stall_s": 0.3}, "stall", 1),
        (
            [STREAM_HEAD, *[chunk(FIVE[0]), 0.05] * 60, HOLD],
            {"total_s": 0.3, "stall_s": 0.2},
            "total_timeout",
            6,
        ),
    ],
)
def test_a21_limits_of_meaning(
    steps: list[Step], limits: dict[str, float], expected: str, tokens: int | None
) -> None:
    with ByteServer(steps) as server:
        record = ask(server, **limits).record
    assert (record.outcome, record.failure_class) == ("failed", expected)
    assert record.output_tokens == (pytest.approx(tokens, abs=3) if expected == "total_timeout" else tokens)
    assert record.ended_at_s == pytest.approx(0.3, abs=0.25)


def test_a22_a_stale_connection_is_resent_once_and_told() -> None:
    whole = STREAM_HEAD + b"".join(map(chunk, WHOLE)) + LAST_CHUNK

    def closes_at_the_second_request(connection: int, request: int) -> list[Step]:
        return [whole] if request == 0 else [RESET]

    with ByteServer(closes_at_the_second_request) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        records = [
            complete(pool, Request(body=b"{}", request_id=f"r-{n}"), start_ns=monotonic_ns()).record
            for n in range(3)
        ]
        pool.close()
        assert server.accepted(3) == 3
    assert [each.outcome for each in records] == ["succeeded"] * 3
    assert [each.attempts for each in records] == [1, 2, 2]
    assert [each.connection for each in records] == ["new", "new", "new"]

    with ByteServer(
        lambda connection, request: [whole] if (connection, request) == (0, 0) else [CLOSE]
    ) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        complete(pool, Request(body=b"{}", request_id="r-0"), start_ns=monotonic_ns())
        record = complete(pool, Request(body=b"{}", request_id="r-1"), start_ns=monotonic_ns()).record
        pool.close()
        assert len(server.received) == 3
    assert (record.outcome, record.failure_class, record.attempts) == ("failed", "stale_connection", 2)


def test_a22_a_server_that_closes_idle_connections_fails_no_burst() -> None:
    whole = STREAM_HEAD + b"".join(map(chunk, WHOLE)) + LAST_CHUNK
    with ByteServer([whole], idle_limit_s=0.2) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        for burst in range(3):
            calls = [
                arm(pool, Request(body=b"{}", request_id=f"{burst}-{n}"), start_ns=monotonic_ns())
                for n in range(5)
            ]
            for call in calls:
                call.fire()
            assert {call.wait().record.outcome for call in calls} == {"succeeded"}
            gevent.sleep(0.4)
        pool.close()
        assert server.accepted(15) == 15


# --- armed bursts and cancelling ---


def test_a_burst_on_connections_opened_ahead_is_sent_in_order_at_once() -> None:
    whole = STREAM_HEAD + b"".join(map(chunk, WHOLE)) + LAST_CHUNK
    with ByteServer([0.1, whole]) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        start_ns = monotonic_ns()
        calls = [
            arm(pool, Request(body=b"{}", request_id=f"r-{n}", arrival=n), start_ns=start_ns)
            for n in range(60)
        ]
        assert pool.open_ahead(60) == 60
        for call in calls:
            call.fire()
        assert pool.in_flight == 60
        records = [call.wait().record for call in calls]
        pool.close()
        assert (server.accepted(60), pool.in_flight) == (60, 0)
    assert {(each.outcome, each.connection, each.connect_s) for each in records} == {
        ("succeeded", "reused", None)
    }
    assert [each.in_flight_at_send for each in records] == list(range(1, 61))
    sent = [each.sent_at_s or 0.0 for each in records]
    assert sent == sorted(sent)


def test_cancelling_keeps_what_came_and_closes_the_connection() -> None:
    with ByteServer([STREAM_HEAD, *map(chunk, FIVE[:3]), HOLD]) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        call = arm(pool, Request(body=b"{}", request_id="r"), start_ns=monotonic_ns())
        call.fire()
        gevent.spawn_later(0.2, call.cancel, "drain_limit")
        record = call.wait().record
        assert (record.outcome, record.failure_class, record.output_tokens) == ("cancelled", "drain_limit", 3)
        assert (pool.in_flight, pool.take()) == (0, None)
        call.cancel("run_stopped")
        assert call.wait().record is record
        gevent.sleep(0.1)
        assert server.left == [0]


def test_cancelling_before_sending_while_connecting_and_by_killing_the_greenlet() -> None:
    with ByteServer([HOLD]) as server:
        pool = ConnectionPool(Target(server.url, "m"))

        def armed() -> Any:
            return arm(pool, Request(body=b"{}", request_id="r"), start_ns=monotonic_ns())

        unsent = armed()
        unsent.cancel("run_stopped")
        unsent.fire()
        record = unsent.wait().record
        assert (record.outcome, record.failure_class, record.attempts) == ("not_sent", "run_stopped", 0)
        assert (record.sent_at_s, record.ended_at_s) == (None, None)

        connecting = armed()
        connecting.fire()
        connecting.cancel("drain_limit")
        assert connecting.wait().record.outcome == "cancelled"

        killed = armed()
        killed.fire()
        waiting = gevent.spawn(killed.wait)
        gevent.sleep(0.05)
        waiting.kill()
        assert killed.finished is not None
        assert killed.finished.record.outcome == "cancelled"
        assert pool.in_flight == 0


def test_fresh_connections_are_one_a_request_and_their_time_is_told() -> None:
    whole = STREAM_HEAD + b"".join(map(chunk, WHOLE)) + LAST_CHUNK
    with ByteServer([whole]) as server:
        pool = ConnectionPool(Target(server.url, "m"), connections="fresh")
        for number in range(3):
            record = complete(
                pool, Request(body=b"{}", request_id=f"r-{number}"), start_ns=monotonic_ns()
            ).record
            assert record.connection == "new"
            assert record.connect_s is not None
            assert record.sent_at_s is not None
            assert record.sent_at_s >= record.connect_s
        assert server.accepted(3) == 3


def test_what_is_sent_and_what_the_record_repeats() -> None:
    with ByteServer([STREAM_HEAD, *map(chunk, WHOLE), LAST_CHUNK]) as server:
        pool = ConnectionPool(Target(server.url + "/v1/", "m", api_key=KEY))
        request = Request(
            body=request_body("chat", "m", PROMPT, 5, dialect="vllm"),
            request_id="run-7",
            arrival=7,
            segment=1,
            scheduled_at_s=0.25,
            name="probe",
            tenant="t",
            session="s",
            turn=2,
            asked_input_tokens=9,
            asked_output_tokens=5,
            worker=1,
        )
        finished = complete(pool, request, start_ns=monotonic_ns(), in_flight_at_send=42)
        pool.close()
        head, body = server.received[0].head, json.loads(server.received[0].body)
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert b"X-Request-Id: run-7\r\n" in head
    assert f"Authorization: Bearer {KEY}".encode() in head
    assert (body["ignore_eos"], body["max_tokens"], body["stream"]) == (True, 5, True)
    record = finished.record
    assert (record.arrival, record.segment, record.request_id, record.worker) == (7, 1, "run-7", 1)
    assert (record.name, record.tenant, record.session, record.turn) == ("probe", "t", "s", 2)
    assert (record.asked_input_tokens, record.asked_output_tokens, record.in_flight_at_send) == (9, 5, 42)
    assert (record.scheduled_at_s, record.stamp in ("kernel", "user")) == (0.25, True)
    gaps = struct.unpack("<4f", finished.gaps_f32)
    assert record.gap_max_s == max(gaps)
    with pytest.raises(ValueError, match="request_id"):
        arm(pool, Request(body=b"{}", request_id="a\r\nb"), start_ns=0)


def test_neither_key_nor_prompt_comes_back_in_an_error() -> None:
    echo = json.dumps(
        {"error": {"message": f"cannot serve '{PROMPT}' for Bearer {KEY} " + "x" * 500}}
    ).encode()
    record = answered([plain_answer(echo, "400 Bad Request")]).record
    assert record.error is not None
    assert len(record.error) <= 200
    assert record.error.startswith("cannot serve")
    assert KEY not in record.error
    assert PROMPT[5:30] not in record.error
