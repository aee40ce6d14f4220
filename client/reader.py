"""The socket side of an answer: connections kept and opened ahead, and one exchange after the other on each.

Reading happens in a callback of gevent's hub: receive, take the kernel's stamp, feed the framing parser
(llhttp), hand on the pieces. No greenlet is switched to until the answer has ended, which is what makes a
chunk cheap. All of it belongs to the thread (and hub) that opens the connections.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import gevent
import gevent.lock
import gevent.pool
import gevent.socket
import httptools

from client.clock import monotonic_ns
from client.deadlines import Deadlines
from client.framing import NOWHERE, Framing, Sink
from client.readiness import Readiness
from client.target import Target
from client.wire import Address, ConnectError, Wire, connect_error, keep_stamping, open_wire

Ending = Literal["complete", "closed", "reset", "not_http", "failed"]
"""How an answer's bytes ended: whole; by the peer's close or reset before that; no HTTP; an error of our
own."""

KEEP_ALIVE_S = 4.0
"""How long an idle connection is kept: below the 5 s after which common servers close theirs. A server that
says a shorter time (`Keep-Alive: timeout=N`) is believed: four fifths of it."""

_OPEN_AT_ONCE = 100
_JUST_READ_NS = 3_000_000
"""So soon after an answer's end nobody looks whether the peer has closed: a resend would heal that."""


class Connection:
    """One connection, and the exchange that is under way on it."""

    def __init__(self, wire: Wire, connect_s: float, readiness: Readiness) -> None:
        self.wire = wire
        self.connect_s = connect_s
        self.idle_since_ns = monotonic_ns()
        self.first_byte_ns: int | None = None
        self.reusable = True
        self.kept_s: int | None = None
        self._readiness = readiness
        self._watched = False
        self._writable: Any = None
        self._unsent: bytes | memoryview = b""
        self._framing = Framing(wire)
        self._on_end: Callable[[Ending, str], None] | None = None

    def send(self, message: bytes) -> int:
        """Send; what the socket does not take at once follows by itself. Returns the monotonic moment
        just before the first byte. A broken connection is not told here: reading finds out. Raises
        ssl.SSLError."""
        self._unsent = self.wire.sealed(message)
        sent_ns = self.wire.stamp_ns = monotonic_ns()  # no answer comes before that
        self._send_more()
        if self._unsent:
            self._writable = gevent.get_hub().loop.io(self.wire.fileno(), 2)
            self._writable.start(self._send_more)
        return sent_ns

    def _send_more(self) -> None:
        try:
            taken = self.wire.send(self._unsent)
        except OSError:
            taken = len(self._unsent)
        self._unsent = memoryview(self._unsent)[taken:] if taken < len(self._unsent) else b""
        if not self._unsent:
            self._send_no_more()

    def _send_no_more(self) -> None:
        if self._writable is not None:
            self._writable.close()
            self._writable = None

    def read_answer(self, sink: Sink, on_end: Callable[[Ending, str], None]) -> None:
        """Begin to read one answer into `sink`; `on_end(ending, detail)` is called in the hub when it has
        ended."""
        self.first_byte_ns = None
        self._on_end = on_end
        self._framing.expect(sink)
        self._readiness.expecting += 1
        if not self._watched:
            self._watched = True
            self._readiness.add(self.wire.fileno(), self.read_now)

    def read_now(self) -> None:
        """Take what has come, if anything. Called by the hub, and before a time limit is pronounced."""
        if self._on_end is None:
            self._unwatch()  # bytes nobody asked for, or the peer's goodbye: `take` will see
            return
        framing, wire = self._framing, self.wire
        try:
            data = wire.receive()
        except OSError as error:
            self._end("reset", f"connection lost: {error.strerror or error}")
            return
        if data is None:
            return
        if not data:
            whole = framing.ends_by_closing
            self._end("complete" if whole else "closed", "closed before the end of the answer")
            return
        if self.first_byte_ns is None:
            self.first_byte_ns = wire.stamp_ns
        try:
            framing.parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            detail = f"reading the answer failed: {type(error.__context__).__name__}"
            self._end("complete" if framing.complete else "failed", detail)
        except httptools.HttpParserError as error:
            self._end("complete" if framing.complete else "not_http", f"not HTTP/1.1: {error}")
        except httptools.HttpParserUpgrade:
            self._end("not_http", "the server wants another protocol")
        else:
            if framing.complete:
                self._end("complete", "", framing.keep_alive)

    def _end(self, ending: Ending, detail: str, reusable: bool = False) -> None:
        self.reusable = reusable and not self._unsent
        self.kept_s = self._framing.kept_s
        on_end = self._on_end
        self.stop()
        if on_end is not None:
            on_end(ending, detail)

    def stop(self) -> None:
        """Leave the exchange; lets go of all that belonged to it."""
        if self._on_end is not None:
            self._readiness.expecting -= 1
            self._on_end = None
        self._send_no_more()
        self._framing.expect(NOWHERE)

    def close(self) -> None:
        self.stop()
        self._unwatch()
        self.wire.close()

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._readiness.remove(self.wire.fileno())


class ConnectionPool:
    """Connections to one target: as many as are needed, its name resolved once, idle ones kept for
    `keep_alive_s`.

    `connections="fresh"` opens one for each request and keeps none, as users who come only once do.
    `in_flight` and `opened` count requests and connections; `deadlines` are those of its requests, and
    `readiness` tells when they are answered.
    `tls_context` replaces the default one, which checks certificates.
    """

    def __init__(
        self,
        target: Target,
        *,
        connections: Literal["reuse", "fresh"] = "reuse",
        connect_limit_s: float = 5.0,
        keep_alive_s: float = KEEP_ALIVE_S,
        tls_context: ssl.SSLContext | None = None,
    ) -> None:
        keep_stamping()
        self.target = target
        self.head = target.head()
        self.deadlines = Deadlines()
        self.readiness = Readiness()
        self.in_flight = 0
        self.opened = 0
        self._keeps = connections == "reuse"
        self._connect_limit_s = connect_limit_s
        self._keep_alive_ns = round(keep_alive_s * 1e9)
        self._context = (tls_context or ssl.create_default_context()) if target.tls else None
        self._addresses: list[Address] = []
        self._resolving = gevent.lock.BoundedSemaphore()
        self._idle: deque[Connection] = deque()

    def take(self) -> Connection | None:
        """An idle connection that still looks open; None when there is none. It is the one that has waited
        longest: so all of them stay in use, and none is closed for its age only to be opened again."""
        self._drop_expired()
        read_from_ns = monotonic_ns() - _JUST_READ_NS
        while self._idle:
            connection = self._idle.popleft()
            if connection.idle_since_ns > read_from_ns or connection.wire.is_quiet():
                return connection
            connection.close()
        return None

    def open(self, limit_s: float | None = None) -> Connection:
        """A new connection within `limit_s` (the pool's own limit if None). Blocks this greenlet.

        Raises ConnectError.
        """
        began_ns = monotonic_ns()
        limit_s = self._connect_limit_s if limit_s is None else limit_s
        try:
            wire = self._open_wire(began_ns + round(limit_s * 1e9))
        except (OSError, ValueError) as error:
            raise connect_error(error) from error
        self.opened += 1
        return Connection(wire, (monotonic_ns() - began_ns) / 1e9, self.readiness)

    def _open_wire(self, deadline_ns: int) -> Wire:
        with self._resolving:
            if not self._addresses:
                self._addresses = _resolve(self.target.host, self.target.port)
        first_error: OSError | None = None
        for address in tuple(self._addresses):
            try:
                wire = open_wire(address, deadline_ns, self._context, self.target.host)
            except OSError as error:
                first_error = first_error or error
            else:
                if address != self._addresses[0]:
                    self._addresses.remove(address)
                    self._addresses.insert(0, address)
                return wire
        assert first_error is not None
        raise first_error

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose answer has been read whole, or close it."""
        if not (self._keeps and connection.reusable):
            connection.close()
            return
        if connection.kept_s is not None:
            self._keep_alive_ns = min(self._keep_alive_ns, connection.kept_s * 800_000_000)
        connection.idle_since_ns = monotonic_ns()
        self._idle.append(connection)
        self._drop_expired()

    def open_ahead(self, count: int) -> int:
        """Open connections until there are `count`, those in use included and the idle ones good for another
        half of `keep_alive_s`; returns how many idle ones are. Blocks this greenlet.

        A new one takes the place of one that has been idle for longer, so that there are never more than
        were asked for.
        Connections that cannot be opened are left to the requests that need them, which then tell why. With
        fresh connections nothing is opened ahead.
        """
        if not self._keeps:
            return 0
        openers = gevent.pool.Pool(_OPEN_AT_ONCE)
        for _ in range(count - self.in_flight - self._lasting()):
            openers.spawn(self._open_one_ahead)
        openers.join()
        return self._lasting()

    def _lasting(self) -> int:
        oldest_ns = self._lasting_from_ns()
        return sum(connection.idle_since_ns >= oldest_ns for connection in self._idle)

    def _lasting_from_ns(self) -> int:
        return monotonic_ns() - self._keep_alive_ns // 2

    def _open_one_ahead(self) -> None:
        try:
            connection = self.open()
        except ConnectError:
            return
        if self._idle and self._idle[0].idle_since_ns < self._lasting_from_ns():
            self._idle.popleft().close()
        self.give_back(connection)

    def _drop_expired(self) -> None:
        oldest_ns = monotonic_ns() - self._keep_alive_ns
        while self._idle and self._idle[0].idle_since_ns < oldest_ns:
            self._idle.popleft().close()

    def close(self) -> None:
        """Close the idle connections; those in use are closed by their requests."""
        while self._idle:
            self._idle.pop().close()


def _resolve(host: str, port: int) -> list[Address]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = gevent.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, where) for family, _, _, _, where in found]
