"""Why a first request is not good enough to start a load, and what to do: one table, first match wins.

A row says when it applies, what is wrong and the remedy, each in one line. A new mistake is a new row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from client.engines import SDK_SAYS
from client.seen import Seen
from client.server_errors import NO_MESSAGE
from client.whereabouts import is_loopback

_NO_SUCH_MODEL = re.compile(
    r"\bmodel\b.{0,120}(does not exist|not found|not exist|not available|not served|no such)"
    r"|(unknown|invalid|no such|unsupported) model|pinned to",
    re.IGNORECASE | re.DOTALL,
)
_NOT_TLS = re.compile(r"WRONG_VERSION_NUMBER|HTTP_REQUEST|UNKNOWN_PROTOCOL|PACKET_LENGTH|RECORD_LAYER")
_WANTS_TLS = re.compile(r"HTTPS? request (was )?sent to (an )?HTTPS|HTTPS (port|server)", re.IGNORECASE)
_LOADING = re.compile(r"\bloading\b|\bwarming up\b|not ready", re.IGNORECASE)
NO_COMPLETION_HERE = frozenset({404, 405, 501})
"""Statuses that a server gives where it has no such endpoint."""


@dataclass(frozen=True)
class Refusal:
    """One mistake: its kind, when it is the case, and its texts (fields in braces are Seen.facts)."""

    kind: str
    applies: Callable[[Seen], bool]
    wrong: str
    remedy: str

    def line(self, facts: Mapping[str, object]) -> str:
        """What is wrong and what to do, in one line."""
        return f"{self.wrong.format_map(facts)}. {self.remedy.format_map(facts)}"


def _failed(*classes: str) -> Callable[[Seen], bool]:
    return lambda seen: seen.failed in classes


def _answered(*statuses: int) -> Callable[[Seen], bool]:
    return lambda seen: seen.status in statuses


def _is_unknown_model(seen: Seen) -> bool:
    if not (seen.status in (400, 404, 422) or seen.failed == "error_body_with_200"):
        return False
    unlisted = seen.models is not None and seen.models.holds(seen.target.model) is False
    return _NO_SUCH_MODEL.search(seen.said) is not None or (seen.status == 404 and unlisted)


def _is_plain_under_https(seen: Seen) -> bool:
    says_so = seen.failed == "tls_failure" and _NOT_TLS.search(seen.said) is not None
    return seen.target.tls and (says_so or seen.other_scheme_opens)


def _is_tls_under_http(seen: Seen) -> bool:
    says_so = seen.status == 400 and _WANTS_TLS.search(seen.said) is not None
    return not seen.target.tls and (says_so or seen.other_scheme_opens)


_TABLE: tuple[Refusal, ...] = (
    Refusal(
        "localhost_in_container",
        lambda seen: seen.failed == "refused" and seen.inside_container and is_loopback(seen.target.host),
        "nothing listens at {place}",
        "Is the server running, and on this port? This is a container: {host} is the container itself."
        " Give the server's service name (http://SERVICE:{port}), or for a server on the host"
        " http://host.docker.internal:{port} (on Linux with extra_hosts: host.docker.internal:host-gateway),"
        " listening on more than loopback there",
    ),
    Refusal(
        "refused",
        _failed("refused"),
        "nothing listens at {place} (connection refused)",
        "Start the server, or correct host and port in --host",
    ),
    Refusal(
        "dns_failure",
        _failed("dns_failure"),
        "the name {host} is not known (DNS gives no address)",
        "Check its spelling in --host; in compose, use a service name of the same network",
    ),
    Refusal(
        "plain_http_under_https",
        _is_plain_under_https,
        "{place} takes connections but does not speak TLS",
        "Use http:// instead of https:// in --host, or the server's TLS port",
    ),
    Refusal(
        "tls_under_http",
        _is_tls_under_http,
        "{place} speaks TLS, and --host says plain http",
        "Use https:// in --host",
    ),
    Refusal(
        "certificate",
        lambda seen: seen.failed == "tls_failure" and "CERTIFICATE" in seen.said,
        "the certificate of {place} is not trusted{said}",
        "Use the name that it was made for, or name your own authority's file in SSL_CERT_FILE here and on"
        " every worker",
    ),
    Refusal(
        "tls_failure",
        _failed("tls_failure"),
        "no TLS with {place}{said}",
        "Check the server's certificate and TLS version, or use http:// if it is a plain port",
    ),
    Refusal(
        "connect_timeout",
        _failed("connect_timeout"),
        "{place} does not take the connection within {connect_s:g} s",
        "Check host and port in --host, and firewalls on the way",
    ),
    Refusal(
        "unreachable",
        _failed("unreachable"),
        "there is no way from here to {place}",
        "Check the address in --host and this machine's network",
    ),
    Refusal(
        "sdk_refuses",
        lambda seen: seen.failed == "client_error" and seen.said.startswith(SDK_SAYS),
        "{said_alone}",
        "Correct --body or the user class's extra_body, or send with --engine direct",
    ),
    Refusal(
        "local_limit",
        _failed("out_of_ports", "out_of_files", "client_error"),
        "this machine cannot send even one request{said}",
        "Free ports and files here (ulimit -n), then try again",
    ),
    Refusal(
        "key_missing",
        lambda seen: seen.status in (401, 403) and not seen.has_key,
        "{url} asks for an API key (HTTP {status}) and none is set",
        "Set {key_from} in the environment here and on every worker",
    ),
    Refusal(
        "key_wrong",
        _answered(401, 403),
        "{url} does not accept the API key (HTTP {status}{said})",
        "Correct {key_from} in the environment here and on every worker, or ask for a model that it may use",
    ),
    Refusal(
        "redirect",
        lambda seen: 300 <= seen.status < 400,
        "{url} redirects to {location} (HTTP {status})",
        "Give the final address as --host: redirects are not followed, they would be timed",
    ),
    Refusal(
        "model_not_served",
        _is_unknown_model,
        "the model {model!r} is not served at {url} (HTTP {status}{said})",
        "Ask with --model for one that is: {served}",
    ),
    Refusal(
        "loading",
        lambda seen: seen.status in (500, 502, 503) and _LOADING.search(seen.said) is not None,
        "the server is still loading the model (HTTP {status}{said})",
        "Wait until it answers, then start again",
    ),
    Refusal(
        "busy",
        lambda seen: seen.record.outcome == "rejected" or seen.status == 408,
        "the server turns away even a single request (HTTP {status}{said}{wait})",
        "Wait until it is idle, or raise its rate or queue limit: more load would measure that limit only",
    ),
    Refusal(
        "other_endpoint",
        lambda seen: seen.status in NO_COMPLETION_HERE and bool(seen.other_endpoints),
        "the server has no {endpoint} endpoint ({url}: HTTP {status}{said})",
        "Use one that it has: {other_endpoints}",
    ),
    Refusal(
        "no_endpoint",
        lambda seen: seen.status in NO_COMPLETION_HERE,
        "there is no {endpoint} endpoint at {url} (HTTP {status}{said})",
        "Correct the path in --host: the address up to /v1, as the server's documentation gives it; or choose"
        " another --endpoint",
    ),
    Refusal(
        "backend_down",
        _answered(502, 504),
        "a gateway answers at {place}, the server behind it does not (HTTP {status}{said})",
        "Start the server behind the gateway, or correct the gateway's route to it",
    ),
    Refusal(
        "server_error",
        lambda seen: seen.status >= 500,
        "the server failed on a plain request (HTTP {status}{said})",
        "Its own log tells more; mend that first",
    ),
    Refusal(
        "request_refused",
        lambda seen: seen.status >= 400,
        "the server refuses the request itself (HTTP {status}{said})",
        "Check --model, --body and --dialect: the latter two add fields that some servers refuse",
    ),
    Refusal(
        "no_first_token",
        _failed("no_first_token"),
        "no token within {first_token_s:g} s from {url}, for a single small request",
        "See whether the server is loading, stuck or busy; raise --first-token-limit if it is that slow",
    ),
    Refusal(
        "too_slow",
        _failed("stall", "total_timeout"),
        "a single small answer did not come to its end{said}",
        "See whether the server is stuck or busy; raise --stall-limit or --total-limit if it is that slow",
    ),
    Refusal(
        "not_http",
        _failed("malformed_response"),
        "what listens at {place} does not speak HTTP/1.1",
        "Check the port in --host: it may belong to another service (gRPC, HTTP/2 only, a database)",
    ),
    Refusal(
        "not_a_completion_server",
        lambda seen: seen.failed == "error_body_with_200" and (seen.is_html or seen.said in ("", NO_MESSAGE)),
        "{url} answers, but not with a completion (HTTP 200, {content_type})",
        "Point --host at the API: this looks like a web page or another service",
    ),
    Refusal(
        "error_with_200",
        _failed("error_body_with_200"),
        "{url} answers HTTP 200 with something that is no completion{said}",
        "Check --host and --model; the server's own log may tell more",
    ),
    Refusal(
        "no_answer",
        _failed("connection_lost", "stale_connection"),
        "{place} closes the connection without an answer",
        "Check the port in --host and the server's log; a proxy in between may have closed it",
    ),
    Refusal(
        "no_output",
        _failed("empty_answer"),
        "{url} answers HTTP 200 without any output",
        "Check with curl that it generates text; its own log may tell more",
    ),
    Refusal(
        "broken_answer",
        lambda seen: seen.record.outcome != "succeeded",
        "the answer broke: {class}{said}",
        "See the server's log; a proxy in between may cut or rewrite streams",
    ),
)

REFUSALS: dict[str, Refusal] = {row.kind: row for row in _TABLE}


def refusal_of(seen: Seen) -> Refusal | None:
    """The first row that applies; None when the request succeeded.

    An answer whose few tokens brought nothing visible but a finish reason passes: a model may have spent them
    on hidden reasoning.
    """
    record = seen.record
    if record.outcome == "succeeded" or (seen.failed == "empty_answer" and record.finish_reason):
        return None
    return next(row for row in _TABLE if row.applies(seen))
