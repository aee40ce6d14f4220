"""One open connection: TCP, with TLS over it where asked. Sends, and receives with the kernel's stamp.

The socket is the plain one of the standard library, never blocking, and waits are gevent's own: it behaves
the same in a process whose sockets are patched and in one whose are not. TLS runs over memory buffers, so
that the stamp is that of the encrypted segment.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import struct
import sys
from typing import Any

import gevent.socket
from gevent import monkey

from client.clock import kernel_offset_ns, monotonic_ns
from client.turns import Turns

_plain_socket: type[socket.socket] = monkey.get_original("socket", "socket")

_SO_TIMESTAMPNS = 35
_CAN_STAMP = sys.platform == "linux" and struct.calcsize("l") == 8
_STAMP = struct.Struct("@qq")
_RECEIVE_BYTES = 65536
_STEPPED_NS = 1_000_000
"""A stamp older than the one before by more than this cannot be true; by less it is the clocks' noise."""

Address = tuple[socket.AddressFamily, Any]
"""A family and what `connect` takes for it."""


class ConnectError(Exception):
    """No connection could be opened. The only error the client raises inside itself; `failure_class` is a
    row of runlog.failures. A request's own failures are never raised: they are told in its record."""

    def __init__(self, failure_class: str, message: str) -> None:
        super().__init__(message)
        self.failure_class = failure_class


_BY_ERRNO = {
    errno.ECONNREFUSED: "refused",
    errno.ETIMEDOUT: "connect_timeout",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
    errno.EADDRNOTAVAIL: "out_of_ports",
    errno.EMFILE: "out_of_files",
    errno.ENFILE: "out_of_files",
    errno.ECONNRESET: "connection_lost",
    errno.EPIPE: "connection_lost",
}


_handshakes = Turns()


def connect_error(error: OSError | ValueError) -> ConnectError:
    """The failure class of what the system said about connecting."""
    if isinstance(error, ssl.SSLError):
        why = " ".join(filter(None, (error.reason or str(error), getattr(error, "verify_message", ""))))
        return ConnectError("tls_failure", f"TLS handshake failed: {why}")
    if isinstance(error, socket.gaierror | UnicodeError):
        return ConnectError("dns_failure", f"name not resolved: {getattr(error, 'strerror', 'malformed')}")
    if isinstance(error, TimeoutError):
        return ConnectError("connect_timeout", "no connection within the connect limit")
    number = getattr(error, "errno", None) or 0
    said = os.strerror(number) if number else type(error).__name__
    return ConnectError(_BY_ERRNO.get(number, "client_error"), f"cannot connect: {said}")


class Wire:
    """A connection that is open. `stamp_ns` is the monotonic moment at which the last received bytes
    reached this machine, `handled_ns` the moment at which we saw them; without kernel stamps they are the
    same."""

    __slots__ = ("_incoming", "_outgoing", "_recv", "_sock", "_tls", "handled_ns", "handshake_s", "stamp_ns")

    stamps = "kernel" if _CAN_STAMP else "user"

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._recv = sock.recvmsg
        self._tls: ssl.SSLObject | None = None
        self.stamp_ns = self.handled_ns = 0
        self.handshake_s: float | None = None

    def fileno(self) -> int:
        return self._sock.fileno()

    def handshake(self, context: ssl.SSLContext, server_name: str, deadline_ns: int) -> None:
        """Put TLS over the connection. Raises OSError (ssl.SSLError, TimeoutError) when that fails."""
        began_ns = monotonic_ns()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        while True:
            try:
                with _handshakes:
                    tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._send_all(self._outgoing.read(), deadline_ns)
                _wait(gevent.socket.wait_read, self.fileno(), deadline_ns)
                data = self._sock.recv(_RECEIVE_BYTES)
                if not data:
                    raise ConnectionResetError(errno.ECONNRESET, "closed in the TLS handshake") from None
                self._incoming.write(data)
        self._send_all(self._outgoing.read(), deadline_ns)
        self._tls = tls
        self.handshake_s = (monotonic_ns() - began_ns) / 1e9

    def sealed(self, data: bytes) -> bytes:
        """What goes over the network for `data`: itself, or its TLS records."""
        if self._tls is None:
            return data
        self._tls.write(data)
        return self._outgoing.read()

    def send(self, sealed: bytes | memoryview) -> int:
        """Hand over what the socket takes at once; the number of bytes taken. Raises OSError."""
        try:
            return self._sock.send(sealed)
        except BlockingIOError:
            return 0

    def _send_all(self, sealed: bytes, deadline_ns: int) -> None:
        while sealed:
            sealed = sealed[self.send(sealed) :]
            if sealed:
                _wait(gevent.socket.wait_write, self.fileno(), deadline_ns)

    def receive(self) -> bytes | None:
        """What has come, b"" when the peer has closed, None when nothing is there (yet). Raises OSError."""
        try:
            data, ancillary, _, _ = self._recv(_RECEIVE_BYTES, 64)
        except BlockingIOError:
            return None
        except OSError:
            self.stamp_ns = self.handled_ns = monotonic_ns()
            raise
        now = monotonic_ns()
        stamp = now
        if ancillary and _CAN_STAMP:
            seconds, nanos = _STAMP.unpack(ancillary[0][2])
            stamp = seconds * 1_000_000_000 + nanos + kernel_offset_ns()
            if stamp < self.stamp_ns - _STEPPED_NS:
                stamp = now  # the wall clock was stepped since the kernel stamped
            stamp = min(max(stamp, self.stamp_ns), now)
        self.stamp_ns = stamp
        self.handled_ns = now
        return data if self._tls is None or not data else self._opened(self._tls, data)

    def _opened(self, tls: ssl.SSLObject, data: bytes) -> bytes | None:
        self._incoming.write(data)
        pieces = []
        try:
            while piece := tls.read(_RECEIVE_BYTES):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return b"".join(pieces) or None
        except ssl.SSLZeroReturnError:
            pass
        return b"".join(pieces)

    def is_quiet(self) -> bool:
        """True when nothing has come since the last answer: not the peer's goodbye, nor bytes nobody
        asked for."""
        try:
            data = self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return bool(data) and self._tls is not None

    def close(self) -> None:
        self._sock.close()


def keep_stamping() -> None:
    """Have the kernel stamp packets from now until this process ends.

    It stamps only while some socket of the machine asks for it, and takes up to some milliseconds to begin:
    without this the first answers on a machine's first connections would carry the moment of reading.
    """
    global _anchor
    if _CAN_STAMP and _anchor is None:
        anchor = _plain_socket(socket.AF_INET, socket.SOCK_DGRAM)
        anchor.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        _anchor = anchor.detach()


_anchor: int | None = None
"""The descriptor of an unbound socket that asks for stamps, kept open on purpose."""


def open_wire(address: Address, deadline_ns: int, context: ssl.SSLContext | None, server_name: str) -> Wire:
    """Connect; with a `context`, put TLS on. Blocks this greenlet until `deadline_ns` at most.

    Raises OSError as the system, TLS or the deadline (TimeoutError) has it.
    """
    family, where = address
    sock = _plain_socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _CAN_STAMP:
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        code = sock.connect_ex(where)
        if code == errno.EINPROGRESS:
            _wait(gevent.socket.wait_write, sock.fileno(), deadline_ns)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        wire = Wire(sock)
        if context is not None:
            wire.handshake(context, server_name, deadline_ns)
    except BaseException:
        sock.close()
        raise
    return wire


def _wait(ready: Any, descriptor: int, deadline_ns: int) -> None:
    left_s = (deadline_ns - monotonic_ns()) / 1e9
    if left_s <= 0:
        raise TimeoutError
    ready(descriptor, timeout=left_s, timeout_exc=TimeoutError())
