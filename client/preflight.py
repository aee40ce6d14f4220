"""One small real request before any load: may the load begin, and if not, what is wrong and what to do?

    preflight(Target("http://127.0.0.1:8000", model="my-llm")).line

A health check or a list of models says little: servers lack either and gateways make them up. So a streamed
completion of a few tokens decides, sent as the load will send its own. The list of models is asked for
afterwards, for names to propose; a server without one loses nothing but a notice.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace

from client.clock import monotonic_ns
from client.completion import Request, complete
from client.endpoints import request_body
from client.model_list import models_served
from client.notices import Answered, notices_of
from client.reader import ConnectionPool
from client.refusals import refusal_of
from client.seen import Seen
from client.target import Limits, Target
from client.whereabouts import in_container
from client.wire import ConnectError

ASKED_TOKENS = 8
"""Longest answer asked for: enough to see a stream, too little to cost anything."""

_PROMPT = "Count from one to one hundred in words."
_HINTS_AT_OTHER_SCHEME = {
    True: frozenset({"connect_timeout", "connection_lost"}),
    False: frozenset({"malformed_response", "connection_lost"}),
}
_LENGTHS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens"})
_MODELS_LIMIT_S = 5.0


@dataclass(frozen=True)
class Preflight:
    """What came of the first request. `refused` is None when the load may begin, else a kind of
    refusals.REFUSALS, and `line` says what is wrong and the remedy.

    `url` is the address called, as it may be printed; `models` those the server lists, None without a list;
    `server` the kind of server where it gives itself away; `first_token_s` the TTFT and `duration_s` the time
    from sending to the end, both of an idle server at best.
    """

    url: str
    refused: str | None
    line: str
    notices: tuple[str, ...] = ()
    models: tuple[str, ...] | None = None
    server: str | None = None
    first_token_s: float | None = None
    duration_s: float | None = None


def preflight(
    target: Target,
    *,
    limits: Limits | None = None,
    dialect: str = "openai",
    stream: bool = True,
    extra: Mapping[str, object] | None = None,
    key_variables: tuple[str, ...] = (),
    tls_context: ssl.SSLContext | None = None,
) -> Preflight:
    """Send one completion of ASKED_TOKENS tokens, and after it one GET of the list of models; judge both.

    `dialect`, `stream` and `extra` are those of the load (see endpoints.request_body; lengths in `extra` are
    left out); `key_variables` names the environment variables that the remedy for a missing key shall tell.
    Blocks this greenlet, at the longest for the limits. Raises nothing for what the server does.
    """
    limits = limits or Limits()
    fields = {name: value for name, value in (extra or {}).items() if name not in _LENGTHS}
    pool = ConnectionPool(target, connect_limit_s=limits.connect_s, tls_context=tls_context)
    body = request_body(
        target.endpoint, target.model, _PROMPT, ASKED_TOKENS, stream=stream, dialect=dialect, extra=fields
    )
    request = Request(
        body=body,
        request_id=f"preflight-{secrets.token_hex(6)}",
        name="preflight",
        asked_output_tokens=ASKED_TOKENS,
        stream=stream,
    )
    try:
        finished = complete(pool, request, start_ns=monotonic_ns(), limits=limits)
        seen = Seen(target, limits, finished, key_variables=key_variables, inside_container=in_container())
        if seen.status in (200, 400, 404, 422):
            seen = replace(seen, models=models_served(pool, min(limits.first_token_s, _MODELS_LIMIT_S)))
        elif seen.failed in _HINTS_AT_OTHER_SCHEME[target.tls]:
            seen = replace(seen, other_scheme_opens=_opens_by_other_scheme(target, limits.connect_s))
    finally:
        pool.close()
    return _judged(seen, dialect, stream)


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


def _judged(seen: Seen, dialect: str, stream: bool) -> Preflight:
    record, models, refusal = seen.record, seen.models, refusal_of(seen)
    ended_s, sent_s = record.ended_at_s, record.sent_at_s
    facts = seen.facts()
    answered = Answered(seen, ASKED_TOKENS, dialect, stream)
    return Preflight(
        url=seen.target.url_told,
        refused=refusal.kind if refusal else None,
        line=refusal.line(facts) if refusal else f"the first request to {seen.target.url_told} was answered",
        notices=() if refusal else notices_of(answered),
        models=models.names if models else None,
        server=answered.server,
        first_token_s=record.ttft_s,
        duration_s=ended_s - sent_s if ended_s is not None and sent_s is not None else None,
    )
