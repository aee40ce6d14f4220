"""The simulated server held to what real ones do: captures of vLLM 0.32 in tests/data."""

from __future__ import annotations

import json
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from client.sse import EventDecoder
from experiments.launch import simulated_server
from tests.captures import head_and_body
from tests.test_gateway_door import record_of
from tests.test_simserver_app import (
    CHAT,
    MESSAGES,
    ask,
    connected,
    events,
    gauges,
    get,
    rows_of,
    send,
    stream,
    wait_until,
)

StartServer = Callable[..., str]
LONG = 10_000
VLLM_PAGE = (Path(__file__).parent / "data" / "metrics" / "vllm_0.32.0_load.txt").read_text()


def salvo(url: str, count: int, tokens: int) -> list[bytes]:
    """The whole answers to `count` streams whose last byte is sent in one go."""
    parts = urlsplit(url)
    payload = json.dumps(stream(tokens)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(payload)}\r\n\r\n"
    sockets = [socket.create_connection((parts.hostname, parts.port or 0), timeout=20) for _ in range(count)]
    for one in sockets:
        one.sendall(head.encode() + payload[:-1])
    time.sleep(0.1)
    for one in sockets:
        one.sendall(payload[-1:])
    answers = []
    for one in sockets:
        with one:
            answers.append(b"".join(iter(lambda one=one: one.recv(65_536), b"")))  # type: ignore[misc]
    return answers


def told(body: bytes) -> list[object]:
    """The events of a stream: parsed JSON, and the end mark as text."""
    texts = [data for data, _ in EventDecoder().feed(body)]
    return [text if text == b"[DONE]" else json.loads(text) for text in texts]


def test_a_queued_stream_has_its_headers_and_then_role_and_text_together(
    start_simserver: StartServer,
) -> None:
    """vLLM: headers after 3 ms even when queued for 7 s; the role event 0.3 ms before the first text."""
    url = start_simserver("--max-num-seqs", "1", "--jitter", "0")
    with connected(url) as running, connected(url) as queued:
        send(running, stream(LONG)).read1(1)
        response = send(queued, stream(3))
        assert response.status == 200
        wait_until(url, "vllm:num_requests_waiting", 1)
        queued.sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            queued.sock.recv(1, socket.MSG_PEEK)
        running.close()
        queued.sock.settimeout(20)
        first = queued.sock.recv(65_536, socket.MSG_PEEK)
        assert first.count(b"data: ") >= 2, "the role does not come alone"
        role, text, *_ = events(response.read())
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text["choices"][0]["delta"]["content"].strip()


def test_streams_beyond_the_queues_limit_get_an_error_event_in_an_answer_with_status_200(
    start_simserver: StartServer, tmp_path: Path
) -> None:
    """vLLM with --max-num-queued-reqs 12, 40 at once: 12 served, 28 turned away, most inside status 200."""
    log = tmp_path / "truth.csv"
    slow = "--fault", "slow,times=8"  # the first step lasts until all forty have been read
    url = start_simserver("--max-num-queued-reqs", "12", "--max-num-seqs", "8", "--log", str(log), *slow)
    answers = salvo(url, 40, 30)
    within = [answer for answer in answers if answer.startswith(b"HTTP/1.1 200") and b'{"error"' in answer]
    refused = [answer for answer in answers if answer.startswith(b"HTTP/1.1 503")]
    served = [answer for answer in answers if b'"finish_reason":"length"' in answer]
    assert (len(served), len(within) + len(refused)) == (12, 28)
    assert within
    body = b"".join(within[0].partition(b"\r\n\r\n")[2].split(b"\r\n")[1::2])
    assert told(body) == told(head_and_body("vllm_rejected_200_error_event")[1])
    seen = gauges(url)
    assert page_value(url, "vllm:admission_rejections_total", reason="max_num_queued_reqs") == 28
    assert page_value(url, "http_requests_total", status="2xx") == 12 + len(within)
    assert page_value(url, "http_requests_total", status="5xx") == len(refused)
    assert seen["vllm:num_requests_waiting"] == 0
    outcomes = Counter((row["outcome"], row["status"]) for row in rows_of(log, 40))
    assert outcomes["finished", "200"] == 12
    assert outcomes["rejected", "200"] == len(within)


def test_once_a_step_has_shown_the_queue_full_the_answer_is_503_as_vllms(
    start_simserver: StartServer,
) -> None:
    url = start_simserver("--max-num-queued-reqs", "2", "--max-num-seqs", "1")
    with connected(url) as one, connected(url) as other, connected(url) as third:
        send(one, stream(LONG))
        send(other, stream(LONG))
        wait_until(url, "vllm:num_requests_waiting", 1)
        for body in (stream(2), {"messages": MESSAGES, "max_tokens": 2}):
            response = send(third, body)
            assert response.status == 503
            assert json.loads(response.read()) == json.loads(head_and_body("vllm_rejected_503")[1])
        record = record_of(url, stream(2))
    assert (record.outcome, record.failure_class) == ("rejected", "http_503")


def test_our_client_reads_a_rejection_in_status_200_as_one(start_simserver: StartServer) -> None:
    """Steps of a second: the queue is full before any step has ended."""
    url = start_simserver("--max-num-queued-reqs", "1", "--fault", "slow,times=100")
    with connected(url) as one:
        send(one, stream(LONG))
        record = record_of(url, stream(2))
        plain = ask(url, {"messages": MESSAGES, "max_tokens": 2})
    assert (record.outcome, record.status) == ("rejected", 200)
    assert record.first_token_at_s is None
    assert plain[0] == 503, "without a stream there is nothing but the status"


def test_gauges_move_once_per_step(start_simserver: StartServer) -> None:
    """vLLM showed 0 waiting 0.56 s after 30 requests had come: its step was not over."""
    url = start_simserver("--max-num-seqs", "1", "--jitter", "0", "--fault", "slow,times=100")
    with connected(url) as one, connected(url) as other:
        send(one, stream(3))
        send(other, stream(3))
        during = gauges(url)
        wait_until(url, "vllm:num_requests_running", 1)
        after = gauges(url)
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    assert [during[name] for name in names] == [0, 0]
    assert [after[name] for name in names] == [1, 1]
    assert during["vllm:iteration_tokens_total_count"] == 0
    assert after["vllm:iteration_tokens_total_count"] >= 1
    wait_until(url, "vllm:num_requests_running", 0)
    assert gauges(url)["vllm:num_requests_waiting"] == 0


def test_a_client_that_leaves_frees_its_place_at_once_waiting_or_running(
    start_simserver: StartServer, tmp_path: Path
) -> None:
    """vLLM drops those that wait too, is idle again within 0.13 s, and counts them nowhere."""
    log = tmp_path / "truth.csv"
    url = start_simserver("--max-num-seqs", "1", "--log", str(log))
    with connected(url) as running, connected(url) as waiting, connected(url) as last:
        send(running, stream(LONG)).read1(1)
        send(waiting, stream(LONG))
        wait_until(url, "vllm:num_requests_waiting", 1)
        response = send(last, stream(4))
        wait_until(url, "vllm:num_requests_waiting", 2)
        waiting.close()
        wait_until(url, "vllm:num_requests_waiting", 1)
        running.close()
        assert len(events(response.read())) == 6, "the last has the place that is free"
    wait_until(url, "vllm:num_requests_running", 0)
    seen = gauges(url)
    assert (seen["vllm:num_requests_waiting"], seen["vllm:kv_cache_usage_perc"]) == (0, 0)
    assert page_value(url, "vllm:request_success_total", finished_reason="abort") == 0
    assert seen["simserver_requests_cancelled_total"] == 2
    left, cut, served = rows_of(log, 3)
    assert (left["outcome"], left["admitted_monotonic_s"]) == ("cancelled", "")
    assert cut["outcome"] == "cancelled"
    assert float(served["admitted_monotonic_s"]) >= float(left["ended_monotonic_s"])


def test_a_client_that_leaves_while_arrivals_are_held_back_leaves_the_gauge_too(
    start_simserver: StartServer,
) -> None:
    options = ("--policy", "arrival-gap", "--policy-option", "gap=30", "--policy-option", "hold=30")
    url = start_simserver(*options)
    with connected(url) as held:
        send(held, stream(2))
        wait_until(url, "vllm:num_requests_waiting", 1)
    wait_until(url, "vllm:num_requests_waiting", 0)


# --- /metrics

Shape = dict[str, set[tuple[str, ...]]]
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
OWN = ("simserver_",)
ENGINE = ("engine", "model_name")
NOT_SIMULATED = {
    *("cache_config_info", "engine_sleep_state", "prompt_tokens_cached_by_source_total"),
    *("estimated_flops_per_gpu_total", "estimated_read_bytes_per_gpu_total"),
    *("estimated_write_bytes_per_gpu_total", "external_prefix_cache_hits_total"),
    *("external_prefix_cache_queries_total", "mm_cache_hits_total", "mm_cache_queries_total"),
}
"""What vLLM's page has under its prefix and ours has not; and all `_created` moments."""


def samples(page: str) -> Iterable[tuple[str, dict[str, str], float]]:
    for line in page.splitlines():
        if line and not line.startswith("#"):
            found = _SAMPLE.match(line)
            assert found, line
            yield found[1], dict(_LABEL.findall(found[2] or "")), float(found[3])


def types(page: str) -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))


def shape(page: str) -> Shape:
    """The label names of each sample name."""
    shapes: Shape = {}
    for name, labels, _ in samples(page):
        shapes.setdefault(name, set()).add(tuple(sorted(labels)))
    return shapes


def page_value(url: str, name: str, **labels: str) -> float:
    page = get(url, "/metrics")[1]
    return sum(
        value for found, has, value in samples(page) if found == name and labels.items() <= has.items()
    )


def edges(page: str) -> dict[str, list[str]]:
    """Bucket edges by histogram."""
    found: dict[str, list[str]] = {}
    for name, labels, _ in samples(page):
        if name.endswith("_bucket") and labels["le"] not in found.setdefault(name, []):
            found[name].append(labels["le"])
    return found


@pytest.fixture(scope="module")
def our_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page after some load, with a context as long as that of the captured server."""
    options = ("--max-model-len", "4096", "--model", "my-llm")
    with simulated_server(tmp_path_factory.mktemp("page") / "log", *options) as url:
        for body in (stream(4), {"messages": MESSAGES, "max_tokens": 3}, {"messages": MESSAGES, "n": 0}):
            with connected(url) as connection:
                send(connection, body).read()
        return get(url, "/metrics")[1]


def test_every_sample_of_ours_is_on_vllms_page_with_its_labels_and_type(our_page: str) -> None:
    ours, theirs = shape(our_page), shape(VLLM_PAGE)
    for name, labels in ours.items():
        if not name.startswith(OWN):
            assert name in theirs, name
            assert labels == theirs[name], name
    for name, kind in types(our_page).items():
        if not name.startswith(OWN):
            assert types(VLLM_PAGE)[name] == kind, name


def test_what_is_missing_of_vllms_page_is_what_is_not_simulated(our_page: str) -> None:
    missing = {name for name in shape(VLLM_PAGE) if name.startswith("vllm:")} - set(shape(our_page))
    assert {name.removeprefix("vllm:") for name in missing if not name.endswith("_created")} == NOT_SIMULATED


def test_histograms_have_vllms_buckets(our_page: str) -> None:
    ours, theirs = edges(our_page), edges(VLLM_PAGE)
    shared = {name for name in ours if not name.startswith(OWN)}
    assert len(shared) == 16
    for name in shared:
        assert ours[name] == theirs[name], name


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("vllm:request_success_total", "finished_reason"),
        ("vllm:num_requests_waiting_by_reason", "reason"),
        ("vllm:admission_rejections_total", "reason"),
        ("vllm:prompt_tokens_by_source_total", "source"),
    ],
)
def test_labels_have_vllms_values(our_page: str, name: str, label: str) -> None:
    def values(page: str) -> list[str]:
        return [labels[label] for found, labels, _ in samples(page) if found == name]

    assert values(our_page) == values(VLLM_PAGE)


def test_what_is_counted_adds_up(our_page: str) -> None:
    value = {name: value for name, labels, value in samples(our_page) if tuple(sorted(labels)) == ENGINE}
    assert value["vllm:request_params_max_tokens_sum"] == value["vllm:request_generation_tokens_sum"] == 7
    assert value["vllm:request_prompt_tokens_sum"] == value["vllm:prompt_tokens_total"] == 30
    assert value["vllm:request_params_n_sum"] == value["vllm:request_num_preemptions_count"] == 2
    assert (
        value["vllm:request_prefill_kv_computed_tokens_sum"] == 30 - value["vllm:prompt_tokens_cached_total"]
    )
    parts = sum(value[f"vllm:request_{part}_time_seconds_sum"] for part in ("queue", "inference"))
    assert parts == pytest.approx(value["vllm:e2e_request_latency_seconds_sum"], abs=1e-6)
    parts = sum(value[f"vllm:request_{part}_time_seconds_sum"] for part in ("prefill", "decode"))
    assert parts == pytest.approx(value["vllm:request_inference_time_seconds_sum"], abs=1e-6)
    http = {
        labels["status"]: value for name, labels, value in samples(our_page) if name == "http_requests_total"
    }
    assert http == {"2xx": 2, "4xx": 1}


def test_a_crash_shows_as_a_later_start_and_counters_at_0(start_simserver: StartServer) -> None:
    before_s = time.time()
    url = start_simserver("--fault", "crash,at=4,for=0.3")
    assert ask(url, {"messages": MESSAGES, "max_tokens": 3})[0] == 200
    first = gauges(url)
    assert before_s - 1 < first["process_start_time_seconds"] <= time.time()
    assert first["vllm:generation_tokens_total"] == 3
    again, deadline = first, time.monotonic() + 20
    while again["process_start_time_seconds"] == first["process_start_time_seconds"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        try:
            again = gauges(url)
        except OSError:
            continue
    assert again["process_start_time_seconds"] >= first["process_start_time_seconds"] + 0.3
    assert again["vllm:generation_tokens_total"] == again["vllm:time_to_first_token_seconds_count"] == 0
