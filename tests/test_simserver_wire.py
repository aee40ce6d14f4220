"""The simulated server's endpoints and wishes, as our client and the captured shapes of vLLM judge them."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from client.clock import monotonic_ns
from client.completion import Finished, Request, Target, complete
from client.endpoints import ENDPOINTS, request_fields
from client.reader import ConnectionPool
from experiments.launch import simulated_server
from tests.captures import head_and_body
from tests.test_simserver_app import connected, gauges, get, rows_of

StartServer = Callable[..., str]
TOKENS = 9
PROMPT = "three short words"
STREAMED = (True, False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    options = ("--model", "m", "--jitter", "0", "--max-model-len", "1000", "--output-tokens", "6")
    with simulated_server(tmp_path_factory.mktemp("server") / "log", *options) as url:
        yield url


def fields_of(
    endpoint: str, tokens: int | None = TOKENS, stream: bool = True, **more: object
) -> dict[str, object]:
    return request_fields(endpoint, "m", PROMPT, tokens, stream=stream, extra=more)


def judged(
    url: str, endpoint: str, fields: Mapping[str, object], tls: ssl.SSLContext | None = None
) -> Finished:
    """What our client makes of the answer."""
    pool = ConnectionPool(Target(url, "m", endpoint=endpoint), tls_context=tls)
    stream = bool(fields.get("stream"))
    request = Request(body=json.dumps(fields).encode(), request_id="r", stream=stream)
    try:
        return complete(pool, request, start_ns=monotonic_ns())
    finally:
        pool.close()


def raw(url: str, endpoint: str, fields: object) -> tuple[int, bytes]:
    payload = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    with connected(url) as connection:
        connection.request("POST", f"/v1{ENDPOINTS[endpoint].path}", payload)
        response = connection.getresponse()
        return response.status, response.read()


def events_of(body: bytes) -> list[tuple[str | None, Any]]:
    """The events of a whole stream: name and parsed data; the end mark as text."""
    found = []
    for block in body.decode().strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        data = lines["data"]
        found.append((lines.get("event"), data if data == "[DONE]" else json.loads(data)))
    return found


def streamed(url: str, endpoint: str, fields: object) -> list[Any]:
    status, body = raw(url, endpoint, fields)
    assert status == 200, body
    return [data for _, data in events_of(body)]


# --- every endpoint, as our client judges it


@pytest.mark.parametrize("stream", STREAMED)
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_our_client_gets_the_tokens_it_asked_for(server: str, endpoint: str, stream: bool) -> None:
    record = judged(server, endpoint, fields_of(endpoint, stream=stream)).record
    assert (record.outcome, record.finish_reason) == ("succeeded", "length")
    template = 0 if endpoint == "completions" else 4
    assert (record.input_tokens, record.output_tokens) == (3 + template, TOKENS)
    assert record.tokens_from == "usage"
    if stream:
        assert record.output_events == TOKENS


@pytest.mark.parametrize("stream", STREAMED)
@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_the_usage_of_several_choices_is_summed(server: str, endpoint: str, stream: bool) -> None:
    record = judged(server, endpoint, fields_of(endpoint, stream=stream, n=3)).record
    assert (record.outcome, record.output_tokens) == ("succeeded", 3 * TOKENS)
    assert record.input_tokens == (3 if endpoint == "completions" else 7)


@pytest.mark.parametrize("stream", STREAMED)
def test_several_prompts_are_as_many_choices_again(server: str, stream: bool) -> None:
    fields = fields_of("completions", 4, stream, n=2, prompt=["one two", [5, 6, 7]])
    record = judged(server, "completions", fields).record
    assert (record.input_tokens, record.output_tokens) == (5, 16)
    status, body = raw(server, "completions", {**fields, "stream": False, "stream_options": None})
    assert status == 200
    choices = json.loads(body)["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    assert len({choice["text"] for choice in choices}) == 4


def test_each_choice_is_a_sequence_of_its_own(start_simserver: StartServer, tmp_path: Path) -> None:
    log = tmp_path / "truth.csv"
    url = start_simserver("--model", "m", "--jitter", "0", "--max-num-seqs", "1", "--log", str(log))
    assert judged(url, "chat", fields_of("chat", 5, n=2)).record.output_tokens == 10
    (row,) = rows_of(log, 1)
    assert (row["asked_output_tokens"], row["output_tokens"], row["prompt_tokens"]) == ("10", "10", "7")
    seen = gauges(url)
    assert seen["vllm:generation_tokens_total"] == 10
    assert seen["simserver_step_lateness_seconds_count"] == 10  # one at a time: no step served both


# --- shapes, held to captures of vLLM


def shape(value: Any, depth: int) -> Any:
    """Field names, down to a depth; a list by its first element."""
    if isinstance(value, dict) and depth:
        return {name: shape(inner, depth - 1) for name, inner in value.items()}
    if isinstance(value, list) and value and depth:
        return [shape(value[0], depth - 1)]
    return ...


def within(ours: Any, theirs: Any) -> bool:
    """Whether every field of ours is one of theirs, of the same kind."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return all(name in theirs and within(inner, theirs[name]) for name, inner in ours.items())
    if isinstance(ours, list) and isinstance(theirs, list):
        return within(ours[0], theirs[0])
    return True


CAPTURED: dict[str, tuple[str, dict[str, object]]] = {
    "vllm_completions_stream": ("completions", {}),
    "vllm_responses_stream": ("responses", {}),
    "vllm_stream_usage_true": ("chat", {}),
    "vllm_stream_n2": ("chat", {"n": 2}),
    "vllm_stream_usage_continuous": (
        "chat",
        {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    ),
}


@pytest.mark.parametrize("capture", CAPTURED)
def test_streams_have_the_events_and_fields_of_vllms(server: str, capture: str) -> None:
    endpoint, more = CAPTURED[capture]
    theirs = events_of(head_and_body(capture)[1])
    ours = events_of(raw(server, endpoint, fields_of(endpoint, 4, **more))[1])

    def outline(events: list[tuple[str | None, Any]]) -> list[tuple[Any, ...]]:
        """What kinds of events come in what order; a run of alike ones once."""
        kinds: list[tuple[Any, ...]] = []
        for name, data in events:
            if data == "[DONE]":
                kind: tuple[Any, ...] = (name, data)
            else:
                choices = data.get("choices") or [{}]
                ends = bool(choices[0].get("finish_reason"))
                kind = (name, data.get("object"), "usage" in data, ends, *choices[0].get("delta", {}))
            if not kinds or kinds[-1] != kind:
                kinds.append(kind)
        return kinds

    assert outline(ours) == outline(theirs)
    for (_, own), (_, captured) in zip(
        (ours[0], ours[1], ours[-2]), (theirs[0], theirs[1], theirs[-2]), strict=True
    ):
        assert within(shape(own, 5), shape(captured, 5)), (own, captured)


def test_a_whole_answer_has_the_fields_of_vllms(server: str) -> None:
    ours = json.loads(raw(server, "chat", fields_of("chat", 4, stream=False, n=2))[1])
    theirs = json.loads(head_and_body("vllm_nonstream_n2")[1])
    assert within(shape(ours, 5), shape(theirs, 5))
    assert ours["usage"] == {"prompt_tokens": 7, "total_tokens": 15, "completion_tokens": 8}


def test_running_counts_come_with_every_event(server: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    for endpoint in ("chat", "completions"):
        *told, last, _ = streamed(server, endpoint, fields_of(endpoint, 3, stream_options=options))
        counts = [event["usage"]["completion_tokens"] for event in told]
        assert counts == ([0, 1, 2, 3] if endpoint == "chat" else [1, 2, 3])
        assert last["usage"]["completion_tokens"] == 3


def test_the_text_of_a_response_is_that_of_its_deltas(server: str) -> None:
    told = streamed(server, "responses", fields_of("responses", 5))
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    text = "".join(event["delta"] for event in told if event["type"] == "response.output_text.delta")
    response = told[-1]["response"]
    assert len(text.split()) == 5
    assert response["output"][0]["content"][0]["text"] == text
    assert (response["status"], response["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )
    unasked = json.loads(raw(server, "responses", {"input": [{"role": "user", "content": "a b"}]})[1])
    assert (unasked["status"], unasked["usage"]["output_tokens"]) == ("completed", 6)


# --- wishes


@pytest.mark.parametrize(("interval", "sizes"), [(1, [1] * 8), (3, [1, 3, 3, 1]), (20, [1, 7])])
def test_a_stream_interval_puts_several_tokens_into_an_event(
    start_simserver: StartServer, interval: int, sizes: list[int]
) -> None:
    url = start_simserver("--model", "m", "--jitter", "0", "--stream-interval", str(interval))
    _, *tokens, _, _ = streamed(url, "chat", fields_of("chat", 8))
    assert [len(event["choices"][0]["delta"]["content"].split()) for event in tokens] == sizes
    record = judged(url, "chat", fields_of("chat", 8)).record
    assert (record.outcome, record.output_tokens, record.output_events) == ("succeeded", 8, len(sizes))


def test_a_stop_string_ends_the_answer_and_is_not_sent(start_simserver: StartServer) -> None:
    url = start_simserver("--model", "m", "--jitter", "0")  # the first request's text: time load queue burst
    _, *tokens, usage, _ = streamed(url, "chat", fields_of("chat", 20, stop=["never", "ad que", "burst"]))
    assert "".join(event["choices"][0]["delta"]["content"] for event in tokens) == " time lo"
    assert usage["usage"]["completion_tokens"] == 3
    last = tokens[-1]["choices"][0]
    assert (last["finish_reason"], last["stop_reason"]) == ("stop", "ad que")
    # The second begins a word later; what min_tokens covers is not looked at.
    fields = fields_of("completions", 8, stream=False, stop="queue", min_tokens=5)
    assert json.loads(raw(url, "completions", fields)[1])["choices"][0]["finish_reason"] == "length"
    record = judged(url, "chat", fields_of("chat", 200, stop="load")).record
    assert (record.outcome, record.finish_reason) == ("succeeded", "stop")
    assert record.output_tokens is not None
    assert 0 < record.output_tokens < 200


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_comes_first_under_the_name_asked_for(start_simserver: StartServer, field: str) -> None:
    url = start_simserver("--model", "m", "--jitter", "0", "--reasoning-field", field)
    fields = fields_of("chat", 7, simserver={"reasoning_tokens": 4})
    deltas = [event["choices"][0]["delta"] for event in streamed(url, "chat", fields)[:-2]]
    assert [next(iter(delta)) for delta in deltas] == ["role", *[field] * 4, *["content"] * 3]
    record = judged(url, "chat", fields).record
    assert (record.outcome, record.reasoning_tokens, record.output_tokens) == ("succeeded", 4, 7)
    assert record.first_token_at_s is not None
    assert record.first_answer_at_s is not None
    assert record.first_answer_at_s > record.first_token_at_s
    whole = json.loads(raw(url, "chat", fields_of("chat", 7, stream=False, simserver=fields["simserver"]))[1])
    message = whole["choices"][0]["message"]
    assert (len(message[field].split()), len(message["content"].split())) == (4, 3)


@pytest.mark.parametrize("tokens", [1, 2, 6])
def test_a_tool_call_streams_arguments_that_are_json(server: str, tokens: int) -> None:
    fields = fields_of("chat", 3 + tokens, simserver={"reasoning_tokens": 3, "tool_call": True})
    told = [event["choices"][0] for event in streamed(server, "chat", fields)[:-2]]
    calls = [choice["delta"]["tool_calls"][0] for choice in told if "tool_calls" in choice["delta"]]
    assert len(calls) == tokens
    assert calls[0]["function"]["name"]
    assert all("name" not in call["function"] for call in calls[1:])
    arguments = json.loads("".join(call["function"]["arguments"] for call in calls))
    assert len(arguments["text"].split()) == max(0, tokens - 1 - (tokens == 1))
    assert told[-1]["finish_reason"] == "tool_calls"
    record = judged(server, "chat", fields).record
    assert (record.outcome, record.finish_reason, record.output_events) == (
        "succeeded",
        "tool_calls",
        3 + tokens,
    )


def test_a_response_has_an_item_for_reasoning_and_one_for_the_call(server: str) -> None:
    wish = {"reasoning_tokens": 3, "tool_call": True}
    record = judged(server, "responses", fields_of("responses", 8, simserver=wish)).record
    assert (record.outcome, record.reasoning_tokens, record.output_tokens) == ("succeeded", 3, 8)
    told = streamed(server, "responses", fields_of("responses", 8, simserver=wish))
    added = [event["item"]["type"] for event in told if event["type"] == "response.output_item.added"]
    done = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    assert added == [item["type"] for item in done] == ["reasoning", "function_call"]
    assert told[-1]["response"]["output"] == done
    assert json.loads(done[1]["arguments"])["text"]


def test_answers_end_by_themselves_where_that_is_asked_for(start_simserver: StartServer) -> None:
    options = ("--model", "m", "--jitter", "0", "--output-mean", "20", "--seed", "5")

    def lengths(url: str, **more: object) -> list[tuple[int, str]]:
        body = fields_of("completions", 100, stream=False, n=40, **more)
        choices = json.loads(raw(url, "completions", body)[1])["choices"]
        return [(len(choice["text"].split()), choice["finish_reason"]) for choice in choices]

    url = start_simserver(*options)
    drawn = lengths(url)
    assert 10 < sum(length for length, _ in drawn) / 40 < 40
    assert all((reason == "length") == (length == 100) or length == 100 for length, reason in drawn)
    assert {"stop"} <= {reason for _, reason in drawn}
    assert lengths(url, ignore_eos=True) == [(100, "length")] * 40
    assert min(length for length, _ in lengths(url, min_tokens=15)) == 15
    assert lengths(start_simserver(*options)) == drawn
    unasked = json.loads(raw(url, "chat", fields_of("chat", None, stream=False))[1])
    assert unasked["choices"][0]["finish_reason"] == "stop"


def test_cached_tokens_are_told_where_asked_for(start_simserver: StartServer) -> None:
    url = start_simserver("--model", "m", "--enable-prompt-tokens-details")
    prompt = " ".join(f"word{number}" for number in range(40))
    for endpoint in ("completions", "responses"):
        for cached in (0, 32):
            field = "prompt" if endpoint == "completions" else "input"
            fields = {**fields_of(endpoint, 2), field: f"{endpoint} {prompt}"}
            assert judged(url, endpoint, fields).record.cached_tokens == cached


# --- errors

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("endpoint", "body", "status", "param"),
    [
        ("completions", b"{", 400, "body"),
        ("completions", {}, 400, "body.prompt"),
        ("completions", {"prompt": ""}, 400, "body.prompt"),
        ("completions", {"prompt": []}, 400, "body.prompt"),
        ("completions", {"prompt": [["a"]]}, 400, "body.prompt"),
        ("completions", {"prompt": "word " * 1_000}, 400, "input_tokens"),
        ("completions", {"prompt": "word", "max_tokens": 1_000}, 400, "max_tokens"),
        ("completions", {"prompt": ["a"] * 600, "n": 2}, 400, "n"),
        ("completions", {"prompt": "a", "simserver": {"tool_call": True}}, 400, "simserver"),
        ("completions", {"prompt": "a", "model": "other"}, 404, "model"),
        ("responses", {}, 400, "body.input"),
        ("responses", {"input": ["hi"]}, 400, "body.input.0"),
        ("responses", {"input": "hi", "max_output_tokens": 0}, 400, "max_output_tokens"),
        ("responses", {"input": "hi", "instructions": 5}, 400, "body.instructions"),
        ("chat", {"messages": MESSAGES, "temperature": "hot"}, 400, "body.temperature"),
        ("chat", {"messages": MESSAGES, "n": 10**15}, 400, "n"),
        ("chat", {"messages": MESSAGES, "n": "two"}, 400, "body.n"),
        ("chat", {"messages": MESSAGES, "stop": [""]}, 400, "stop"),
        ("chat", {"messages": MESSAGES, "stop": 5}, 400, "body.stop"),
        ("chat", {"messages": MESSAGES, "min_tokens": 9, "max_tokens": 8}, 400, "min_tokens"),
        ("chat", {"messages": MESSAGES, "ignore_eos": "yes"}, 400, "body.ignore_eos"),
        ("chat", {"messages": MESSAGES, "simserver": {"speed": 1}}, 400, "body.simserver"),
        ("chat", {"messages": MESSAGES, "simserver": {"reasoning_tokens": -1}}, 400, "reasoning_tokens"),
    ],
)
def test_bad_requests_get_an_error_object(
    server: str, endpoint: str, body: object, status: int, param: str
) -> None:
    found, answer = raw(server, endpoint, body)
    error = json.loads(answer)["error"]
    assert (found, error["code"], error["param"]) == (status, status, param)
    assert error["message"]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_fault_mid_stream_is_a_failure_at_every_endpoint(server: str, endpoint: str) -> None:
    for fault, failure in (
        ("error-event", "server_error_mid_stream"),
        ("cut", "truncated_stream"),
        ("reset", "connection_lost_mid_stream"),
    ):
        pool = ConnectionPool(Target(server, "m", endpoint=endpoint, headers={"x-simserver-fault": fault}))
        request = Request(body=json.dumps(fields_of(endpoint)).encode(), request_id="r", stream=True)
        try:
            record = complete(pool, request, start_ns=monotonic_ns()).record
        finally:
            pool.close()
        assert (record.outcome, record.failure_class) == ("failed", failure)
        assert record.output_events == 3


@pytest.mark.parametrize("fault", ["buffer", "stall,after=2,for=0.2"])
def test_what_is_held_back_comes_whole_with_several_choices_too(server: str, fault: str) -> None:
    pool = ConnectionPool(Target(server, "m", headers={"x-simserver-fault": fault}))
    request = Request(body=json.dumps(fields_of("chat", n=2)).encode(), request_id="r", stream=True)
    try:
        record = complete(pool, request, start_ns=monotonic_ns()).record
    finally:
        pool.close()
    assert (record.outcome, record.output_tokens) == ("succeeded", 2 * TOKENS)


def test_a_buffering_proxy_holds_the_greeting_too(server: str) -> None:
    with connected(server) as connection:
        payload = json.dumps(fields_of("responses", 40))
        began_s = time.monotonic()
        path, header = "/v1/responses", {"x-simserver-fault": "buffer"}
        connection.request("POST", path, payload, header)
        response = connection.getresponse()
        first = response.read1(10)
        assert time.monotonic() - began_s > 40 * 0.009  # as long as all its steps
        assert events_of(first + response.read())[-1][0] == "response.completed"


# --- TLS, crash


def test_tls_by_option(start_simserver: StartServer, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-keyout", key, "-out", certificate, "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    url = start_simserver("--model", "m", "--tls-cert", str(certificate), "--tls-key", str(key))
    assert url.startswith("https://")
    trusting = ssl.create_default_context(cafile=str(certificate))
    for endpoint in ENDPOINTS:
        record = judged(url, endpoint, fields_of(endpoint), trusting).record
        assert (record.outcome, record.output_tokens) == ("succeeded", TOKENS)
    assert judged(url, "chat", fields_of("chat")).record.failure_class == "tls_failure"


def test_a_crash_resets_all_and_comes_back_with_counters_at_0(
    start_simserver: StartServer, tmp_path: Path
) -> None:
    log = tmp_path / "truth.csv"
    url = start_simserver("--model", "m", "--fault", "crash,at=1.5,for=1", "--log", str(log))
    assert judged(url, "chat", fields_of("chat", 3)).record.outcome == "succeeded"
    assert gauges(url)["vllm:generation_tokens_total"] == 3
    cut = judged(url, "chat", fields_of("chat", 10_000)).record
    assert (cut.outcome, cut.failure_class) == ("failed", "connection_lost_mid_stream")
    refused = judged(url, "chat", fields_of("chat", 3)).record
    assert refused.failure_class == "refused"
    deadline = time.monotonic() + 20
    while not answers(url):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    seen = gauges(url)
    assert (seen["vllm:generation_tokens_total"], seen["vllm:num_requests_running"]) == (0, 0)
    assert judged(url, "chat", fields_of("chat", 4)).record.outcome == "succeeded"
    assert gauges(url)["vllm:generation_tokens_total"] == 4
    rows = rows_of(log, 3)
    assert [row["outcome"] for row in rows] == ["finished", "faulted", "finished"]
    assert len({row["request_id"] for row in rows}) == 3


def answers(url: str) -> bool:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except ConnectionRefusedError:
        return False
    finally:
        connection.close()


def test_the_key_may_come_from_the_environment(
    start_simserver: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMSERVER_API_KEY", "secret")
    url = start_simserver("--model", "m")
    for endpoint in ENDPOINTS:
        status, body = raw(url, endpoint, fields_of(endpoint))
        assert (status, json.loads(body)["error"]["type"]) == (401, "AuthenticationError")
    assert get(url, "/version")[0] == get(url, "/health")[0] == 200
