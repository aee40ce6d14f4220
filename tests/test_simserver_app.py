"""The simulated server as a client meets it: a real process, real sockets, bytes on the wire."""

from __future__ import annotations

import csv
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from experiments.launch import REPOSITORY, simulated_server, start, stop, wait_for_line
from simserver.faults import FAULTS
from simserver.policies import POLICIES

StartServer = Callable[..., str]
CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "what is a burst ?"}]
PROMPT_TOKENS = 2 + 4 + 5 + 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for the tests that only ask and look at the answer."""
    log = tmp_path_factory.mktemp("simserver") / "server.log"
    options = ("--jitter", "0", "--max-model-len", "1000", "--output-tokens", "7")
    with simulated_server(log, *options) as base_url:
        yield base_url


@contextmanager
def connected(base_url: str) -> Iterator[HTTPConnection]:
    parts = urlsplit(base_url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    try:
        yield connection
    finally:
        connection.close()


def send(connection: HTTPConnection, body: object, headers: dict[str, str] | None = None) -> HTTPResponse:
    """Send one chat request; returns when the answer's headers are there."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", CHAT, payload, {"Content-Type": "application/json", **(headers or {})})
    return connection.getresponse()


def ask(base_url: str, body: object, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    with connected(base_url) as connection:
        response = send(connection, body, headers)
        return response.status, json.loads(response.read())


def get(base_url: str, path: str, method: str = "GET") -> tuple[int, str, str]:
    with connected(base_url) as connection:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers.get("Content-Type", "")


def stream(output_tokens: int, **more: object) -> dict[str, object]:
    return {"messages": MESSAGES, "stream": True, "max_tokens": output_tokens, **more}


def events(raw: bytes) -> list[Any]:
    """The events of a whole stream: parsed JSON, and the end mark as text."""
    blocks = raw.decode().split("\n\n")
    assert blocks.pop() == ""
    assert all(block.startswith("data: ") for block in blocks)
    texts = [block.removeprefix("data: ") for block in blocks]
    return [text if text == "[DONE]" else json.loads(text) for text in texts]


def gauges(base_url: str) -> dict[str, float]:
    """All samples without labels that tell apart, by name."""
    page = get(base_url, "/metrics")[1]
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def wait_until(base_url: str, name: str, value: float) -> None:
    deadline = time.monotonic() + 10
    while gauges(base_url)[name] != value:
        assert time.monotonic() < deadline, f"{name} did not become {value}: {gauges(base_url)[name]}"
        time.sleep(0.02)


# --- answers


def test_a_stream_is_role_tokens_usage_and_end_mark_each_an_event_of_its_own(server: str) -> None:
    with connected(server) as connection:
        response = send(connection, stream(5, stream_options={"include_usage": True}, ignore_eos=True))
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert response.headers["Transfer-Encoding"] == "chunked"
        role, *tokens, usage, done = events(response.read())
    assert role["object"] == "chat.completion.chunk"
    assert (role["model"], role["id"][:9]) == ("sim-llm", "chatcmpl-")
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len(tokens) == 5
    assert all(token["choices"][0]["delta"]["content"].strip() for token in tokens)
    assert [token["choices"][0]["finish_reason"] for token in tokens] == [None] * 4 + ["length"]
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": PROMPT_TOKENS,
        "total_tokens": PROMPT_TOKENS + 5,
        "completion_tokens": 5,
    }
    assert {event["id"] for event in (role, *tokens, usage)} == {role["id"]}
    assert done == "[DONE]"


@pytest.mark.parametrize("length", [1, 2])
def test_the_shortest_streams_lack_nothing_and_no_usage_comes_unasked(server: str, length: int) -> None:
    with connected(server) as connection:
        role, *tokens, done = events(send(connection, stream(length)).read())
    assert role["choices"][0]["delta"]["role"] == "assistant"
    assert [token["choices"][0]["finish_reason"] for token in tokens] == [None] * (length - 1) + ["length"]
    assert not any("usage" in event for event in (role, *tokens))
    assert done == "[DONE]"


def test_a_whole_answer_has_as_many_words_as_tokens_and_the_usage(server: str) -> None:
    status, answer = ask(server, {"model": "sim-llm", "messages": MESSAGES, "max_completion_tokens": 6})
    assert status == 200
    assert len(answer["choices"][0]["message"]["content"].split()) == 6
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 6


def test_without_a_length_the_answer_has_the_servers_own_and_stops(server: str) -> None:
    parts = [{"type": "text", "text": "two words"}, {"type": "image_url", "image_url": {"url": "x"}}]
    status, answer = ask(server, {"messages": [{"role": "user", "content": parts}]})
    assert status == 200
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"] == {"prompt_tokens": 6, "total_tokens": 13, "completion_tokens": 7}


def test_answers_to_requests_on_one_connection_come_one_after_the_other(server: str) -> None:
    with connected(server) as connection:
        first = events(send(connection, stream(3)).read())
        second = events(send(connection, stream(4)).read())
    assert [len(first), len(second)] == [5, 6]
    assert first[0]["id"] != second[0]["id"]


# --- errors

USER = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b'{"messages": [', 400, "body"),
        ([], 400, "body"),
        ({}, 400, "body.messages"),
        ({"messages": []}, 400, "body.messages"),
        ({"messages": ["hi"]}, 400, "body.messages.0"),
        ({"messages": [{"role": "user", "content": 5}]}, 400, "body.messages.0.content"),
        ({"messages": USER, "model": "other"}, 404, "model"),
        ({"messages": USER, "max_tokens": 0}, 400, "max_tokens"),
        ({"messages": USER, "max_tokens": "many"}, 400, "body.max_tokens"),
        ({"messages": USER, "max_tokens": True}, 400, "body.max_tokens"),
        ({"messages": USER, "max_completion_tokens": 1_001}, 400, "max_completion_tokens"),
        ({"messages": USER, "max_tokens": 996}, 400, "max_tokens"),
        ({"messages": [{"role": "user", "content": "word " * 996}]}, 400, "input_tokens"),
        ({"messages": USER, "n": 0}, 400, "n"),
        ({"messages": USER, "stream": "yes"}, 400, "body.stream"),
        ({"messages": USER, "stream_options": {"include_usage": True}}, 400, "body.stream_options"),
        ({"messages": USER, "stream": True, "stream_options": "all"}, 400, "body.stream_options"),
    ],
)
def test_bad_requests_get_an_error_object(server: str, body: object, status: int, param: str) -> None:
    found, answer = ask(server, body)
    assert found == status
    assert answer["error"]["code"] == status
    assert answer["error"]["param"] == param
    assert answer["error"]["message"]


def test_the_last_token_of_the_context_is_still_served(server: str) -> None:
    prompt = [{"role": "user", "content": "word " * 990}]
    status, answer = ask(server, {"messages": prompt, "max_tokens": 6})
    assert status == 200
    assert answer["usage"]["total_tokens"] == 1_000


def test_other_paths(server: str) -> None:
    assert get(server, "/health")[:2] == (200, "")
    assert json.loads(get(server, "/version")[1])["version"].startswith("simserver-")
    model = json.loads(get(server, "/v1/models")[1])["data"][0]
    assert (model["id"], model["max_model_len"]) == ("sim-llm", 1_000)
    assert get(server, CHAT)[0] == 405
    assert get(server, "/v1/nowhere")[0] == 404


def test_a_key_guards_v1_and_nothing_else(start_simserver: StartServer) -> None:
    base_url = start_simserver("--api-key", "secret")
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
        status, answer = ask(base_url, stream(1), headers)
        assert (status, answer["error"]["code"]) == (401, 401)
    assert get(base_url, "/v1/models")[0] == 401
    assert get(base_url, "/health")[0] == get(base_url, "/metrics")[0] == 200
    body = {"messages": USER, "max_tokens": 1}
    assert ask(base_url, body, {"Authorization": "Bearer secret"})[0] == 200


# --- queue, metrics, log


def test_headers_come_at_once_though_the_request_waits(start_simserver: StartServer) -> None:
    base_url = start_simserver("--max-num-seqs", "1")
    with connected(base_url) as one, connected(base_url) as other:
        send(one, stream(10_000))
        queued = send(other, stream(10_000))
        assert queued.status == 200
        wait_until(base_url, "vllm:num_requests_waiting", 1)
        assert gauges(base_url)["vllm:num_requests_running"] == 1


def test_a_full_queue_answers_503_until_there_is_room(start_simserver: StartServer) -> None:
    base_url = start_simserver("--max-num-seqs", "1", "--max-num-queued-reqs", "2")
    with connected(base_url) as one, connected(base_url) as other:
        send(one, stream(10_000))
        send(other, stream(10_000))
        wait_until(base_url, "vllm:num_requests_waiting", 1)
        status, answer = ask(base_url, stream(2))
        assert status == 503
        assert answer["error"]["type"] == "Service Unavailable"
        assert 'reason="max_num_queued_reqs"} 1.0' in get(base_url, "/metrics")[1]
    wait_until(base_url, "vllm:num_requests_running", 0)
    assert ask(base_url, {"messages": USER, "max_tokens": 2})[0] == 200


def test_a_gateways_refusal_says_when_to_come_back(start_simserver: StartServer) -> None:
    base_url = start_simserver(
        *("--max-num-seqs", "1", "--admission", "queued-tokens=20", "--reject-status", "429")
    )
    with connected(base_url) as one, connected(base_url) as other, connected(base_url) as third:
        send(one, stream(10_000))
        wait_until(base_url, "vllm:num_requests_running", 1)
        send(other, stream(10_000))
        refused = send(third, stream(2))  # 15 tokens wait, 15 more are too many
        assert refused.status == 429
        assert int(refused.headers["Retry-After"]) >= 1
        assert json.loads(refused.read())["error"]["type"] == "rate_limit_error"
        reasons = {
            sample.labels["reason"]: sample.value
            for family in text_string_to_metric_families(get(base_url, "/metrics")[1])
            for sample in family.samples
            if sample.name == "vllm:admission_rejections_total"
        }
    assert reasons == {"max_num_queued_reqs": 0, "max_num_queued_tokens": 1}


@pytest.mark.parametrize("by", ["header", "key"])
def test_tenants_are_told_apart_by_header_or_key(start_simserver: StartServer, by: str) -> None:
    base_url = start_simserver("--policy", "quota", "--policy-option", "running=1")

    def who(name: str) -> dict[str, str]:
        return {"X-Tenant": name} if by == "header" else {"Authorization": f"Bearer {name}"}

    with connected(base_url) as one, connected(base_url) as again, connected(base_url) as other:
        send(one, stream(10_000), who("a"))
        send(again, stream(10_000), who("a"))
        wait_until(base_url, "vllm:num_requests_waiting", 1)
        send(other, stream(10_000), who("b"))
        wait_until(base_url, "vllm:num_requests_running", 2)
        assert gauges(base_url)["vllm:num_requests_waiting"] == 1


def test_a_priority_in_the_body_is_heeded(start_simserver: StartServer, tmp_path: Path) -> None:
    log = tmp_path / "truth.csv"
    base_url = start_simserver("--policy", "priority", "--max-num-seqs", "1", "--log", str(log))
    with connected(base_url) as first, connected(base_url) as low, connected(base_url) as high:
        send(first, stream(200))
        wait_until(base_url, "vllm:num_requests_running", 1)
        behind = send(low, stream(2, priority=5))
        wait_until(base_url, "vllm:num_requests_waiting", 1)
        ahead = send(high, stream(3, priority=-1))
        behind.read()
        ahead.read()
    assert [row["asked_output_tokens"] for row in rows_of(log, 3)] == ["200", "3", "2"]
    assert ask(base_url, {"messages": USER, "priority": "high"})[0] == 400


@pytest.mark.parametrize(
    ("option", "hits"), [("--enable-prefix-caching", 80), ("--no-enable-prefix-caching", 0)]
)
def test_a_prompt_that_begins_like_another_is_found_in_the_prefix_cache(
    start_simserver: StartServer, option: str, hits: int
) -> None:
    base_url = start_simserver(option)
    text = " ".join(f"word{number}" for number in range(90))
    for ending in ("one", "two"):  # 4 + 90 words alike: five whole blocks of 16
        ask(base_url, {"messages": [{"role": "user", "content": f"{text} {ending}"}], "max_tokens": 1})
    assert gauges(base_url)["vllm:prefix_cache_hits_total"] == hits


def test_a_client_that_leaves_frees_its_place_and_its_kv_cache(
    start_simserver: StartServer, tmp_path: Path
) -> None:
    log = tmp_path / "truth.csv"
    base_url = start_simserver("--max-num-seqs", "1", "--log", str(log))
    with connected(base_url) as running:
        send(running, stream(10_000)).read1(1)  # the first token is here
        with connected(base_url) as waiting:
            send(waiting, stream(10_000))
            wait_until(base_url, "vllm:num_requests_waiting", 1)
            assert gauges(base_url)["vllm:kv_cache_usage_perc"] > 0
        wait_until(base_url, "vllm:num_requests_waiting", 0)
        assert gauges(base_url)["vllm:num_requests_running"] == 1
    wait_until(base_url, "vllm:num_requests_running", 0)
    assert gauges(base_url)["vllm:kv_cache_usage_perc"] == 0
    assert ask(base_url, {"messages": USER, "max_tokens": 2})[0] == 200
    waited, ran, served = rows_of(log, 3)
    assert [row["outcome"] for row in (waited, ran, served)] == ["cancelled", "cancelled", "finished"]
    assert (waited["output_tokens"], waited["admitted_monotonic_s"]) == ("0", "")
    assert 1 <= int(ran["output_tokens"]) < 10_000


def rows_of(log: Path, count: int) -> list[dict[str, str]]:
    """The log's rows, once there are `count` of them."""
    deadline = time.monotonic() + 10
    while True:
        with open(log, newline="") as file:
            rows = list(csv.DictReader(file))
        if len(rows) >= count or time.monotonic() > deadline:
            assert len(rows) == count
            return rows
        time.sleep(0.02)


def test_metrics_have_vllms_names_and_labels_and_add_up(start_simserver: StartServer) -> None:
    base_url = start_simserver("--model", "my-llm")
    with connected(base_url) as connection:
        for length in (1, 4, 7):
            send(connection, stream(length)).read()
    ask(base_url, {"messages": MESSAGES})
    _, page, kind = get(base_url, "/metrics")
    assert kind.startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(page)}
    common = {"model_name": "my-llm", "engine": "0"}

    def value(family: str, sample: str, **labels: str) -> float:
        return next(
            found.value
            for found in families[family].samples
            if found.name == sample and found.labels == {**common, **labels}
        )

    tokens, requests = 1 + 4 + 7 + 128, 4
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert value(f"vllm:{name}", f"vllm:{name}") == 0
    for name, total in (
        ("num_preemptions", 0),
        ("prompt_tokens", requests * PROMPT_TOKENS),
        ("generation_tokens", tokens),
    ):
        assert value(f"vllm:{name}", f"vllm:{name}_total") == total
    for reason, total in (("length", 3), ("stop", 1), ("abort", 0), ("error", 0)):
        assert value("vllm:request_success", "vllm:request_success_total", finished_reason=reason) == total
    for name, total in (
        ("time_to_first_token_seconds", requests),
        ("inter_token_latency_seconds", tokens - requests),
        ("request_time_per_output_token_seconds", requests - 1),
        ("e2e_request_latency_seconds", requests),
        ("request_queue_time_seconds", requests),
        ("iteration_tokens_total", tokens),
    ):
        assert value(f"vllm:{name}", f"vllm:{name}_count") == total, name
        assert value(f"vllm:{name}", f"vllm:{name}_bucket", le="+Inf") == total, name
    # Requests one at a time: a step for each token, computing each prompt and all tokens but the last once.
    computed = requests * PROMPT_TOKENS + tokens - requests
    assert value("vllm:iteration_tokens_total", "vllm:iteration_tokens_total_sum") == computed
    assert value("simserver_step_lateness_seconds", "simserver_step_lateness_seconds_count") == tokens
    # 139 steps of at least 9.7 ms, the flat part of the preset's step time, less jitter.
    assert value("vllm:e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds_sum") > 139 * 0.009


def test_the_log_has_the_servers_own_times_of_every_request(
    start_simserver: StartServer, tmp_path: Path
) -> None:
    log = tmp_path / "truth.csv"
    base_url = start_simserver("--log", str(log), "--max-num-seqs", "2")
    before_s = time.time()
    with connected(base_url) as connection:
        send(connection, stream(5)).read()
    ask(base_url, {"messages": []})
    after_s = time.time()
    finished, refused = rows_of(log, 2)
    moments = [
        float(finished[f"{name}_monotonic_s"])
        for name in ("received", "admitted", "first_token", "last_token", "ended")
    ]
    assert moments == sorted(moments)
    assert before_s <= float(finished["received_at_s"]) <= float(refused["received_at_s"]) <= after_s
    assert (finished["prompt_tokens"], finished["output_tokens"]) == (str(PROMPT_TOKENS), "5")
    assert (finished["status"], finished["outcome"]) == ("200", "finished")
    assert (refused["status"], refused["outcome"], refused["first_token_monotonic_s"]) == (
        "400",
        "refused",
        "",
    )


def test_a_salvo_is_logged_whole_with_the_moment_each_request_came(
    start_simserver: StartServer, tmp_path: Path
) -> None:
    log = tmp_path / "truth.csv"
    base_url = start_simserver("--log", str(log), "--max-num-seqs", "4")
    parts = urlsplit(base_url)
    payload = json.dumps(stream(3)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(payload)}\r\n\r\n"
    sockets = [socket.create_connection((parts.hostname, parts.port or 0), timeout=20) for _ in range(40)]
    for one in sockets:
        one.sendall(head.encode() + payload[:-1])
    held_back_s = time.time()
    time.sleep(0.05)  # a request is received when its last byte is there, not its first
    released_s = time.time()
    for one in sockets:
        one.sendall(payload[-1:])
    for one in sockets:
        with one:
            while one.recv(65_536):
                pass
    received = [float(row["received_at_s"]) for row in rows_of(log, 40)]
    assert held_back_s < released_s <= min(received)


# --- connections and the end


def test_an_idle_connection_is_kept_and_then_closed(start_simserver: StartServer) -> None:
    base_url = start_simserver("--timeout-keep-alive", "0.5")
    with connected(base_url) as connection:
        for _ in range(2):
            connection.request("GET", "/version")
            connection.getresponse().read()
            kept = connection.sock
        assert connection.sock is kept
        kept.settimeout(10)
        assert kept.recv(1) == b""


def test_a_frozen_process_does_not_race_through_the_steps_it_missed(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    process = start(["-m", "simserver", "--port", "0", "--jitter", "0"], log)
    try:
        base_url = wait_for_line(process, log, r"listening on (\S+)", limit_s=30)[1]
        with connected(base_url) as connection:
            began_s = time.monotonic()
            send(connection, stream(10_000)).read1(1)
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.8)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.2)
            seen = gauges(base_url)
            awake_s = time.monotonic() - began_s - 0.7
    finally:
        process.send_signal(signal.SIGCONT)
        stop(process)
    assert seen["simserver_schedule_slip_seconds_total"] > 0.5
    assert seen["vllm:generation_tokens_total"] <= awake_s / 0.0097 + 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_open_streams_with_an_error_event(tmp_path: Path, number: signal.Signals) -> None:
    log, truth = tmp_path / "server.log", tmp_path / "truth.csv"
    process = start(["-m", "simserver", "--port", "0", "--max-num-seqs", "1", "--log", str(truth)], log)
    try:
        base_url = wait_for_line(process, log, r"listening on (\S+)", limit_s=30)[1]
        with connected(base_url) as running, connected(base_url) as waiting, connected(base_url) as whole:
            responses = [send(running, stream(10_000)), send(waiting, stream(10_000))]
            whole.request("POST", CHAT, json.dumps({"messages": USER}))
            wait_until(base_url, "vllm:num_requests_waiting", 2)
            process.send_signal(number)
            for response in responses:
                *_, error, done = events(response.read())
                assert (error["error"]["code"], done) == (500, "[DONE]")
            assert whole.getresponse().status == 500
        assert process.wait(10) == 0
    finally:
        stop(process)
    assert [row["outcome"] for row in rows_of(truth, 3)] == ["stopped"] * 3
    printed = log.read_text().splitlines()
    assert len([line for line in printed if "warning" not in line]) == 1, printed


# --- the command


def run_command(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "simserver", *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--port", "http"), "whole number"),
        (("--port", "65536"), "65535"),
        (("--preset", "abacus"), "a100-8b"),
        (("--policy", "magic"), "fcfs"),
        (("--policy-option", "k=1"), "no option 'k'"),
        (("--admission", "mood=1"), "queued-tokens"),
        (("--fault", "mayhem"), "freeze"),
        (("--fit", "no-such-file.csv"), "no-such-file.csv"),
        (("--jitter", "2"), "between 0 and 1"),
        (("--kv-cache-tokens", "160", "--max-model-len", "200"), "--kv-cache-tokens"),
        (("--kv-cache-tokens", "8"), "one block"),
    ],
)
def test_wrong_options_cost_one_clear_line_and_exit_code_3(options: tuple[str, ...], words: str) -> None:
    ended = run_command(*options)
    assert ended.returncode == 3
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert ended.stdout == ""


def test_a_log_that_is_there_and_a_port_that_is_taken_are_told_alike(tmp_path: Path) -> None:
    taken = tmp_path / "there.csv"
    taken.write_text("do not touch")
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        for options, words in (
            (("--log", str(taken)), "exists already"),
            (("--port", str(occupied.getsockname()[1])), "cannot listen"),
        ):
            ended = run_command(*options)
            assert ended.returncode == 3, options
            assert words in ended.stderr, options
            assert ended.stderr.count("\n") == 1, ended.stderr
    assert taken.read_text() == "do not touch"


def test_help_names_the_presets_and_policies_and_shows_a_request() -> None:
    ended = run_command("--help")
    assert ended.returncode == 0
    assert "h100-70b-tp4" in ended.stdout
    for kind in POLICIES.values():
        assert kind.summary in ended.stdout
        assert all(about in ended.stdout for _, about in kind.options.values())
    assert all(kind.summary in ended.stdout for kind in FAULTS.values())
    assert "curl -N" in ended.stdout
