"""One completion against the raw server, by either engine, and the pieces of a stream to script it with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from client.clock import monotonic_ns
from client.completion import Finished, Limits, Request, Target
from client.endpoints import request_body
from client.engines import Call, arming
from client.reader import ConnectionPool
from runlog.failures import failure_class
from tests.byte_server import LAST_CHUNK, STREAM_HEAD, ByteServer, Step, chunk

KEY = "sk-test-4711"
PROMPT = "tell me of the wine dark sea and the ships on it"
DONE = b"data: [DONE]\n\n"
BODY = request_body("chat", "m", PROMPT, 5)


def armed(pool: ConnectionPool, request_id: str, engine: str = "direct", **limits: float) -> Call:
    """A chat request that is ready to fire; its record's times count from now."""
    request = Request(body=BODY, request_id=request_id)
    return arming(engine, pool)(request, start_ns=monotonic_ns(), limits=Limits(**limits))


def sent(pool: ConnectionPool, request_id: str, engine: str = "direct", **limits: float) -> Finished:
    """A chat request sent at once, and its end."""
    call = armed(pool, request_id, engine, **limits)
    call.fire()
    return call.wait()


def ask(
    server: ByteServer,
    pool: ConnectionPool | None = None,
    stream: bool = True,
    engine: str = "direct",
    **limits: float,
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
    arm = arming(engine, pool)
    call = arm(request, start_ns=monotonic_ns(), limits=Limits(**limits))
    call.fire()
    finished = call.wait()
    if finished.record.failure_class is not None:
        assert failure_class(finished.record.failure_class)
    assert (finished.record.failure_class is None) == (finished.record.outcome == "succeeded")
    pool.close()
    return finished


def answered(steps: Sequence[Step], engine: str = "direct", **limits: float) -> Finished:
    """What comes of a request that is answered with these steps."""
    with ByteServer(list(steps)) as server:
        return ask(server, engine=engine, **limits)


def event(finish: str | None = None, usage: dict[str, Any] | None = None, **delta: Any) -> bytes:
    """A chat event with one choice."""
    fields: dict[str, Any] = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    if usage is not None:
        fields["usage"] = usage
    return b"data: " + json.dumps(fields, ensure_ascii=False).encode() + b"\n\n"


def usage_event(output: int, **more: Any) -> bytes:
    """A usage of 9 input tokens and `output` ones, without choices."""
    return (
        b"data: "
        + json.dumps({"usage": {"prompt_tokens": 9, "completion_tokens": output}, **more}).encode()
        + b"\n\n"
    )


def streamed(*events: bytes, engine: str = "direct", **limits: float) -> Finished:
    """What comes of a request that is answered with a stream of these events, each in a chunk."""
    return answered([STREAM_HEAD, *map(chunk, events), LAST_CHUNK], engine, **limits)


ROLE = event(role="assistant", content="")
FIVE = [event(content=text) for text in ("one", " two", " three", " four", " five")]
WHOLE = [ROLE, *FIVE, event(finish="stop"), usage_event(5, choices=[]), DONE]


WHOLE_ANSWER = STREAM_HEAD + b"".join(map(chunk, WHOLE)) + LAST_CHUNK


def assert_five_tokens(finished: Finished) -> None:
    """The record of an answer that was FIVE."""
    record = finished.record
    assert (record.outcome, record.output_tokens, record.output_events) == ("succeeded", 5, 5)
    assert (record.tokens_from, record.finish_reason, record.gap_count) == ("usage", "stop", 4)
    assert len(finished.gaps_f32) == 16
