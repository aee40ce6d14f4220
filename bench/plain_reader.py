"""The least that reads streams: so many connections kept busy, every event counted, nothing parsed.

One thread on one epoll. A request follows on the end of the answer before it, on the same connection. It is
told by the last bytes of the last HTTP chunk; events by their blank lines.
"""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson

_LAST_CHUNK = b"0\r\n\r\n"
_READ_BYTES = 65_536


@dataclass(slots=True, eq=False)
class _Stream:
    """One connection, the request that it sends again and again, and the end of what it read."""

    socket: socket.socket
    request: bytes
    tail: bytes = b""


class Reader:
    """Streams of one or several servers, read by one loop. Close it; it is a context manager.

    events: seen so far; answers: read to their end. Raises ConnectionError where a server closes a stream.
    """

    def __init__(self) -> None:
        self.events = 0
        self.answers = 0
        self._epoll = select.epoll()
        self._streams: dict[int, _Stream] = {}

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *raised: object) -> None:
        for stream in self._streams.values():
            stream.socket.close()
        self._epoll.close()

    def open(self, url: str, model: str, tokens: int, first_tokens: int) -> None:
        """One more stream: answers of `tokens` tokens, but the first, of `first_tokens`."""
        address = urlsplit(url)
        connection = socket.create_connection((address.hostname or "", address.port or 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._streams[connection.fileno()] = _Stream(connection, _request(address.netloc, model, tokens))
        self._epoll.register(connection, select.EPOLLIN)
        connection.sendall(_request(address.netloc, model, first_tokens))

    def read_until(self, until_s: float) -> None:
        """Read until a moment of the monotonic clock."""
        poll, streams = self._epoll.poll, self._streams
        while (left_s := until_s - time.monotonic()) > 0:
            for descriptor, _ in poll(left_s):
                stream = streams[descriptor]
                read = stream.socket.recv(_READ_BYTES)
                if not read:
                    raise ConnectionError("a server closed a stream")
                self.events += read.count(b"\n\n")
                stream.tail = (stream.tail + read)[-len(_LAST_CHUNK) :]
                if stream.tail == _LAST_CHUNK:
                    self.answers += 1
                    stream.tail = b""
                    stream.socket.sendall(stream.request)


def _request(host: str, model: str, tokens: int) -> bytes:
    body = orjson.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": "How long is a short prompt?"}],
            "max_tokens": tokens,
            "stream": True,
        }
    )
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
