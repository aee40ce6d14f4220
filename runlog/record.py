"""One request, from the moment it was due to the moment it ended: the row of requests.csv.

Times are seconds since the run's start moment (`_at_s`) or durations (`_s`). Unknown is None, never 0. A row
is written for every scheduled arrival, those never sent too, so that counts can be checked against the
schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Literal, get_args

Outcome = Literal["succeeded", "failed", "rejected", "cancelled", "not_sent"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

PROBE = "probe"
WARMUP = "warmup"
OUTSIDE_THE_LOAD = (PROBE, WARMUP)
"""Names of requests that are no part of the load: they have rows but count in no figure of it."""


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """What the client saw of one request. Nobody changes one; Python is not made to see to it, for then each
    would take six times as long to make (13 us instead of 2).

    `arrival` is the index into schedule.csv and the key that pairs two runs of one schedule. `connection` is
    "new" or "reused", `connect_s` how long a new one took to open and `tls_s` the handshake's part of that;
    `tokens_from` is "usage" (the server counted) or "events" (an estimate: output events
    counted); `stamp` says where receive times come from: "kernel" or "user". Chunk gaps are the times between
    events with output; `gap_offset` and `gap_count` locate them in gaps.f32. `output_receives` counts the
    receives that held output, `crowded_receives` those of them that held more than one such event and so gave
    all of them one stamp. `read_lag_s` is how long after its stamp the first or the last token was handled,
    whichever is longer. `attempts` counts sends (2 after a stale connection).
    """

    arrival: int | None
    segment: int = 0
    request_id: str
    worker: int | None = None
    name: str = "chat"
    tenant: str | None = None
    session: str | None = None
    turn: int | None = None
    attempts: int = 0
    scheduled_at_s: float | None = None
    sent_at_s: float | None = None
    connection: str | None = None
    connect_s: float | None = None
    tls_s: float | None = None
    first_byte_at_s: float | None = None
    first_token_at_s: float | None = None
    first_answer_at_s: float | None = None
    last_token_at_s: float | None = None
    ended_at_s: float | None = None
    outcome: Outcome
    failure_class: str | None = None
    status: int | None = None
    error: str | None = None
    retry_after_s: float | None = None
    finish_reason: str | None = None
    asked_input_tokens: int | None = None
    asked_output_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    tokens_from: str | None = None
    output_events: int | None = None
    output_receives: int | None = None
    crowded_receives: int | None = None
    gap_offset: int | None = None
    gap_count: int | None = None
    gap_p50_s: float | None = None
    gap_p99_s: float | None = None
    gap_max_s: float | None = None
    gap_zeros: int | None = None
    in_flight_at_send: int | None = None
    stamp: str | None = None
    read_lag_s: float | None = None

    @property
    def send_lag_s(self) -> float | None:
        """Sent minus scheduled, less the time that opening a connection took: our own fault."""
        lag_s = _difference(self.sent_at_s, self.scheduled_at_s)
        connect_s = self.connect_s if self.attempts <= 1 else None  # a resend's connection came after sending
        return lag_s if lag_s is None or connect_s is None else lag_s - connect_s

    @property
    def ttft_s(self) -> float | None:
        """From just before the first byte of the request is sent to the first event with generated output."""
        return _difference(self.first_token_at_s, self.sent_at_s)

    @property
    def ttft_from_schedule_s(self) -> float | None:
        """Time to first token from the scheduled moment: send lag and connect time are in it."""
        return _difference(self.first_token_at_s, self.scheduled_at_s)

    @property
    def e2e_s(self) -> float | None:
        """From sending to the last output event."""
        return _difference(self.last_token_at_s, self.sent_at_s)

    @property
    def tpot_s(self) -> float | None:
        """(last token - first token) / (output tokens - 1); None below two tokens or when unknown."""
        span = _difference(self.last_token_at_s, self.first_token_at_s)
        if span is None or self.output_tokens is None or self.output_tokens < 2:
            return None
        return span / (self.output_tokens - 1)


def _difference(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else later - earlier


COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(RequestRecord))
_values = attrgetter(*COLUMNS)


def _kind_of(annotation: str) -> type:
    plain = annotation.removesuffix(" | None")
    return {"int": int, "float": float}.get(plain, str)


COLUMN_KINDS: dict[str, type] = {field.name: _kind_of(str(field.type)) for field in fields(RequestRecord)}
"""Each column's Python type: int, float (seconds, written with microseconds) or str."""


def to_row(record: RequestRecord) -> list[str]:
    """The record as CSV cells in the order of COLUMNS; unknown is the empty cell."""
    return [
        "" if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)
        for value in _values(record)
    ]


def from_row(row: Mapping[str, str]) -> RequestRecord:
    """A record from CSV cells by column name; columns that are absent or empty are unknown.

    Raises ValueError for a cell that is not of its column's kind or an outcome that is not in OUTCOMES.
    """
    values = {name: COLUMN_KINDS[name](row[name]) for name in COLUMNS if row.get(name)}
    if values.get("outcome") not in OUTCOMES:
        raise ValueError(f"outcome {values.get('outcome')!r} is not one of {', '.join(OUTCOMES)}")
    values.setdefault("arrival", None)
    return RequestRecord(**values)
