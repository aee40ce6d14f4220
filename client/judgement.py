"""One answer as it comes in, and what came of it. Pure: bytes and stamps in, times, counts and a verdict
out.

An answer with status 200 is a success when it held output (or the server counted tokens of it) and its end:
a finish reason for every choice that came, or an end mark (`[DONE]`, a response's last event). Everything
else has a failure class of runlog.failures. Events without output (a role, an empty text, a usage, a comment)
set no time.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson

from client.inflate import CODINGS, Inflate
from client.meaning import Meaning, Usage, UsageTally, meaning_of
from client.server_errors import ServerError, error_of_body, is_rejection, retry_after_s
from client.sse import EventDecoder
from runlog.failures import FAILURE_CLASSES
from runlog.record import Outcome

_BODY_LIMIT = 16 * 1024 * 1024
_ERROR_BODY_LIMIT = 64 * 1024
_GIVEN_UP = frozenset({"abort", "aborted", "error"})
MeaningOf = Callable[[object, bool], Meaning | None]
"""A parsed event, and whether its name was "error", to what it means."""


@dataclass(slots=True)
class Verdict:
    """How a request ended: its outcome, the failure class unless it succeeded, and what the server said."""

    outcome: Outcome
    failure_class: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Cut:
    """Why an answer is not whole: a row of runlog.failures, and a text."""

    failure_class: str
    detail: str


class Judgement:
    """Takes one answer in (a reader.Sink) and judges it. Stamps are monotonic nanoseconds. `meaning_of` reads
    the endpoint's events (endpoints.ENDPOINTS).

    `first_lag_ns` and `last_lag_ns`: how long after its stamp the first and the last output was handled. TTFT
    and TPOT rest on those two receives.
    """

    def __init__(self, on_end_mark: Callable[[], None], meaning_of: MeaningOf = meaning_of) -> None:
        self._on_end_mark = on_end_mark
        self._meaning_of = meaning_of
        self._decoder = EventDecoder()
        self._tally = UsageTally()
        self._inflate: Inflate | None = None
        self._plain = bytearray()  # a body that is no event stream
        self._streams: bool | None = None
        self._body_seen = False
        self._unreadable = ""
        self.status: int | None = None
        self.headers: Mapping[str, str] = {}
        self.first_output_ns: int | None = None
        self.first_answer_ns: int | None = None
        self.last_output_ns: int | None = None
        self.first_lag_ns: int | None = None
        self.last_lag_ns: int | None = None
        self._handled_ns = 0
        self.output_events = 0
        self.output_receives = self.crowded_receives = 0
        self._receive_ns = -1
        self._crowded = False
        self.malformed_events = 0
        self._cut_events = 0  # those that began as JSON: output may have gone with them
        self.gaps_s = array("f")
        self.finish_reason: str | None = None
        self._over: set[int] = set()  # choices that have their finish reason
        self.end_mark = False
        self.error: ServerError | None = None

    # --- taking in ---

    def begin(self, status: int, headers: dict[str, str]) -> None:
        """The head has come; `headers` by lower-case name."""
        self.status = status
        self.headers = headers
        coding = headers.get("content-encoding", "identity").strip().lower()
        if coding in CODINGS:
            self._inflate = Inflate(coding)
        elif coding not in ("identity", ""):
            self._unreadable = f"content encoding {coding[:20]} was not asked for"
        if status != 200:
            self._streams = False

    def body(self, piece: bytes, stamp_ns: int, handled_ns: int) -> None:
        """A piece of the body, received at `stamp_ns` and handled at `handled_ns`."""
        self._handled_ns = handled_ns
        if self._inflate is not None:
            try:
                piece = self._inflate.decompress(piece)
            except zlib.error as error:
                self._unreadable = f"compressed answer cannot be read: {error}"
                self._inflate = None
        if self._unreadable:
            return
        if not self._streams:
            self._body_seen = self._body_seen or bool(piece)
            piece = self._sorted_in(piece)
            if not piece:
                return
        for data, name in self._decoder.feed(piece):
            self._take(data, name, stamp_ns)

    def _sorted_in(self, piece: bytes) -> bytes:
        """Until it is clear whether this is an event stream, and where it is not: keep the body as it is.
        Labels are not to be trusted: errors come labelled as event streams and streams as plain text."""
        limit = _BODY_LIMIT if self.status == 200 else _ERROR_BODY_LIMIT
        self._plain += piece[: max(limit - len(self._plain), 0)]
        if self._streams is None and (start := bytes(self._plain.lstrip()[:6])):
            labelled = "event-stream" in self.headers.get("content-type", "")
            self._streams = not start.startswith((b"{", b"[", b"<")) and (
                labelled or start.startswith((b"data:", b"event:", b":", b"id:", b"retry:"))
            )
            if self._streams:
                piece = bytes(self._plain)
                self._plain.clear()
                return piece
        return b""

    def _take(self, data: bytes, name: bytes, stamp_ns: int) -> None:
        if data == b"[DONE]":
            self._note_end()
            return
        try:
            meaning = self._meaning_of(orjson.loads(data), name == b"error")
        except orjson.JSONDecodeError:
            text = data.strip()
            if text == b"[DONE]":
                self._note_end()
            elif text:
                self.malformed_events += 1
                self._cut_events += text.startswith(b"{")
            return
        if meaning is None:
            self.malformed_events += 1
            return
        if meaning.answer or meaning.reasoning:
            self._note_output(meaning, stamp_ns)
        if meaning.finish_reason is not None or meaning.usage is not None or meaning.choice:
            self._tally.add(meaning)
            if meaning.finish_reason is not None:
                self._over.update(meaning.over)
                if self.finish_reason not in _GIVEN_UP:
                    self.finish_reason = meaning.finish_reason
        if meaning.error is not None and self.error is None:
            self.error = meaning.error
        if meaning.ends:
            self._note_end()

    def _note_end(self) -> None:
        if not self.end_mark:
            self.end_mark = True
            self._on_end_mark()

    def _note_output(self, meaning: Meaning, stamp_ns: int) -> None:
        self.output_events += 1
        handled_ns = self._handled_ns
        if handled_ns != self._receive_ns:
            self._receive_ns = handled_ns
            self._crowded = False
            self.output_receives += 1
        elif not self._crowded:
            self._crowded = True
            self.crowded_receives += 1
        if self.first_answer_ns is None and meaning.answer:
            self.first_answer_ns = stamp_ns
        last_ns = self.last_output_ns
        self.last_output_ns = stamp_ns
        self.last_lag_ns = handled_ns - stamp_ns
        if last_ns is None:
            self.first_output_ns = stamp_ns
            self.first_lag_ns = self.last_lag_ns
        else:
            self.gaps_s.append((stamp_ns - last_ns) / 1e9)

    # --- judging ---

    @property
    def token_lag_ns(self) -> int | None:
        """The longer of the two lags; None without output."""
        if self.first_lag_ns is None or self.last_lag_ns is None:
            return None
        return max(self.first_lag_ns, self.last_lag_ns)

    @property
    def complete(self) -> bool:
        """The answer has said that it is over, all of its choices, whatever the connection does
        afterwards."""
        return self.end_mark or len(self._over) >= self._tally.choices

    @property
    def streamed(self) -> bool | None:
        """Did it come as an event stream? None when there was no body to tell from."""
        return self._streams if self._body_seen and self.status == 200 else None

    @property
    def usage(self) -> Usage:
        """The server's own counts, as far as it gave any."""
        return self._tally.total() or Usage()

    @property
    def retry_after_s(self) -> float | None:
        return retry_after_s(self.headers)

    def verdict(self, cut: Cut | None, ended_ns: int) -> Verdict:
        """Judge what has come when the answer ended at `ended_ns`, by itself or by a `cut`. To be called
        once.

        What the server said goes before how the bytes ended, and an answer that had said it was over is
        whole.
        """
        if self._streams and cut is None:
            for data, name in self._decoder.end():
                self._take(data, name, ended_ns)
        if self.status not in (None, 200):
            return self._refused(self.status)
        if not self._streams and cut is None:
            self._take_whole(ended_ns)
        if self.error is not None:
            if self.output_events == 0 and is_rejection(200, self.error):
                return Verdict("rejected", "rejected_with_200", self.error.message)
            kind = "server_error_mid_stream" if self._streams else "error_body_with_200"
            return Verdict("failed", kind, self.error.message)
        if self._unreadable or self._decoder.invalid_utf8:
            return Verdict("failed", "malformed_stream", self._unreadable or "bytes that are not UTF-8")
        if self.finish_reason in _GIVEN_UP:
            return Verdict("failed", "aborted", f"finish_reason {self.finish_reason}")
        if cut is not None and not self.complete:
            ours = FAILURE_CLASSES[cut.failure_class].whose == "run"
            return Verdict("cancelled" if ours else "failed", cut.failure_class, cut.detail)
        return self._of_whole_answer()

    def _refused(self, status: int) -> Verdict:
        said = error_of_body(bytes(self._plain))
        outcome: Outcome = "rejected" if is_rejection(status, said) else "failed"
        return Verdict(outcome, f"http_{status}", said.message or f"HTTP status {status} without a text")

    def _of_whole_answer(self) -> Verdict:
        if not (self.output_events or self.usage.output_tokens):
            if self._plain.strip():
                return Verdict("failed", "error_body_with_200", error_of_body(bytes(self._plain)).message)
            if self.malformed_events:
                return Verdict("failed", "malformed_stream", "no event could be read")
            return Verdict("failed", "empty_answer", "status 200 without any output")
        if self._cut_events:
            return Verdict("failed", "malformed_stream", f"{self._cut_events} events of broken JSON")
        if self.finish_reason is None:
            if self.malformed_events:
                return Verdict("failed", "malformed_stream", "an unreadable event and no finish reason")
            if not self.end_mark:
                return Verdict("failed", "truncated_stream", "no finish reason and no end mark")
        elif self._streams and not self.complete:
            told = f"{len(self._over)} of {self._tally.choices} choices have a finish reason, and no end mark"
            return Verdict("failed", "truncated_stream", told)
        return Verdict("succeeded")

    def _take_whole(self, ended_ns: int) -> None:
        """A JSON answer in one piece: its output is there at the end, and no time to a first token is
        known."""
        try:
            meaning = self._meaning_of(orjson.loads(bytes(self._plain)), False)
        except orjson.JSONDecodeError:
            return
        if meaning is None:
            return
        self._tally.add(meaning)
        self.error = meaning.error
        self.finish_reason = meaning.finish_reason
        if meaning.has_choices:
            self._plain.clear()
        if meaning.answer or meaning.reasoning:
            self.output_events = 1
            self.last_output_ns = ended_ns
