"""A raw server for tests of the wire: sends given bytes at given times, and keeps what it received.

An answer is a list of steps: bytes are sent, a number is a pause in seconds, and the words below act on the
connection. Without a last word the connection waits for its next request. Threads and stdlib sockets only.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

CLOSE = "close"
RESET = "reset"
HOLD = "hold"
Step = bytes | float | int | str
Script = Callable[[int, int], Sequence[Step]]

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def plain_answer(
    body: bytes, status: str = "200 OK", kind: str = "application/json", head: str = ""
) -> bytes:
    """A whole answer with a length; `head` adds header lines, each ending in CRLF."""
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{head}\r\n".encode()
        + body
    )


@dataclass(frozen=True)
class Received:
    """A request as it came: which connection (from 0), its head and its body."""

    connection: int
    head: bytes
    body: bytes


class ByteServer:
    """Use as a context manager. `script`: one answer for all, or a function of (connection, its request)."""

    def __init__(
        self,
        script: Script | Sequence[Step],
        tls: ssl.SSLContext | None = None,
        idle_limit_s: float | None = None,
    ) -> None:
        self._script: Script = script if callable(script) else lambda connection, request: script
        self._tls = tls
        self._idle_limit_s = idle_limit_s
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.received: list[Received] = []
        self.connections = 0
        self.left: list[int] = []
        """Connections that the client closed while an answer was on its way or awaited."""

    def __enter__(self) -> ByteServer:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        with self._lock:
            self._stopped.set()
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            for sock in self._open:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
        for thread in self._threads:
            thread.join(10)

    def accepted(self, count: int) -> int:
        """The number of connections so far, once `count` have been accepted or 5 s have passed."""
        with self._changed:
            self._changed.wait_for(lambda: self.connections >= count, 5)
        return self.connections

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._stopped.is_set():
                    sock.close()
                    return
                self._open.add(sock)
                number = self.connections
                self.connections += 1
                self._changed.notify_all()
            self._start(self._serve, sock, number)

    def _serve(self, raw: socket.socket, number: int) -> None:
        sock = raw
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                with self._lock:
                    self._open.discard(raw)
                    sock = self._tls.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
                    self._open.add(sock)
                sock.do_handshake()
            for request in range(10_000):
                received = self._read_request(sock, number)
                if received is None:
                    return
                self.received.append(received)
                for step in self._script(number, request):
                    if not self._play(sock, step, number):
                        return
        except OSError:
            self.left.append(number)
        finally:
            with self._lock:
                self._open.discard(sock)
                sock.close()

    def _play(self, sock: socket.socket, step: Step, number: int) -> bool:
        if isinstance(step, bytes):
            sock.sendall(step)
        elif isinstance(step, float | int):
            self._stopped.wait(step)
        elif step == HOLD:
            sock.settimeout(None)
            if sock.recv(1) == b"" and not self._stopped.is_set():
                self.left.append(number)
            return False
        else:
            if step == RESET:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        return True

    def _read_request(self, sock: socket.socket, number: int) -> Received | None:
        sock.settimeout(self._idle_limit_s)
        data = b""
        while b"\r\n\r\n" not in data:
            try:
                piece = sock.recv(65536)
            except TimeoutError:
                return None
            if not piece:
                return None
            data += piece
        sock.settimeout(None)
        head, _, body = data.partition(b"\r\n\r\n")
        lines = [line.lower() for line in head.split(b"\r\n")]
        lengths = (int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
        length = next(lengths, 0)
        while len(body) < length:
            piece = sock.recv(65536)
            if not piece:
                return None
            body += piece
        return Received(number, head, body)
