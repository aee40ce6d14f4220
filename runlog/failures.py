"""One table of failure classes: every way a request can end other than by succeeding.

The client names the class, the analysis groups by it. `whose` says whom the class speaks about: the server
under test, the network between, our own machine (those void a run above 0.1 %), or the run itself (its own
decision). HTTP errors are named `http_<status>` and looked up by `failure_class()`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Whose = Literal["server", "network", "client", "run"]


@dataclass(frozen=True)
class FailureClass:
    name: str
    whose: Whose
    meaning: str


_TABLE = (
    FailureClass("refused", "server", "nothing listens at the target's address"),
    FailureClass("connect_timeout", "network", "no TCP connection within the connect limit"),
    FailureClass("unreachable", "network", "no route to the target"),
    FailureClass("tls_failure", "network", "the TLS handshake failed"),
    FailureClass("connection_lost", "network", "the connection ended before any byte of the answer"),
    FailureClass(
        "stale_connection", "network", "a kept-alive connection turned out closed, and so did its resend"
    ),
    FailureClass("connection_lost_mid_stream", "network", "the connection ended in the middle of the answer"),
    FailureClass("malformed_response", "server", "what came is not HTTP/1.1"),
    FailureClass(
        "malformed_stream",
        "server",
        "the stream is not UTF-8, or an event of broken JSON stood where output or a finish reason belongs",
    ),
    FailureClass(
        "truncated_stream",
        "server",
        "the stream ended cleanly without an end mark and without a finish reason for each of its choices",
    ),
    FailureClass("empty_answer", "server", "status 200 with neither output nor counted tokens"),
    FailureClass(
        "error_body_with_200", "server", "status 200 whose body is an error or no completion at all"
    ),
    FailureClass(
        "server_error_mid_stream", "server", "an error event inside a stream that began with status 200"
    ),
    FailureClass("rejected_with_200", "server", "turned away for lack of room, in an answer with status 200"),
    FailureClass("aborted", "server", "the server gave up on the request (finish_reason abort or error)"),
    FailureClass("no_first_token", "server", "no output within the first-token limit"),
    FailureClass("stall", "server", "output began and then paused beyond the stall limit"),
    FailureClass("total_timeout", "server", "the answer took longer than the total limit"),
    FailureClass("dns_failure", "client", "the target's name could not be resolved"),
    FailureClass("out_of_ports", "client", "this machine has no free local port left"),
    FailureClass("out_of_files", "client", "this process may not open another file or socket (ulimit -n)"),
    FailureClass("client_error", "client", "an unexpected error in the load generator itself"),
    FailureClass("drain_limit", "run", "still in flight when the drain limit passed, cancelled by the run"),
    FailureClass("run_stopped", "run", "the run was stopped before this request was sent or had ended"),
    FailureClass("worker_lost", "client", "the worker that held this request was lost"),
    FailureClass("record_lost", "client", "what became of this request never reached the run folder"),
    FailureClass("sent_too_late", "client", "the worker could not send it within the run"),
)

FAILURE_CLASSES: dict[str, FailureClass] = {row.name: row for row in _TABLE}


def failure_class(name: str) -> FailureClass:
    """The table's row for `name`; `http_<status>` names are made on the fly.

    Raises KeyError for a name that is neither.
    """
    if name.startswith("http_") and name[5:].isdigit():
        return FailureClass(name, "server", f"the server answered with HTTP status {name[5:]}")
    return FAILURE_CLASSES[name]
