"""Answers and mistakes, one request each: does our record say what the server's own counters say?"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from bench.findings import Finding
from bench.real_servers import Server
from bench.server_page import fetch_page
from client.clock import monotonic_ns
from client.completion import complete
from client.endpoints import request_body
from client.finished import Finished
from client.preflight import preflight
from client.reader import ConnectionPool
from client.target import Limits, Request, Target

ASKED_TOKENS = 16
_DIALECT = "vllm"
_LIMITS = Limits(first_token_s=60.0, total_s=120.0)
_SETTLE_S = 0.5
"""A server counts a request just after its last byte."""

_TOO_LONG = "river " * 40_000
_BEYOND_CONTEXT = 1_000_000


@dataclass(frozen=True)
class Answer:
    """One way of asking that a server may know, with fields beside the usual ones. `forced`: the answer can
    be made as long as asked.
    """

    claim: str
    stream: bool = True
    endpoint: str = "chat"
    fields: Mapping[str, object] = field(default_factory=dict)
    choices: int = 1
    counted: bool = True  # the answer carries a usage
    forced: bool = True


ANSWERS: tuple[Answer, ...] = (
    Answer("streamed"),
    Answer("in one piece", stream=False),
    Answer("streamed, two choices", fields={"n": 2}, choices=2),
    Answer("in one piece, two choices", stream=False, fields={"n": 2}, choices=2),
    Answer(
        "streamed, usage on every event",
        fields={"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    ),
    Answer("streamed, no usage", fields={"stream_options": {"include_usage": False}}, counted=False),
    Answer("completions, streamed", endpoint="completions"),
    Answer("completions, in one piece", endpoint="completions", stream=False),
    Answer("completions, two choices", endpoint="completions", fields={"n": 2}, choices=2),
    Answer("responses, streamed", endpoint="responses", forced=False),
    Answer("responses, in one piece", endpoint="responses", stream=False, forced=False),
)


def _whole_body(body: dict[str, object]) -> bytes:
    return json.dumps(body).encode()


@dataclass(frozen=True)
class Mistake:
    """One wrong request: the status it must be told under, and where it can be made before a load the kind of
    refusal that preflight must name.
    """

    claim: str
    status: int
    refusal: str | None = None
    key: Callable[[Server], str | None] = lambda server: server.key
    model: Callable[[Server], str] = lambda server: server.model
    path: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    body: Callable[[dict[str, object]], bytes] = _whole_body
    needs_key: bool = False


MISTAKES: tuple[Mistake, ...] = (
    Mistake("no key", 401, "key_missing", key=lambda _: None, needs_key=True),
    Mistake("wrong key", 401, "key_wrong", key=lambda server: f"{server.key}x", needs_key=True),
    Mistake("unknown model", 404, "model_not_served", model=lambda _: "no-such-model"),
    Mistake("wrong path", 404, "no_endpoint", path="/nowhere/v1"),
    Mistake("a field of the wrong type", 400, "request_refused", fields={"stream_options": "usage"}),
    Mistake("prompt too long", 400, fields={"messages": [{"role": "user", "content": _TOO_LONG}]}),
    Mistake("max_tokens beyond the context", 400, fields={"max_tokens": _BEYOND_CONTEXT, "min_tokens": 0}),
    Mistake("max_tokens 0", 400, fields={"max_tokens": 0, "min_tokens": 0}),
    Mistake("body is no JSON", 400, body=lambda body: json.dumps(body).encode()[:-1]),
)


def check_answers(server: Server) -> Iterator[Finding]:
    """Each way of asking, checked against the server's own counts."""
    for answer in ANSWERS:
        before = fetch_page(server.url, server.key)
        target = Target(server.url, server.model, server.key, endpoint=answer.endpoint)
        finished = _asked(
            target, _body(target, "Name ten rivers.", answer.fields, answer.stream), answer.stream
        )
        time.sleep(_SETTLE_S)
        made = fetch_page(server.url, server.key).since(before, server.names.output_tokens)
        record = finished.record
        if _not_known(answer, record.status):
            yield Finding(f"answer: {answer.claim}", None, f"this server refuses it: {record.error}")
            continue
        wrong = faults(answer, finished, made)
        ttft = "no TTFT" if record.ttft_s is None else f"TTFT {record.ttft_s * 1000:.0f} ms"
        seen = f"{record.output_tokens} tokens by {record.tokens_from}, server {_whole(made)}; {ttft}"
        yield Finding(f"answer: {answer.claim}", not wrong, "; ".join([seen, *wrong]))


def faults(answer: Answer, finished: Finished, made: float | None) -> list[str]:
    """What in a record is not as asked, or not as the server counted: it made `made` tokens."""
    record, wrong = finished.record, []
    if record.outcome != "succeeded":
        return [f"{record.outcome}: {record.failure_class} {record.error}"]
    if answer.forced and record.finish_reason != "length":
        wrong.append(f"finish reason {record.finish_reason}")
    if finished.streamed is not answer.stream:
        wrong.append("not streamed" if answer.stream else "streamed")
    if (record.ttft_s is not None) is not answer.stream:
        wrong.append("a TTFT without a stream" if record.ttft_s is not None else "no TTFT")
    if record.tokens_from != ("usage" if answer.counted else "events"):
        wrong.append(f"tokens from {record.tokens_from}")
    elif answer.counted and record.output_tokens != made:
        wrong.append("not the server's count")
    elif answer.counted and answer.forced and made != ASKED_TOKENS * answer.choices:
        wrong.append(f"asked for {ASKED_TOKENS * answer.choices} tokens")
    elif not answer.counted and not 0 < (record.output_tokens or 0) <= (made or 0):
        wrong.append("more events with output than tokens")
    if finished.malformed_events:
        wrong.append(f"{finished.malformed_events} events not understood")
    return wrong


def check_mistakes(server: Server) -> Iterator[Finding]:
    """Each mistake under its own name, in a record and in preflight's words."""
    for mistake in MISTAKES:
        claim = f"mistake: {mistake.claim}"
        if mistake.needs_key and server.key is None:
            yield Finding(claim, None, "this server asks for no key")
            continue
        target = Target(f"{server.url}{mistake.path}", mistake.model(server), mistake.key(server))
        asked = json.loads(_body(target, "Hello.", mistake.fields))
        record = _asked(target, mistake.body(asked), stream=True).record
        good = record.outcome == "failed" and record.failure_class == f"http_{mistake.status}"
        seen = f"{record.failure_class or record.outcome}: {record.error}"
        if mistake.refusal:
            refused = preflight(target, limits=_LIMITS, extra=mistake.fields, key_variables=("THE_KEY",))
            good = good and refused.refused == mistake.refusal
            seen = f"{record.failure_class or record.outcome}; preflight ({refused.refused}): {refused.line}"
        yield Finding(claim, good, seen)


def _not_known(answer: Answer, status: int | None) -> bool:
    """Does the server not have this way of asking?"""
    return (status in (400, 422) and bool(answer.fields)) or (status == 404 and answer.endpoint != "chat")


def _body(target: Target, prompt: str, fields: Mapping[str, object], stream: bool = True) -> bytes:
    return request_body(
        target.endpoint, target.model, prompt, ASKED_TOKENS, stream=stream, dialect=_DIALECT, extra=fields
    )


def _asked(target: Target, body: bytes, stream: bool) -> Finished:
    pool = ConnectionPool(target)
    try:
        request = Request(body=body, request_id=f"check-{monotonic_ns()}", stream=stream)
        return complete(pool, request, start_ns=monotonic_ns(), limits=_LIMITS)
    finally:
        pool.close()


def _whole(count: float | None) -> str:
    return "cannot tell" if count is None else f"{count:g}"
