"""HTTP/1.1 answers out of received bytes (llhttp): heads, pieces of body, ends. No I/O."""

from __future__ import annotations

import re
from typing import Protocol

import httptools

from client.wire import Wire

_KEPT_BY_SERVER = re.compile(r"\btimeout\s*=\s*(\d{1,9})")


class Sink(Protocol):
    """What takes an answer in."""

    def begin(self, status: int, headers: dict[str, str]) -> None: ...

    def body(self, piece: bytes, stamp_ns: int, handled_ns: int) -> None: ...


class _Nowhere:
    """The sink of a connection that expects no answer."""

    def begin(self, status: int, headers: dict[str, str]) -> None: ...

    def body(self, piece: bytes, stamp_ns: int, handled_ns: int) -> None: ...


NOWHERE = _Nowhere()


class Framing:
    """llhttp's callbacks: the answers on one connection, one after the other, each into its sink."""

    __slots__ = ("_headers", "_sink", "_status", "_wire", "complete", "keep_alive", "parser")

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.parser = httptools.HttpResponseParser(self)
        self.expect(NOWHERE)

    def expect(self, sink: Sink) -> None:
        """The next answer goes into `sink`."""
        self._sink = sink
        self._headers: dict[str, str] = {}
        self._status: int | None = None
        self.complete = sink is NOWHERE
        self.keep_alive = False

    @property
    def ends_by_closing(self) -> bool:
        """The head is whole and gives the body no length: the connection's end is the answer's end."""
        return self._status is not None and not {"content-length", "transfer-encoding"} & self._headers.keys()

    @property
    def kept_s(self) -> int | None:
        """How long the server says that it keeps the connection when idle; None when it does not say."""
        said = _KEPT_BY_SERVER.search(self._headers.get("keep-alive", ""))
        return int(said[1]) if said else None

    def on_message_begin(self) -> None:
        if self.complete:
            raise httptools.HttpParserError("bytes after the end of the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        if status >= 200:
            self._status = status
            self._sink.begin(status, self._headers)

    def on_body(self, piece: bytes) -> None:
        self._sink.body(piece, self._wire.stamp_ns, self._wire.handled_ns)

    def on_message_complete(self) -> None:
        if self._status is None:
            self._headers = {}  # that was an interim answer (1xx): the real one follows
        else:
            self.complete = True
            self.keep_alive = self.parser.should_keep_alive()  # llhttp forgets it on return
