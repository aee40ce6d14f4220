"""The gateway as a client meets it: statuses, headers, the queue, the log; and the same in virtual time."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Callable
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from analysis.load import load_run
from analysis.summary import summarize
from client.clock import monotonic_ns
from client.completion import Request, Target, complete
from client.reader import ConnectionPool
from runlog.folder import read_run_info
from runlog.record import RequestRecord
from runlog.server_samples import read_samples
from tests.test_simserver_app import MESSAGES, ask, connected, gauges, get, rows_of, send, stream, wait_until
from tests.test_simulate import records, run

StartServer = Callable[..., str]
PLAIN = {"messages": MESSAGES, "max_tokens": 2}
LONG = 10_000


def rejections(url: str) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["reason"], sample.labels["status"]): sample.value
        for family in text_string_to_metric_families(get(url, "/metrics")[1])
        for sample in family.samples
        if sample.name == "simserver_gateway_rejections_total"
    }


def record_of(url: str, body: dict[str, Any]) -> RequestRecord:
    """What our client makes of one request."""
    pool = ConnectionPool(Target(url, "m"))
    try:
        request = Request(body=json.dumps(body).encode(), request_id="r", stream=bool(body.get("stream")))
        return complete(pool, request, start_ns=monotonic_ns()).record
    finally:
        pool.close()


def test_a_rate_lets_its_burst_in_and_says_how_things_stand(
    start_simserver: StartServer, tmp_path: Path
) -> None:
    log = tmp_path / "truth.csv"
    url = start_simserver("--gateway", "requests=1/h,burst=2,per=key", "--log", str(log))
    with connected(url) as connection:
        told = []
        for body in (PLAIN, stream(2), PLAIN, stream(2)):
            response = send(connection, body)
            answer = response.read()
            told.append((response.status, response.headers["x-ratelimit-remaining-requests"]))
        assert told == [(200, "1"), (200, "0"), (429, "0"), (429, "0")]
        assert response.headers["x-ratelimit-limit-requests"] == "2"
        assert response.headers["x-ratelimit-reset-requests"].endswith("s")
        assert 3000 < int(response.headers["Retry-After"]) <= 3600
    error = json.loads(answer)["error"]
    assert (error["type"], error["code"], error["param"]) == ("requests", "rate_limit_exceeded", None)
    assert ask(url, PLAIN, {"Authorization": "Bearer other"})[0] == 200, "another key has its own bucket"
    record = record_of(url, stream(2))
    assert (record.outcome, record.failure_class, record.status) == ("rejected", "http_429", 429)
    assert record.retry_after_s is not None
    assert rejections(url) == {("requests", "429"): 3}
    assert gauges(url)["simserver_gateway_requests_passed_total"] == 3
    assert [(row["outcome"], row["status"], row["gateway"]) for row in rows_of(log, 6)] == [
        *[("finished", "200", "passed")] * 2,
        *[("rejected", "429", "requests")] * 2,
        ("finished", "200", "passed"),
        ("rejected", "429", "requests"),
    ]


@pytest.mark.parametrize(("per", "header"), [("tenant", "X-Tenant"), ("ip", ""), ("all", "X-Tenant")])
def test_buckets_are_by_tenant_by_address_or_one_for_all(
    start_simserver: StartServer, per: str, header: str
) -> None:
    url = start_simserver("--gateway", f"tokens=60/h,burst=30,per={per}")
    statuses = [ask(url, PLAIN, {header or "X-Other": who})[0] for who in ("a", "b", "a")]
    assert statuses == [200, 200 if per == "tenant" else 429, 429]  # each takes 15 + 2 of 30


def test_who_waits_in_the_queue_gets_no_headers_until_there_is_a_place(
    start_simserver: StartServer, tmp_path: Path
) -> None:
    log = tmp_path / "truth.csv"
    url = start_simserver("--gateway", "concurrency=1,queue=2,timeout=60s", "--log", str(log))
    with connected(url) as running, connected(url) as left, connected(url) as waiting:
        send(running, stream(LONG)).read1(1)
        for one, number in ((left, 1), (waiting, 2)):
            one.request("POST", "/v1/chat/completions", json.dumps(stream(3)))
            wait_until(url, "simserver_gateway_requests_waiting", number)
        assert ask(url, PLAIN)[1]["error"]["code"] == "queue_full"
        left.close()  # leaves the queue, its place is free again
        wait_until(url, "simserver_gateway_requests_waiting", 1)
        waiting.sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            waiting.sock.recv(1, socket.MSG_PEEK)
        assert gauges(url)["vllm:num_requests_waiting"] == 0, "the server does not know of it yet"
        running.close()
        waiting.sock.settimeout(20)
        response = waiting.getresponse()
        assert (response.status, b"[DONE]" in response.read()) == (200, True)
    assert rejections(url) == {("queue_full", "429"): 1}
    assert gauges(url)["simserver_gateway_requests_in_flight"] == 0
    *_, row = rows_of(log, 3)  # one that left the queue never came to the server: no row
    assert float(row["received_monotonic_s"]) + 0.2 < float(row["passed_monotonic_s"])
    assert float(row["passed_monotonic_s"]) <= float(row["admitted_monotonic_s"])


@pytest.mark.parametrize(("status", "outcome"), [(503, "rejected"), (504, "failed"), (408, "rejected")])
def test_a_wait_that_is_too_long_ends_as_asked_for(
    start_simserver: StartServer, status: int, outcome: str
) -> None:
    url = start_simserver("--gateway", f"concurrency=1,queue=1,timeout=300ms,timeout_status={status}")
    with connected(url) as running:
        send(running, stream(LONG)).read1(1)
        began_s = time.monotonic()
        record = record_of(url, stream(2))
        assert time.monotonic() - began_s >= 0.3
    assert (record.outcome, record.status, record.retry_after_s) == (outcome, status, 1)
    assert rejections(url) == {("queue_timeout", str(status)): 1}


def test_a_longer_answer_is_cut_or_refused_before_the_server_reads_it(start_simserver: StartServer) -> None:
    clamps = start_simserver("--gateway", "max-tokens=5", "--max-model-len", "1000")
    for wish in ({"max_tokens": 9}, {"max_completion_tokens": 5_000}, {}):  # 5000 is beyond the context
        status, answer = ask(clamps, {"messages": MESSAGES, **wish})
        assert (status, answer["choices"][0]["finish_reason"]) == (200, "length")
        assert answer["usage"]["completion_tokens"] == 5
    assert gauges(clamps)["simserver_gateway_max_tokens_clamped_total"] == 2
    refuses = start_simserver("--gateway", "max-tokens=5,over=refuse")
    status, answer = ask(refuses, {"messages": MESSAGES, "max_tokens": 9})
    assert (status, answer["error"]["param"]) == (400, "max_tokens")
    assert answer["error"]["type"] == "invalid_request_error"
    assert ask(refuses, {"messages": MESSAGES, "max_tokens": 5})[0] == 200


def test_a_circuit_opens_by_failures_of_the_server_and_closes_by_a_probe(
    start_simserver: StartServer,
) -> None:
    url = start_simserver("--gateway", "breaker=3,open=1s")

    def failing(status: int) -> int:
        return ask(url, PLAIN, {"x-simserver-fault": f"refuse,status={status}"})[0]

    def state() -> str:
        page = text_string_to_metric_families(get(url, "/metrics")[1])
        return next(
            sample.labels["state"]
            for family in page
            for sample in family.samples
            if sample.name == "simserver_gateway_breaker_state" and sample.value
        )

    assert [failing(status) for status in (500, 429, 500, 500)] == [500, 429, 500, 500]
    assert state() == "closed", "429 is no failure of the server"
    with connected(url) as connection, pytest.raises((ConnectionResetError, IncompleteRead)):
        send(connection, stream(9), {"x-simserver-fault": "reset"}).read()
    assert state() == "open"
    with connected(url) as connection:
        response = send(connection, PLAIN)
        error = json.loads(response.read())["error"]
    assert (response.status, error["code"]) == (503, "circuit_open")
    assert int(response.headers["Retry-After"]) == 1
    record = record_of(url, stream(2))
    assert (record.outcome, record.failure_class) == ("failed", "http_503"), (
        "nobody behind it: no want of room"
    )
    deadline = time.monotonic() + 10
    while state() != "half-open":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert ask(url, PLAIN)[0] == 200
    assert state() == "closed"
    assert gauges(url)["simserver_gateway_breaker_opened_total"] == 1


def test_without_a_gateway_nothing_of_it_is_told(start_simserver: StartServer) -> None:
    url = start_simserver()
    with connected(url) as connection:
        response = send(connection, PLAIN)
        response.read()
        assert not [name for name in response.headers if name.lower().startswith("x-ratelimit")]
    assert "gateway" not in get(url, "/metrics")[1]


# --- in virtual time


def test_a_salvo_against_a_rate_in_virtual_time(tmp_path: Path) -> None:
    folder = run(
        tmp_path,
        *("--shape", "salvo", "--salvo", "5s,50,20s,50,10s"),
        *("--gateway", "requests=1/s,burst=20", "--gateway", "concurrency=100"),
    )
    load = records(folder)
    by_salvo: dict[float, Counter[str]] = {}
    for one in load:
        assert one.scheduled_at_s is not None
        by_salvo.setdefault(round(one.scheduled_at_s), Counter())[one.outcome] += 1
    # 20 of the first 50, and of the second, 20 s later, the 20 that have come back meanwhile.
    assert [(counts["succeeded"], counts["rejected"]) for counts in by_salvo.values()] == [(20, 30), (20, 30)]
    refused = [one for one in load if one.outcome == "rejected"]
    assert {(one.failure_class, one.status, one.retry_after_s) for one in refused} == {("http_429", 429, 1)}
    assert all("Rate limit" in (one.error or "") for one in refused)
    *_, last = read_samples(folder)
    assert last.rejections_total == 60
    assert read_run_info(folder).options["gateway"] == "requests=1/s,burst=20 concurrency=100"
    assert summarize(load_run(folder))["counts"]["rejected"] == 60


def test_a_queue_in_virtual_time_is_in_the_time_to_first_token(tmp_path: Path) -> None:
    folder = run(
        tmp_path,
        *("--shape", "salvo", "--salvo", "1s,30,10s"),
        *("--output-tokens", "100", "--jitter", "0"),
        *("--gateway", "concurrency=4,queue=20,timeout=2500ms,timeout_status=504"),
    )
    load = records(folder)
    ends = Counter((one.outcome, one.failure_class, one.status) for one in load)
    assert ends["rejected", "http_429", 429] == 6
    assert sum(ends.values()) == 30
    late = [one for one in load if one.failure_class == "http_504"]
    served = [one for one in load if one.outcome == "succeeded"]
    assert len(late) + len(served) == 24
    assert late
    for one in late:
        assert one.ended_at_s == pytest.approx((one.sent_at_s or 0) + 2.5)
        assert (one.outcome, one.first_token_at_s) == ("failed", None)
    starts = sorted(one.ttft_s or 0 for one in served)
    assert starts[3] < 0.2, "four at once"
    assert 0.9 < starts[4] < 2.5, "the fifth waits for the first to end, about 100 steps of 10 ms"
    for one in served:
        assert one.first_byte_at_s is not None
        assert one.first_token_at_s is not None
        assert (one.sent_at_s or 0) <= one.first_byte_at_s < one.first_token_at_s


def test_a_circuit_in_virtual_time_opens_by_the_servers_own_503(tmp_path: Path) -> None:
    options = ("--max-num-seqs", "2", "--output-tokens", "200", "--admission", "waiting=5")
    alone = records(run(tmp_path / "alone", *options))
    behind = records(run(tmp_path / "behind", *options, "--gateway", "breaker=5,open=4s"))
    said = Counter(one.error.split(",")[0] if one.error else None for one in behind if one.status == 503)
    assert said["No healthy upstream: circuit open"] > said[None] > 5, "most are turned away by the circuit"
    opened = [one for one in behind if one.error]
    assert {(one.outcome, one.failure_class) for one in opened} == {("failed", "http_503")}
    assert all(1 <= (one.retry_after_s or 0) <= 4 for one in opened)
    assert len(behind) == len(alone)


def test_a_client_that_gives_up_in_the_queue_takes_no_place(tmp_path: Path) -> None:
    folder = run(
        tmp_path,
        *("--gateway", "concurrency=2,queue=500", "--output-tokens", "100", "--max-num-seqs", "64"),
        *("--first-token-limit", "3s", "--drain", "1s", "--gateway", "max-tokens=50"),
    )
    load = records(folder)
    ends = Counter((one.outcome, one.failure_class) for one in load)
    assert set(ends) >= {("succeeded", None), ("failed", "no_first_token"), ("cancelled", "drain_limit")}
    assert sum(ends.values()) == read_run_info(folder).counts["planned"]
    for one in load:
        if one.failure_class == "no_first_token":
            assert (one.status, one.first_byte_at_s) == (None, None), "no headers came"
            assert one.ended_at_s == pytest.approx((one.sent_at_s or 0) + 3.0)
        elif one.outcome == "succeeded":
            assert (one.asked_output_tokens, one.output_tokens) == (100, 50)
    running = [sample.running for sample in read_samples(folder)]
    assert max(count or 0 for count in running) == 2
