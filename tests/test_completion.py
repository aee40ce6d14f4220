"""Completions against a raw server: armed bursts, cancelling, what is sent and told. The field's cases
A01 to A22 are in tests/test_cases_*.py.
"""

from __future__ import annotations

import json
import struct

import gevent
import pytest

from client.clock import monotonic_ns
from client.completion import Request, Target, arm, complete
from client.endpoints import request_body
from client.engines import arming
from client.reader import ConnectionPool
from tests.asking import BODY, FIVE, KEY, PROMPT, WHOLE, WHOLE_ANSWER, answered, armed, sent
from tests.byte_server import HOLD, LAST_CHUNK, STREAM_HEAD, ByteServer, chunk, plain_answer

# --- armed bursts and cancelling ---


def test_a_burst_on_connections_opened_ahead_is_sent_in_order_at_once(engine: str) -> None:
    with ByteServer([0.1, WHOLE_ANSWER]) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        arm, start_ns = arming(engine, pool), monotonic_ns()
        calls = [arm(Request(body=BODY, request_id=f"r-{n}"), start_ns=start_ns) for n in range(60)]
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
    sent_at_s = [each.sent_at_s or 0.0 for each in records]
    assert sent_at_s == sorted(sent_at_s)


def test_cancelling_keeps_what_came_and_closes_the_connection(engine: str) -> None:
    with ByteServer([STREAM_HEAD, *map(chunk, FIVE[:3]), HOLD]) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        call = armed(pool, "r", engine)
        call.fire()
        gevent.spawn_later(0.2, call.cancel, "drain_limit")
        record = call.wait().record
        assert (record.outcome, record.failure_class, record.output_tokens) == ("cancelled", "drain_limit", 3)
        assert (pool.in_flight, pool.take()) == (0, None)
        call.cancel("run_stopped")
        assert call.wait().record is record
        gevent.sleep(0.1)
        assert server.left == [0]


def test_cancelling_before_sending_while_connecting_and_by_killing_the_greenlet(engine: str) -> None:
    with ByteServer([HOLD]) as server:
        pool = ConnectionPool(Target(server.url, "m"))
        unsent = armed(pool, "r", engine)
        unsent.cancel("run_stopped")
        unsent.fire()
        record = unsent.wait().record
        assert (record.outcome, record.failure_class, record.attempts) == ("not_sent", "run_stopped", 0)
        assert (record.sent_at_s, record.ended_at_s) == (None, None)

        connecting = armed(pool, "r", engine)
        connecting.fire()
        connecting.cancel("drain_limit")
        assert connecting.wait().record.outcome == "cancelled"

        killed = armed(pool, "r", engine)
        killed.fire()
        waiting = gevent.spawn(killed.wait)
        gevent.sleep(0.05)
        waiting.kill()
        assert killed.finished is not None
        assert killed.finished.record.outcome == "cancelled"
        assert pool.in_flight == 0


def test_fresh_connections_are_one_a_request_and_their_time_is_told(engine: str) -> None:
    with ByteServer([WHOLE_ANSWER]) as server:
        pool = ConnectionPool(Target(server.url, "m"), connections="fresh")
        for number in range(3):
            record = sent(pool, f"r-{number}", engine).record
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


def test_neither_key_nor_prompt_comes_back_in_an_error(engine: str) -> None:
    echo = json.dumps(
        {"error": {"message": f"cannot serve '{PROMPT}' for Bearer {KEY} " + "x" * 500}}
    ).encode()
    record = answered([plain_answer(echo, "400 Bad Request")], engine).record
    assert record.error is not None
    assert len(record.error) <= 200
    assert record.error.startswith("cannot serve")
    assert KEY not in record.error
    assert PROMPT[5:30] not in record.error
