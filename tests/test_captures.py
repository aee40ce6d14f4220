"""Captured answers of real servers, put on the wire again and decoded to records that were checked by hand.

Every answer to a completion request that was captured is here: streams, whole answers, errors, rejections.
Not taken: health, model lists and metrics pages, which are no answers to a completion; and transformers'
answer to 8192 tokens in a context of 4096, 278 kB that the recording client itself broke off after 60 s.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from client.clock import monotonic_ns
from client.completion import Finished, Request, Target
from client.endpoints import request_body
from client.engines import arming
from client.reader import ConnectionPool
from runlog.failures import failure_class
from tests.byte_server import CLOSE, LAST_CHUNK, ByteServer, Step, chunk
from tests.captures import CAPTURES, RAW, endpoint_of, head_and_body

CUT_SHORT = {
    "llamacpp_server_stopped_midstream",
    "llmock_stream_fault_disconnect",
    "vllm_router_backend_killed_midstream",
}
"""Captures whose transfer broke off: the recording client told so."""


def as_sent(name: str) -> list[Step]:
    """A captured answer on the wire again. Its transfer chunks are gone: each event gets one. Bodies in which
    a path or key was replaced are shorter than they were, and say so."""
    head, body = head_and_body(name)
    length = re.search(rb"(?im)^content-length: *(\d+)", head)
    if name.endswith(RAW):
        return [head + body]
    if b"chunked" not in head.lower():
        body = body[: int(length[1]) if length else None]
        return [re.sub(rb"(?im)^(content-length: *)\d+", rb"\g<1>%d" % len(body), head) + body]
    chunks = [chunk(part + b"\n\n") for part in body.split(b"\n\n") if part.strip()]
    return [head, *chunks, CLOSE if name in CUT_SHORT else LAST_CHUNK]


class Got(NamedTuple):
    """The columns of a record that the captures are held to, and whether it came as a stream."""

    outcome: str
    failure_class: str | None = None
    status: int | None = 200
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    tokens_from: str | None = None
    output_events: int | None = None
    streamed: bool | None = None


def streamed(
    tokens: tuple[int, int],
    events: int,
    finish: str = "length",
    *,
    cached: int | None = None,
    reasoning: int | None = None,
) -> Got:
    """A streamed success with these input and output tokens by the server's count."""
    return Got("succeeded", None, 200, finish, *tokens, cached, reasoning, "usage", events, True)


def uncounted(events: int, finish: str = "length") -> Got:
    """A streamed success without a usage: its events are the estimate."""
    return Got("succeeded", None, 200, finish, None, events, None, None, "events", events, True)


def whole(
    tokens: tuple[int, int],
    finish: str = "length",
    *,
    cached: int | None = None,
    reasoning: int | None = None,
) -> Got:
    """A success in one piece."""
    return Got("succeeded", None, 200, finish, *tokens, cached, reasoning, "usage", None, False)


def cut(failure: str, events: int) -> Got:
    """A stream that failed after some events with output."""
    return Got("failed", failure, 200, None, None, events, None, None, "events", events, True)


def refused(status: int, outcome: str = "failed") -> Got:
    """An answer whose status says it all."""
    return Got(outcome, f"http_{status}", status)


REJECTED_WITH_200 = Got("rejected", "rejected_with_200", 200, output_events=0, streamed=True)

CAPTURED: dict[str, Got] = {
    # 25 prompt tokens; usage in an event of its own when asked for, and with every event as "continuous"
    "vllm_stream_usage_true": streamed((25, 8), 8),
    "vllm_stream_usage_false": uncounted(8),
    "vllm_stream_usage_absent": uncounted(8),
    "vllm_stream_usage_continuous": streamed((25, 4), 4),
    "vllm_stream_n2": streamed((25, 8), 8),
    "vllm_stream_logprobs": streamed((25, 2), 2),
    "vllm_stream_json_object": streamed((25, 8), 8),
    "vllm_stream_max_tokens_1": streamed((25, 1), 1),
    "vllm_stream_max_completion_tokens": streamed((25, 3), 3),
    "vllm_stream_ignore_eos": streamed((25, 12), 12),
    "vllm_stream_min_tokens": streamed((25, 12), 12),
    "vllm_raw_chunked": streamed((25, 3), 3),
    "vllm_completions_stream": streamed((4, 4), 4),
    "vllm_responses_stream": streamed(
        (17, 4), 2, cached=0, reasoning=0
    ),  # "completed", but incomplete inside
    "vllm_nonstream": whole((25, 8)),
    "vllm_nonstream_n2": whole((25, 8)),
    "vllm_rejected_503": refused(503, "rejected"),
    "vllm_rejected_200_error_event": REJECTED_WITH_200,
    "vllm_server_stopped_midstream": cut("server_error_mid_stream", 3),
    "vllm_err_bad_json": refused(400),
    "vllm_err_max_tokens_0": refused(400),
    "vllm_err_max_tokens_too_big": refused(400),
    "vllm_err_method": refused(405),
    "vllm_err_no_auth": refused(401),
    "vllm_err_no_messages": refused(400),
    "vllm_err_not_found": refused(404),
    "vllm_err_prompt_too_long": refused(400),
    "vllm_err_prompt_too_long_stream": refused(400),
    "vllm_err_temperature_wrong_type": refused(400),
    "vllm_err_unknown_model": refused(404),
    "vllm_err_unknown_model_stream": refused(404),
    "vllm_err_wrong_key": refused(401),
    # counts reasoning tokens, always 0 here; a half character makes 7 events of 8 tokens
    "sglang_stream_usage_true": streamed((25, 8), 8, reasoning=0),
    "sglang_stream_usage_false": uncounted(8),
    "sglang_stream_usage_absent": uncounted(8),
    "sglang_stream_usage_continuous": streamed((25, 4), 4, reasoning=0),
    "sglang_stream_n2": streamed((25, 8), 7, reasoning=0),
    "sglang_stream_logprobs": streamed((25, 2), 2, reasoning=0),
    # an error event, yet with a usage of one token each way
    "sglang_stream_json_object": Got(
        "failed", "server_error_mid_stream", 200, None, 1, 1, None, 0, "usage", 0, True
    ),
    "sglang_stream_max_tokens_1": streamed((25, 1), 1, reasoning=0),
    "sglang_stream_max_completion_tokens": streamed((25, 3), 3, reasoning=0),
    "sglang_stream_ignore_eos": streamed((25, 12), 12, reasoning=0),
    "sglang_stream_min_tokens": streamed((25, 12), 12, reasoning=0),
    "sglang_raw_chunked": streamed((25, 3), 3, reasoning=0),
    "sglang_completions_stream": streamed((4, 4), 4, reasoning=0),
    "sglang_responses_stream": streamed((17, 2), 2, cached=7, reasoning=0),
    "sglang_nonstream": whole((25, 8), reasoning=0),
    "sglang_nonstream_n2": whole((25, 8), reasoning=0),
    "sglang_rejected_200_error_event": REJECTED_WITH_200,  # its usage is all zeros: none
    "sglang_err_bad_json": refused(400),
    "sglang_err_max_tokens_0": Got("failed", "empty_answer", 200, "length", output_events=0, streamed=True),
    "sglang_err_max_tokens_too_big": refused(400),
    "sglang_err_method": refused(405),
    "sglang_err_no_auth": refused(401),
    "sglang_err_no_messages": refused(400),
    "sglang_err_not_found": refused(404),
    "sglang_err_prompt_too_long": refused(400),
    "sglang_err_prompt_too_long_stream": refused(400),
    "sglang_err_temperature_wrong_type": refused(400),
    "sglang_err_unknown_model": whole((25, 8), reasoning=0),  # serves what it has under any name
    "sglang_err_unknown_model_stream": uncounted(8),
    "sglang_err_wrong_key": refused(401),
    # tells cached tokens; a usage per choice; half characters under JSON mode
    "llamacpp_stream_usage_true": streamed((38, 8), 8, cached=0),
    "llamacpp_stream_usage_false": uncounted(8),
    "llamacpp_stream_usage_absent": uncounted(8),
    "llamacpp_stream_usage_continuous": streamed((38, 4), 4, cached=37),
    "llamacpp_stream_n2": streamed((38, 8), 8, cached=37),
    "llamacpp_stream_logprobs": streamed((38, 2), 2, cached=37),
    "llamacpp_stream_json_object": streamed((38, 8), 6, cached=37),
    "llamacpp_stream_max_tokens_1": streamed((38, 1), 1, cached=37),
    "llamacpp_stream_max_completion_tokens": streamed((38, 3), 3, cached=37),
    "llamacpp_stream_ignore_eos": streamed((38, 12), 12, cached=37),
    "llamacpp_stream_min_tokens": streamed((38, 12), 12, cached=37),
    "llamacpp_stream_queued_with_pings": uncounted(2),
    "llamacpp_raw_chunked": streamed((38, 3), 3, cached=37),
    "llamacpp_completions_stream": streamed((3, 4), 4, cached=0),
    "llamacpp_responses_stream": streamed((33, 4), 4, "stop", cached=25),
    "llamacpp_nonstream": whole((38, 8), cached=37),
    "llamacpp_nonstream_n2": whole((38, 4), cached=37),  # as it says: one choice's tokens only
    "llamacpp_server_stopped_midstream": cut("connection_lost_mid_stream", 5),
    "llamacpp_err_bad_json": refused(400),
    "llamacpp_err_max_tokens_0": uncounted(1),
    "llamacpp_err_max_tokens_too_big": streamed((38, 35), 34, "stop", cached=37),
    "llamacpp_err_method": refused(404),
    "llamacpp_err_no_auth": refused(401),
    "llamacpp_err_no_messages": refused(400),
    "llamacpp_err_not_found": refused(404),
    "llamacpp_err_prompt_too_long": refused(400),
    "llamacpp_err_prompt_too_long_stream": refused(400),
    "llamacpp_err_temperature_wrong_type": refused(400),
    "llamacpp_err_unknown_model": whole((38, 8), cached=25),
    "llamacpp_err_unknown_model_stream": uncounted(8),
    "llamacpp_err_wrong_key": refused(401),
    # usage on the finish event whether asked or not, no [DONE], unknown fields refused, n ignored
    "transformers_stream_usage_true": streamed((25, 8), 8),
    "transformers_stream_usage_false": streamed((25, 8), 8),
    "transformers_stream_usage_absent": streamed((25, 8), 8),
    "transformers_stream_usage_continuous": streamed((25, 4), 4),
    "transformers_stream_n2": streamed((25, 4), 4),
    "transformers_stream_logprobs": streamed((25, 2), 2),
    "transformers_stream_json_object": streamed((25, 8), 8),
    "transformers_stream_max_tokens_1": streamed((25, 1), 1),
    "transformers_stream_max_completion_tokens": streamed((25, 3), 3),
    "transformers_stream_ignore_eos": refused(422),
    "transformers_stream_min_tokens": refused(422),
    "transformers_raw_chunked": streamed((25, 3), 3),
    "transformers_completions_stream": streamed((4, 4), 4),
    "transformers_responses_stream": streamed((17, 4), 4, "stop", cached=0, reasoning=0),
    "transformers_nonstream": whole((25, 8)),
    "transformers_nonstream_n2": whole((25, 4)),
    "transformers_err_bad_json": refused(422),
    "transformers_err_max_tokens_0": Got(
        "failed", "empty_answer", 200, "length", 25, 0, None, None, "usage", 0, True
    ),
    "transformers_err_method": refused(405),
    "transformers_err_no_messages": refused(500),
    "transformers_err_not_found": refused(404),
    "transformers_err_prompt_too_long": whole((6158, 8)),
    "transformers_err_prompt_too_long_stream": streamed((6158, 8), 8),
    "transformers_err_temperature_wrong_type": refused(500),
    "transformers_err_unknown_model": refused(400),
    "transformers_err_unknown_model_stream": refused(400),
    # role and text in one event; usage with choices; one finish reason and one choice's tokens for n = 2
    "litellm_stream_usage_true": streamed((38, 8), 8, cached=24, reasoning=0),
    "litellm_stream_usage_false": uncounted(8),
    "litellm_stream_usage_absent": uncounted(8),
    "litellm_stream_usage_continuous": streamed((38, 4), 4, cached=37, reasoning=0),
    "litellm_stream_n2": streamed((38, 4), 8, cached=37, reasoning=0),
    "litellm_stream_logprobs": streamed((38, 2), 2, cached=37, reasoning=0),
    "litellm_stream_json_object": streamed((38, 8), 6, cached=37, reasoning=0),
    "litellm_stream_max_tokens_1": streamed((38, 1), 1, cached=37, reasoning=0),
    "litellm_stream_max_completion_tokens": streamed((38, 3), 3, cached=37, reasoning=0),
    "litellm_stream_ignore_eos": streamed((38, 12), 12, cached=37, reasoning=0),
    "litellm_stream_min_tokens": streamed((38, 12), 12, cached=37, reasoning=0),
    "litellm_raw_chunked": streamed((38, 3), 3, cached=37, reasoning=0),
    "litellm_completions_stream": streamed((3, 4), 4, reasoning=0),
    "litellm_nonstream": whole((38, 8), cached=37),
    "litellm_nonstream_n2": whole((38, 4), cached=37),
    "litellm_mock_response_stream_usage_true": streamed((15, 12), 19, "stop", reasoning=0),
    "litellm_mock_response_stream_usage_absent": uncounted(19, "stop"),
    "litellm_mock_response_nonstream": whole((10, 20), "stop"),
    "litellm_err_bad_json": refused(400),
    "litellm_err_max_tokens_0": uncounted(1),
    "litellm_err_method": refused(405),
    "litellm_err_no_auth": refused(401),
    "litellm_err_no_messages": refused(500),
    "litellm_err_not_found": refused(404),
    "litellm_err_prompt_too_long_stream": refused(400),
    "litellm_err_temperature_wrong_type": refused(400),
    "litellm_err_unknown_model": refused(400),
    "litellm_err_unknown_model_stream": refused(400),
    "litellm_err_wrong_key": refused(400),
    # gateways that pass llama.cpp's answers on
    "smg_stream_usage_true": streamed((38, 8), 8, cached=24),
    "smg_rejected_429": refused(429, "rejected"),
    "smg_rejected_500": refused(500),  # met a connection that its server had closed: no lack of room
    "smg_err_upstream_race_500": refused(500),
    "smg_err_bad_json": refused(400),
    "smg_err_no_messages": refused(400),
    "smg_err_not_found": refused(404),
    "vllm_router_stream_usage_true": streamed((38, 8), 8, cached=0),
    "vllm_router_stream_usage_false": uncounted(8),
    "vllm_router_stream_usage_absent": uncounted(8),
    "vllm_router_stream_usage_continuous": streamed((38, 4), 4, cached=37),
    "vllm_router_stream_n2": streamed((38, 8), 8, cached=37),
    "vllm_router_stream_logprobs": streamed((38, 2), 2, cached=37),
    "vllm_router_stream_json_object": streamed((38, 8), 6, cached=37),
    "vllm_router_stream_max_tokens_1": streamed((38, 1), 1, cached=37),
    "vllm_router_stream_max_completion_tokens": streamed((38, 3), 3, cached=37),
    "vllm_router_stream_ignore_eos": streamed((38, 12), 12, cached=37),
    "vllm_router_stream_min_tokens": streamed((38, 12), 12, cached=37),
    "vllm_router_raw_chunked": streamed((38, 3), 3, cached=37),
    "vllm_router_completions_stream": streamed((3, 4), 4, cached=0),
    "vllm_router_responses_stream": streamed((33, 4), 4, "stop", cached=25),
    "vllm_router_nonstream": whole((38, 8), cached=37),
    "vllm_router_nonstream_n2": whole((38, 4), cached=37),
    "vllm_router_rejected_408": refused(408, "rejected"),  # no place in its queue
    "vllm_router_backend_down": refused(500),
    "vllm_router_backend_killed_midstream": cut("connection_lost_mid_stream", 5),
    "vllm_router_err_bad_json": refused(400),
    "vllm_router_err_max_tokens_0": uncounted(1),
    "vllm_router_err_method": refused(405),
    "vllm_router_err_no_messages": refused(422),
    "vllm_router_err_not_found": refused(404),
    "vllm_router_err_temperature_wrong_type": refused(422),
    "vllm_router_err_unknown_model": whole((38, 8), cached=25),
    "vllm_router_err_unknown_model_stream": uncounted(8),
    # mocks: finish reason always "stop"; the text completion numbers its events as if they were choices
    "guidellm_stream_usage_true": streamed((14, 8), 8, "stop"),
    "guidellm_stream_usage_false": uncounted(8, "stop"),
    "guidellm_stream_usage_absent": uncounted(8, "stop"),
    "guidellm_stream_usage_continuous": streamed((14, 4), 4, "stop"),
    "guidellm_stream_n2": streamed((14, 4), 4, "stop"),
    "guidellm_stream_logprobs": streamed((14, 2), 2, "stop"),
    "guidellm_stream_json_object": streamed((14, 8), 8, "stop"),
    "guidellm_stream_max_tokens_1": streamed((14, 1), 1, "stop"),
    "guidellm_stream_max_completion_tokens": streamed((14, 3), 3, "stop"),
    "guidellm_stream_ignore_eos": streamed((14, 12), 12, "stop"),
    "guidellm_stream_min_tokens": streamed((14, 12), 12, "stop"),
    "guidellm_raw_chunked": streamed((14, 3), 3, "stop"),
    "guidellm_completions_stream": streamed((5, 4), 4, "stop"),
    "guidellm_responses_stream": streamed((4, 4), 4, "stop"),
    "guidellm_nonstream": whole((14, 8), "stop"),
    "guidellm_nonstream_n2": whole((14, 4), "stop"),
    "guidellm_err_bad_json": refused(500),
    "guidellm_err_max_tokens_0": uncounted(16, "stop"),
    "guidellm_err_max_tokens_too_big": streamed((14, 16), 16, "stop"),
    "guidellm_err_method": refused(500),
    "guidellm_err_no_messages": refused(400),
    "guidellm_err_not_found": refused(404),
    "guidellm_err_prompt_too_long": whole((12288, 8), "stop"),
    "guidellm_err_prompt_too_long_stream": streamed((12288, 8), 8, "stop"),
    "guidellm_err_temperature_wrong_type": refused(400),
    "guidellm_err_unknown_model": whole((14, 8), "stop"),
    "guidellm_err_unknown_model_stream": uncounted(8, "stop"),
    "llmock_stream_usage_true": streamed((9, 15), 10, "stop"),
    "llmock_stream_usage_absent": uncounted(10, "stop"),
    "llmock_stream_fault_disconnect": cut("connection_lost_mid_stream", 4),
    "llmock_stream_fault_malformed": cut("malformed_stream", 5),
    "llmock_stream_fault_stall": uncounted(5, "stop"),  # the pause of 3 s is not in the capture
    "llmock_stream_fault_truncate": cut("truncated_stream", 4),
    "llmock_rejected_429": refused(429, "rejected"),
}
RETRY_AFTER = {"smg_rejected_429": 2.0, "llmock_rejected_429": 11.962}
SAID = {
    "vllm_err_no_auth": "Unauthorized",
    "vllm_err_unknown_model": "The model `no-such-model` does not exist. Valid aliases: my-llm.",
    "vllm_server_stopped_midstream": (
        "EngineCore encountered an issue. See stack trace (above) for the root cause."
    ),
    "sglang_rejected_200_error_event": "The request queue is full.",
    "sglang_err_max_tokens_too_big": (
        "max_completion_tokens is too large: 8192.This model supports at most 2048 completion tokens."
    ),
    "transformers_err_temperature_wrong_type": "Internal Server Error",
    "transformers_err_bad_json": "body.33 JSON decode error",
    "transformers_stream_ignore_eos": "Unexpected fields in the request: {'ignore_eos'}",
    "litellm_err_no_auth": "Authentication Error, No api key passed in.",
    "guidellm_err_method": "Internal server error",
    "smg_rejected_429": "admission queue is at capacity",
    "vllm_router_rejected_408": "HTTP status 408 without a text",
    "vllm_router_err_method": "HTTP status 405 without a text",
    "vllm_router_err_no_messages": (
        "Failed to deserialize the JSON body into the target type: missing field `messages` at line 1 column"
        " 19"
    ),
}


def answered(name: str, engine: str = "direct") -> Finished:
    """The completion that a capture answers."""
    endpoint = endpoint_of(name)
    with ByteServer(as_sent(name)) as server:
        pool = ConnectionPool(Target(server.url, "m", endpoint=endpoint))
        body = request_body(endpoint, "m", "tell me of the wine dark sea", 5)
        call = arming(engine, pool)(Request(body=body, request_id="r"), start_ns=monotonic_ns())
        call.fire()
        finished = call.wait()
        pool.close()
    return finished


def test_every_capture_has_its_record() -> None:
    assert sorted(CAPTURED) == sorted(CAPTURES)


@pytest.mark.parametrize("name", CAPTURED)
def test_captures_of_real_servers(name: str, engine: str) -> None:
    finished = answered(name, engine)
    record = finished.record
    columns = [getattr(record, column) for column in Got._fields if column != "streamed"]
    assert Got(*columns, streamed=finished.streamed) == CAPTURED[name]
    assert record.retry_after_s == RETRY_AFTER.get(name)
    assert SAID.get(name, record.error) == record.error
    assert (record.error is None) == (record.outcome == "succeeded")
    assert (record.first_token_at_s is not None) == bool(record.output_events)
    assert finished.malformed_events == (name == "llmock_stream_fault_malformed")
    if record.failure_class is not None:
        assert failure_class(record.failure_class)
