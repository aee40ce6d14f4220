"""Small real requests before any load: may the load begin, and if not, what is wrong and what to do?

    preflight(Target("http://127.0.0.1:8000", model="my-llm")).line

A health check or a list of models says little: servers lack either and gateways make them up. So a streamed
completion of a few tokens decides, sent as the load will send its own. What is asked beyond it costs little
and can only add to what is known:

    the completion ─► the list of models ─► two prompts counted ─► the kind of server ─► one forced answer

Prompts are counted when the caller makes them; the kind is looked for, and its way of forcing a length tried,
for the dialect "auto". A server that lacks any of it loses nothing but a notice.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from client.calibration import SIZES, PromptCalibration, fit
from client.clock import monotonic_ns
from client.clues import Evidence, Server, server_of
from client.detection import other_endpoints, recognise
from client.dialects import DIALECTS, dialect_asked_for
from client.endpoints import request_body
from client.engines import Arm, arming
from client.exchange import Answer, exchange
from client.finished import Finished
from client.meaning import usage_of
from client.model_list import models_served
from client.notices import Answered, notices_of
from client.reader import ConnectionPool
from client.refusals import NO_COMPLETION_HERE, refusal_of
from client.seen import Seen
from client.target import Limits, Request, Target
from client.whereabouts import in_container
from client.wire import ConnectError

ASKED_TOKENS = 8
"""Longest answer asked for: enough to see a stream, too little to cost anything."""

AUTO = "auto"
"""The dialect of whatever kind of server is recognised."""

_PROMPT = "Count from one to one hundred in words."
_HINTS_AT_OTHER_SCHEME = {
    True: frozenset({"connect_timeout", "connection_lost"}),
    False: frozenset({"malformed_response", "connection_lost"}),
}
_LENGTHS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens"})
_PAGE_LIMIT_S = 5.0
_COUNT_LIMIT_S = 60.0
_LEAST_TOKENS = {"responses": 16}

PromptOfWords = Callable[[int], str]
"""A prompt of so many words, as the load's are made, and another one at every call."""


@dataclass(frozen=True)
class Spent:
    """What the preflight itself cost: completions sent, and tokens as far as the server counted them."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def plus(self, input_tokens: int | None, output_tokens: int | None) -> Spent:
        """One more completion."""
        return Spent(
            self.requests + 1,
            self.input_tokens + (input_tokens or 0),
            self.output_tokens + (output_tokens or 0),
        )


@dataclass(frozen=True)
class Preflight:
    """What came of it. `refused` is None when the load may begin, else a kind of refusals.REFUSALS, and
    `line` says what is wrong and the remedy.

    `url` is the address called, as it may be printed; `models` those the server lists, None without a list;
    `server` the kind of server where it gives itself away; `dialect` the one to send with, of DIALECTS;
    `calibration` what makes prompts as long as asked, None where nothing was counted; `first_token_s` the
    TTFT and `duration_s` the time from sending to the end, both of an idle server at best.
    """

    url: str
    refused: str | None
    line: str
    notices: tuple[str, ...] = ()
    models: tuple[str, ...] | None = None
    server: Server | None = None
    dialect: str = "openai"
    calibration: PromptCalibration | None = None
    first_token_s: float | None = None
    duration_s: float | None = None
    spent: Spent = Spent()


def preflight(
    target: Target,
    *,
    limits: Limits | None = None,
    dialect: str = "openai",
    stream: bool = True,
    extra: Mapping[str, object] | None = None,
    prompt_of_words: PromptOfWords | None = None,
    key_variables: tuple[str, ...] = (),
    tls_context: ssl.SSLContext | None = None,
    engine: str = "direct",
) -> Preflight:
    """Ask the target as the module's text says, and judge what it answers.

    `dialect`, `stream`, `extra` (its lengths are left out) and `engine` are those of the load, and
    `prompt_of_words` makes the prompts to be counted; `key_variables` names the environment variables that
    the remedy for a missing key shall tell. Blocks this greenlet, at the longest for the limits. Raises
    nothing for what the server does, and EngineError for an engine that does not start.
    """
    fields = {name: value for name, value in (extra or {}).items() if name not in _LENGTHS}
    limits = limits or Limits()
    pool = ConnectionPool(target, connect_limit_s=limits.connect_s, tls_context=tls_context)
    begun_in = "openai" if dialect == AUTO else dialect
    asking = _Asking(pool, arming(engine, pool), limits, stream, fields, begun_in)
    try:
        finished = asking.completion()
        asked_for = dialect_asked_for(finished.record.error or "") if dialect == AUTO else None
        if asked_for is not None:
            asking.dialect = asked_for
            finished = asking.completion()
        seen = Seen(target, limits, finished, key_variables=key_variables, inside_container=in_container())
        if seen.status in (200, 400, 422) or seen.status in NO_COMPLETION_HERE:
            seen = replace(seen, models=models_served(pool, min(limits.first_token_s, _PAGE_LIMIT_S)))
            if seen.status in NO_COMPLETION_HERE:
                seen = replace(seen, other_endpoints=other_endpoints(pool, _PAGE_LIMIT_S))
        elif seen.failed in _HINTS_AT_OTHER_SCHEME[target.tls]:
            seen = replace(seen, other_scheme_opens=_opens_by_other_scheme(target, limits.connect_s))
        refusal = refusal_of(seen)
        if refusal is not None:
            line, models = refusal.line(seen.facts()), seen.models.names if seen.models else None
            return Preflight(target.url_told, refusal.kind, line, models=models, spent=asking.spent)
        return _known(asking, seen, dialect, prompt_of_words)
    finally:
        pool.close()


class _Asking:
    """Sends the small requests, in `dialect`, and counts what they cost."""

    def __init__(
        self,
        pool: ConnectionPool,
        arm: Arm,
        limits: Limits,
        stream: bool,
        fields: Mapping[str, object],
        dialect: str,
    ) -> None:
        self.dialect = dialect
        self.pool = pool
        self._arm = arm
        self.limits = limits
        self.stream = stream
        self.spent = Spent()
        self._fields = fields

    def completion(self) -> Finished:
        """A completion of ASKED_TOKENS tokens, as the load sends its own."""
        request = Request(
            body=self._body(_PROMPT, ASKED_TOKENS, self.stream),
            request_id=f"preflight-{secrets.token_hex(6)}",
            name="preflight",
            asked_output_tokens=ASKED_TOKENS,
            stream=self.stream,
        )
        call = self._arm(request, start_ns=monotonic_ns(), limits=self.limits)
        call.fire()
        finished = call.wait()
        self.spent = self.spent.plus(finished.record.input_tokens, finished.record.output_tokens)
        return finished

    def _body(self, prompt: str, tokens: int, stream: bool) -> bytes:
        target = self.pool.target
        return request_body(
            target.endpoint,
            target.model,
            prompt,
            tokens,
            stream=stream,
            dialect=self.dialect,
            extra=self._fields,
        )

    def counted(self, prompt: str) -> tuple[Answer, int | None]:
        """The shortest answer to `prompt`, in one piece, and the prompt's tokens by its usage."""
        body = self._body(prompt, _LEAST_TOKENS.get(self.pool.target.endpoint, 1), stream=False)
        rest = f"X-Request-Id: preflight-{secrets.token_hex(6)}\r\nContent-Length: {len(body)}\r\n\r\n"
        message = self.pool.target.head() + rest.encode("ascii") + body
        answer = exchange(self.pool, message, min(self.limits.total_s, _COUNT_LIMIT_S))
        said = answer.json if answer.status == 200 else None
        usage = usage_of(said.get("usage")) if isinstance(said, dict) else None
        tokens = usage.input_tokens if usage else None
        self.spent = self.spent.plus(tokens, usage.output_tokens if usage else None)
        return answer, tokens


def _known(asking: _Asking, seen: Seen, dialect: str, prompt_of_words: PromptOfWords | None) -> Preflight:
    """The first request was answered: learn what else there is to know."""
    evidence = Evidence(seen.finished.answer_headers, seen.models.rows if seen.models else ())
    calibration, uncounted = None, None
    if prompt_of_words is not None:
        evidence, calibration, uncounted = _calibrated(asking, evidence, prompt_of_words)
    limit_s = min(asking.limits.first_token_s, _PAGE_LIMIT_S)
    server = recognise(asking.pool, evidence, limit_s) if dialect == AUTO else server_of(evidence)
    settled = dialect != AUTO or asking.dialect != "openai"  # by the user, or by what the server refused
    spoken = asking.dialect if settled or server is None else server.dialect
    answered = Answered(
        seen,
        ASKED_TOKENS,
        spoken,
        asking.stream,
        server=server,
        sought=dialect == AUTO,
        uncounted=uncounted,
    )
    if answered.sought and DIALECTS[answered.dialect].force:
        answered = _forced(asking, answered)
    record, models = seen.record, seen.models
    ended_s, sent_s = record.ended_at_s, record.sent_at_s
    return Preflight(
        url=seen.target.url_told,
        refused=None,
        line=f"the first request to {seen.target.url_told} was answered",
        notices=notices_of(answered),
        models=models.names if models else None,
        server=server,
        dialect=answered.dialect,
        calibration=calibration,
        first_token_s=record.ttft_s,
        duration_s=ended_s - sent_s if ended_s is not None and sent_s is not None else None,
        spent=asking.spent,
    )


def _calibrated(
    asking: _Asking, evidence: Evidence, prompt_of_words: PromptOfWords
) -> tuple[Evidence, PromptCalibration | None, str | None]:
    """Have a prompt of each size counted. The answers are evidence too; without a calibration, why."""
    points: list[tuple[int, int]] = []
    for words in SIZES:
        answer, tokens = asking.counted(prompt_of_words(words))
        said = answer.json
        if answer.status != 200:
            status = f"HTTP {answer.status}" if answer.status else answer.why_not
            return evidence, None, f"a prompt of {words} words was not counted: {status}"
        if isinstance(said, dict):
            headers = {**evidence.headers, **answer.headers}
            evidence = replace(evidence, headers=headers, answers=(*evidence.answers, said))
        if tokens is None:
            return evidence, None, "the server does not count them"
        points.append((words, tokens))
    calibration = fit(points)
    told = ", ".join(f"{words} words as {tokens} tokens" for words, tokens in points)
    return evidence, calibration, None if calibration else f"the server counts {told}"


def _forced(asking: _Asking, answered: Answered) -> Answered:
    """Try the dialect's way of forcing a length. A server that takes it is judged by that answer; one that
    does not is spoken to as "openai"."""
    asking.dialect = answered.dialect
    finished = asking.completion()
    record = finished.record
    if record.outcome == "succeeded" or (record.failure_class == "empty_answer" and record.finish_reason):
        return replace(answered, seen=replace(answered.seen, finished=finished))
    why = f"HTTP {record.status}" if record.status not in (None, 200) else record.failure_class
    return replace(
        answered, dialect="openai", force_refused=f"{why}: {record.error}" if record.error else why
    )


def _opens_by_other_scheme(target: Target, limit_s: float) -> bool:
    """Does the target's port take a TLS handshake where the address has none, or a bare connection where the
    address asks for TLS? Nothing is sent over it: above all no key in the clear."""
    name = f"[{target.host}]" if ":" in target.host else target.host
    other = Target(f"{'http' if target.tls else 'https'}://{name}:{target.port}", target.model)
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname = False
    anyone.verify_mode = ssl.CERT_NONE
    try:
        ConnectionPool(other, tls_context=anyone).open(limit_s).close()
    except ConnectError:
        return False
    return True
