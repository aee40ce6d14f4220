"""Field cases A16 to A22, answers that fail and connections that break, with both engines.

Orders and counts are asserted, times with wide margins.
"""

from __future__ import annotations

import socket

import gevent
import pytest

from client.completion import Target
from client.reader import ConnectionPool
from tests.asking import (
    DONE,
    FIVE,
    ROLE,
    WHOLE,
    WHOLE_ANSWER,
    answered,
    armed,
    ask,
    assert_five_tokens,
    event,
    sent,
    streamed,
)
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
    engine: str, steps: list[Step], expected: str, said: str
) -> None:
    record = answered(steps, engine=engine).record
    assert (record.outcome, record.failure_class, record.ttft_s) == ("failed", expected, None)
    assert said in (record.error or "")


def test_a17_an_error_mid_stream_keeps_what_came_before(engine: str) -> None:
    error = b'data: {"error": {"message": "quota exceeded, too many requests", "code": 429}}\n\n'
    record = streamed(*FIVE[:3], error, DONE, engine=engine).record
    assert (record.outcome, record.failure_class) == ("failed", "server_error_mid_stream")
    assert (record.output_tokens, record.tokens_from, record.error) == (
        3,
        "events",
        "quota exceeded, too many requests",
    )
    turned_away = streamed(error, DONE, engine=engine).record
    assert (turned_away.outcome, turned_away.failure_class) == ("rejected", "rejected_with_200")


@pytest.mark.parametrize(
    "steps",
    [
        [STREAM_HEAD, *map(chunk, FIVE[:3]), 0.05, RESET],
        [STREAM_HEAD, *map(chunk, FIVE[:3]), CLOSE],
        [STREAM_HEAD, *map(chunk, FIVE[:3]), chunk(FIVE[3][:30]), CLOSE],
    ],
)
def test_a18_connections_lost_mid_stream(engine: str, steps: list[Step]) -> None:
    record = answered(steps, engine=engine).record
    assert (record.outcome, record.failure_class) == ("failed", "connection_lost_mid_stream")
    assert (record.output_tokens, record.output_events, record.attempts) == (3, 3, 1)


def test_a18_an_event_of_broken_json_is_a_failure_wherever_it_stands(engine: str) -> None:
    """A client that parses strictly raises there; output went with the event, whatever comes after it."""
    whole = [*FIVE, event(finish="stop"), DONE]
    for place in range(len(whole)):
        cut = [*whole[:place], event(content="lost")[:20] + b"\n\n", *whole[place:]]
        record = streamed(*cut, engine=engine).record
        assert (record.outcome, record.failure_class) == ("failed", "malformed_stream")
        assert record.error == "1 events of broken JSON"


def test_a18_a_stream_that_stops_cleanly_too_early(engine: str) -> None:
    assert streamed(*FIVE, engine=engine).record.failure_class == "truncated_stream"
    assert streamed(*FIVE, b"data: {cut\n\n", DONE, engine=engine).record.failure_class == "malformed_stream"
    assert streamed(*FIVE, event(finish="stop"), engine=engine).record.outcome == "succeeded"
    assert streamed(*FIVE, DONE, engine=engine).record.outcome == "succeeded"
    assert streamed(*FIVE, b"data: [DONE]", engine=engine).record.outcome == "succeeded"


def test_a18_an_answer_that_said_it_was_over_is_whole_however_the_connection_ends(engine: str) -> None:
    for ending in (CLOSE, RESET, HOLD):
        steps: list[Step] = [STREAM_HEAD, *map(chunk, WHOLE), 0.05, ending]
        assert_five_tokens(answered(steps, engine=engine))


def test_a19_no_hidden_retries(engine: str) -> None:
    script = [
        plain_answer(
            b'{"error": {"message": "slow down"}}', "429 Too Many Requests", head="retry-after: 1\r\n"
        ),
        plain_answer(
            b'{"error": {"message": "slow down"}}', "429 Too Many Requests", head="retry-after: 1\r\n"
        ),
        WHOLE_ANSWER,
    ]
    with ByteServer(lambda connection, request: [script[request]]) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        records = [sent(pool, f"r-{number}", engine).record for number in range(3)]
        pool.close()
        assert len(server.received) == 3
        assert server.accepted(1) == 1
    assert [each.outcome for each in records] == ["rejected", "rejected", "succeeded"]
    assert [each.status for each in records] == [429, 429, 200]
    assert [each.retry_after_s for each in records] == [1.0, 1.0, None]
    assert [each.connection for each in records] == ["new", "reused", "reused"]
    assert records[0].failure_class == "http_429"


def test_a20_every_failure_has_a_class(engine: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for url, expected in (
        (f"http://127.0.0.1:{port}", "refused"),
        ("http://no-such-host.invalid", "dns_failure"),
    ):
        pool = ConnectionPool(Target(url, "m"))
        record = sent(pool, "r", engine).record
        assert (record.outcome, record.failure_class, record.attempts) == ("failed", expected, 1)
        assert record.error
        assert record.sent_at_s is not None
        assert record.status is None
        assert pool.in_flight == 0
    record = answered([plain_answer(b"busy", "503 Service Unavailable", "text/plain")], engine=engine).record
    assert (record.outcome, record.failure_class, record.error) == ("rejected", "http_503", "busy")
    record = answered([CLOSE], engine=engine).record
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
    engine: str, steps: list[Step], limits: dict[str, float], expected: str, tokens: int | None
) -> None:
    with ByteServer(steps) as server:
        record = ask(server, engine=engine, **limits).record
    assert (record.outcome, record.failure_class) == ("failed", expected)
    assert record.output_tokens == (pytest.approx(tokens, abs=3) if expected == "total_timeout" else tokens)
    assert record.ended_at_s == pytest.approx(0.3, abs=0.25)


def test_a22_a_stale_connection_is_resent_once_and_told(engine: str) -> None:
    def closes_at_the_second_request(connection: int, request: int) -> list[Step]:
        return [WHOLE_ANSWER] if request == 0 else [RESET]

    with ByteServer(closes_at_the_second_request) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        records = [sent(pool, f"r-{n}", engine).record for n in range(3)]
        pool.close()
        assert server.accepted(3) == 3
    assert [each.outcome for each in records] == ["succeeded"] * 3
    assert [each.attempts for each in records] == [1, 2, 2]
    assert [each.connection for each in records] == ["new", "new", "new"]

    with ByteServer(
        lambda connection, request: [WHOLE_ANSWER] if (connection, request) == (0, 0) else [CLOSE]
    ) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        sent(pool, "r-0", engine)
        record = sent(pool, "r-1", engine).record
        pool.close()
        assert len(server.received) == 3
    assert (record.outcome, record.failure_class, record.attempts) == ("failed", "stale_connection", 2)


def test_a22_a_server_that_closes_idle_connections_fails_no_burst(engine: str) -> None:
    with ByteServer([WHOLE_ANSWER], idle_limit_s=0.2) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        for burst in range(3):
            calls = [armed(pool, f"{burst}-{n}", engine) for n in range(5)]
            for call in calls:
                call.fire()
            assert {call.wait().record.outcome for call in calls} == {"succeeded"}
            gevent.sleep(0.4)
        pool.close()
        assert server.accepted(15) == 15
