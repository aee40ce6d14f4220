"""One completion from request to record: armed ahead, fired at its moment, awaited, judged.

    arm(pool, request, ...)   everything that can be done early: the bytes are ready
      .fire()                 sends at once on an idle connection, else opens one first; never blocks
      .wait()                 blocks this greenlet until the answer has ended; gives a Finished, never raises
      .cancel(reason)         from anywhere: the run has had enough

`complete()` is the three in one. Failures are told in the record, not raised. Nothing is retried, but for one
resend that `attempts` tells of: on a kept connection that turned out closed before any byte of the answer. In
the record `connection` is "reused" when it was open before the request needed it, opened ahead or kept;
`connect_s` is there for a "new" one. `sent_at_s` is the first send, or the moment of trying if none was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

import gevent
import gevent.event

from client.clock import monotonic_ns
from client.deadlines import Deadline
from client.endpoints import ENDPOINTS
from client.finished import Finished, Sending, finished
from client.judgement import Cut, Judgement, Verdict
from client.reader import Connection, ConnectionPool, Ending
from client.target import Limits, Request, Target
from client.wire import ConnectError, Wire

__all__ = ["Completion", "Finished", "Limits", "Request", "Target", "arm", "complete"]

CancelReason = Literal["drain_limit", "run_stopped"]

END_GRACE_S = 1.0
"""How long the body's end may lag behind `[DONE]`; then the answer counts as ended and the connection is
closed."""

_SAID: dict[CancelReason, str] = {
    "drain_limit": "still in flight at the drain limit",
    "run_stopped": "the run was stopped",
}
_OUT_OF_TIME: dict[str, Callable[[Limits], Cut]] = {
    "no_first_token": lambda limits: Cut("no_first_token", f"no output within {limits.first_token_s:g} s"),
    "stall": lambda limits: Cut("stall", f"no output for {limits.stall_s:g} s"),
    "total_timeout": lambda limits: Cut("total_timeout", f"no end within {limits.total_s:g} s"),
    "no_end": lambda _: Cut("total_timeout", "no end of the body after the end mark"),
}
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,200}")


def arm(
    pool: ConnectionPool,
    request: Request,
    *,
    start_ns: int,
    limits: Limits | None = None,
    in_flight_at_send: int | None = None,
) -> Completion:
    """Make a request ready to fire. `start_ns` is the run's start moment, from which the record's times
    count.

    `in_flight_at_send` defaults to the pool's own count of requests in flight, this one included. Raises
    ValueError for a request_id that cannot stand in a header.
    """
    return Completion(pool, request, start_ns, limits or Limits(), in_flight_at_send)


def complete(
    pool: ConnectionPool,
    request: Request,
    *,
    start_ns: int,
    limits: Limits | None = None,
    in_flight_at_send: int | None = None,
) -> Finished:
    """Send a request now and wait for its end; see `arm`."""
    completion = arm(pool, request, start_ns=start_ns, limits=limits, in_flight_at_send=in_flight_at_send)
    completion.fire()
    return completion.wait()


def _message(pool: ConnectionPool, request: Request) -> bytes:
    head = f"X-Request-Id: {request.request_id}\r\nContent-Length: {len(request.body)}\r\n\r\n"
    return b"".join((pool.head, head.encode("ascii"), request.body))


class Completion:
    """A request on its way; made by `arm`. `finished` is None until it has ended.

    `message` is what goes over the wire where another has made it (client.sdk), or why there is nothing to
    send: then firing ends it.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        request: Request,
        start_ns: int,
        limits: Limits,
        in_flight_at_send: int | None,
        message: bytes | Cut | None = None,
    ) -> None:
        if not _REQUEST_ID.fullmatch(request.request_id):
            raise ValueError("request_id must be 1 to 200 visible ASCII characters")
        self.request = request
        self.finished: Finished | None = None
        self._pool = pool
        self._limits = limits
        self._message = _message(pool, request) if message is None else message
        self._sending = Sending(start_ns, in_flight_at_send, stamp=Wire.stamps)
        self._judgement = Judgement(self._on_end_mark, ENDPOINTS[pool.target.endpoint].meaning_of)
        self._ended = gevent.event.Event()
        self._opening: gevent.Greenlet[[], None] | None = None
        self._connection: Connection | None = None
        self._deadline: Deadline | None = None
        self._grace_until_ns: int | None = None

    def fire(self) -> None:
        """Send now, or as soon as a new connection is open. Returns at once; does nothing when cancelled
        before."""
        sending = self._sending
        if sending.attempts or self.finished is not None:
            return
        sending.attempts = 1
        self._pool.in_flight += 1
        if sending.in_flight is None:
            sending.in_flight = self._pool.in_flight
        if isinstance(self._message, Cut):
            sending.sent_ns = monotonic_ns()
            self._finish(self._message, sending.sent_ns)
            return
        connection = self._pool.take()
        if connection is not None:
            sending.connection = "reused"
            self._send(connection)
        else:
            sending.sent_ns = monotonic_ns()
            self._opening = gevent.spawn(self._open_and_send)

    def wait(self) -> Finished:
        """Block this greenlet until the answer has ended. A greenlet that is killed here cancels its
        request."""
        try:
            self._ended.wait()
        except BaseException:
            self.cancel("run_stopped")
            raise
        assert self.finished is not None
        return self.finished

    def cancel(self, reason: CancelReason) -> None:
        """End the request now, if it has not ended: the connection is closed, what came is kept in the
        record."""
        self._finish(Cut(reason, _SAID[reason]), monotonic_ns())

    @property
    def head(self) -> tuple[int | None, Mapping[str, str]]:
        """The answer's status (None before it came) and headers, by lower-case name."""
        return self._judgement.status, self._judgement.headers

    # --- sending ---

    def _open_and_send(self) -> None:
        try:
            connection = self._pool.open(self._limits.connect_s)
        except ConnectError as error:
            self._finish(Cut(error.failure_class, str(error)), monotonic_ns())
            return
        if self.finished is not None:
            connection.close()
            return
        self._sending.connection = "new"
        self._sending.connect_s = connection.connect_s
        self._sending.tls_s = connection.wire.handshake_s
        self._send(connection)

    def _send(self, connection: Connection) -> None:
        assert isinstance(self._message, bytes)
        self._connection = connection
        try:
            sent_ns = connection.send(self._message)
        except OSError as error:
            self._on_end("reset", f"cannot send: {error.strerror or error}")
            return
        connection.read_answer(self._judgement, self._on_end)
        if self._sending.attempts == 1:
            self._sending.sent_ns = sent_ns
            self._set_deadline()

    def _on_end(self, ending: Ending, detail: str) -> None:
        connection = self._connection
        assert connection is not None
        cut: Cut | None = None
        if ending in ("closed", "reset"):
            if connection.first_byte_ns is not None:
                cut = Cut("connection_lost_mid_stream", detail)
            elif self._sending.connection == "reused":
                self._send_again(connection)
                return
            else:
                cut = Cut("connection_lost" if self._sending.attempts == 1 else "stale_connection", detail)
        elif ending != "complete":
            cut = Cut("malformed_response" if ending == "not_http" else "client_error", detail)
        self._finish(cut, connection.wire.stamp_ns)

    def _send_again(self, stale: Connection) -> None:
        stale.close()
        self._connection = None
        self._sending.attempts = 2
        self._opening = gevent.spawn(self._open_and_send)

    # --- time limits ---

    def _due(self) -> tuple[int, str]:
        """The next moment at which patience ends, and the row of _OUT_OF_TIME if it does."""
        if self._grace_until_ns is not None:
            return self._grace_until_ns, "no_end"
        sent_ns, limits, last_ns = self._sending.sent_ns or 0, self._limits, self._judgement.last_output_ns
        total = sent_ns + round(limits.total_s * 1e9), "total_timeout"
        if last_ns is not None:
            return min(total, (last_ns + round(limits.stall_s * 1e9), "stall"))
        if self.request.stream:
            return min(total, (sent_ns + round(limits.first_token_s * 1e9), "no_first_token"))
        return total

    def _set_deadline(self) -> None:
        """Look again when patience ends, or before: output that comes meanwhile may end it no sooner than a
        stall from now, and so need not move the deadline."""
        self._drop_deadline()
        look_ns = min(self._due()[0], monotonic_ns() + round(self._limits.stall_s * 1e9))
        self._deadline = self._pool.deadlines.set(look_ns, self._on_late)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._pool.deadlines.drop(self._deadline)
            self._deadline = None

    def _on_late(self) -> None:
        if self._connection is not None:
            self._connection.read_now()  # the answer may be here already, and we the late ones
        if self.finished is not None:
            return
        due_ns, late = self._due()
        if monotonic_ns() >= due_ns:
            self._finish(_OUT_OF_TIME[late](self._limits), monotonic_ns())
        else:
            self._set_deadline()

    def _on_end_mark(self) -> None:
        self._grace_until_ns = monotonic_ns() + round(END_GRACE_S * 1e9)
        gevent.get_hub().loop.run_callback(self._await_body_end)  # the body's end is mostly in the same piece

    def _await_body_end(self) -> None:
        if self.finished is None:
            self._set_deadline()

    # --- the end ---

    def _finish(self, cut: Cut | None, ended_ns: int) -> None:
        if self.finished is not None:
            return
        connection, self._connection = self._connection, None
        sending = self._sending
        if sending.attempts == 0 and cut is not None:
            verdict = Verdict("not_sent", cut.failure_class, cut.detail)
        else:
            self._pool.in_flight -= 1
            sending.ended_ns = ended_ns
            verdict = self._judgement.verdict(cut, ended_ns)
        if connection is not None:
            sending.first_byte_ns = connection.first_byte_ns
        self.finished = finished(self.request, self._pool.target, sending, self._judgement, verdict)
        self._drop_deadline()
        if connection is None:
            if self._opening is not None:
                self._opening.kill(block=False)
        elif cut is None:
            self._pool.give_back(connection)
        else:
            connection.close()
        self._ended.set()
