"""Bytes to events: the WHATWG event-stream format, incrementally and under any cut. No I/O.

Lines may end in LF, CR or CRLF, a byte order mark may come first, comments are skipped, several `data:`
lines make one event, the blank after a colon is optional. `id:` and `retry:` concern reconnecting, which a
load test never does: they are read over like unknown fields. Text stays bytes (UTF-8): most of it is never
looked at. Two things go beyond the standard: bytes that are not UTF-8 set `invalid_utf8` instead of being
replaced, and `end()` gives out an event whose closing blank line never came, as some servers end their last
one. https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

from __future__ import annotations

import re

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


Event = tuple[bytes, bytes]
"""One event: its data lines joined by LF, and its name."""

_UNNAMED = b"message"


class EventDecoder:
    """Feed it the body as it comes; it returns the events that each piece completed."""

    __slots__ = ("_after_cr", "_at_event_start", "_data", "_first_line", "_name", "_partial", "invalid_utf8")

    def __init__(self) -> None:
        self.invalid_utf8 = False
        self._partial = bytearray()
        self._data: list[bytes] = []
        self._name = b""
        self._after_cr = False
        self._first_line = True
        self._at_event_start = True

    def feed(self, piece: bytes) -> list[Event]:
        """The events that `piece` completes, in order."""
        if (
            self._at_event_start
            and piece.startswith(b"data: ")
            and piece.endswith(b"\n\n")
            and b"\r" not in piece
        ):
            line_ends = piece.count(b"\n")
            if line_ends == 2:  # one event, as nearly always
                self._first_line = False
                if not piece.isascii():
                    self._check(piece)
                return [(piece[6:-2], _UNNAMED)]
            events = piece[6:-2].split(b"\n\ndata: ")
            if line_ends == 2 * len(events):
                self._first_line = False
                self._check(piece)
                return [(data, _UNNAMED) for data in events]
        return self._feed_lines(piece)

    def end(self) -> list[Event]:
        """The stream has ended cleanly: the event that still stood open, if any."""
        events: list[Event] = []
        if self._partial:
            self._line(bytes(self._partial), events)
            self._partial.clear()
        self._line(b"", events)
        return events

    def _feed_lines(self, piece: bytes) -> list[Event]:
        events: list[Event] = []
        if self._after_cr and piece:
            self._after_cr = False
            piece = piece.removeprefix(b"\n")
        if b"\n" in piece or b"\r" in piece:
            *lines, rest = _LINE_END.split(bytes(self._partial) + piece)
            self._after_cr = piece.endswith(b"\r")
            for line in lines:
                self._line(line, events)
            self._partial = bytearray(rest)
        else:
            self._partial += piece
        self._at_event_start = not (self._partial or self._data or self._name or self._after_cr)
        return events

    def _line(self, line: bytes, events: list[Event]) -> None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            if self._data:
                events.append((b"\n".join(self._data), self._name or _UNNAMED))
                self._data = []
            self._name = b""
            return
        self._check(line)
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        elif field == b"event":
            self._name = value.removeprefix(b" ")

    def _check(self, text: bytes) -> None:
        if not text.isascii():
            try:
                text.decode("utf-8")
            except UnicodeDecodeError:
                self.invalid_utf8 = True
