"""The endpoints: what is asked for, what their events mean, whole answers of each against a raw server."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from client.clock import monotonic_ns
from client.completion import Finished, Request, complete
from client.endpoints import ENDPOINTS, request_body, request_fields
from client.preflight import preflight
from client.reader import ConnectionPool
from client.target import Target
from loadgen.arrival import Arrival
from loadgen.assignment import Assignment, assignment_for
from loadgen.plan import make_plan
from loadgen.sender import StreamSender
from loadgen.settings import RunSettings
from shapes import ShapeSettings
from shapes.lengths import parse_lengths
from tests.byte_server import HOLD, LAST_CHUNK, STREAM_HEAD, ByteServer, Step, chunk, plain_answer

CHAT = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": [{"type": "text", "text": "Say "}, {"type": "text", "text": "hi."}]},
]


def test_fields_of_each_endpoint() -> None:
    usage = {"stream_options": {"include_usage": True}}
    for endpoint, expected in (
        ("chat", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, **usage}),
        ("completions", {"prompt": "hi", "max_tokens": 8, **usage}),
        ("responses", {"input": "hi", "max_output_tokens": 8}),
    ):
        fields = request_fields(endpoint, "m", "hi", 8)
        assert fields == {"model": "m", "stream": True, **expected}
        assert orjson.loads(request_body(endpoint, "m", "hi", 8)) == fields
        whole = request_fields(endpoint, "m", "hi", None, stream=False, extra={"model": "other"})
        assert whole == {
            "model": "other",
            "stream": False,
            **{name: value for name, value in expected.items() if name in ("messages", "prompt", "input")},
        }


def test_messages_go_to_each_endpoint_as_far_as_it_takes_them() -> None:
    assert request_fields("chat", "m", CHAT, 8)["messages"] == CHAT
    assert request_fields("responses", "m", CHAT, 8)["input"] == CHAT
    assert request_fields("completions", "m", CHAT, 8)["prompt"] == "Be kind.\n\nSay hi."
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]
    with pytest.raises(ValueError, match=r"text only.*chat endpoint"):
        request_fields("completions", "m", picture, 8)


def test_a_target_calls_its_endpoint_and_no_other() -> None:
    for name, row in ENDPOINTS.items():
        for base in ("http://h", f"http://h/v1{row.path}", f"http://h/v1{row.path}/"):
            target = Target(base, "m", endpoint=name)
            assert target.url == f"http://h/v1{row.path}"
            assert target.models_path == "/v1/models"
    with pytest.raises(
        ValueError, match=r"ends in /completions.*leave /completions out.*endpoint completions"
    ):
        Target("http://h/v1/completions", "m")
    with pytest.raises(ValueError, match="one of chat, completions, responses"):
        Target("http://h", "m", endpoint="embeddings")


def ask(endpoint: str, steps: list[Step], stream: bool = True) -> Finished:
    with ByteServer(steps) as server:
        pool = ConnectionPool(Target(server.url, "m", endpoint=endpoint))
        body = request_body(endpoint, "m", "hi", 8, stream=stream)
        request = Request(body=body, request_id="r", stream=stream)
        finished = complete(pool, request, start_ns=monotonic_ns())
        pool.close()
        assert server.received[0].head.startswith(f"POST /v1{ENDPOINTS[endpoint].path} ".encode())
    return finished


def sent(*events: dict[str, Any], named: bool = False) -> list[bytes]:
    return [
        chunk(
            (f"event: {event['type']}\n" if named else "").encode()
            + f"data: {json.dumps(event)}\n\n".encode()
        )
        for event in events
    ]


def test_a_text_completion_streamed_and_whole() -> None:
    words = [{"choices": [{"index": 0, "text": text, "finish_reason": None}]} for text in ("", "a", "b")]
    end = {"choices": [{"index": 0, "text": "c", "finish_reason": "length"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}}
    done = chunk(b"data: [DONE]\n\n")
    record = ask("completions", [STREAM_HEAD, *sent(*words, end, usage), done, LAST_CHUNK]).record
    assert (record.outcome, record.output_events, record.output_tokens) == ("succeeded", 3, 3)
    assert (record.finish_reason, record.input_tokens) == ("length", 2)
    answer = {**end, **usage, "choices": end["choices"]}
    record = ask("completions", [plain_answer(json.dumps(answer).encode())], stream=False).record
    assert (record.outcome, record.output_tokens, record.ttft_s) == ("succeeded", 3, None)


def delta(kind: str, text: str = "x") -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "item_id": "i", "delta": text}


def last(event: str, status: str | None = None, **fields: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 17,
        "output_tokens": 5,
        "input_tokens_details": {"cached_tokens": 7},
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    response = {"object": "response", "status": status or event, "error": None, "usage": usage, **fields}
    return {"type": f"response.{event}", "response": response}


CREATED = {
    "type": "response.created",
    "response": {"object": "response", "status": "in_progress", "usage": None},
}
ITEM = {"type": "response.output_item.added", "item": {"type": "message", "content": []}}
CALL = {"type": "response.output_item.added", "item": {"type": "function_call", "name": "f", "arguments": ""}}
TOO_LONG = {"reason": "max_output_tokens"}


@pytest.mark.parametrize(
    ("events", "reason", "outputs"),
    [
        ([delta("output_text"), delta("output_text"), last("completed")], "stop", 2),
        ([delta("reasoning_text"), delta("output_text"), last("completed")], "stop", 2),
        ([delta("reasoning_summary_text"), last("incomplete", incomplete_details=TOO_LONG)], "length", 1),
        ([delta("output_text"), last("completed", "incomplete", incomplete_details=TOO_LONG)], "length", 1),
        (
            [delta("output_text"), last("incomplete", incomplete_details={"reason": "content_filter"})],
            "content_filter",
            1,
        ),
        ([delta("refusal"), last("completed")], "stop", 1),
        (
            [CALL, delta("function_call_arguments", ""), delta("function_call_arguments"), last("completed")],
            "stop",
            2,
        ),
        ([delta("output_text", ""), last("completed")], "stop", 0),
        ([{"type": "response.output_text.done", "text": "xx"}, last("completed")], "stop", 0),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_a_response_is_complete_at_its_last_event(
    events: list[dict[str, Any]], reason: str, outputs: int, named: bool
) -> None:
    finished = ask("responses", [STREAM_HEAD, *sent(CREATED, ITEM, *events, named=named), LAST_CHUNK])
    record = finished.record
    assert (record.outcome, record.finish_reason, record.output_events) == ("succeeded", reason, outputs)
    assert (record.input_tokens, record.output_tokens, record.tokens_from) == (17, 5, "usage")
    assert (record.cached_tokens, record.reasoning_tokens) == (7, 2)
    assert (record.ttft_s is None) == (outputs == 0)
    assert finished.malformed_events == 0


def test_a_response_that_is_over_is_not_waited_for() -> None:
    events = sent(CREATED, delta("output_text"), last("completed"))
    record = ask("responses", [STREAM_HEAD, *events, HOLD]).record
    assert record.outcome == "succeeded"
    assert record.ended_at_s is not None
    assert record.ended_at_s < 10  # not the 30 s of the stall limit


@pytest.mark.parametrize(
    ("events", "expected", "said"),
    [
        (
            [last("failed", error={"code": "server_error", "message": "it broke"})],
            "server_error_mid_stream",
            "it broke",
        ),
        ([last("failed")], "server_error_mid_stream", "without a message"),
        ([{"type": "error", "code": "boom", "message": "it broke"}], "server_error_mid_stream", "it broke"),
        ([{"error": {"message": "it broke"}}], "server_error_mid_stream", "it broke"),
        ([last("cancelled")], "aborted", "aborted"),
        ([], "truncated_stream", "no finish reason"),
    ],
)
def test_responses_that_fail(events: list[dict[str, Any]], expected: str, said: str) -> None:
    record = ask("responses", [STREAM_HEAD, *sent(CREATED, delta("output_text"), *events), LAST_CHUNK]).record
    assert (record.outcome, record.failure_class) == ("failed", expected)
    assert said in (record.error or "")
    assert record.output_tokens is not None


def test_a_response_in_one_piece() -> None:
    message = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
    whole = last("completed", output=[message])["response"]
    record = ask("responses", [plain_answer(json.dumps(whole).encode())], stream=False).record
    assert (record.outcome, record.output_tokens, record.finish_reason) == ("succeeded", 5, "stop")
    assert record.ttft_s is None
    failed = {**whole, "status": "failed", "error": {"message": "it broke"}}
    record = ask("responses", [plain_answer(json.dumps(failed).encode())], stream=False).record
    assert (record.failure_class, record.error) == ("error_body_with_200", "it broke")
    record = ask("responses", [plain_answer(b'{"object": "list"}')], stream=False).record
    assert record.failure_class == "error_body_with_200"


TEXT_STREAM: list[Step] = [
    STREAM_HEAD,
    *sent(*({"choices": [{"index": 0, "text": "a"}]} for _ in range(8))),
    *sent({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}),
    *sent({"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 8}}),
    chunk(b"data: [DONE]\n\n"),
    LAST_CHUNK,
]


def test_the_first_request_goes_to_the_endpoint_of_the_load() -> None:
    models = plain_answer(b'{"data": [{"id": "m"}]}')
    with ByteServer(lambda connection, request: TEXT_STREAM if request == 0 else [models]) as server:
        found = preflight(Target(server.url, "m", endpoint="completions"))
        paths = [each.head.split(b" ")[1] for each in server.received]
    assert (found.refused, paths) == (None, [b"/v1/completions", b"/v1/models"])
    with ByteServer([plain_answer(b"", "404 Not Found")]) as server:
        found = preflight(Target(server.url, "m", endpoint="responses"))
    assert found.refused == "no_endpoint"
    assert "no responses endpoint at http://" in found.line
    assert "--endpoint" in found.line


def test_a_worker_sends_to_the_endpoint_of_its_assignment() -> None:
    kept: list[Finished] = []
    lengths = parse_lengths("8")
    with ByteServer(TEXT_STREAM) as server:
        settings = RunSettings(
            target=server.url,
            model="m",
            shape="uniform",
            shape_settings=ShapeSettings(rate_rps=1.0, duration_s=1.0),
            arrivals="constant",
            seed=1,
            input_lengths=lengths,
            output_lengths=lengths,
            dialect="vllm",
            slo="",
            drain_s=1.0,
            first_token_limit_s=5.0,
            stall_limit_s=5.0,
            total_limit_s=10.0,
            connections="reuse",
            run_name="t",
            runs_dir="runs",
            endpoint="completions",
        )
        plan = make_plan(settings, "run", {}, ["locust"])
        told = assignment_for(plan, "run", "Chat", worker=0, workers=1).as_message()
        sender = StreamSender(Assignment.from_message(told), kept.append)
        sender.start_ns = monotonic_ns()
        sender.prompt_of = lambda arrival, run_id: CHAT
        armed = sender.arm(Arrival(None, 0.0, "chat", 4, 8, 1, label="a"))
        sender.fire(armed)
        sender.finish(armed)
        sender.close()
        (received,) = server.received
    body = orjson.loads(received.body)
    assert received.head.startswith(b"POST /v1/completions ")
    assert (body["prompt"], body["max_tokens"]) == ("Be kind.\n\nSay hi.", 8)
    assert (body["ignore_eos"], body["min_tokens"]) == (True, 8)
    (finished,) = kept
    assert (finished.record.outcome, finished.record.output_events) == ("succeeded", 8)
